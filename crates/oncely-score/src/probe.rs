//! Looks at the world outside of the measured tool: counts effects by a command, or compares a folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::Error;
use crate::exec::{self, Exit, Task};
use crate::limits::{SANDBOX_BYTES_MAX, SANDBOX_FILES_MAX};
use crate::words::excerpt;

/// Counts effects: a shell command that prints a number.
#[derive(Debug, Clone)]
pub struct Count {
    /// The shell command.
    pub command: String,
    /// Where it runs; `None` for here.
    pub directory: Option<PathBuf>,
    /// How long it may take.
    pub timeout: Duration,
    /// How long effects may take to be seen after a call has ended.
    pub settle: Duration,
}

impl Count {
    /// Counts, after effects have had their time to be seen.
    pub async fn now(&self) -> Result<i64, Error> {
        tokio::time::sleep(self.settle).await;
        let task = Task {
            words: vec!["sh".into(), "-c".into(), self.command.clone()],
            directory: self.directory.clone(),
            env: Vec::new(),
            timeout: self.timeout,
        };
        let ran = exec::run(&task).await?;
        // `grep -c` prints 0 and exits 1.
        let printed = matches!(ran.exit, Exit::Code(0 | 1)).then(|| number(&ran.stdout)).flatten();
        printed.ok_or_else(|| {
            Error::measuring(format!(
                "the count `{}` printed no number ({}): {}{}",
                self.command,
                ran.exit,
                excerpt(&ran.stdout),
                excerpt(&ran.stderr)
            ))
        })
    }

    /// Counts twice while nothing runs: a number that moves by itself measures nothing.
    pub async fn is_steady(&self) -> Result<i64, Error> {
        let (first, second) = (self.now().await?, self.now().await?);
        if first == second {
            return Ok(first);
        }
        Err(Error::measuring(format!(
            "the count `{}` moves by itself ({first}, then {second}), so it cannot show what a call changes; the tool was \
             not called",
            self.command
        )))
    }
}

/// The first whole number of the last line that has something on it, so that `wc -l FILE` will do.
fn number(output: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(output).ok()?;
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    last.split_whitespace().next()?.parse().ok()
}

/// A state of the world, to be compared with another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// A number of effects.
    Count(i64),
    /// What a folder holds.
    Folder {
        /// A digest over names and contents.
        digest: [u8; 32],
        /// How many files and folders there are.
        files: usize,
    },
}

impl std::fmt::Display for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(out, "count {count}"),
            Self::Folder { digest, files } => {
                let [a, b, c, d, ..] = digest;
                write!(out, "{files} entries, contents {a:02x}{b:02x}{c:02x}{d:02x}")
            }
        }
    }
}

/// Reads the state of a folder: the names and contents of all files in it. Times do not matter.
pub fn folder(path: &Path) -> Result<State, Error> {
    let mut files = Vec::new();
    list(path, &mut files)?;
    files.sort();
    let mut digest = Sha256::new();
    let mut total = 0;
    for file in &files {
        let name = file.strip_prefix(path).unwrap_or(file).as_os_str().as_encoded_bytes();
        let (kind, contents) = contents(file).map_err(|e| cannot_read(file, &e))?;
        total += contents.len() as u64;
        if total > SANDBOX_BYTES_MAX {
            return Err(too_big(path));
        }
        for part in [name, kind, &contents] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    Ok(State::Folder { digest: digest.finalize().into(), files: files.len() })
}

fn contents(path: &Path) -> std::io::Result<(&'static [u8], Vec<u8>)> {
    let kind = std::fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        return Ok((b"link", std::fs::read_link(path)?.into_os_string().into_encoded_bytes()));
    }
    if kind.is_dir() { Ok((b"folder", Vec::new())) } else { Ok((b"file", std::fs::read(path)?)) }
}

/// All files, links and folders below a folder; sockets and devices have no contents to compare.
fn list(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let entries = std::fs::read_dir(path).map_err(|e| cannot_read(path, &e))?;
    for entry in entries {
        let entry = entry.map_err(|e| cannot_read(path, &e))?;
        let kind = entry.file_type().map_err(|e| cannot_read(&entry.path(), &e))?;
        if kind.is_dir() {
            list(&entry.path(), files)?;
        }
        if kind.is_dir() || kind.is_file() || kind.is_symlink() {
            files.push(entry.path());
        }
        if files.len() > SANDBOX_FILES_MAX {
            return Err(too_big(path));
        }
    }
    Ok(())
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Error {
    Error::measuring(format!("{} cannot be read: {error}", path.display()))
}

fn too_big(path: &Path) -> Error {
    Error::asked(format!(
        "{} holds more than {SANDBOX_FILES_MAX} files or {SANDBOX_BYTES_MAX} bytes; name a smaller sandbox, or count with \
         --count",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::{folder, number};

    #[test]
    fn a_number_is_read_from_what_counting_commands_print() {
        for (text, expected) in [
            ("3\n", Some(3)),
            ("   12 file\n", Some(12)),
            ("warn\n-4\n\n", Some(-4)),
            ("", None),
            ("three", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_folder_changes_with_names_and_contents_and_not_with_times() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("a");
        std::fs::write(&file, "1").unwrap();
        let first = folder(place.path()).unwrap();
        std::fs::write(&file, "1").unwrap();
        assert_eq!(folder(place.path()).unwrap(), first);
        std::fs::write(&file, "2").unwrap();
        assert_ne!(folder(place.path()).unwrap(), first);
        std::fs::write(&file, "1").unwrap();
        std::fs::rename(&file, place.path().join("b")).unwrap();
        assert_ne!(folder(place.path()).unwrap(), first);
        let renamed = folder(place.path()).unwrap();
        std::fs::create_dir(place.path().join("empty")).unwrap();
        assert_ne!(folder(place.path()).unwrap(), renamed);
    }
}
