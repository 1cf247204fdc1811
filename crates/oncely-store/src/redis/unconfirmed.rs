//! Records that were perhaps written through this handle, without enough replicas that confirmed it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use oncely_core::IntentId;

/// Most records that are remembered; beyond it every record counts as one of them.
const MOST: usize = 100_000;

/// The records.
#[derive(Default)]
pub(crate) struct Unconfirmed {
    intents: Mutex<HashSet<IntentId>>,
    /// Whether there are any, readable without the lock.
    any: AtomicBool,
}

impl Unconfirmed {
    pub(crate) fn add(&self, intent: &IntentId) {
        let mut intents = self.lock();
        if intents.len() < MOST {
            intents.insert(*intent);
        }
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn contains(&self, intent: &IntentId) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let intents = self.lock();
        intents.len() >= MOST || intents.contains(intent)
    }

    pub(crate) fn remove(&self, intent: &IntentId) {
        let mut intents = self.lock();
        // Once there were too many it is not known any more which ones.
        if intents.len() < MOST {
            intents.remove(intent);
            self.any.store(!intents.is_empty(), Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<IntentId>> {
        self.intents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
