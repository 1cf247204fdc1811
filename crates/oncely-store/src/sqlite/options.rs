//! How a SQLite ledger is opened, and the address that says so.

use std::path::PathBuf;

use oncely_core::{StoreError, StoreErrorKind};

const MIB: u64 = 1024 * 1024;

/// Where a SQLite ledger lies and how it behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The file. Missing directories are made, private to the user.
    pub path: PathBuf,
    /// With less free space than this, new attempts are refused so that ends of running ones still fit.
    pub min_free_bytes: u64,
    /// How many pages the write-ahead log may hold before they are copied into the file, in the background.
    pub checkpoint_pages: u32,
    /// How many bytes of succeeded records are kept in memory for replays.
    pub cache_bytes: u64,
    /// How many writes may wait; more are refused.
    pub queue_max: usize,
    /// Who writes.
    pub written_by: WrittenBy,
}

/// Who writes to a SQLite ledger on behalf of those who call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WrittenBy {
    /// A thread of its own, so that many callers share one sync.
    #[default]
    Thread,
    /// The thread that calls, for a write or two and while nobody else writes; then a thread of its own. For a process
    /// that makes one call and ends: to start a thread takes it longer than to write. The thread that calls is held up for
    /// as long as the disk takes, and has to ask for counters to be written ([`oncely_core::Store::flush`]).
    Caller,
}

impl SqliteOptions {
    /// The defaults for a file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            min_free_bytes: 32 * MIB,
            checkpoint_pages: 4_000,
            cache_bytes: 64 * MIB,
            queue_max: 16_384,
            written_by: WrittenBy::Thread,
        }
    }

    /// Reads `PATH[?min_free=32MiB&checkpoint_pages=4000&cache=64MiB&queue=16384]`.
    pub fn parse(address: &str) -> Result<Self, StoreError> {
        let (path, settings) = address.split_once('?').unwrap_or((address, ""));
        if path.is_empty() {
            return Err(bad("the address names no file; write sqlite:PATH".to_owned()));
        }
        let mut options = Self::new(path);
        for setting in settings.split('&').filter(|s| !s.is_empty()) {
            options.set(setting)?;
        }
        Ok(options)
    }

    fn set(&mut self, setting: &str) -> Result<(), StoreError> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        match name {
            "min_free" => self.min_free_bytes = bytes(name, value)?,
            "cache" => self.cache_bytes = bytes(name, value)?,
            "checkpoint_pages" => self.checkpoint_pages = count(name, value)?,
            "queue" => self.queue_max = count::<usize>(name, value)?.max(1),
            _ => {
                return Err(bad(format!(
                    "{name:?} is not a setting of a SQLite ledger; allowed: min_free, cache, checkpoint_pages, queue"
                )));
            }
        }
        Ok(())
    }
}

fn bad(message: String) -> StoreError {
    StoreError::before(StoreErrorKind::BadAddress, message)
}

fn count<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, StoreError> {
    value.parse().map_err(|_| bad(format!("{name}={value:?} is not a number")))
}

fn bytes(name: &str, value: &str) -> Result<u64, StoreError> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &value[digits.len()..] {
        "" | "B" => 1,
        "KiB" => 1024,
        "MiB" => MIB,
        "GiB" => 1024 * MIB,
        _ => return Err(bad(format!("{name}={value:?} has no known unit; allowed: B, KiB, MiB, GiB"))),
    };
    count::<u64>(name, digits)?.checked_mul(unit).ok_or_else(|| bad(format!("{name}={value:?} is too large")))
}

#[cfg(test)]
mod tests {
    use super::SqliteOptions;

    #[test]
    fn an_address_sets_what_it_names_and_nothing_else() {
        let options = SqliteOptions::parse("a/b.db?min_free=1GiB&cache=0&checkpoint_pages=200").unwrap();
        let expected = SqliteOptions {
            min_free_bytes: 1 << 30,
            cache_bytes: 0,
            checkpoint_pages: 200,
            ..SqliteOptions::new("a/b.db")
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn a_bad_setting_is_refused_with_what_is_allowed() {
        for (address, expected) in [
            ("", "names no file"),
            ("x?colour=red", "allowed: min_free"),
            ("x?min_free=32MB", "allowed: B, KiB"),
            ("x?queue=many", "not a number"),
        ] {
            let message = SqliteOptions::parse(address).unwrap_err().message;
            assert!(message.contains(expected), "{address}: {message}");
        }
    }
}
