//! Who waits for the writer: how many, and whether it gets on.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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

/// Whether a claim that waits is wanted. Its asker may learn what it wants to know in another way, and the record that told
/// it so may be gone when the writer comes to the claim: then it would be nobody's. So either the asker withdraws it or the
/// writer writes it, whoever is first, and an asker that was too late waits for the writer's answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// Whether what becomes of the claim is decided here, and not by the other one before. To be asked once by each.
    pub(crate) fn is_decided_here(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// The writer's answer to a claim that was withdrawn. Nobody hears it.
pub(crate) fn withdrawn() -> StoreError {
    StoreError::before(StoreErrorKind::Unavailable, "the claim was withdrawn; nothing was written")
}

impl Shared {
    /// A claim whose record was not looked for. Where the writer is held up, it is looked for after all.
    pub(super) async fn claim_unseen(
        &self,
        intent: IntentId,
        token: AttemptToken,
        wanted: Wanted,
        mut asked: StoreFuture<'_, Created>,
    ) -> Result<Created, StoreError> {
        let answered = match tokio::time::timeout(Duration::from_millis(LATELY_MS), &mut asked).await {
            Ok(answered) => answered,
            Err(_) => match self.load(&intent) {
                // The claim itself may be there by now, and not told yet.
                Ok(Some(there)) if there.record.body.token != token && wanted.is_decided_here() => {
                    return Ok(Created::Exists(there));
                }
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
    use std::time::Duration;

    use oncely_core::{
        AttemptToken, Body, Change, Created, Digest, Draft, Effect, Fingerprint, IntentName, Key, Namespace,
        Owner, Replaced, Retention, Scope, Settled, Stamp, State, Store, ToolName,
    };

    use super::{Crowd, LATELY_MS, MANY, Wanted};
    use crate::clock::boottime_ms;
    use crate::sqlite::turnstile::Turnstile;
    use crate::sqlite::{SqliteOptions, SqliteStore};

    const RUNNING: fn() -> State = || State::Running { owner: Owner::default(), lease_ms: 30_000 };

    /// A record of which nothing is kept once it has ended.
    fn draft(attempt: u8, state: State) -> Draft {
        let digest = Digest([1; 32]);
        let body = Body {
            name: IntentName {
                namespace: Namespace::default(),
                scope: Scope::none(),
                tool: ToolName::parse("charge").unwrap(),
                key: Key::explicit("k").unwrap(),
            },
            fingerprint: Fingerprint { canonical: digest, raw: digest },
            generation: 1,
            attempts: 1,
            tries: 1,
            rejections: 0,
            token: AttemptToken([attempt; 16]),
            retention: Retention { replay_for_ms: 0, remember_for_ms: 0 },
            state,
        };
        Draft { created: Stamp::OnWrite, sent: Stamp::OnWrite, changed: Stamp::OnWrite, body }
    }

    #[test]
    fn of_an_asker_and_the_writer_one_decides() {
        let wanted = Wanted::default();
        assert!(wanted.is_decided_here());
        assert!(!wanted.clone().is_decided_here());
    }

    #[tokio::test]
    async fn a_claim_whose_asker_was_answered_meanwhile_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(SqliteOptions::new(directory.path().join("ledger.db"))).unwrap();
        let id = draft(1, RUNNING()).body.name.intent_id();
        let claim = |attempt| store.create(id, draft(attempt, RUNNING()), Vec::new());
        let Created::New(begun) = claim(1).await.unwrap() else { panic!("there was one") };
        let ended = State::Succeeded { effect: Effect::Created, result: None, settled: Settled::Attempt };
        let change = Change::Put(Box::new(draft(1, ended)));
        let done = store.replace(id, begun.record.version, change, Vec::new());
        assert!(matches!(done.await.unwrap(), Replaced::Done(Some(_))));
        // Another writer has its turn, and what waits for it is a purge of the record and then a claim in its place.
        let (turn, lock) = store.shared.files.open_side_files().unwrap();
        let stile = Turnstile::new(turn, lock, store.shared.board.clone());
        let turn = stile.into_turn(Duration::from_secs(30)).unwrap();
        let purged = store.purge(10);
        let others: Vec<_> = (0..=MANY).map(|_| store.note(Vec::new())).collect();
        store.shared.crowd.told_ms.store(boottime_ms() + 3_600_000, Ordering::Relaxed);
        assert!(store.shared.crowd.is_dense());
        let answered = claim(2).await.unwrap();
        assert!(matches!(answered, Created::Exists(_)), "{answered:?}");
        drop(turn);
        assert_eq!(purged.await.unwrap().records_removed, 1);
        for other in others {
            other.await.unwrap();
        }
        store.flush().await.unwrap();
        assert!(store.load(id).await.unwrap().is_none(), "a claim that nobody holds was written");
        let claimed = claim(3).await.unwrap();
        assert!(matches!(claimed, Created::New(_)), "{claimed:?}");
    }

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
