//! Where the kills of a campaign have landed so far, and whether that is enough.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many times the kills that were planned a campaign may take until one has landed in each phase. Where a kill lands is
/// chance, and a campaign whose kills all land in one place proves little.
const LONGEST: u64 = 10;

/// Kills by where they landed.
pub(crate) struct Landings<P: 'static> {
    kills: u64,
    phases: &'static [P],
    by_phase: Mutex<BTreeMap<P, u64>>,
}

impl<P: Ord + Copy> Landings<P> {
    /// At least so many kills, and one in each of these phases.
    pub(crate) fn wanted(kills: u64, phases: &'static [P]) -> Self {
        Self { kills, phases, by_phase: Mutex::default() }
    }

    pub(crate) fn add(&self, phase: P) {
        *self.locked().entry(phase).or_default() += 1;
    }

    pub(crate) fn are_enough(&self) -> bool {
        let by_phase = self.locked();
        let landed: u64 = by_phase.values().sum();
        let everywhere = self.phases.iter().all(|phase| by_phase.contains_key(phase));
        landed >= self.kills && (everywhere || landed >= self.kills * LONGEST)
    }

    pub(crate) fn by_phase(&self) -> BTreeMap<P, u64> {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<P, u64>> {
        self.by_phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
