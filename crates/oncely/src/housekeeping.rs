//! Housekeeping: what is past its retention is dropped a little at a time, so that nobody has to remember to do it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use oncely_core::audit::NO_INTENT;
use oncely_core::{AttemptToken, Event, EventKind, PurgeReport, StoreError};
use tokio::time::Instant;

use crate::claim::OpenPlace;
use crate::engine::Oncely;

/// One attempt in so many tidies up after itself. Chosen by the attempt's random token, so that short-lived processes
/// share the work as well as long-lived ones.
const ONE_IN: u8 = 64;
/// Steps that such an attempt takes at most. Together they look at more records than the attempts in between have left
/// behind, but not at many more: what has piled up is dropped over time, not at the cost of those who call now.
const STEPS: u32 = 3;
/// Records that one such step looks at. Not fewer: records that fall due together lie together, so that a larger step
/// writes hardly more pages than a small one, and many small ones write the same pages again and again.
const STEP: usize = 32;
/// After a look that found nothing more to do, attempts of this process tidy up no more for so long: under load most looks
/// would find nothing, and a look is not free. What falls due meanwhile is less than the next ones in turn can drop.
const QUIET: Duration = Duration::from_secs(1);
/// Pause between steps, so that calls are not held up.
const PAUSE: Duration = Duration::from_millis(20);
/// What a purge that was asked for takes per step while calls are under way in this process.
const STEP_BESIDE_CALLS: usize = 64;
/// What it takes per step at most, where nobody else seems to be there.
const STEP_MAX: usize = 160;
/// A step that took longer than this met others on its way, or was too large.
const STEP_WITHIN: Duration = Duration::from_millis(4);
/// Pause between steps where nobody seems to be there.
const PAUSE_ALONE: Duration = Duration::from_millis(5);

/// What a purge did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Results dropped; their keys are still known.
    pub results_dropped: u64,
    /// Records removed.
    pub records_removed: u64,
    /// Audit events removed.
    pub events_removed: u64,
    /// Records that cannot be read, and were left.
    pub unreadable: u64,
}

impl Oncely {
    /// Drops everything that is due, in small steps; `progress` hears after each. Calls go on meanwhile.
    pub async fn purge(&self, mut progress: impl FnMut(&Purged)) -> Result<Purged, StoreError> {
        let _one = self.inner.purging.lock().await;
        let mut total = Purged::default();
        let mut pace = Pace { step: STEP };
        loop {
            let start = Instant::now();
            if !self.purge_step(pace.step, &mut total).await? {
                break;
            }
            progress(&total);
            let calls = self.inner.open.load(Ordering::Relaxed);
            tokio::time::sleep(pace.after(start.elapsed(), calls)).await;
        }
        progress(&total);
        Ok(total)
    }

    /// The same, asked for by a person: the audit log says by whom, before anything is dropped.
    pub async fn purge_by(&self, who: &str, progress: impl FnMut(&Purged)) -> Result<Purged, StoreError> {
        self.store().note(vec![Event::new(NO_INTENT, 0, EventKind::Purged).by(who)]).await?;
        self.purge(progress).await
    }

    async fn purge_step(&self, step: usize, total: &mut Purged) -> Result<bool, StoreError> {
        let PurgeReport { results_dropped, records_removed, events_removed, unreadable, more } =
            self.store().purge(step).await?;
        total.results_dropped += results_dropped;
        total.records_removed += records_removed;
        total.events_removed += events_removed;
        total.unreadable += unreadable;
        Ok(more)
    }

    /// Tidies up in the background if it is this attempt's turn. A drain waits for it; a failure is no one's concern,
    /// the next one in turn tries again.
    pub(crate) fn tidy_after(&self, token: AttemptToken) {
        if !token.0[0].is_multiple_of(ONE_IN) {
            return;
        }
        let Ok(place) = OpenPlace::take(&self.inner) else { return };
        let oncely = Self { inner: Arc::clone(&self.inner) };
        tokio::spawn(async move {
            let _place = place;
            // One at a time: several would hold up calls that none of them holds up alone.
            let Ok(mut tidy) = oncely.inner.purging.try_lock() else { return };
            if tidy.is_some_and(|at| at.elapsed() < QUIET) {
                return;
            }
            let mut total = Purged::default();
            for _ in 0..STEPS {
                match oncely.purge_step(STEP, &mut total).await {
                    Ok(true) => tokio::time::sleep(PAUSE).await,
                    Ok(false) => {
                        *tidy = Some(Instant::now());
                        break;
                    }
                    Err(_) => break,
                }
            }
        });
    }
}

/// How fast a purge goes: it learns from each step whether it is in somebody's way.
struct Pace {
    step: usize,
}

impl Pace {
    /// Sizes the next step by how long the last one took and how many calls are under way here; answers how long to
    /// pause. At least two thirds of the time belong to others.
    fn after(&mut self, took: Duration, calls: usize) -> Duration {
        if calls > 0 {
            self.step = STEP_BESIDE_CALLS;
            return PAUSE.max(took * 2);
        }
        // Slow to grow and quick to shrink: calls of other processes show only in how long a step takes.
        self.step = if took > STEP_WITHIN { self.step / 2 } else { self.step + 2 }.clamp(STEP, STEP_MAX);
        PAUSE_ALONE.max(took * 2)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use oncely_core::{IntentId, Store, StoreFuture, hand_on};

    use super::*;

    /// A ledger in which so many steps find something to do.
    struct Due {
        store: Arc<dyn Store>,
        steps: AtomicU64,
        asked: AtomicU64,
    }

    impl Store for Due {
        fn expects(&self, _: &IntentId) -> bool {
            false
        }

        fn purge(&self, _: usize) -> StoreFuture<'_, PurgeReport> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let left = self.steps.load(Ordering::SeqCst);
            self.steps.store(left.saturating_sub(1), Ordering::SeqCst);
            Box::pin(async move { Ok(PurgeReport { more: left > 0, ..PurgeReport::default() }) })
        }

        hand_on!(store: describe peek create load replace note watch liveness owner now steady_since scan log tally tallies
            census flush health gate turn_gate import);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_tidy_up_while_there_is_something_to_do_and_then_no_more_for_a_while() {
        let store = oncely_store::open("memory:").await.unwrap();
        let due = Arc::new(Due { store, steps: AtomicU64::new(4), asked: AtomicU64::new(0) });
        let oncely = Oncely::new(Arc::clone(&due) as Arc<dyn Store>);
        let tidy = async || {
            oncely.tidy_after(AttemptToken([0; 16]));
            oncely.drain(Duration::from_secs(60)).await;
            due.asked.swap(0, Ordering::SeqCst)
        };
        assert_eq!(tidy().await, u64::from(STEPS), "there is more");
        assert_eq!(tidy().await, 2, "until there is no more");
        assert_eq!(tidy().await, 0);
        tokio::time::advance(QUIET).await;
        assert_eq!(tidy().await, 1);
        assert_eq!(tidy().await, 0);
    }

    #[test]
    fn a_purge_makes_way_for_others_and_hurries_when_alone() {
        let mut pace = Pace { step: STEP };
        let quick = Duration::from_millis(1);
        for _ in 0..100 {
            assert_eq!(pace.after(quick, 0), PAUSE_ALONE);
        }
        assert_eq!(pace.step, STEP_MAX);
        let slow = Duration::from_millis(30);
        assert_eq!(pace.after(slow, 0), slow * 2);
        assert_eq!(pace.step, STEP_MAX / 2);
        for _ in 0..20 {
            pace.after(slow, 0);
        }
        assert_eq!(pace.step, STEP, "never less: a purge gets to its end");
        pace.step = STEP_MAX;
        assert_eq!(pace.after(quick, 1), PAUSE);
        assert_eq!(pace.step, STEP_BESIDE_CALLS);
    }
}
