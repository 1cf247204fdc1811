//! The gate of a ledger: whether it takes writes. It lets a ledger move to another place without any key being claimed in
//! both.
//!
//! A move has two ends. The one that is left goes from [`Gate::Open`] over [`Gate::Closing`] (attempts under way may end,
//! none may begin) to [`Gate::Closed`] (nothing is written any more, and what is remembered is still told), and stays
//! there: a program that still points at it can replay, and never run. The one that is filled is [`Gate::Filling`] until
//! everything is there and compared, and then open. So at no moment do both take claims, whoever is killed when.

use std::sync::Arc;

use crate::audit::{Event, EventKind, LoggedEvent};
use crate::record::{Millis, Record};
use crate::store::{StoreError, StoreErrorKind};
use crate::tally::Tally;

/// A move of a ledger from one place to another, as each end remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Names the move, at both ends.
    pub id: [u8; 16],
    /// Names the program that took it up last, at random: of two that work on a move, only one may write.
    pub run: u64,
    /// The other end, for messages: an address without secrets.
    pub other: String,
    /// What is added to times of the old ledger's clock so that they mean the same by the new one's.
    pub shift_ms: i64,
    /// Since when the old ledger's clock had run without a gap when the move began.
    pub steady_since: Millis,
}

/// Whether a ledger takes writes. Kept in the ledger itself, and looked at in the same atomic step as every write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Gate {
    /// It does.
    #[default]
    Open,
    /// Attempts under way may end, and none may begin: it is about to move.
    Closing(Move),
    /// Nothing is written any more; what is remembered is still told.
    Closed(Move),
    /// Nothing is written but what this move brings.
    Filling(Move),
}

/// What a move brings, a part at a time.
#[derive(Debug, Clone, Default)]
pub struct Import {
    /// Records, with their times. Their versions are new ones of the ledger that takes them. One that is there already
    /// stays as it is.
    pub records: Vec<Arc<Record>>,
    /// Events with their times, in their order, after all that are there. Their places are new ones.
    pub events: Vec<LoggedEvent>,
    /// Counters, which are raised to these totals where they are lower.
    pub tallies: Vec<Tally>,
}

/// The answer of a ledger that has no gate to one who wants to turn it, or to bring something.
pub fn cannot_move(ledger: &str) -> StoreError {
    let message = format!("ledgers like {ledger} cannot be moved by this program; nothing was written");
    StoreError::before(StoreErrorKind::Unsuitable, message)
}

impl Gate {
    /// Whether a write with these events may take place; else the refusal, in the name of this ledger.
    pub fn admits(&self, ledger: &str, events: &[Event]) -> Result<(), StoreError> {
        match self {
            Self::Open => Ok(()),
            Self::Closing(_) if events.iter().all(|event| event.kind != EventKind::Began) => Ok(()),
            Self::Closing(_) | Self::Closed(_) | Self::Filling(_) => Err(self.refusal(ledger)),
        }
    }

    /// Whether what is due may be dropped.
    pub fn admits_purge(&self, ledger: &str) -> Result<(), StoreError> {
        self.admits(ledger, &[])
    }

    /// Whether an import of this move may take place.
    pub fn admits_import(&self, ledger: &str, under: &Move) -> Result<(), StoreError> {
        match self {
            Self::Filling(current) if current == under => Ok(()),
            Self::Filling(current) if current.id == under.id => Err(StoreError::before(
                StoreErrorKind::Moved,
                format!("another program has taken up the move into {ledger}; nothing was written"),
            )),
            _ => Err(StoreError::before(
                StoreErrorKind::Moved,
                format!("the ledger {ledger} is not being filled by this move; nothing was written"),
            )),
        }
    }

    /// The move that this ledger is in, or was in last.
    pub fn of_move(&self) -> Option<&Move> {
        match self {
            Self::Open => None,
            Self::Closing(of) | Self::Closed(of) | Self::Filling(of) => Some(of),
        }
    }

    /// The word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closing(_) => "closing",
            Self::Closed(_) => "closed",
            Self::Filling(_) => "filling",
        }
    }

    /// What a writer is told that this gate does not let in.
    pub fn refusal(&self, ledger: &str) -> StoreError {
        let message = match self {
            Self::Open => format!("the ledger {ledger} takes writes again; nothing was written; try again"),
            Self::Closing(to) | Self::Closed(to) => format!(
                "the ledger {ledger} is moving, or has moved, to {other}: what it remembers is still told, and nothing \
                 new begins here; nothing was written; point this program at {other} (a move that was broken off goes on \
                 with the same `oncely store copy`)",
                other = to.other
            ),
            Self::Filling(from) => format!(
                "the ledger {ledger} is being filled from {}, and not complete; nothing was written; finish it with the \
                 same `oncely store copy`",
                from.other
            ),
        };
        StoreError::before(StoreErrorKind::Moved, message)
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, Move};
    use crate::audit::{Event, EventKind};
    use crate::name::IntentId;
    use crate::record::Millis;

    fn of() -> Move {
        Move { id: [1; 16], run: 1, other: "elsewhere:".into(), shift_ms: 0, steady_since: Millis(0) }
    }

    #[test]
    fn only_an_open_gate_lets_an_attempt_begin() {
        let began = [Event::new(IntentId([1; 32]), 1, EventKind::Began)];
        let ended = [Event::new(IntentId([1; 32]), 1, EventKind::Succeeded)];
        for (gate, begins, ends) in [
            (Gate::Open, true, true),
            (Gate::Closing(of()), false, true),
            (Gate::Closed(of()), false, false),
            (Gate::Filling(of()), false, false),
        ] {
            assert_eq!(gate.admits("here:", &began).is_ok(), begins, "{gate:?}");
            assert_eq!(gate.admits("here:", &ended).is_ok(), ends, "{gate:?}");
            assert_eq!(gate.admits("here:", &[]).is_ok(), ends, "{gate:?}");
        }
    }

    #[test]
    fn only_the_latest_run_of_a_move_may_import() {
        let gate = Gate::Filling(of());
        assert!(gate.admits_import("here:", &of()).is_ok());
        assert!(gate.admits_import("here:", &Move { run: 0, ..of() }).is_err());
        assert!(gate.admits_import("here:", &Move { id: [2; 16], ..of() }).is_err());
        assert!(Gate::Open.admits_import("here:", &of()).is_err());
    }

    #[test]
    fn a_refusal_names_the_other_end() {
        let message = Gate::Closed(of()).refusal("here:").message;
        assert!(message.contains("here:") && message.contains("elsewhere:"), "{message}");
    }
}
