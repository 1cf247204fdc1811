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
//! 5. Everything is compared.
//! 6. The new ledger is opened. Only now can a key be claimed again, and it knows all of them.
//!
//! Times are moved by the difference between the two clocks, so that a record is as old there as it was here.

mod carry;
mod compare;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::machine::{Decision, Input, Verdict, Write, step};
use oncely_core::{
    Change, Failure, Filter, Gate, Move, Record, State, StateName, Store, StoreError, StoreErrorKind,
};
use tokio::time::Instant;

use crate::engine::Oncely;

/// Records or events that are read and brought at once: each may keep a megabyte.
const PAGE: usize = 128;
/// Most running records that a refusal lists.
const LISTED_MAX: usize = 100;
/// What the ledger that was being filled calls a move that was given up.
const GIVEN_UP: [u8; 16] = [0; 16];
/// Pause between two looks at attempts under way.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

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
    /// The new ledger holds something that this move did not bring.
    #[error("the ledger {0} is not empty; nothing was moved")]
    NotEmpty(String),
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
        self.bring_counters(&of).await?;
        let report = self.compare(&of, &mut progress).await?;
        self.turn(&self.to, Gate::Filling(of), Gate::Open).await?;
        Ok(Report { resumed, ..report })
    }

    /// Gives a move up: the old ledger takes calls again. Refused once the new one was opened. What the new one holds by
    /// then stays closed for good: it is a part of the old one, and getting older.
    pub async fn give_up(&self) -> Result<(), TransferError> {
        let (left, filled) = (self.from().gate().await?, self.to.gate().await?);
        let (Gate::Closing(out) | Gate::Closed(out)) = &left else {
            return Err(self.elsewhere(&left, &filled));
        };
        match &filled {
            // First the new one: whoever works on the move at this moment must not open it any more.
            Gate::Filling(into) if into.id == out.id => {
                let ended = Gate::Filling(Move { id: GIVEN_UP, ..into.clone() });
                self.turn(&self.to, filled.clone(), ended).await?;
            }
            // Given up before, and killed on the way.
            Gate::Filling(into) if into.id == GIVEN_UP && into.other == self.from().describe() => {}
            _ => return Err(self.elsewhere(&left, &filled)),
        }
        self.turn(self.from(), left, Gate::Open).await
    }

    fn from(&self) -> &Arc<dyn Store> {
        self.from.store()
    }

    /// Marks both ends, or takes up a move that is marked already. The answer is how the new ledger remembers it, and
    /// whether something may have been brought already.
    async fn enter(&self, wait: Duration) -> Result<(Move, bool), TransferError> {
        let (left, filled) = (self.from().gate().await?, self.to.gate().await?);
        match (&left, &filled) {
            (Gate::Open, Gate::Open) => {
                let running = self.running().await?;
                if !running.is_empty() && wait.is_zero() {
                    return Err(self.refusal(running));
                }
                self.check_empty().await?;
                let into = self.new_move().await?;
                self.turn(&self.to, Gate::Open, Gate::Filling(into.clone())).await?;
                if let Err(error) = self.check_empty().await {
                    // It came in before the mark: nobody else writes under a mark that is ours alone.
                    self.turn(&self.to, Gate::Filling(into), Gate::Open).await?;
                    return Err(error);
                }
                self.leave(&into).await?;
                Ok((into, false))
            }
            // Killed before the old one was marked: as long as nothing was brought, it is as good as not begun.
            (Gate::Open, Gate::Filling(into)) if into.other == self.from().describe() => {
                self.check_empty().await?;
                let fresh = self.new_move().await?;
                // The same name, in case somebody is about to mark the old one with it; unless it was given up.
                let id = if into.id == GIVEN_UP { fresh.id } else { into.id };
                let again = Move { id, ..fresh };
                self.turn(&self.to, filled.clone(), Gate::Filling(again.clone())).await?;
                self.leave(&again).await?;
                Ok((again, true))
            }
            (Gate::Closing(out) | Gate::Closed(out), Gate::Filling(into)) if out.id == into.id => {
                let again = Move { run: random_run()?, ..into.clone() };
                self.turn(&self.to, filled.clone(), Gate::Filling(again.clone())).await?;
                Ok((again, true))
            }
            _ => Err(self.finished_or_elsewhere(&left, &filled).await?),
        }
    }

    /// Marks the old ledger as closing, unless somebody has done so for this very move.
    async fn leave(&self, into: &Move) -> Result<(), TransferError> {
        let out = Move { other: self.to.describe(), ..into.clone() };
        match self.from().turn_gate(Gate::Open, Gate::Closing(out)).await? {
            Gate::Closing(out) | Gate::Closed(out) if out.id == into.id => Ok(()),
            stands => Err(self.elsewhere(&stands, &Gate::Filling(into.clone()))),
        }
    }

    async fn new_move(&self) -> Result<Move, TransferError> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(not_random)?;
        // Read in this order, what passes in between makes records look younger there: they are kept for longer.
        let here = self.from().now().await?;
        let there = self.to.now().await?;
        let shift_ms = i64::try_from(i128::from(there.0) - i128::from(here.0)).unwrap_or(i64::MAX);
        let steady_since = self.from().steady_since();
        Ok(Move { id, run: random_run()?, other: self.from().describe(), shift_ms, steady_since })
    }

    async fn check_empty(&self) -> Result<(), TransferError> {
        let records = self.to.scan(Filter::default(), 0, 1).await?.items.len();
        let events = self.to.log(oncely_core::LogQuery { limit: 1, ..Default::default() }).await?.items.len();
        if records + events == 0 { Ok(()) } else { Err(TransferError::NotEmpty(self.to.describe())) }
    }

    /// Waits for attempts under way, and closes the old ledger.
    async fn close(
        &self,
        of: &Move,
        wait: Duration,
        progress: &mut impl FnMut(&Progress),
    ) -> Result<(), TransferError> {
        let deadline = Instant::now() + wait.min(Duration::from_millis(oncely_core::limits::DURATION_MS_MAX));
        loop {
            let left = self.from().gate().await?;
            let out = match &left {
                Gate::Closed(out) if out.id == of.id => return Ok(()),
                Gate::Closing(out) if out.id == of.id => out.clone(),
                _ => return Err(self.elsewhere(&left, &Gate::Filling(of.clone()))),
            };
            let running = self.running().await?;
            if running.is_empty() {
                return self.turn(self.from(), left, Gate::Closed(out)).await;
            }
            if Instant::now() >= deadline {
                // In this order: killed in between, the move is one that was not begun.
                self.turn(self.from(), left, Gate::Open).await?;
                self.turn(&self.to, Gate::Filling(of.clone()), Gate::Open).await?;
                return Err(self.refusal(running));
            }
            progress(&Progress { stage: Stage::Waiting, done: running.len() as u64, of: None });
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The attempts under way. One whose owner is lost is written down as in doubt, as the next call would.
    async fn running(&self) -> Result<Vec<Arc<Record>>, StoreError> {
        let filter = Filter { state: Some(StateName::Running), ..Filter::default() };
        let (mut running, mut place) = (Vec::new(), 0);
        loop {
            let page = self.from().scan(filter.clone(), place, PAGE).await?;
            for stored in page.items {
                let record = &stored.record;
                // The machine is asked as for a person's word, which it does not take while the record says running.
                let input = Input::Resolve {
                    by: "store copy",
                    doubted: record.body.token,
                    verdict: Verdict::Rejected(Failure::new("ASKED", "asked, not settled")),
                    liveness: self.from.liveness(record),
                };
                let transition = step(Some(record), &input, stored.now);
                match (transition.decision, transition.write) {
                    (Decision::Again, Write::Put(draft)) => {
                        let change = Change::Put(draft);
                        self.from().replace(record.intent, record.version, change, transition.events).await?;
                    }
                    _ if running.len() < LISTED_MAX => running.push(stored.record),
                    _ => return Ok(running),
                }
            }
            match page.next {
                Some(next) => place = next,
                None => return Ok(running),
            }
        }
    }

    async fn turn(&self, store: &Arc<dyn Store>, from: Gate, to: Gate) -> Result<(), TransferError> {
        let stands = store.turn_gate(from, to.clone()).await?;
        if stands == to {
            return Ok(());
        }
        Err(TransferError::Elsewhere(format!(
            "another program has moved the gate of {} meanwhile: it is {}; look again with `oncely store check`",
            store.describe(),
            stands.as_str()
        )))
    }

    fn refusal(&self, running: Vec<Arc<Record>>) -> TransferError {
        TransferError::Running { ledger: self.from().describe(), running }
    }

    async fn finished_or_elsewhere(&self, left: &Gate, filled: &Gate) -> Result<TransferError, StoreError> {
        if let (Gate::Closed(out), Gate::Open) = (left, filled) {
            let (from, to) = (self.from().describe(), self.to.describe());
            let nothing = |store: Arc<dyn Store>| async move {
                Ok::<_, StoreError>(store.scan(Filter::default(), 0, 1).await?.items.is_empty())
            };
            if out.other == to && (nothing(self.from().clone()).await? || !nothing(self.to.clone()).await?) {
                return Ok(TransferError::Finished { from, to });
            }
        }
        Ok(self.elsewhere(left, filled))
    }

    /// Says in which moves the two ledgers are.
    fn elsewhere(&self, left: &Gate, filled: &Gate) -> TransferError {
        let tell = |store: &dyn Store, gate: &Gate| {
            let ledger = store.describe();
            match gate {
                Gate::Open => format!("{ledger} is open"),
                Gate::Closing(of) | Gate::Closed(of) => {
                    format!("{ledger} is moving, or has moved, to {}", of.other)
                }
                Gate::Filling(of) => format!("{ledger} is being filled from {}", of.other),
            }
        };
        TransferError::Elsewhere(format!(
            "these two are not the ends of one move: {}; {}; nothing was changed",
            tell(&**self.from(), left),
            tell(&*self.to, filled)
        ))
    }
}

fn random_run() -> Result<u64, StoreError> {
    getrandom::u64().map_err(not_random)
}

fn not_random(error: getrandom::Error) -> StoreError {
    let message = format!("the system gives no random numbers: {error}; nothing was moved");
    StoreError::before(StoreErrorKind::Unavailable, message)
}

/// Whether a record says that an attempt is under way.
fn is_running(record: &Record) -> bool {
    matches!(record.body.state, State::Running { .. })
}
