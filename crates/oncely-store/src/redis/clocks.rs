//! The newest time seen of each shard, and what is done when a server's clock leaps.
//!
//! Each shard has the clock of its server: to judge a record by another one's would end leases too early. The server's
//! wall clock may be set; how long ago something was is then not known. Between two answers it cannot have gained much on
//! the time since boot of this machine. If it has, records are not judged by it.

use std::sync::{Mutex, PoisonError};

use oncely_core::Millis;

use crate::clock::boottime_ms;

/// How much a server's clock may gain between two answers: 5 minutes.
const LEAP_MS: u64 = 5 * 60 * 1000;

/// The clocks of all shards.
pub(crate) struct Clocks(Vec<Mutex<Seen>>);

/// What was seen last.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    newest_ms: u64,
    /// The server's clock and ours at the last answer.
    last: Option<(u64, u64)>,
}

/// A server's clock has leapt ahead by so many milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leapt(pub(crate) u64);

impl Clocks {
    pub(crate) fn new(shards: u16) -> Self {
        Self((0..shards).map(|_| Mutex::default()).collect())
    }

    /// Takes note of a shard's clock, and returns the newest time known of it.
    pub(crate) fn told(&self, shard: u16, now: Millis) -> Result<Millis, Leapt> {
        match self.0.get(usize::from(shard)) {
            Some(seen) => seen.lock().unwrap_or_else(PoisonError::into_inner).told(now.0, boottime_ms()),
            None => Ok(now),
        }
    }

    /// The time of a write to a record that was there. It is the record's, whatever it is; but a leap is not taken for the
    /// time. A claim is another matter: whether there was no record is the server's word, and it forgets by its clock.
    pub(crate) fn written(&self, shard: u16, at: Millis) -> Millis {
        match self.0.get(usize::from(shard)) {
            Some(seen) => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.told(at.0, boottime_ms()).unwrap_or(Millis(seen.newest_ms))
            }
            None => at,
        }
    }
}

impl Seen {
    fn told(&mut self, now_ms: u64, ours_ms: u64) -> Result<Millis, Leapt> {
        if let Some((theirs, ours)) = self.last {
            let gained = now_ms.saturating_sub(theirs).saturating_sub(ours_ms.saturating_sub(ours));
            if gained > LEAP_MS {
                return Err(Leapt(gained));
            }
        }
        // A clock that was set back is measured from there on; the time that was told stands still meanwhile.
        self.last = Some((now_ms, ours_ms));
        self.newest_ms = self.newest_ms.max(now_ms);
        Ok(Millis(self.newest_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAP_MS, Leapt, Seen};
    use oncely_core::Millis;

    #[test]
    fn a_clock_may_be_set_back_and_drift_but_not_leap() {
        let mut seen = Seen::default();
        assert_eq!(seen.told(1_000_000, 50), Ok(Millis(1_000_000)));
        assert_eq!(seen.told(900_000, 60), Ok(Millis(1_000_000)), "it never runs backwards");
        assert_eq!(seen.told(900_010, 70), Ok(Millis(1_000_000)));
        let day = 86_400_000;
        assert_eq!(seen.told(900_010 + day, 70 + day), Ok(Millis(900_010 + day)), "nobody asked for a day");
        let leap = 900_010 + day + LEAP_MS + 1;
        assert_eq!(seen.told(leap, 70 + day), Err(Leapt(LEAP_MS + 1)));
        assert_eq!(
            seen.told(leap, 70 + day),
            Err(Leapt(LEAP_MS + 1)),
            "it does not become true by being repeated"
        );
        assert!(seen.told(900_020 + day, 80 + day).is_ok(), "once it is set right, all is well");
    }
}
