//! How many guarded calls may be under way, in all and on one key: beyond that nothing begins.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts guarded calls. Shared by every route of one process.
#[derive(Debug)]
pub struct Gate {
    calls_max: usize,
    per_key_max: usize,
    calls: AtomicUsize,
    hasher: RandomState,
    keys: Mutex<HashMap<u64, usize>>,
}

/// One guarded call, while it is under way.
pub(super) struct Place(Arc<Gate>);

/// One call on a key, while it is under way.
pub(super) struct KeyPlace {
    gate: Arc<Gate>,
    key: u64,
}

impl Gate {
    /// A gate for so many calls in all, and so many on one key.
    pub fn new(calls_max: usize, per_key_max: usize) -> Self {
        let (calls, hasher, keys) = (AtomicUsize::new(0), RandomState::new(), Mutex::default());
        Self { calls_max, per_key_max, calls, hasher, keys }
    }

    /// How many guarded calls are under way.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn enter(self: &Arc<Self>) -> Option<Place> {
        let before = self.calls.fetch_add(1, Ordering::AcqRel);
        let place = Place(self.clone());
        (before < self.calls_max).then_some(place)
    }

    /// Two keys that hash alike share a count, which does no harm.
    pub(super) fn enter_key(self: &Arc<Self>, key: impl Hash) -> Option<KeyPlace> {
        let key = self.hasher.hash_one(key);
        let mut keys = self.lock();
        let count = keys.entry(key).or_default();
        if *count >= self.per_key_max {
            return None;
        }
        *count += 1;
        drop(keys);
        Some(KeyPlace { gate: self.clone(), key })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for KeyPlace {
    fn drop(&mut self) {
        let mut keys = self.gate.lock();
        if let Some(count) = keys.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                keys.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Gate;

    #[test]
    fn places_are_limited_and_given_back() {
        let gate = Arc::new(Gate::new(2, 1));
        let first = gate.enter();
        let second = gate.enter();
        assert!(first.is_some() && second.is_some() && gate.enter().is_none());
        drop(first);
        assert!(gate.enter().is_some());
        let one = gate.enter_key("a");
        assert!(one.is_some() && gate.enter_key("a").is_none() && gate.enter_key("b").is_some());
        drop(one);
        assert!(gate.enter_key("a").is_some());
        assert!(gate.lock().is_empty());
    }
}
