//! Moves a ledger to another place: every record, event and counter, compared one by one; and no key can be claimed in
//! both places, whoever is killed when.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use oncely::transfer::Transfer;
//! use std::time::Duration;
//!
//! let (old, new) = (oncely_store::open("memory:").await?, oncely_store::open("memory:").await?);
//! let report = Transfer::new(old, new).run(Duration::ZERO, |_| {}).await?;
//! assert_eq!(report.records, 0);
//! # Ok(())
//! # }
//! ```
//!
//! The order of steps, and why a kill between any two of them is harmless:
//!
//! 1. The new ledger is marked as *filling*: it takes no claims. Nothing else has changed.
//! 2. The old one is marked as *closing*: attempts under way may end, none may begin. A claim that is acknowledged was
//!    made before, and is there to be seen. From here on the old ledger never takes a claim again, unless the move is
//!    given up while the new one is still filling.
//! 3. When no attempt is under way any more, the old one is *closed*: nothing is written to it. It is still read, so that
//!    duplicates get their answers.
//! 4. Records, events and counters are brought over. All of it may be repeated: what is there stays.
//! 5. The old ledger is closed once more: its servers may have failed over, and lost that it was. Then everything is
//!    compared, with what may have come in meanwhile.
//! 6. The new ledger is opened. Only now can a key be claimed again, and it knows all of them.
//!
//! Times are moved by the difference between the two clocks, so that a record is as old there as it was here.

mod carry;
mod compare;
mod gates;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::{Gate, Move, Record, State, StateName, Store, StoreError, Unreadable};

use crate::answer::Answer;
use crate::engine::Oncely;

/// Records or events that are read and brought at once: each may keep a megabyte.
const PAGE: usize = 128;
/// Who has taken up a move that was given up: nobody.
const GIVEN_UP: u64 = 0;
/// Who has taken up a move that is finished, as the old ledger remembers it.
const FINISHED: u64 = u64::MAX;

/// A move from one ledger to another.
pub struct Transfer {
    from: Oncely,
    to: Arc<dyn Store>,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Attempts under way are waited for.
    Waiting,
    /// Records are brought over.
    Records,
    /// Events are brought over.
    Events,
    /// Everything is compared.
    Comparing,
}

impl Stage {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting for attempts under way",
            Self::Records => "records",
            Self::Events => "events",
            Self::Comparing => "comparing",
        }
    }
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// With what.
    pub stage: Stage,
    /// How many are done; while waiting, how many are under way.
    pub done: u64,
    /// Of how many, where that is known.
    pub of: Option<u64>,
}

/// What a move has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The ledger that was left.
    pub from: String,
    /// The ledger that holds everything now.
    pub to: String,
    /// Records that were compared and are equal.
    pub records: u64,
    /// How many of them are in each state.
    pub states: Vec<(StateName, u64)>,
    /// Events that were compared and are equal.
    pub events: u64,
    /// Counters that were compared.
    pub counters: u64,
    /// What was added to every time.
    pub shift_ms: i64,
    /// Whether an earlier run had begun it.
    pub resumed: bool,
}

/// Why a ledger was not moved, or not to the end.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransferError {
    /// Attempts are under way; nothing was moved.
    #[error("{} attempts are under way in {ledger}; nothing was moved, and it takes calls as before", .running.len())]
    Running {
        /// The old ledger.
        ledger: String,
        /// The first of them.
        running: Vec<Arc<Record>>,
    },
    /// A record cannot be read; nothing was moved.
    #[error(
        "the record {} in {ledger} cannot be read: {}; nothing was moved, and it takes calls as before",
        .record.intent, .record.why
    )]
    Unreadable {
        /// The old ledger.
        ledger: String,
        /// The first such record.
        record: Unreadable,
    },
    /// The new ledger holds something that this move did not bring.
    #[error("the ledger {0} is not empty; nothing was moved")]
    NotEmpty(String),
    /// Both ends are one ledger, perhaps under two names.
    #[error("{0} cannot be moved to itself; nothing was moved, and it takes calls as before")]
    Same(String),
    /// One of the ledgers is part of another move.
    #[error("{0}")]
    Elsewhere(String),
    /// Everything was moved before.
    #[error("{from} was moved to {to} before; there is nothing left to do")]
    Finished {
        /// The old ledger.
        from: String,
        /// The new one.
        to: String,
    },
    /// What arrived is not what was sent.
    #[error("{0}; the move is not finished: the old ledger stays closed and the new one takes no calls")]
    Differs(String),
    /// A ledger cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transfer({} -> {})", self.from.store().describe(), self.to.describe())
    }
}

impl Transfer {
    /// A move between these. Give the ledgers themselves, not sealed ones: what is encrypted is moved as it is.
    pub fn new(from: Arc<dyn Store>, to: Arc<dyn Store>) -> Self {
        Self { from: Oncely::new(from), to }
    }

    /// Moves everything, or goes on where a move was broken off. Attempts under way are waited for at most this long;
    /// meanwhile none can begin. If some are left, nothing is moved and the old ledger takes calls as before.
    pub async fn run(
        &self,
        wait: Duration,
        mut progress: impl FnMut(&Progress),
    ) -> Result<Report, TransferError> {
        let (of, resumed) = self.enter(wait).await?;
        self.close(&of, wait, &mut progress).await?;
        self.bring_records(&of, &mut progress).await?;
        self.bring_events(&of, &mut progress).await?;
        let counters = self.bring_counters(&of).await?;
        self.hold_closed(&of).await?;
        let report = self.compare(&of, &counters, &mut progress).await?;
        self.turn(&self.to, Gate::Filling(of), Gate::Open).await?;
        self.mark_finished().await?;
        Ok(Report { resumed, ..report })
    }

    /// Gives a move up: the old ledger takes calls again. Refused once the new one was opened. What the new one holds by
    /// then stays closed for good: it is a part of the old one, and getting older.
    pub async fn give_up(&self) -> Result<(), TransferError> {
        let (left, filled) = (self.from().gate().await?, self.to.gate().await?);
        if self.free_itself(&left, &filled).await? {
            return Err(TransferError::Same(self.to.describe()));
        }
        let (Gate::Closing(out) | Gate::Closed(out)) = &left else {
            return Err(self.elsewhere(&left, &filled));
        };
        match &filled {
            // Given up before, and killed on the way.
            Gate::Filling(into) if into.id == out.id && into.run == GIVEN_UP => {}
            // First the new one: whoever works on the move at this moment must not open it any more.
            Gate::Filling(into) if into.id == out.id => {
                let ended = Gate::Filling(Move { run: GIVEN_UP, ..into.clone() });
                self.turn(&self.to, filled.clone(), ended).await?;
            }
            // The new one is opened only when the old one is closed: this was left by a move that was not begun.
            Gate::Open if matches!(left, Gate::Closing(_)) && out.other == self.to.describe() => {}
            _ => return Err(self.elsewhere(&left, &filled)),
        }
        self.turn(self.from(), left, Gate::Open).await
    }
}

impl Oncely {
    /// A rejection is not final: where the ledger went, the key may have run since. So a ledger that has moved does not tell
    /// that nothing happened.
    pub(crate) async fn check_final(&self, answer: &Answer) -> Result<(), StoreError> {
        match answer {
            Answer::Refused(_) => self.store().gate().await?.admits(&self.store().describe(), &[]),
            _ => Ok(()),
        }
    }
}

/// Whether a record says that an attempt is under way.
fn is_running(record: &Record) -> bool {
    matches!(record.body.state, State::Running { .. })
}
