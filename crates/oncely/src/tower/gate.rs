//! How many guarded calls may be under way, in all and on one key, and how much they may hold in memory: beyond that
//! nothing begins.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use oncely_core::limits::HTTP_BUFFERED_BYTES_MAX;

/// Counts guarded calls. Shared by every route of one process.
#[derive(Debug)]
pub struct Gate {
    calls_max: usize,
    per_key_max: usize,
    calls: AtomicUsize,
    bytes: AtomicUsize,
    hasher: RandomState,
    keys: Mutex<HashMap<u64, usize>>,
}

/// One guarded call, while it is under way.
pub(super) struct Place<'g> {
    gate: &'g Gate,
    /// What is set aside for its body.
    bytes: usize,
}

/// One call on a key, while it is under way.
pub(super) struct KeyPlace<'g> {
    gate: &'g Gate,
    key: u64,
}

impl Gate {
    /// A gate for so many calls in all, and so many on one key.
    pub fn new(calls_max: usize, per_key_max: usize) -> Self {
        let (calls, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { calls_max, per_key_max, calls, bytes, hasher: RandomState::new(), keys: Mutex::default() }
    }

    /// How many guarded calls are under way.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn enter(&self) -> Option<Place<'_>> {
        let before = self.calls.fetch_add(1, Ordering::AcqRel);
        let place = Place { gate: self, bytes: 0 };
        (before < self.calls_max).then_some(place)
    }

    /// Two keys that hash alike share a count, which does no harm.
    pub(super) fn enter_key(&self, key: impl Hash) -> Option<KeyPlace<'_>> {
        let key = self.hasher.hash_one(key);
        let mut keys = self.lock();
        let count = keys.entry(key).or_default();
        if *count >= self.per_key_max {
            return None;
        }
        *count += 1;
        drop(keys);
        Some(KeyPlace { gate: self, key })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Sets memory aside for a body, in the place of what was set aside before; `false` if there is too little.
    pub(super) fn set_aside(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes <= before {
            // All lanes share the count: a body as long as it said costs no second look at it.
            if bytes < before {
                self.gate.bytes.fetch_sub(before - bytes, Ordering::AcqRel);
            }
            return true;
        }
        let more = bytes - before;
        let held = self.gate.bytes.fetch_add(more, Ordering::AcqRel);
        held.saturating_add(more) <= HTTP_BUFFERED_BYTES_MAX
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.gate.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.gate.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for KeyPlace<'_> {
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
    use oncely_core::limits::HTTP_BUFFERED_BYTES_MAX;

    use super::Gate;

    #[test]
    fn memory_is_limited_and_given_back() {
        let gate = Gate::new(9, 9);
        let (mut one, mut two) = (gate.enter().unwrap(), gate.enter().unwrap());
        assert!(one.set_aside(HTTP_BUFFERED_BYTES_MAX));
        assert!(!two.set_aside(1));
        assert!(one.set_aside(HTTP_BUFFERED_BYTES_MAX - 1), "less than before");
        assert!(two.set_aside(1));
        assert!(!one.set_aside(HTTP_BUFFERED_BYTES_MAX), "more than before, and more than there is");
        drop((one, two));
        assert!(gate.enter().unwrap().set_aside(HTTP_BUFFERED_BYTES_MAX));
    }

    #[test]
    fn places_are_limited_and_given_back() {
        let gate = Gate::new(2, 1);
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
