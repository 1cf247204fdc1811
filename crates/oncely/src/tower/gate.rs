//! How many guarded calls may be under way, in all and on one key, and how much they and their answers may hold in memory:
//! beyond that nothing begins, and answers are passed on without being kept.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncely_core::limits::HTTP_BUFFERED_BYTES_MAX;

/// What answers may take of the memory, so that long ones that are being kept shut out no request.
const ANSWERS_BYTES_MAX: usize = HTTP_BUFFERED_BYTES_MAX / 2;

/// Counts guarded calls. Shared by every route of one process.
#[derive(Debug)]
pub struct Gate {
    calls_max: usize,
    per_key_max: usize,
    calls: AtomicUsize,
    bytes: AtomicUsize,
    /// How many of the bytes are of answers.
    kept: AtomicUsize,
    hasher: RandomState,
    keys: Mutex<HashMap<u64, usize>>,
}

/// One guarded call, while it is under way. Goes with the effect, which does not end when its caller goes away.
pub(super) struct Place {
    gate: Arc<Gate>,
    /// What is set aside for its body, and then for that of its answer.
    bytes: usize,
    /// How much of that is of its answer.
    kept: usize,
    /// The key that it is on, once that is known.
    key: Option<u64>,
}

impl Gate {
    /// A gate for so many calls in all, and so many on one key.
    pub fn new(calls_max: usize, per_key_max: usize) -> Self {
        Self {
            calls_max,
            per_key_max,
            calls: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            hasher: RandomState::new(),
            keys: Mutex::default(),
        }
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
        let place = Place { gate: self.clone(), bytes: 0, kept: 0, key: None };
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
        if !count(&self.gate.bytes, self.bytes, bytes, HTTP_BUFFERED_BYTES_MAX) {
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// The same for the body of the answer, once that of the request is gone: there is less for answers.
    pub(super) fn keep(&mut self, bytes: usize) -> bool {
        if !count(&self.gate.kept, self.kept, bytes, ANSWERS_BYTES_MAX) {
            return false;
        }
        if !self.set_aside(bytes) {
            count(&self.gate.kept, bytes, self.kept, usize::MAX);
            return false;
        }
        self.kept = bytes;
        true
    }
}

/// Counts one part of a total anew; `false`, and nothing is changed, if that were more than there may be.
fn count(total: &AtomicUsize, before: usize, now: usize, max: usize) -> bool {
    if now > before {
        let more = now - before;
        if total.fetch_add(more, Ordering::AcqRel).saturating_add(more) > max {
            total.fetch_sub(more, Ordering::AcqRel);
            return false;
        }
    } else if now < before {
        // All lanes share the count: a body that came in one piece costs no second look at it.
        total.fetch_sub(before - now, Ordering::AcqRel);
    }
    true
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.gate.leave_key(key);
        }
        self.gate.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.gate.kept.fetch_sub(self.kept, Ordering::AcqRel);
        self.gate.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oncely_core::limits::HTTP_BUFFERED_BYTES_MAX;

    use super::{ANSWERS_BYTES_MAX, Gate};

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
    fn answers_leave_half_of_the_memory_to_requests() {
        let gate = Arc::new(Gate::new(9, 9));
        let (mut one, mut two) = (gate.enter().unwrap(), gate.enter().unwrap());
        assert!(one.keep(ANSWERS_BYTES_MAX));
        assert!(!two.keep(1), "answers have their half");
        assert!(two.set_aside(HTTP_BUFFERED_BYTES_MAX - ANSWERS_BYTES_MAX), "requests have the other");
        assert!(one.keep(1) && two.set_aside(HTTP_BUFFERED_BYTES_MAX - 1));
        assert!(!one.keep(2), "there is too little for both");
        assert!(two.set_aside(0));
        assert!(two.keep(ANSWERS_BYTES_MAX - 1), "what could not be had is not counted");
        drop((one, two));
        assert!(gate.enter().unwrap().keep(ANSWERS_BYTES_MAX), "all is given back");
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
