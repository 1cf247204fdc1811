//! What happens when COMMIT fails.
//!
//! It is not known then whether the batch took place: what was written to the log may lie on disk and come back when the
//! log is next read from its start, although nobody sees it now. So every caller is told *maybe*. Then, still in its turn,
//! the writer opens another connection (before it closes the old one, so that the log is not re-read and the doubtful tail
//! not taken up) and commits a small write of its own, the barrier. That lands where the doubtful tail began, and breaks
//! the chain of checksums that the tail would need to be believed. Until the barrier is on disk the ledger answers
//! *unavailable*, and each new batch tries again.

use std::path::Path;
use std::sync::atomic::Ordering;

use oncely_core::{StoreError, StoreErrorKind, Wrote};
use rusqlite::Connection;

use super::Shared;
use super::connect::{Use, open_again};
use super::errors::Trouble;

/// Ends a transaction that is not to be.
pub(super) fn roll_back(connection: &Connection) {
    if !connection.is_autocommit() {
        // It fails where SQLite has rolled back by itself.
        let _ = connection.execute_batch("ROLLBACK");
    }
}

/// Opens a fresh connection and commits the barrier through it. To be called in a turn.
pub(super) fn with_barrier(path: &Path) -> Result<Connection, StoreError> {
    let connection = open_again(path, Use::Writing)?;
    pass_barrier(&connection).map_err(|error| {
        let StoreError { kind, message, .. } = Trouble::from(error).at(path, Wrote::No);
        let message = format!("after a commit that failed, the ledger could not be made sure of: {message}");
        let kind = if kind == StoreErrorKind::Full { kind } else { StoreErrorKind::Unavailable };
        StoreError::before(kind, message)
    })?;
    Ok(connection)
}

/// After a commit of somebody else in this process that failed, in their turn: commits the barrier, or leaves it to the
/// writer.
pub(super) fn break_tail(shared: &Shared) {
    if with_barrier(shared.files.path()).is_err() {
        shared.is_doubtful.store(true, Ordering::Release);
    }
}

/// Commits the barrier.
pub(super) fn pass_barrier(connection: &Connection) -> rusqlite::Result<()> {
    let passed = connection.execute("UPDATE barrier SET count = count + 1", []);
    roll_back(connection);
    passed.map(|_| ())
}
