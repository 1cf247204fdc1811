//! `oncely mcp install`: puts the servers of a client's configuration behind oncely, or takes them out again.

mod clients;
mod edit;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use self::clients::Client;
use self::edit::{Change, Direction, Edited, Place};
use crate::args::Global;
use crate::exit::{Failure, PRECONDITION, USAGE};
use crate::output;

/// Largest configuration file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Put the servers of a client's configuration behind oncely, or take them out again.
///
/// Shows what would change and asks first; keeps a copy of the file as it was. Comments, order and unknown fields stay.
/// Servers at an address are not changed.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Whose configuration
    #[arg(long, value_enum)]
    client: Client,
    /// Only this server; may be repeated [default: all that are started by a command]
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// The configuration file, if it is not where the client looks first
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Take oncely out again
    #[arg(long)]
    undo: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report<'a> {
    ok: bool,
    file: String,
    changed: Vec<&'a str>,
    /// Servers that were left as they are, and why.
    left: Vec<(&'a str, &'a str)>,
    backup: Option<String>,
}

/// Runs the command.
pub fn run(global: &Global, args: &InstallArgs) -> Result<ExitCode, Failure> {
    let path = match &args.file {
        Some(path) => path.clone(),
        None => args.client.file()?,
    };
    let shown = path.display().to_string();
    // Where the name is a link, what it leads to is the file.
    let path = path.canonicalize().map_err(|e| missing(&shown, &e))?;
    let text = read(&path)?;
    let direction = if args.undo { Direction::Out } else { Direction::In };
    let program = program()?;
    let project = args.client.project();
    let place =
        Place { field: args.client.field(), program: &program, path: &path, project: project.as_deref() };
    let edited = edit::edit(&text, place, &args.server, direction).map_err(|why| {
        Failure::new(PRECONDITION, "CANNOT_EDIT", format!("{shown}: {why}; nothing was changed"))
    })?;
    let restored = if args.undo { as_it_was(place, &text, args) } else { None };
    // Whoever is asked has to see what about.
    if !global.json || !args.yes && output::can_ask() {
        show(&shown, &edited);
    }
    if edited.changes.is_empty() {
        return Ok(report(global, &shown, &edited, None));
    }
    if fs::metadata(&path).is_ok_and(|meta| meta.permissions().readonly()) {
        let why = format!(
            "{shown} is read-only; nothing was changed. Make it writable, or name another with --file"
        );
        return Err(Failure::new(PRECONDITION, "CANNOT_WRITE", why));
    }
    confirm(args)?;
    if read(&path)? != text {
        let why = format!("{shown} has changed in the meantime; nothing was changed. Try again");
        return Err(Failure::new(PRECONDITION, "FILE_CHANGED", why));
    }
    let backup = keep(&path, &text, direction)?;
    write(&path, &restored.unwrap_or_else(|| edited.text.clone()))?;
    Ok(report(global, &shown, &edited, Some((backup, direction))))
}

fn show(shown: &str, edited: &Edited) {
    output::say(shown);
    for Change { server, before, after } in &edited.changes {
        output::say(&format!("  {}", output::clean(server)));
        for (sign, text) in [("-", before), ("+", after)] {
            for line in text.lines() {
                output::say(&format!("  {sign} {}", output::clean(line)));
            }
        }
    }
    for (server, why) in &edited.left {
        output::say(&format!("  {}: left as it is, {why}", output::clean(server)));
    }
}

fn confirm(args: &InstallArgs) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    if !output::can_ask() {
        let why = "nobody can be asked here; nothing was changed. Confirm it with --yes";
        return Err(Failure::new(USAGE, "CONFIRMATION_NEEDED", why));
    }
    if output::ask("Change it?") {
        return Ok(());
    }
    Err(Failure::new(PRECONDITION, "NOT_CONFIRMED", "not confirmed; nothing was changed"))
}

fn report(global: &Global, shown: &str, edited: &Edited, backup: Option<(PathBuf, Direction)>) -> ExitCode {
    let (backup, direction) = backup.map(|(path, way)| (path.display().to_string(), way)).unzip();
    if global.json {
        output::print_json(&Report {
            ok: true,
            file: shown.to_owned(),
            changed: edited.changes.iter().map(|change| change.server.as_str()).collect(),
            left: edited.left.iter().map(|(server, why)| (server.as_str(), *why)).collect(),
            backup,
        });
        return ExitCode::SUCCESS;
    }
    let Some(backup) = backup else {
        output::say("nothing to change");
        return ExitCode::SUCCESS;
    };
    let undo = if direction == Some(Direction::In) { "; take them out again with --undo" } else { "" };
    output::say(&format!("{} changed; as it was: {backup}{undo}. Restart the client", edited.changes.len()));
    ExitCode::SUCCESS
}

/// The copy from before, if taking out is all that would have to be done to get it back: then to the byte.
fn as_it_was(place: Place<'_>, text: &str, args: &InstallArgs) -> Option<String> {
    let before = backups(place.path, Direction::In).filter(|backup| backup.exists()).last()?;
    let before = read(&before).ok()?;
    let again = edit::edit(&before, place, &args.server, Direction::In).ok()?;
    (again.text == text).then_some(before)
}

/// Names for copies from before a change, in order.
fn backups(path: &Path, direction: Direction) -> impl Iterator<Item = PathBuf> + '_ {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let change = if direction == Direction::In { "oncely" } else { "undo" };
    (1..100).map(move |number| {
        let end = if number == 1 { String::new() } else { format!(".{number}") };
        path.with_file_name(format!("{name}.before-{change}{end}"))
    })
}

fn keep(path: &Path, text: &str, direction: Direction) -> Result<PathBuf, Failure> {
    let free = backups(path, direction).find(|backup| !backup.exists());
    let too_many = || {
        let why = "there are 99 copies beside the file already; nothing was changed. Move them away";
        Failure::new(PRECONDITION, "TOO_MANY_COPIES", why)
    };
    let backup = free.ok_or_else(too_many)?;
    write_as(path, &backup, text)?;
    Ok(backup)
}

fn read(path: &Path) -> Result<String, Failure> {
    let shown = path.display().to_string();
    let size = fs::metadata(path).map_err(|e| missing(&shown, &e))?.len();
    if size > FILE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{shown} has more than {FILE_BYTES_MAX} bytes; nothing was changed"
        )));
    }
    fs::read_to_string(path).map_err(|e| missing(&shown, &e))
}

fn missing(shown: &str, error: &std::io::Error) -> Failure {
    let why = format!("{shown} cannot be read: {error}; nothing was changed. Name another with --file");
    Failure::new(PRECONDITION, "NO_CONFIGURATION", why)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    write_as(path, path, text)
}

/// Writes a file as a whole or not at all, with the owner and the permissions of another.
fn write_as(like: &Path, path: &Path, text: &str) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = path.with_file_name(format!(".{name}.oncely-{}", std::process::id()));
    let failed = |error: std::io::Error| {
        let why = format!("{} cannot be written: {error}; nothing was changed", path.display());
        Failure::new(PRECONDITION, "CANNOT_WRITE", why)
    };
    let meta = fs::metadata(like).map_err(failed)?;
    // Nobody else may read it before it has the permissions of the other: it may hold secrets.
    let created = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside);
    let mut file = created.map_err(failed)?;
    // Before its permissions are wider; where that is not ours to give, it becomes ours.
    let _ = fchown(&file, Some(meta.uid()), Some(meta.gid()));
    let written = file
        .set_permissions(meta.permissions())
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&aside, path));
    written.map_err(|error| {
        // What we began is of no use to anybody.
        let _ = fs::remove_file(&aside);
        failed(error)
    })
}

/// How clients can start us: by name if that leads to this very program, else by its path.
fn program() -> Result<String, Failure> {
    let us = std::env::current_exe()
        .map_err(|e| Failure::internal(format!("our own file cannot be found: {e}")))?;
    let by_name = crate::context::variable("PATH").and_then(|path| {
        let found = std::env::split_paths(&path)
            .map(|directory| directory.join("oncely"))
            .find(|file| file.is_file())?;
        found.canonicalize().ok()
    });
    if by_name.is_some() && by_name == us.canonicalize().ok() {
        return Ok("oncely".to_owned());
    }
    us.into_os_string().into_string().map_err(|_| Failure::internal("our own path is no text"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::write_as;

    #[test]
    fn a_file_that_somebody_else_has_put_aside_is_not_removed() {
        let home = tempfile::tempdir().unwrap();
        let (path, aside) = (home.path().join("c.json"), format!(".c.json.oncely-{}", std::process::id()));
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(home.path().join(&aside), "not ours").unwrap();
        assert!(write_as(&path, &path, "after").is_err());
        let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap();
        assert_eq!((read(&aside), read("c.json")), ("not ours".to_owned(), "before".to_owned()));
        fs::remove_file(home.path().join(&aside)).unwrap();
        write_as(&path, &path, "after").unwrap();
        assert_eq!(read("c.json"), "after");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        // What we began ourselves goes if it cannot be put in its place.
        fs::create_dir(home.path().join("taken")).unwrap();
        assert!(write_as(&path, &home.path().join("taken"), "after").is_err());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }
}
