//! Offering the core to others between two rows of answers, for as long as they are quick about it.
//!
//! Clients and services on the same machine share its cores with the lanes. The system takes a core away from whoever keeps
//! it, but only after milliseconds; who waits for it meanwhile is late with what it has to read and to send, and the slowest
//! requests are those that met it. So a lane that has done all that had come offers its core before it looks for more, and
//! finds more of it afterwards.
//!
//! Some systems take an offer at its word, and give the core back only when others had their full share. That is quick where
//! others pass something on and sleep, and slow where they compute; the lane's timers wait as long. Where offers have
//! lately taken long, a lane makes none for a while: it is not to be the one that always gives way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::alert::FEW;
use super::counters::Counters;

/// How many offers it takes to forget what they took before.
const MEMORY: u64 = 32;
/// What offers may take on average, in microseconds.
const QUICK_US: u64 = 1_200;
/// How often in a row it makes no offer where they have taken longer.
const NONE_FOR: u64 = 20_000;

/// Whether a lane offers its core. Used by its thread alone.
pub(super) struct Courtesy {
    counters: Arc<Counters>,
    /// What an offer has lately taken, in microseconds.
    lately_us: AtomicU64,
    /// How many times it still makes none.
    none_for: AtomicU64,
}

impl Courtesy {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self { counters, lately_us: AtomicU64::new(0), none_for: AtomicU64::new(0) }
    }

    /// Lets others run who have something to do on this core, where many are served and it costs little.
    pub(super) fn offer(&self) {
        if self.makes_one() {
            let began = Instant::now();
            std::thread::yield_now();
            self.took(began.elapsed());
        }
    }

    /// Few are served best by a lane that stays awake, see [`Alert`](super::alert::Alert).
    fn makes_one(&self) -> bool {
        if self.counters.awake() <= FEW {
            return false;
        }
        let none_for = self.none_for.load(Ordering::Relaxed);
        self.none_for.store(none_for.saturating_sub(1), Ordering::Relaxed);
        none_for == 0
    }

    fn took(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let before = self.lately_us.load(Ordering::Relaxed);
        let lately = before - before / MEMORY + us / MEMORY;
        self.lately_us.store(lately, Ordering::Relaxed);
        if lately > QUICK_US {
            // The next time begins without a grudge.
            self.lately_us.store(0, Ordering::Relaxed);
            self.none_for.store(NONE_FOR, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{Courtesy, FEW, NONE_FOR};
    use crate::gateway::counters::Counters;

    /// How many of so many offers are made where each takes so long.
    fn made(courtesy: &Courtesy, offers: u64, each: Duration) -> u64 {
        (0..offers).filter(|_| courtesy.makes_one()).map(|_| courtesy.took(each)).count() as u64
    }

    #[test]
    fn offers_are_made_among_many_while_others_are_quick_about_it() {
        let counters = Arc::new(Counters::default());
        let courtesy = Courtesy::new(counters.clone());
        let mut open: Vec<_> = (0..FEW).map(|_| counters.open()).collect();
        let (quick, slow) = (Duration::from_micros(300), Duration::from_millis(4));
        assert_eq!(made(&courtesy, 10, quick), 0, "few are served");
        open.push(counters.open());
        assert_eq!(made(&courtesy, 1_000, quick), 1_000);
        assert_eq!(made(&courtesy, 1, slow) + made(&courtesy, 99, quick), 100, "once is no habit");
        let before_it_learns = made(&courtesy, NONE_FOR, slow);
        assert!((1..20).contains(&before_it_learns), "{before_it_learns}");
        assert_eq!(made(&courtesy, before_it_learns, slow), 0, "for a while there is none");
        assert_eq!(made(&courtesy, 100, quick), 100, "then it tries again");
        assert_eq!(made(&courtesy, 1, Duration::MAX), 1);
        assert_eq!(made(&courtesy, 1, quick), 0, "far too long is enough once");
    }
}
