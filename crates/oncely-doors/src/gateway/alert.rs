//! Staying awake for a moment where a few clients ask one thing after another: to be woken takes longer than all the rest
//! of a request, above all on machines that put idle processors to rest.
//!
//! After a request or an answer has come, the thread of a lane looks for a little while whether the next one is there, and
//! lets others run meanwhile, before it sleeps. It does so only while that has lately been worth it, and only where few
//! are connected: among many there is always one who has something to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use super::counters::Counters;

/// Most connections that are not at rest where it is done.
pub(super) const FEW: u64 = 2;
/// How long it looks, in microseconds.
const LOOK_US: u64 = 100;
/// What follows so soon would have been worth a look.
const SOON_US: u64 = 300;
/// How often in a row it looks in vain before it looks no more.
const KEEN: u32 = 16;

/// What has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    Request,
    Answer,
}

/// Whether the thread of a lane stays awake. Used by that thread alone.
pub(super) struct Alert {
    counters: Arc<Counters>,
    began: Instant,
    /// When something last came, in microseconds since it began.
    last_us: AtomicU64,
    /// Whether that was an answer.
    last_was_answer: AtomicBool,
    /// How often in a row it has looked in vain after a request, and after an answer: what comes next pays for a look, and
    /// a service that answers at once says nothing about when its client asks again.
    vain: [AtomicU32; 2],
    looking: AtomicBool,
    called: Notify,
}

impl Alert {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            began: Instant::now(),
            last_us: AtomicU64::new(0),
            last_was_answer: AtomicBool::new(false),
            vain: [AtomicU32::new(0), AtomicU32::new(0)],
            looking: AtomicBool::new(false),
            called: Notify::new(),
        }
    }

    /// A request or an answer has come: more may follow at once.
    pub(super) fn came(&self, what: Came) {
        if self.counters.awake() <= FEW && self.is_keen_at(self.now_us(), what) {
            self.called.notify_one();
        }
    }

    /// Notes that something came; answers whether to begin to look.
    fn is_keen_at(&self, now_us: u64, what: Came) -> bool {
        let before = self.last_us.swap(now_us, Ordering::Relaxed);
        if now_us.saturating_sub(before) < SOON_US {
            self.vain().store(0, Ordering::Relaxed);
        }
        self.last_was_answer.store(what == Came::Answer, Ordering::Relaxed);
        self.vain().load(Ordering::Relaxed) < KEEN && !self.looking.load(Ordering::Relaxed)
    }

    /// How often it has looked in vain after what came last.
    fn vain(&self) -> &AtomicU32 {
        &self.vain[usize::from(self.last_was_answer.load(Ordering::Relaxed))]
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Whether nothing has come for as long as it looks; noted, if it is so.
    fn looked_in_vain_at(&self, now_us: u64) -> bool {
        let waited = now_us.saturating_sub(self.last_us.load(Ordering::Relaxed));
        // What it does not look for any more, it does not look for a little, either.
        let vain = self.vain().load(Ordering::Relaxed);
        if waited < LOOK_US && vain < KEEN {
            return false;
        }
        self.vain().store(vain.saturating_add(1), Ordering::Relaxed);
        true
    }

    /// Keeps the thread awake whenever it should be, for as long as the lane lives.
    pub(super) async fn look(self: Arc<Self>) {
        loop {
            self.called.notified().await;
            self.looking.store(true, Ordering::Relaxed);
            while self.counters.awake() <= FEW {
                if self.looked_in_vain_at(self.now_us()) {
                    break;
                }
                // Others first, in this process or not; then whatever has come.
                std::thread::yield_now();
                tokio::task::yield_now().await;
            }
            self.looking.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Alert, Came, KEEN, LOOK_US, SOON_US};
    use crate::gateway::counters::Counters;

    fn alert() -> Alert {
        Alert::new(Arc::new(Counters::default()))
    }

    #[test]
    fn it_looks_no_more_after_answers_where_no_request_follows_however_fast_they_are() {
        let (alert, mut now) = (alert(), 1_000_000);
        for number in 0..=2 * KEEN {
            assert!(alert.is_keen_at(now, Came::Request), "an answer follows every request");
            now += LOOK_US / 2;
            assert!(!alert.looked_in_vain_at(now), "it still looks");
            assert_eq!(alert.is_keen_at(now, Came::Answer), number < KEEN, "{number}");
            now += LOOK_US;
            assert!(alert.looked_in_vain_at(now), "nothing has come");
            now += 1_000_000;
        }
        // A request that follows an answer soon would have been worth a look.
        assert!(!alert.is_keen_at(now, Came::Answer));
        assert!(alert.is_keen_at(now + SOON_US - 1, Came::Request));
        assert!(alert.is_keen_at(now + SOON_US, Came::Answer));
    }

    #[tokio::test]
    async fn a_look_comes_to_an_end_by_itself() {
        let alert = Arc::new(alert());
        let looking = tokio::spawn(alert.clone().look());
        alert.came(Came::Request);
        while !alert.vain.iter().any(|vain| vain.load(std::sync::atomic::Ordering::Relaxed) > 0) {
            tokio::task::yield_now().await;
        }
        // The next turn of the task ends the look.
        while alert.looking.load(std::sync::atomic::Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        looking.abort();
    }
}
