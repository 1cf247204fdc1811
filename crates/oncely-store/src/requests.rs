//! What ledgers of all kinds do with a request before it goes anywhere.

use oncely_core::{Event, StoreError, StoreErrorKind, StoreFuture};

/// The process that opened a ledger. A forked child has a copy of its memory, and none of its threads and locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opener(u32);

impl Opener {
    /// This process.
    pub(crate) fn this() -> Self {
        Self(rustix::process::getpid().as_raw_nonzero().get().unsigned_abs())
    }

    /// Refuses any other.
    pub(crate) fn check(self) -> Result<(), StoreError> {
        if self == Self::this() {
            return Ok(());
        }
        let message = "this process was forked from the one that opened the ledger; nothing was written; open it again here";
        Err(StoreError::before(StoreErrorKind::Unavailable, message))
    }
}

/// Refuses a write with more events than this.
pub(crate) fn check_events(events: &[Event], most: usize) -> Result<(), StoreError> {
    let count = events.len();
    if count <= most {
        return Ok(());
    }
    let message = format!("{count} events in one write; at most {most} are allowed; nothing was written");
    Err(StoreError::before(StoreErrorKind::Overloaded, message))
}

/// An answer that is there already.
pub(crate) fn ready<'a, T: Send + 'a>(answer: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(answer))
}
