//! Callers that wait for a record to change: woken at once by writes of this process, by a message from other machines,
//! and in any case after a bounded time, so that they look whether the owner still lives.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_core::{IntentId, Version};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::rows::{self, Half};

/// The waiting callers of one store.
pub(crate) struct Waiters {
    /// A waiter is woken after this time at the latest.
    wait_max: Duration,
    /// By the part of their record's id that messages name: whoever writes, looks or is told finds them without a search.
    waiting: Mutex<HashMap<Half, Vec<Waiter>>>,
    /// How many wait, readable without the lock: writes ask on every record.
    count: AtomicUsize,
    /// Rung when somebody begins to wait.
    pub(crate) came: Notify,
    /// Whether messages from other machines arrive.
    hears: AtomicBool,
    /// How many were looked at, in all: what a write costs must not grow with how many wait.
    #[cfg(test)]
    looks: AtomicUsize,
}

struct Waiter {
    intent: IntentId,
    seen: Version,
    deadline: Instant,
    wake: oneshot::Sender<()>,
}

impl Waiters {
    pub(crate) fn new(wait_max: Duration) -> Self {
        Self {
            wait_max,
            waiting: Mutex::default(),
            count: AtomicUsize::new(0),
            came: Notify::new(),
            hears: AtomicBool::new(false),
            #[cfg(test)]
            looks: AtomicUsize::new(0),
        }
    }

    /// Waits for a change. The record is looked at after this, so that no change falls between.
    pub(crate) fn register(&self, intent: IntentId, seen: Version) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        let waiter = Waiter { intent, seen, deadline: Instant::now() + self.wait_max, wake };
        self.lock().entry(rows::head(&intent)).or_default().push(waiter);
        self.count.fetch_add(1, Ordering::SeqCst);
        self.came.notify_one();
        woken
    }

    /// Wakes those who wait for this record and have not seen this version.
    pub(crate) fn changed(&self, intent: &IntentId, version: Option<Version>) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.wake_of(rows::head(intent), |waiter| {
                waiter.intent == *intent && Some(waiter.seen) != version
            });
        }
    }

    /// Wakes those who wait for records whose ids begin so.
    pub(crate) fn heard_of(&self, heads: &[Half]) {
        for head in heads {
            self.wake_of(*head, |_| true);
        }
    }

    /// Wakes those who have not seen these versions: all that are there of the records that are waited for.
    pub(crate) fn looked(&self, asked: &[IntentId], versions: &HashMap<IntentId, Version>) {
        for intent in asked {
            let version = versions.get(intent);
            self.wake_of(rows::head(intent), |waiter| {
                waiter.intent == *intent && Some(&waiter.seen) != version
            });
        }
    }

    /// Wakes those who have waited long enough, or do not wait any more.
    pub(crate) fn wake_overdue(&self) {
        let now = Instant::now();
        self.wake(|waiter| waiter.deadline <= now || waiter.wake.is_closed());
    }

    /// Wakes everybody.
    pub(crate) fn wake_all(&self) {
        self.wake(|_| true);
    }

    /// What is waited for.
    pub(crate) fn intents(&self) -> Vec<IntentId> {
        let mut intents = Vec::new();
        for waiters in self.lock().values() {
            let first = intents.len();
            for waiter in waiters {
                if !intents[first..].contains(&waiter.intent) {
                    intents.push(waiter.intent);
                }
            }
        }
        intents
    }

    pub(crate) fn hears(&self) -> bool {
        self.hears.load(Ordering::Acquire)
    }

    /// Says whether messages arrive. Whoever waits looks again: some may have been missed.
    pub(crate) fn set_hears(&self, hears: bool) {
        if self.hears.swap(hears, Ordering::AcqRel) != hears {
            self.wake_all();
        }
    }

    /// Wakes some of all.
    fn wake(&self, whom: impl Fn(&Waiter) -> bool) {
        let mut woken = Vec::new();
        self.lock().retain(|_, waiters| {
            self.take(waiters, &whom, &mut woken);
            !waiters.is_empty()
        });
        self.send(woken);
    }

    /// Wakes some of those whose record's id begins so; nobody else is looked at.
    fn wake_of(&self, head: Half, whom: impl Fn(&Waiter) -> bool) {
        let mut woken = Vec::new();
        if let Entry::Occupied(mut waiters) = self.lock().entry(head) {
            self.take(waiters.get_mut(), &whom, &mut woken);
            if waiters.get().is_empty() {
                waiters.remove();
            }
        }
        self.send(woken);
    }

    fn take(&self, waiters: &mut Vec<Waiter>, whom: impl Fn(&Waiter) -> bool, woken: &mut Vec<Waiter>) {
        #[cfg(test)]
        self.looks.fetch_add(waiters.len(), Ordering::SeqCst);
        woken.extend(waiters.extract_if(.., |waiter| whom(waiter)));
    }

    fn send(&self, woken: Vec<Waiter>) {
        self.count.fetch_sub(woken.len(), Ordering::SeqCst);
        for waiter in woken {
            // Nobody listens any more: the call was dropped.
            let _ = waiter.wake.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Half, Vec<Waiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use oncely_core::{IntentId, Version};
    use tokio::sync::oneshot::Receiver;

    use super::{Waiters, rows};

    fn intent(number: u16) -> IntentId {
        let mut id = [0; 32];
        id[..2].copy_from_slice(&number.to_be_bytes());
        IntentId(id)
    }

    fn is_woken(waiter: &mut Receiver<()>) -> bool {
        waiter.try_recv().is_ok()
    }

    #[test]
    fn a_change_finds_its_own_waiters_and_looks_at_nobody_else() {
        let waiters = Waiters::new(Duration::from_secs(3_600));
        let mut of_others: Vec<_> =
            (10..5_010).map(|number| waiters.register(intent(number), Version(1))).collect();
        let (one, two, three) = (intent(1), intent(2), intent(3));
        let mut mine: Vec<_> =
            [one, one, two, three].map(|of| waiters.register(of, Version(1))).into_iter().collect();
        let looks = || waiters.looks.swap(0, Ordering::SeqCst);
        looks();

        waiters.changed(&one, Some(Version(1)));
        assert_eq!((looks(), is_woken(&mut mine[0])), (2, false), "it has been seen");
        waiters.changed(&one, Some(Version(2)));
        assert_eq!((looks(), is_woken(&mut mine[0]), is_woken(&mut mine[1])), (2, true, true));
        waiters.changed(&one, None);
        assert_eq!(looks(), 0, "nobody waits for it any more");
        waiters.heard_of(&[rows::head(&two), rows::head(&one)]);
        assert_eq!((looks(), is_woken(&mut mine[2])), (1, true));
        waiters.looked(&[three, two], &HashMap::from([(three, Version(1))]));
        assert_eq!((looks(), is_woken(&mut mine[3])), (1, false));
        waiters.looked(&[three, two], &HashMap::new());
        assert_eq!((looks(), is_woken(&mut mine[3])), (1, true), "a record that is gone has changed");

        assert!(!of_others.iter_mut().any(is_woken));
        assert_eq!(waiters.intents().len(), 5_000);
        waiters.wake_all();
        assert!(of_others.iter_mut().all(is_woken));
        assert_eq!((waiters.intents().len(), waiters.count.load(Ordering::SeqCst)), (0, 0));
    }

    #[test]
    fn two_records_whose_ids_begin_alike_are_told_apart() {
        let waiters = Waiters::new(Duration::from_secs(3_600));
        let (one, mut other) = (intent(1), intent(1));
        other.0[31] = 1;
        let (mut first, mut second) =
            (waiters.register(one, Version(1)), waiters.register(other, Version(1)));
        assert_eq!(waiters.intents(), [one, other]);
        waiters.changed(&other, Some(Version(2)));
        assert_eq!((is_woken(&mut first), is_woken(&mut second)), (false, true));
    }
}
