//! Who waits for the writer: how many, and whether it gets on.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use std::future::Future;
use std::time::Duration;

use oncely_core::{AttemptToken, Created, IntentId, StoreError, StoreErrorKind, StoreFuture, Wrote};

use super::Shared;
use crate::clock::boottime_ms;

/// Where so many writes wait, a claim waits with them, and its record is not looked for first: nearly all are new then, and
/// to look takes an eighth of the processor's time that a whole call takes. The writer finds a record that is there as well.
const MANY: usize = 4;
/// But only behind a writer that has committed within this time, and for no longer: one that is held up must keep nobody from
/// being told what has ended.
const LATELY_MS: u64 = 100;

/// The requests that wait. Counted here, since a bounded queue is paid for in full when it is made.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    waiting: AtomicUsize,
    /// When the writer last told that something is written.
    told_ms: AtomicU64,
}

impl Crowd {
    /// One more, unless so many wait already.
    pub(crate) fn join(&self, most: usize) -> Result<(), StoreError> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(());
        }
        self.leave();
        let message = format!("{most} writes wait already; nothing was written; try again");
        Err(StoreError::before(StoreErrorKind::Overloaded, message))
    }

    /// One less.
    pub(crate) fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// The writer has told what is written.
    pub(crate) fn told(&self) {
        self.told_ms.store(boottime_ms(), Ordering::Relaxed);
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether many wait for a writer that gets on.
    pub(crate) fn is_dense(&self) -> bool {
        self.waiting() >= MANY
            && boottime_ms().saturating_sub(self.told_ms.load(Ordering::Relaxed)) < LATELY_MS
    }
}

impl Shared {
    /// A claim whose record was not looked for. Where the writer is held up, it is looked for after all.
    pub(super) async fn claim_unseen(
        &self,
        intent: IntentId,
        token: AttemptToken,
        mut asked: StoreFuture<'_, Created>,
    ) -> Result<Created, StoreError> {
        let answered = match tokio::time::timeout(Duration::from_millis(LATELY_MS), &mut asked).await {
            Ok(answered) => answered,
            Err(_) => match self.load(&intent) {
                // The claim itself may be there by now, and not told yet.
                Ok(Some(there)) if there.record.body.token != token => return Ok(Created::Exists(there)),
                _ => asked.await,
            },
        };
        if matches!(answered, Ok(Created::Exists(_))) {
            // To be remembered for the next who asks.
            let _ = self.load(&intent);
        }
        answered
    }

    /// A ledger that takes no claims can still be read.
    pub(super) async fn read_if_refused(
        &self,
        intent: IntentId,
        asked: impl Future<Output = Result<Created, StoreError>>,
    ) -> Result<Created, StoreError> {
        match asked.await {
            Err(error) if error.wrote == Wrote::No => match self.load(&intent)? {
                Some(there) => Ok(Created::Exists(there)),
                None => Err(error),
            },
            answered => answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{Crowd, LATELY_MS, MANY};
    use crate::clock::boottime_ms;

    #[test]
    fn a_crowd_is_dense_only_behind_a_writer_that_gets_on() {
        let crowd = Crowd::default();
        // As far ahead as no test waits.
        crowd.told_ms.store(boottime_ms() + 3_600_000, Ordering::Relaxed);
        for _ in 0..MANY {
            assert!(!crowd.is_dense());
            crowd.join(MANY).unwrap();
        }
        assert!(crowd.is_dense());
        assert!(crowd.join(MANY).is_err());
        assert_eq!(crowd.waiting(), MANY, "whoever was refused does not wait");
        crowd.told_ms.store(boottime_ms() - LATELY_MS, Ordering::Relaxed);
        assert!(!crowd.is_dense());
    }
}
