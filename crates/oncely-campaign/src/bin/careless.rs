//! Runs a command once per key in the ways that do not work, with the command line of oncely: what the harness must
//! catch. `--store record-after:DIR` keeps the result after the effect; `--store rerun:DIR` claims first, and runs
//! again when the process that claimed is dead.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use oncely_campaign::Checked;

fn main() -> Checked<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [subcommand, _store, store, rest @ ..] = arguments.as_slice() else {
        return Err("no arguments".into());
    };
    let (way, directory) = store.split_once(':').ok_or("the store is WAY:DIR")?;
    let directory = Path::new(directory);
    match (subcommand.as_str(), rest) {
        ("ls", _) => list(directory),
        ("run", [_key, key, _dashes, command @ ..]) => match way {
            "record-after" => run_then_record(&directory.join(key), command),
            "rerun" => claim_then_run(&directory.join(key), command),
            _ => Err("the way is record-after or rerun".into()),
        },
        _ => Err("usage: careless run|ls".into()),
    }
}

/// The textbook pattern as it is usually seen: look up, run, insert.
fn run_then_record(file: &Path, command: &[String]) -> Checked<ExitCode> {
    match fs::read(done(file)) {
        Ok(result) => replay(&result),
        Err(_) => run_and_record(file, command),
    }
}

/// A lock whose owner is dead is taken over.
fn claim_then_run(file: &Path, command: &[String]) -> Checked<ExitCode> {
    let lock = file.with_extension("lock");
    loop {
        if let Ok(result) = fs::read(done(file)) {
            return replay(&result);
        }
        // Written first and then given its name, so that a lock always says whose it is.
        let own = file.with_extension(format!("own-{}", std::process::id()));
        fs::write(&own, std::process::id().to_string())?;
        if fs::hard_link(&own, &lock).is_ok() {
            return run_and_record(file, command);
        }
        let owner = fs::read_to_string(&lock).unwrap_or_default();
        if !owner.is_empty() && !is_alive(&owner) {
            // Of two that find the owner dead, one takes the lock away.
            let taken = file.with_extension(format!("dead-{owner}-{}", std::process::id()));
            if fs::rename(&lock, &taken).is_ok() {
                continue;
            }
        }
        sleep(Duration::from_millis(1));
    }
}

fn run_and_record(file: &Path, command: &[String]) -> Checked<ExitCode> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let Output { status, stdout, .. } =
        Command::new(program).args(arguments).stderr(Stdio::null()).output()?;
    let code = u8::try_from(status.code().unwrap_or(255)).unwrap_or(255);
    if code != 0 {
        fs::remove_file(file.with_extension("lock")).ok();
        return Ok(ExitCode::from(code));
    }
    let new = file.with_extension(format!("new-{}", std::process::id()));
    fs::write(&new, &stdout)?;
    fs::rename(&new, done(file))?;
    std::io::stdout().write_all(&stdout)?;
    Ok(ExitCode::SUCCESS)
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn replay(result: &[u8]) -> Checked<ExitCode> {
    std::io::stdout().write_all(result)?;
    eprintln!("oncely: replayed");
    Ok(ExitCode::SUCCESS)
}

fn done(file: &Path) -> PathBuf {
    file.with_extension("done")
}

fn list(directory: &Path) -> Checked<ExitCode> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "done") {
            let key = path.file_stem().unwrap_or_default().to_string_lossy();
            println!("{}", serde_json::json!({ "key": key, "state": "succeeded" }));
        }
    }
    Ok(ExitCode::SUCCESS)
}
