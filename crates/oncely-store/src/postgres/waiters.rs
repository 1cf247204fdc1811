//! Callers that wait for a record to change: woken at once by writes of this process, by a message from other machines,
//! and in any case after a bounded time, so that they look whether the owner still lives.

use std::collections::HashMap;
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
    waiting: Mutex<HashMap<IntentId, Vec<Waiter>>>,
    /// How many wait, readable without the lock: writes ask on every record.
    count: AtomicUsize,
    /// Rung when somebody begins to wait.
    pub(crate) came: Notify,
    /// Whether messages from other machines arrive.
    hears: AtomicBool,
}

struct Waiter {
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
        }
    }

    /// Waits for a change. The record is looked at after this, so that no change falls between.
    pub(crate) fn register(&self, intent: IntentId, seen: Version) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        let waiter = Waiter { seen, deadline: Instant::now() + self.wait_max, wake };
        self.lock().entry(intent).or_default().push(waiter);
        self.count.fetch_add(1, Ordering::SeqCst);
        self.came.notify_one();
        woken
    }

    /// Wakes those who wait for this record and have not seen this version.
    pub(crate) fn changed(&self, intent: &IntentId, version: Option<Version>) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.wake(|at, waiter| at == intent && Some(waiter.seen) != version);
        }
    }

    /// Wakes those who wait for records whose ids begin so.
    pub(crate) fn heard_of(&self, heads: &[Half]) {
        self.wake(|at, _| heads.contains(&rows::head(at)));
    }

    /// Wakes those who have not seen these versions: all that are there of the records that are waited for.
    pub(crate) fn looked(&self, asked: &[IntentId], versions: &HashMap<IntentId, Version>) {
        self.wake(|at, waiter| asked.contains(at) && versions.get(at) != Some(&waiter.seen));
    }

    /// Wakes those who have waited long enough, or do not wait any more.
    pub(crate) fn wake_overdue(&self) {
        let now = Instant::now();
        self.wake(|_, waiter| waiter.deadline <= now || waiter.wake.is_closed());
    }

    /// Wakes everybody.
    pub(crate) fn wake_all(&self) {
        self.wake(|_, _| true);
    }

    /// What is waited for.
    pub(crate) fn intents(&self) -> Vec<IntentId> {
        self.lock().keys().copied().collect()
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

    fn wake(&self, whom: impl Fn(&IntentId, &Waiter) -> bool) {
        let mut woken = Vec::new();
        self.lock().retain(|intent, waiters| {
            woken.extend(waiters.extract_if(.., |waiter| whom(intent, waiter)));
            !waiters.is_empty()
        });
        self.count.fetch_sub(woken.len(), Ordering::SeqCst);
        for waiter in woken {
            // Nobody listens any more: the call was dropped.
            let _ = waiter.wake.send(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IntentId, Vec<Waiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
