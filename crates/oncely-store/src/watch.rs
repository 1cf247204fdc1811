//! Callers that wait for a record to change: woken at once by commits of this process, within a few milliseconds by
//! those of others, and in any case after a bounded time, so that they look whether the owner still lives.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use oncely_core::{IntentId, Version};
use tokio::sync::oneshot;

use crate::clock::boottime_ms;

/// A waiter is woken after this time at the latest.
const WAIT_MS_MAX: u64 = 100;

/// Looks for changes that other processes made.
pub(crate) trait Lookout: Send + 'static {
    /// How long to sleep between two looks.
    fn interval(&self) -> Duration;

    /// Whether anything was committed since this was last asked.
    fn stirred(&mut self) -> bool;

    /// The record's version, or `None` if it cannot be told: then waiters are woken to look for themselves.
    fn version(&mut self, intent: &IntentId) -> Option<Version>;
}

/// The waiting callers of one store.
pub(crate) struct Watchers {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// How many wait, readable without the lock: commits ask on every record.
    count: AtomicUsize,
    stir: Condvar,
}

#[derive(Default)]
struct Waiting {
    by_intent: HashMap<IntentId, Vec<Waiter>>,
    stopped: bool,
}

struct Waiter {
    seen: Version,
    deadline_ms: u64,
    wake: oneshot::Sender<()>,
}

impl Watchers {
    pub(crate) fn new() -> Self {
        Self { shared: Arc::new(Shared::default()), thread: Mutex::new(None) }
    }

    /// Waits for a change. The caller looks at the record *after* this, so that no change falls between.
    pub(crate) fn register(
        &self,
        intent: IntentId,
        seen: Version,
        lookout: impl FnOnce() -> Box<dyn Lookout>,
    ) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        let waiter = Waiter { seen, deadline_ms: boottime_ms().saturating_add(WAIT_MS_MAX), wake };
        let first = {
            let mut waiting = self.shared.lock();
            let first = waiting.by_intent.is_empty();
            waiting.by_intent.entry(intent).or_default().push(waiter);
            self.shared.count.fetch_add(1, Ordering::SeqCst);
            first
        };
        self.start(lookout);
        if first {
            self.shared.stir.notify_one();
        }
        woken
    }

    /// Wakes those who wait for this record and have not seen this version.
    pub(crate) fn changed(&self, intent: &IntentId, version: Option<Version>) {
        if self.shared.count.load(Ordering::SeqCst) > 0 {
            self.shared.wake(intent, |waiter| Some(waiter.seen) != version);
        }
    }

    /// Wakes everybody and ends the thread. Not to be called by the lookout: the thread cannot wait for itself.
    pub(crate) fn stop(&self) {
        self.shared.lock().stopped = true;
        self.shared.stir.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there has woken its waiters by dropping them.
            let _ = thread.join();
        }
    }

    fn start(&self, lookout: impl FnOnce() -> Box<dyn Lookout>) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        // One that panicked has left waiters behind: the next one looks after them.
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let shared = Arc::clone(&self.shared);
            let lookout = lookout();
            // Without the thread waiters would sleep for ever: wake them at once instead.
            match std::thread::Builder::new().name("oncely-watch".into()).spawn(move || shared.run(lookout)) {
                Ok(started) => *thread = Some(started),
                Err(_) => self.shared.wake_all(),
            }
        }
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut lookout: Box<dyn Lookout>) {
        loop {
            let waiting = self.lock();
            let idle = |w: &mut Waiting| w.by_intent.is_empty() && !w.stopped;
            let waiting = self.stir.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner);
            if waiting.stopped {
                drop(waiting);
                return self.wake_all();
            }
            let intents: Vec<IntentId> = waiting.by_intent.keys().copied().collect();
            drop(waiting);
            let began_ms = boottime_ms();
            if lookout.stirred() {
                for intent in intents {
                    let version = lookout.version(&intent);
                    self.wake(&intent, |waiter| Some(waiter.seen) != version);
                }
            }
            self.wake_overdue();
            // Many waiters make a look costly: never spend more than a fifth of the time on it.
            let spent = Duration::from_millis(boottime_ms().saturating_sub(began_ms));
            let pause = lookout.interval().max(spent * 4);
            let waiting = self.lock();
            if !waiting.stopped {
                drop(self.stir.wait_timeout(waiting, pause));
            }
        }
    }

    fn wake(&self, intent: &IntentId, whom: impl Fn(&Waiter) -> bool) {
        let mut waiting = self.lock();
        let Some(waiters) = waiting.by_intent.get_mut(intent) else { return };
        let woken: Vec<Waiter> = waiters.extract_if(.., |waiter| whom(waiter)).collect();
        if waiters.is_empty() {
            waiting.by_intent.remove(intent);
        }
        drop(waiting);
        self.send(woken);
    }

    fn wake_overdue(&self) {
        let now_ms = boottime_ms();
        let mut woken = Vec::new();
        self.lock().by_intent.retain(|_, waiters| {
            woken.extend(waiters.extract_if(.., |w| w.deadline_ms <= now_ms || w.wake.is_closed()));
            !waiters.is_empty()
        });
        self.send(woken);
    }

    fn wake_all(&self) {
        let woken = std::mem::take(&mut self.lock().by_intent).into_values().flatten().collect();
        self.send(woken);
    }

    fn send(&self, woken: Vec<Waiter>) {
        self.count.fetch_sub(woken.len(), Ordering::SeqCst);
        for waiter in woken {
            // Nobody listens any more: the call was dropped.
            let _ = waiter.wake.send(());
        }
    }
}
