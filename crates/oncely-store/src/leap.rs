//! The clock of a server, as this process has seen it, and what is done when it leaps.
//!
//! A server's wall clock may be set; how long ago something was is then not known. Between two answers it cannot have gained
//! much on the time since boot of this machine. If it has, records are not judged by it, and it is not taken for the time.

use std::sync::{Mutex, PoisonError};

use oncely_core::Millis;

use crate::clock::boottime_ms;

/// How much a server's clock may gain or lose between two answers: 5 minutes.
const LEAP_MS: u64 = 5 * 60 * 1000;

/// How far behind the newest one a time may be because answers overtake each other: 1 second.
const DISORDER_MS: u64 = 1_000;

/// The clock of one server, or of those that take over from each other.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Seen>);

/// What was seen last.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    newest_ms: u64,
    last: Option<Answer>,
    /// How long ago something was that was stamped before this is not known: the clock was set far back.
    doubted_ms: u64,
}

/// The server's clock at an answer, and ours when it was asked and when that was read: it may have lain there for long.
#[derive(Debug, Clone, Copy)]
struct Answer {
    theirs_ms: u64,
    asked_ms: u64,
    read_ms: u64,
}

/// When a server was asked, by our clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked(u64);

impl Asked {
    pub(crate) fn now() -> Self {
        Self(boottime_ms())
    }
}

/// A server's clock has leapt ahead by so many milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leapt(pub(crate) u64);

impl Leapt {
    /// Why nothing is judged by the clock of this server.
    pub(crate) fn text(self, server: &str) -> String {
        self.therefore(server, "records are not judged by it, since keys would look forgotten that are not")
    }

    /// What follows from it, and what to do.
    pub(crate) fn therefore(self, server: &str, what: &str) -> String {
        format!(
            "the clock of {server} has leapt ahead by {} s; {what}; set it right, or start this program anew to accept it",
            self.0 / 1_000
        )
    }
}

impl ServerClock {
    /// Takes note of the server's clock, and returns the newest time known of it.
    pub(crate) fn told(&self, now: Millis, asked: Asked) -> Result<Millis, Leapt> {
        self.with(|seen| seen.told(now.0, asked.0, boottime_ms()))
    }

    /// Takes note of the server's clock, and returns the time by which to judge what other processes have stamped with it.
    pub(crate) fn judged(&self, now: Millis, asked: Asked) -> Result<Millis, Leapt> {
        self.with(|seen| seen.judged(now.0, asked.0, boottime_ms()))
    }

    /// The same at a write, which stands whatever the clock said: a leap is not taken for the time.
    pub(crate) fn written(&self, at: Millis, asked: Asked) -> Millis {
        self.with(|seen| seen.told(at.0, asked.0, boottime_ms()).unwrap_or(Millis(seen.newest_ms)))
    }

    /// The newest time that was rightly seen.
    pub(crate) fn newest(&self) -> Millis {
        self.with(|seen| Millis(seen.newest_ms))
    }

    /// Takes note of a stamp: one that is far ahead of the clock was set by another one.
    #[cfg(feature = "redis")]
    pub(crate) fn stamped(&self, at: Millis) {
        self.with(|seen| seen.stamped(at.0));
    }

    /// Before this the clock was another one: it has been set far back since.
    pub(crate) fn doubted(&self) -> Millis {
        self.with(|seen| Millis(seen.doubted_ms))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Seen {
    fn told(&mut self, now_ms: u64, asked_ms: u64, ours_ms: u64) -> Result<Millis, Leapt> {
        let mut reached_ms = self.newest_ms;
        if let Some(last) = self.last {
            let gained =
                now_ms.saturating_sub(last.theirs_ms).saturating_sub(ours_ms.saturating_sub(last.asked_ms));
            if gained > LEAP_MS {
                return Err(Leapt(gained));
            }
            // Others may have stamped with all that it told before it was set back, also where nobody here looked.
            reached_ms = reached_ms.max(last.theirs_ms.saturating_add(asked_ms.saturating_sub(last.read_ms)));
        }
        // A clock that was set back is measured from there on; the time that was told stands still meanwhile.
        self.last = Some(Answer { theirs_ms: now_ms, asked_ms, read_ms: ours_ms });
        self.stamped(reached_ms);
        self.newest_ms = self.newest_ms.max(now_ms);
        Ok(Millis(self.newest_ms))
    }

    /// Stamps stand still while the clock is behind them, but not quite: each is a little above the one before.
    fn stamped(&mut self, at_ms: u64) {
        if self.last.is_some_and(|last| at_ms.saturating_sub(last.theirs_ms) > LEAP_MS) {
            self.doubted_ms = self.doubted_ms.max(at_ms.saturating_add(LEAP_MS));
        }
    }

    /// Others stamp with a clock that was set back: by a time that stands still above it, what they wrote just now would be
    /// old. By the clock itself nothing looks older than it is.
    fn judged(&mut self, now_ms: u64, asked_ms: u64, ours_ms: u64) -> Result<Millis, Leapt> {
        let newest = self.told(now_ms, asked_ms, ours_ms)?;
        Ok(if newest.0 - now_ms > DISORDER_MS { Millis(now_ms) } else { newest })
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, DISORDER_MS, LEAP_MS, Leapt, Seen, ServerClock};
    use crate::clock::boottime_ms;
    use oncely_core::Millis;

    #[test]
    fn a_clock_may_be_set_back_and_drift_but_not_leap() {
        let mut seen = Seen::default();
        assert_eq!(seen.told(1_000_000, 50, 50), Ok(Millis(1_000_000)));
        assert_eq!(seen.told(900_000, 60, 60), Ok(Millis(1_000_000)), "it never runs backwards");
        assert_eq!(seen.told(900_010, 70, 70), Ok(Millis(1_000_000)));
        let day = 86_400_000;
        assert_eq!(
            seen.told(900_010 + day, 70 + day, 70 + day),
            Ok(Millis(900_010 + day)),
            "nobody asked for a day"
        );
        let leap = 900_010 + day + LEAP_MS + 1;
        assert_eq!(seen.told(leap, 70 + day, 70 + day), Err(Leapt(LEAP_MS + 1)));
        assert_eq!(
            seen.told(leap, 70 + day, 70 + day),
            Err(Leapt(LEAP_MS + 1)),
            "it does not become true by being repeated"
        );
        assert!(seen.told(900_020 + day, 80 + day, 80 + day).is_ok(), "once it is set right, all is well");
    }

    #[test]
    fn what_others_stamp_with_a_clock_that_was_set_back_does_not_look_old() {
        let mut seen = Seen::default();
        let hour = 3_600_000;
        assert_eq!(seen.judged(2 * hour, 50, 50), Ok(Millis(2 * hour)));
        let overtaken = 2 * hour - DISORDER_MS;
        assert_eq!(seen.judged(overtaken, 60, 60), Ok(Millis(2 * hour)), "answers overtake each other");
        assert_eq!(seen.doubted_ms, 0);
        assert_eq!(seen.judged(hour, 70, 70), Ok(Millis(hour)), "ages are those of the clock that stamps");
        assert_eq!(seen.newest_ms, 2 * hour, "and no stamp of ours is below an earlier one");
        assert!(seen.doubted_ms > 2 * hour, "how long ago something up to then was is not known");
        assert_eq!(seen.judged(hour + 10, 80, 80), Ok(Millis(hour + 10)));
    }

    #[test]
    fn a_clock_that_was_set_back_while_nobody_looked_is_noticed_by_our_own() {
        let mut seen = Seen::default();
        let hour = 3_600_000;
        assert!(seen.told(10 * hour, 10, 20).is_ok());
        // Read late, but asked soon: the clock need not have gone on.
        assert!(seen.told(10 * hour + 20, 30, 3 * hour).is_ok());
        assert_eq!(seen.doubted_ms, 0);
        // It went on for two hours, and was set back by one.
        assert!(seen.told(11 * hour, 5 * hour, 5 * hour).is_ok());
        assert!(seen.doubted_ms > 12 * hour, "others have stamped with it until then");
    }

    #[test]
    fn a_stamp_far_ahead_of_the_clock_shows_that_it_was_set_back() {
        let mut seen = Seen::default();
        let hour = 3_600_000;
        assert!(seen.told(hour, 10, 10).is_ok());
        seen.stamped(hour + LEAP_MS);
        assert_eq!(seen.doubted_ms, 0);
        seen.stamped(2 * hour);
        assert!(seen.doubted_ms > 2 * hour);
        assert_eq!(seen.newest_ms, hour, "it is not taken for the time");
    }

    #[test]
    fn a_write_under_a_clock_that_has_leapt_stands_and_is_not_taken_for_the_time() {
        let clock = ServerClock::default();
        let (now, asked) = (Millis(boottime_ms()), Asked::now());
        assert_eq!(clock.written(now, asked), now);
        assert_eq!(clock.written(now.plus(10 * LEAP_MS), asked), now);
        assert_eq!(clock.newest(), now);
        assert!(clock.judged(now.plus(10 * LEAP_MS), asked).is_err());
        assert_eq!(clock.judged(now, asked), Ok(now));
    }

    #[test]
    fn an_answer_that_was_read_late_makes_no_leap_of_the_next_one() {
        let mut seen = Seen::default();
        let hour = 3_600_000;
        assert!(seen.told(hour, 10, 20).is_ok());
        // The machine slept while the answer lay there.
        assert!(seen.told(hour + 20, 30, hour).is_ok());
        assert_eq!(seen.told(2 * hour, hour, hour + 10), Ok(Millis(2 * hour)));
        assert!(seen.told(3 * hour, hour + 20, hour + 30).is_err(), "and a leap is still one");
    }
}
