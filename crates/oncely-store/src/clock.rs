//! The ledger's clock: set once from the wall clock, then carried by the time since boot, so that no jump of the wall
//! clock makes a key expire or a record look younger.
//!
//! Within one boot of the machine, `ledger time = anchor + (time since boot now - time since boot at the anchor)`; the
//! time since boot goes on during suspend and is the same for all processes. The first to open the ledger after a boot
//! sets a new anchor: the newest time that the ledger knows of, plus what the wall clock says has passed since, but at
//! least nothing and at most [`OFF_MS_MAX`]. A machine that was off for longer only remembers for longer.

use std::sync::atomic::{AtomicU64, Ordering};

use oncely_core::Millis;

use crate::process::boot_id;

/// The most time that a new boot is believed to have come after the last one: seven days.
pub(crate) const OFF_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;

/// What the machine's clocks say at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Readings {
    /// Which boot; all zero where that is not known.
    pub(crate) boot: [u8; 16],
    /// Milliseconds since then, suspend included.
    pub(crate) boottime_ms: u64,
    /// Milliseconds since 1970 by the wall clock.
    pub(crate) wall_ms: u64,
}

impl Readings {
    /// Reads the clocks.
    pub(crate) fn take() -> Self {
        let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Self { boot: boot_id(), boottime_ms: boottime_ms(), wall_ms: to_ms(wall) }
    }
}

/// Where ledger time and time since boot were seen side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// In which boot.
    pub(crate) boot: [u8; 16],
    /// Time since boot.
    pub(crate) boottime_ms: u64,
    /// Ledger time.
    pub(crate) ledger_ms: u64,
}

impl Anchor {
    /// The anchor of a ledger that is being made.
    pub(crate) fn first(readings: &Readings) -> Self {
        Self { boot: readings.boot, boottime_ms: readings.boottime_ms, ledger_ms: readings.wall_ms }
    }

    /// Whether this anchor holds in the boot of these readings.
    pub(crate) fn holds(&self, readings: &Readings) -> bool {
        self.boot == readings.boot && self.boot != [0; 16]
    }

    /// The anchor for another boot; `newest_ms` is the newest time written in the ledger.
    pub(crate) fn next(&self, newest_ms: u64, readings: &Readings) -> Self {
        let known = self.ledger_ms.max(newest_ms);
        let off = readings.wall_ms.saturating_sub(known).min(OFF_MS_MAX);
        Self { boot: readings.boot, boottime_ms: readings.boottime_ms, ledger_ms: known.saturating_add(off) }
    }

    /// Ledger time when this much time has passed since boot.
    pub(crate) fn at(&self, boottime_ms: u64) -> u64 {
        self.ledger_ms.saturating_add(boottime_ms.saturating_sub(self.boottime_ms))
    }
}

/// A running ledger clock. It never goes backwards.
#[derive(Debug)]
pub(crate) struct LedgerClock {
    anchor: Anchor,
    newest_ms: AtomicU64,
}

impl LedgerClock {
    /// Starts from an anchor of this boot.
    pub(crate) fn new(anchor: Anchor) -> Self {
        Self { anchor, newest_ms: AtomicU64::new(anchor.ledger_ms) }
    }

    /// When the anchor of this boot was set: what was stamped before has the wall clock's word for how long ago.
    pub(crate) fn steady_since(&self) -> Millis {
        Millis(self.anchor.ledger_ms)
    }

    /// The time.
    pub(crate) fn now(&self) -> Millis {
        self.at_least(Millis(self.anchor.at(boottime_ms())))
    }

    /// Takes note of a time that was seen in the ledger, and returns the newest known.
    pub(crate) fn at_least(&self, seen: Millis) -> Millis {
        Millis(self.newest_ms.fetch_max(seen.0, Ordering::AcqRel).max(seen.0))
    }
}

/// Milliseconds since boot, suspend included.
pub(crate) fn boottime_ms() -> u64 {
    #[cfg(target_os = "linux")]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = rustix::time::ClockId::Monotonic;
    to_ms(rustix::time::clock_gettime(id))
}

fn to_ms(time: rustix::time::Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::{Anchor, LedgerClock, OFF_MS_MAX, Readings};
    use oncely_core::Millis;

    const FIRST: Readings = Readings { boot: [1; 16], boottime_ms: 5_000, wall_ms: 1_000_000_000 };

    #[test]
    fn within_one_boot_only_the_time_since_boot_counts() {
        let anchor = Anchor::first(&FIRST);
        assert!(anchor.holds(&Readings { wall_ms: 0, ..FIRST }));
        assert_eq!(anchor.at(5_000), 1_000_000_000);
        assert_eq!(anchor.at(6_500), 1_000_001_500);
        assert_eq!(anchor.at(0), 1_000_000_000, "a reading before the anchor is not believed");
    }

    #[test]
    fn a_new_boot_goes_on_from_the_newest_known_time() {
        let anchor = Anchor::first(&FIRST);
        let check = |wall_ms: u64, newest_ms: u64, expected: u64| {
            let readings = Readings { boot: [2; 16], boottime_ms: 10, wall_ms };
            assert!(!anchor.holds(&readings));
            let next = anchor.next(newest_ms, &readings);
            assert_eq!(next, Anchor { boot: [2; 16], boottime_ms: 10, ledger_ms: expected });
        };
        check(1_000_060_000, 0, 1_000_060_000);
        check(1_000_060_000, 1_000_050_000, 1_000_060_000);
        // The wall clock went back: time stands still, it does not run backwards.
        check(0, 1_000_050_000, 1_000_050_000);
        // The wall clock is years ahead: seven days are believed.
        check(u64::MAX, 1_000_050_000, 1_000_050_000 + OFF_MS_MAX);
    }

    #[test]
    fn a_machine_without_boot_ids_never_trusts_an_old_anchor() {
        let readings = Readings { boot: [0; 16], ..FIRST };
        assert!(!Anchor::first(&readings).holds(&readings));
    }

    #[test]
    fn a_running_clock_never_goes_back() {
        let clock = LedgerClock::new(Anchor::first(&Readings::take()));
        let ahead = clock.now().plus(60_000);
        assert_eq!(clock.at_least(ahead), ahead);
        assert_eq!(clock.at_least(Millis(5)), ahead);
        assert!(clock.now() >= ahead);
    }
}
