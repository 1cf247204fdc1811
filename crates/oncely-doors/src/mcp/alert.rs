//! Staying awake for a moment where messages come thick and fast: to be woken takes longer than most of what we do for a
//! message, above all on machines that put idle processors to rest.
//!
//! After something has come, those who read messages look for a little while whether the next one is there, and let others
//! run meanwhile, before they sleep. They do so only while that has lately been worth it, and whoever has found nothing
//! for long leaves it to the other.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long they look.
const LOOK: Duration = Duration::from_micros(100);
/// The same while somebody waits for the ledger, which takes as long as a disk does.
const LOOK_FOR_LEDGER: Duration = Duration::from_micros(500);
/// What follows so soon is worth a look.
const SOON: Duration = Duration::from_micros(300);
/// How often in a row they look in vain before they look no more.
const KEEN: u32 = 16;

/// Whether, and for how long, those who read messages stay awake.
#[derive(Default)]
pub(super) struct Alert {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When something last came.
    last: Option<Instant>,
    /// How often something has come.
    count: u64,
    /// How often they may still look in vain.
    keen: u32,
    /// How many wait for the ledger.
    at_ledger: isize,
    /// Those who sleep.
    asleep: Vec<Waker>,
}

impl Alert {
    /// Only one thread ever asks for it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message has come, or an answer of the ledger: more may follow at once, from either side. Says how often something
    /// has.
    pub(super) fn came(&self) -> u64 {
        let (count, asleep) = self.came_at(Instant::now());
        for reader in asleep {
            reader.wake();
        }
        count
    }

    /// Notes that something came, and says who should look.
    fn came_at(&self, now: Instant) -> (u64, Vec<Waker>) {
        let mut state = self.state();
        state.count += 1;
        let before = state.last.replace(now);
        let is_soon = before.is_some_and(|before| now.duration_since(before) < SOON);
        state.keen = if is_soon { KEEN } else { state.keen.saturating_sub(1) };
        (state.count, if state.keen > 0 { std::mem::take(&mut state.asleep) } else { Vec::new() })
    }

    /// Whether to look on; otherwise whoever asks sleeps. What it last found was the `found`th that came.
    pub(super) fn looks_on(&self, found: u64, reader: &Waker) -> bool {
        self.looks_on_at(Instant::now(), found, reader)
    }

    fn looks_on_at(&self, now: Instant, found: u64, reader: &Waker) -> bool {
        let mut state = self.state();
        if state.count - found > u64::from(KEEN) {
            return false;
        }
        let patience = if state.at_ledger > 0 { LOOK_FOR_LEDGER } else { LOOK };
        if state.keen > 0 && state.last.is_some_and(|last| now.duration_since(last) < patience) {
            return true;
        }
        if !state.asleep.iter().any(|asleep| asleep.will_wake(reader)) {
            state.asleep.push(reader.clone());
        }
        false
    }

    /// Somebody waits for the ledger for as long as this is kept.
    pub(super) fn at_ledger(&self) -> Counted<'_> {
        Counted::new(self, 1)
    }

    /// One of those waits for the server instead.
    pub(super) fn at_server(&self) -> Counted<'_> {
        self.came();
        Counted::new(self, -1)
    }
}

/// Counts for as long as it is kept.
pub(super) struct Counted<'a> {
    alert: &'a Alert,
    by: isize,
}

impl<'a> Counted<'a> {
    fn new(alert: &'a Alert, by: isize) -> Self {
        alert.state().at_ledger += by;
        Self { alert, by }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.alert.state().at_ledger -= self.by;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use super::{Alert, KEEN, LOOK, LOOK_FOR_LEDGER, SOON};

    #[test]
    fn they_look_only_for_as_long_as_that_was_lately_worth_it() {
        let (alert, mut now) = (Alert::default(), Instant::now());
        let looks_after = |count, now: Instant, time| alert.looks_on_at(now + time, count, Waker::noop());
        let (count, _) = alert.came_at(now);
        assert!(!looks_after(count, now, Duration::ZERO), "nothing followed soon yet");
        now += SOON / 2;
        let (count, woken) = alert.came_at(now);
        assert_eq!(woken.len(), 1, "whoever sleeps is woken");
        assert!(looks_after(count, now, LOOK / 2) && !looks_after(count, now, LOOK));
        for vain in 1..=KEEN {
            now += SOON;
            let (count, _) = alert.came_at(now);
            assert_eq!(looks_after(count, now, Duration::ZERO), vain < KEEN, "{vain}");
        }
    }

    #[test]
    fn whoever_has_found_nothing_for_long_sleeps_although_others_find_something() {
        let (alert, now) = (Alert::default(), Instant::now());
        let looks = |found| alert.looks_on_at(now, found, Waker::noop());
        alert.came_at(now);
        let (found, _) = alert.came_at(now);
        for _ in 0..KEEN {
            assert!(looks(found));
            alert.came_at(now);
        }
        let (other, woken) = alert.came_at(now);
        assert!(!looks(found) && looks(other) && woken.is_empty());
    }

    #[test]
    fn they_look_longer_while_somebody_waits_for_the_ledger() {
        let (alert, now) = (Alert::default(), Instant::now());
        alert.came_at(now);
        let (count, _) = alert.came_at(now);
        let looks_after = |time| alert.looks_on_at(now + time, count, Waker::noop());
        assert!(!looks_after(LOOK));
        let at_ledger = alert.at_ledger();
        assert!(looks_after(LOOK) && !looks_after(LOOK_FOR_LEDGER));
        let at_server = alert.at_server();
        assert_eq!(alert.state().at_ledger, 0);
        drop((at_server, at_ledger));
        assert_eq!(alert.state().at_ledger, 0);
    }
}
