//! How many guarded calls may be under way, in all and on one key, and how much they and their answers may hold in memory:
//! beyond that nothing begins, and answers are passed on without being kept.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// One guarded call, while it is under way. Goes with the effect, which does not end when its caller goes away.
pub(super) struct Place {
    gate: Arc<Gate>,
    /// What is set aside for its body, and then for that of its answer.
    bytes: usize,
    /// The key that it is on, once that is known.
    key: Option<u64>,
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

    /// How many bytes are set aside for their bodies and for those of their answers.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn enter(self: &Arc<Self>) -> Option<Place> {
        let before = self.calls.fetch_add(1, Ordering::AcqRel);
        let place = Place { gate: self.clone(), bytes: 0, key: None };
        (before < self.calls_max).then_some(place)
    }

    fn leave_key(&self, key: u64) {
        let mut keys = self.lock();
        if let Some(count) = keys.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                keys.remove(&key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Takes one of the places on a key; `false` if there is none left. Two keys that hash alike share a count, which does
    /// no harm.
    pub(super) fn enter_key(&mut self, key: impl Hash) -> bool {
        let key = self.gate.hasher.hash_one(key);
        let mut keys = self.gate.lock();
        let count = keys.entry(key).or_default();
        if *count >= self.gate.per_key_max {
            return false;
        }
        *count += 1;
        self.key = Some(key);
        true
    }

    /// Sets memory aside for a body, in the place of what was set aside before; `false`, and nothing is changed, if there is
    /// too little.
    pub(super) fn set_aside(&mut self, bytes: usize) -> bool {
        let total = &self.gate.bytes;
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            if total.fetch_add(more, Ordering::AcqRel).saturating_add(more) > HTTP_BUFFERED_BYTES_MAX {
                total.fetch_sub(more, Ordering::AcqRel);
                return false;
            }
        } else if bytes < self.bytes {
            // All lanes share the count: a body that came in one piece costs no second look at it.
            total.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.gate.leave_key(key);
        }
        self.gate.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.gate.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oncely_core::limits::HTTP_BUFFERED_BYTES_MAX;

    use super::Gate;

    #[test]
    fn memory_is_limited_and_given_back() {
        let gate = Arc::new(Gate::new(9, 9));
        let (mut one, mut two) = (gate.enter().unwrap(), gate.enter().unwrap());
        assert!(one.set_aside(HTTP_BUFFERED_BYTES_MAX));
        assert!(!two.set_aside(1));
        assert!(one.set_aside(HTTP_BUFFERED_BYTES_MAX - 1), "less than before");
        assert!(two.set_aside(1));
        assert!(!one.set_aside(HTTP_BUFFERED_BYTES_MAX), "more than before, and more than there is");
        assert!(!one.set_aside(HTTP_BUFFERED_BYTES_MAX), "what could not be had is not counted");
        drop((one, two));
        assert!(gate.enter().unwrap().set_aside(HTTP_BUFFERED_BYTES_MAX));
    }

    #[test]
    fn places_are_limited_and_given_back() {
        let gate = Arc::new(Gate::new(2, 1));
        let first = gate.enter();
        let second = gate.enter();
        assert!(first.is_some() && second.is_some() && gate.enter().is_none());
        drop(first);
        let (mut one, mut two) = (second.unwrap(), gate.enter().unwrap());
        assert!(one.enter_key("a") && !two.enter_key("a"));
        drop(one);
        assert!(two.enter_key("a"));
        drop(two);
        assert!(gate.lock().is_empty());
        assert_eq!(gate.calls(), 0);
    }
}
