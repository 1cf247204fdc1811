//! From the errors of SQLite and of the system to the store's own kinds, with words that say what to do.

use std::path::Path;

use oncely_core::{IntentId, StoreError, StoreErrorKind, Wrote};
use rusqlite::ErrorCode;

use crate::unreadable;
use crate::wire::Damaged;

/// What can go wrong inside the ledger, before it is known what was written.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// SQLite said so.
    Sqlite(rusqlite::Error),
    /// The system said so.
    System(rustix::io::Errno),
    /// Stored bytes do not follow their format.
    Damaged(Damaged),
    /// Those of this very record do not.
    Unreadable(IntentId, &'static str),
    /// A ready-made error.
    Store(StoreError),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<rustix::io::Errno> for Trouble {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error)
    }
}

impl From<Damaged> for Trouble {
    fn from(error: Damaged) -> Self {
        Self::Damaged(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Trouble {
    /// The store's error for trouble with the ledger at this path.
    pub(crate) fn at(self, path: &Path, wrote: Wrote) -> StoreError {
        let (kind, what) = match self {
            Self::Store(error) => return StoreError { wrote, ..error },
            Self::Unreadable(intent, why) => {
                let error = unreadable::refusal(&intent, why, &path.display().to_string());
                return StoreError { wrote, ..error };
            }
            Self::Damaged(Damaged(what)) => (StoreErrorKind::Corrupt, what.to_owned()),
            Self::System(rustix::io::Errno::TIMEDOUT) => (
                StoreErrorKind::Unavailable,
                "another process has held it for too long; it may have been stopped in the middle of a write"
                    .to_owned(),
            ),
            Self::System(errno) => (kind_of_errno(errno), errno.to_string()),
            Self::Sqlite(error) => (kind_of_sqlite(&error), error.to_string()),
        };
        let path = path.display();
        let written = match wrote {
            Wrote::No => "nothing was written",
            Wrote::Maybe => "it is not known whether the write took place",
        };
        let message = match kind {
            StoreErrorKind::Full => {
                format!("the disk of the ledger {path} is full ({what}); {written}; free some space")
            }
            StoreErrorKind::ReadOnly => {
                format!(
                    "the ledger {path} cannot be written to ({what}); {written}; check its permissions and mount"
                )
            }
            StoreErrorKind::Corrupt => {
                format!(
                    "the ledger {path} is damaged ({what}); {written}; restore it from a copy, do not delete it"
                )
            }
            StoreErrorKind::Foreign => {
                format!("{path} is not a ledger ({what}); {written}; name another file")
            }
            _ => format!("the ledger {path} cannot be used ({what}); {written}; try again"),
        };
        StoreError { kind, message, wrote }
    }
}

pub(crate) fn kind_of_errno(errno: rustix::io::Errno) -> StoreErrorKind {
    use rustix::io::Errno;
    match errno {
        Errno::NOSPC | Errno::DQUOT => StoreErrorKind::Full,
        Errno::ROFS | Errno::ACCESS | Errno::PERM => StoreErrorKind::ReadOnly,
        _ => StoreErrorKind::Unavailable,
    }
}

fn kind_of_sqlite(error: &rusqlite::Error) -> StoreErrorKind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreErrorKind::Full,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreErrorKind::ReadOnly,
        Some(ErrorCode::DatabaseCorrupt) => StoreErrorKind::Corrupt,
        Some(ErrorCode::NotADatabase) => StoreErrorKind::Foreign,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreErrorKind::Overloaded,
        Some(_) => StoreErrorKind::Unavailable,
        // A value of a type or shape that our own schema never writes.
        None => StoreErrorKind::Corrupt,
    }
}
