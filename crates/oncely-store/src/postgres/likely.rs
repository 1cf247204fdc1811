//! Which records are likely there: those that this process has met lately. It only decides what is asked for first, so
//! that it may be wrong, and forgets without being told.

use std::sync::atomic::{AtomicU64, Ordering};

use oncely_core::IntentId;

/// Room for so many, one for each value of two bytes: half a megabyte.
const SLOTS: usize = 1 << u16::BITS;
/// Nobody's mark. The one record in 2^64 whose mark it is is not remembered.
const NONE: u64 = 0;

/// Marks of records, each in the one place that its id names; a later one takes the place of an earlier one.
pub(crate) struct Likely(Box<[AtomicU64]>);

impl Default for Likely {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| AtomicU64::new(NONE)).collect())
    }
}

impl Likely {
    /// It has been met.
    pub(crate) fn met(&self, intent: &IntentId) {
        let (slot, mark) = self.place(intent);
        slot.store(mark, Ordering::Relaxed);
    }

    /// It is not there.
    pub(crate) fn missed(&self, intent: &IntentId) {
        let (slot, mark) = self.place(intent);
        // Whoever took its place meanwhile stays.
        let _ = slot.compare_exchange(mark, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it is likely there.
    pub(crate) fn has(&self, intent: &IntentId) -> bool {
        let (slot, mark) = self.place(intent);
        mark != NONE && slot.load(Ordering::Relaxed) == mark
    }

    /// Ids are digests, so that any part of one is as good as another.
    fn place(&self, intent: &IntentId) -> (&AtomicU64, u64) {
        let [a, b, c, d, e, f, g, h, i, j, ..] = intent.0;
        let slot = usize::from(u16::from_le_bytes([i, j]));
        (&self.0[slot], u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

#[cfg(test)]
mod tests {
    use oncely_core::IntentId;

    use super::Likely;

    /// An id with this mark, in this place.
    fn id(mark: u8, place: u8) -> IntentId {
        let mut id = [0; 32];
        (id[0], id[8]) = (mark, place);
        IntentId(id)
    }

    #[test]
    fn what_was_met_is_likely_there_until_it_was_missed_or_another_took_its_place() {
        let likely = Likely::default();
        assert!(!likely.has(&id(1, 1)));
        likely.met(&id(1, 1));
        likely.met(&id(1, 2));
        assert!(likely.has(&id(1, 1)) && likely.has(&id(1, 2)) && !likely.has(&id(2, 1)));
        likely.missed(&id(1, 2));
        assert!(!likely.has(&id(1, 2)));
        likely.met(&id(2, 1));
        likely.missed(&id(1, 1));
        assert!(likely.has(&id(2, 1)) && !likely.has(&id(1, 1)));
    }

    #[test]
    fn nothing_is_likely_there_at_first_whatever_its_id() {
        let likely = Likely::default();
        assert!(!likely.has(&id(0, 0)));
        likely.met(&id(0, 0));
        assert!(!likely.has(&id(0, 0)), "it has nobody's mark");
    }
}
