//! The two gates of a move: who may write where, at every moment.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::machine::{Decision, Input, Verdict, Write, step};
use oncely_core::{
    Change, Failure, Filter, Gate, Move, Record, Replaced, StateName, Store, StoreError, StoreErrorKind,
};
use tokio::time::Instant;

use super::{FINISHED, GIVEN_UP, PAGE, Progress, Stage, Transfer, TransferError, is_running};

/// Most running records that a refusal lists.
const LISTED_MAX: usize = 100;
/// Pause between two looks at attempts under way.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Transfer {
    pub(super) fn from(&self) -> &Arc<dyn Store> {
        self.from.store()
    }

    /// Marks both ends, or takes up a move that is marked already. The answer is how the new ledger remembers it, and
    /// whether something may have been brought already.
    pub(super) async fn enter(&self, wait: Duration) -> Result<(Move, bool), TransferError> {
        let (left, filled) = (self.from().gate().await?, self.to.gate().await?);
        if self.free_itself(&left, &filled).await? {
            return Err(TransferError::Same(self.to.describe()));
        }
        match (&left, &filled) {
            (Gate::Open, Gate::Open) => {
                let running = self.running().await?;
                if !running.is_empty() && wait.is_zero() {
                    return Err(self.refusal(running));
                }
                self.check_readable().await?;
                self.check_empty().await?;
                self.drop_due().await?;
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
                let id = if into.run == GIVEN_UP { fresh.id } else { into.id };
                let again = Move { id, ..fresh };
                self.turn(&self.to, filled.clone(), Gate::Filling(again.clone())).await?;
                self.leave(&again).await?;
                Ok((again, true))
            }
            (Gate::Closing(out) | Gate::Closed(out), Gate::Filling(into))
                if out.id == into.id && into.run != GIVEN_UP =>
            {
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
            stands => {
                let filled = Gate::Filling(into.clone());
                let error = match stands == filled {
                    // The mark of the one is the mark of the other.
                    true => TransferError::Same(self.to.describe()),
                    false => self.elsewhere(&stands, &filled),
                };
                // Nothing was brought under this mark: the new ledger is as it was.
                self.turn(&self.to, filled, Gate::Open).await?;
                Err(error)
            }
        }
    }

    /// Opens a ledger again that was to be moved to itself, under another name, by a program that was killed before it
    /// noticed; answers whether it was one. Then the mark of the one end is the mark of the other, and nothing has come
    /// in under it: only an empty ledger is marked.
    pub(super) async fn free_itself(&self, left: &Gate, filled: &Gate) -> Result<bool, TransferError> {
        let Gate::Filling(into) = filled else { return Ok(false) };
        let ours = [self.from().describe(), self.to.describe()].contains(&into.other);
        if left != filled || !ours || into.run == GIVEN_UP {
            return Ok(false);
        }
        match self.check_empty().await {
            Err(TransferError::NotEmpty(_)) => return Ok(false),
            checked => checked?,
        }
        // Two ledgers can bear one mark, if one is a copy of the other. A new mark shows whether they do.
        let proof = Gate::Filling(Move { run: random_run()?, ..into.clone() });
        self.turn(&self.to, filled.clone(), proof.clone()).await?;
        let same = self.from().gate().await? == proof;
        let back = if same { Gate::Open } else { filled.clone() };
        self.turn(&self.to, proof, back).await?;
        Ok(same)
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

    /// A move brings every record: one that cannot be read is found before anything has changed, not half-way.
    async fn check_readable(&self) -> Result<(), TransferError> {
        let mut place = 0;
        loop {
            let page = self.from().scan(Filter::default(), place, PAGE).await?;
            if let Some(record) = page.unreadable.into_iter().next() {
                return Err(TransferError::Unreadable { ledger: self.from().describe(), record });
            }
            match page.next {
                Some(next) => place = next,
                None => return Ok(()),
            }
        }
    }

    /// What is due goes before the move, not within it: some servers drop it by themselves in the end, and then it would be
    /// missed where everything is compared. What somebody holds at the moment stays, and is moved.
    async fn drop_due(&self) -> Result<(), TransferError> {
        while self.from().purge(PAGE).await?.more {}
        Ok(())
    }

    async fn check_empty(&self) -> Result<(), TransferError> {
        let found = self.to.scan(Filter::default(), 0, 1).await?;
        let records = found.items.len() + found.unreadable.len();
        let events = self.to.log(oncely_core::LogQuery { limit: 1, ..Default::default() }).await?.items.len();
        let counters = self.to.tallies().await?.len();
        match records + events + counters {
            0 => Ok(()),
            _ => Err(TransferError::NotEmpty(self.to.describe())),
        }
    }

    /// Waits for attempts under way, and closes the old ledger.
    pub(super) async fn close(
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
            self.check_filling(of, &left).await?;
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

    /// Looks whether the new ledger still waits for this very run: another may have taken the move up, or ended it. An old
    /// ledger that was closed for a new one that is not filled would send everybody to where no key is known.
    async fn check_filling(&self, of: &Move, left: &Gate) -> Result<(), TransferError> {
        let filled = self.to.gate().await?;
        match &filled {
            Gate::Filling(into) if into == of => return Ok(()),
            Gate::Filling(into) if into.id == of.id && into.run != GIVEN_UP => {}
            _ => self.turn(self.from(), left.clone(), Gate::Open).await?,
        }
        Err(TransferError::Elsewhere(format!(
            "another program has taken the move up, or ended it: {} is {}; look again with `oncely store check`",
            self.to.describe(),
            filled.as_str()
        )))
    }

    /// Turns the gate of the old ledger to where it stands: answered, it is closed everywhere and durably, whatever was
    /// lost of it since it was turned first.
    pub(super) async fn hold_closed(&self, of: &Move) -> Result<(), TransferError> {
        let left = self.from().gate().await?;
        match &left {
            Gate::Closed(out) if out.id == of.id => self.turn(self.from(), left.clone(), left.clone()).await,
            _ => Err(self.elsewhere(&left, &Gate::Filling(of.clone()))),
        }
    }

    /// Writes down in the old ledger that the new one is open: from then on there is nothing to take up or to give up.
    pub(super) async fn mark_finished(&self) -> Result<(), TransferError> {
        let left = self.from().gate().await?;
        match &left {
            Gate::Closed(out) if out.run != FINISHED => {
                let finished = Gate::Closed(Move { run: FINISHED, ..out.clone() });
                self.turn(self.from(), left.clone(), finished).await
            }
            _ => Ok(()),
        }
    }

    /// The attempts under way. One whose owner is lost is written down as in doubt, as the next call would.
    async fn running(&self) -> Result<Vec<Arc<Record>>, TransferError> {
        let filter = Filter { state: Some(StateName::Running), ..Filter::default() };
        let (mut running, mut place) = (Vec::new(), 0);
        loop {
            let page = self.from().scan(filter.clone(), place, PAGE).await?;
            if let Some(record) = page.unreadable.into_iter().next() {
                return Err(TransferError::Unreadable { ledger: self.from().describe(), record });
            }
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
                        let put =
                            self.from().replace(record.intent, record.version, change, transition.events);
                        // Its owner has renewed it meanwhile, and lives.
                        if let Replaced::Stale(Some(there)) = put.await?
                            && is_running(&there.record)
                        {
                            running.push(there.record);
                        }
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

    pub(super) async fn turn(
        &self,
        store: &Arc<dyn Store>,
        from: Gate,
        to: Gate,
    ) -> Result<(), TransferError> {
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

    /// A move that is finished says so in the old ledger. One that was killed right before is told by what is there.
    async fn finished_or_elsewhere(
        &self,
        left: &Gate,
        filled: &Gate,
    ) -> Result<TransferError, TransferError> {
        if let (Gate::Closed(out), Gate::Open) = (left, filled)
            && out.other == self.to.describe()
            && (out.run == FINISHED || self.all_is_there().await?)
        {
            self.mark_finished().await?;
            return Ok(TransferError::Finished { from: self.from().describe(), to: self.to.describe() });
        }
        Ok(self.elsewhere(left, filled))
    }

    /// Says in which moves the two ledgers are.
    pub(super) fn elsewhere(&self, left: &Gate, filled: &Gate) -> TransferError {
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
    let run = getrandom::u64().map_err(not_random)?;
    // The two ends of the range have a meaning.
    Ok(run.clamp(GIVEN_UP + 1, FINISHED - 1))
}

fn not_random(error: getrandom::Error) -> StoreError {
    let message = format!("the system gives no random numbers: {error}; nothing was moved");
    StoreError::before(StoreErrorKind::Unavailable, message)
}
