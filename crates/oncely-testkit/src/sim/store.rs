//! One process's handle on the simulated ledger.

use std::sync::PoisonError;

use oncely_core::limits::PAGE_MAX;
use oncely_core::{
    AttemptToken, Change, Counter, Created, Draft, Event, Filter, Gate, Import, IntentId, Liveness, LogQuery,
    LoggedEvent, Millis, Move, Namespace, Owner, Page, PurgeReport, Replaced, State, StateName, Store,
    StoreError, StoreErrorKind, StoreFuture, StoreHealth, Stored, Tally, ToolName, Version,
};
use tokio::task::yield_now;

use super::world::{Inner, ProcessNumber, World};
use super::writes::{Answered, Asked, Reply};

/// Most ticks for which a watch waits before it lets the caller look again.
const WATCH_TICKS_MAX: u64 = 200;

/// A handle on the ledger of a [`World`]. Its futures end only while somebody lets the world tick.
pub struct SimStore {
    world: World,
    process: ProcessNumber,
}

impl SimStore {
    pub(super) fn new(world: World, process: ProcessNumber) -> Self {
        Self { world, process }
    }

    /// Waits until the answer to a write can be seen.
    async fn answer(&self, mut sent: Sent) -> Result<Answered, StoreError> {
        loop {
            if let Some(answer) = sent.seen(self.world.ticks()) {
                return answer;
            }
            yield_now().await;
        }
    }

    fn send(&self, intent: IntentId, write: Asked, events: Vec<Event>) -> Sent {
        let reply = self.world.lock().send(self.process, intent, write, events);
        Sent { world: self.world.clone(), process: self.process, reply, answered: false }
    }

    /// Waits some ticks, looks, and waits some more: what was seen may be old when it arrives.
    async fn look<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> Result<T, StoreError> {
        let (before, after) = self.world.random(|rng| (rng.below(3), rng.below(3)));
        self.pause(before).await;
        let seen = {
            let mut inner = self.world.lock();
            inner.counts.operations += 1;
            let failing = inner.faults.read;
            if inner.rng.chance(failing) || !inner.lives(self.process) {
                inner.counts.read_errors += 1;
                Err(StoreError::before(StoreErrorKind::Unavailable, "simulated: the read failed"))
            } else {
                Ok(look(&mut inner))
            }
        };
        self.pause(after).await;
        seen
    }

    async fn pause(&self, ticks: u64) {
        let until = self.world.ticks() + ticks;
        while self.world.ticks() < until {
            yield_now().await;
        }
    }

    fn may_have_changed(&self, intent: &IntentId, seen: Version, until: u64) -> bool {
        let inner = self.world.lock();
        inner.tick >= until || inner.records.get(intent).is_none_or(|r| r.version != seen)
    }

    fn acknowledged(&self, token: AttemptToken) {
        self.world.audit(|auditor| auditor.acknowledged(token));
    }
}

/// A write whose answer is awaited. Dropped before the answer, it may or may not be carried out.
struct Sent {
    world: World,
    process: ProcessNumber,
    reply: Reply,
    answered: bool,
}

impl Sent {
    fn seen(&mut self, tick: u64) -> Option<Result<Answered, StoreError>> {
        let mut reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, answer) = reply.take_if(|(seen_at, _)| *seen_at <= tick)?;
        self.answered = true;
        Some(answer)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if !self.answered {
            self.world.lock().called_off(self.process, &self.reply);
        }
    }
}

fn claim_in(draft: &Draft) -> Option<AttemptToken> {
    matches!(draft.body.state, State::Running { .. }).then_some(draft.body.token)
}

fn out_of_place() -> StoreError {
    StoreError::before(StoreErrorKind::Corrupt, "the simulated ledger gave the answer to another question")
}

impl Store for SimStore {
    fn describe(&self) -> String {
        format!("simulated ledger, process {}", self.process.0)
    }

    fn peek(&self, intent: &IntentId) -> Option<Stored> {
        let mut inner = self.world.lock();
        // A cache may have dropped it at any time.
        if !inner.lives(self.process) || inner.rng.chance(500) {
            return None;
        }
        let record = inner.visible(intent).filter(|r| r.body.state.has_ended())?;
        Some(inner.stored(record))
    }

    fn expects(&self, _: &IntentId) -> bool {
        // Right or wrong, as a guess is.
        self.world.lock().rng.chance(300)
    }

    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        let claim = claim_in(&draft);
        let sent = self.send(intent, Asked::Create(Box::new(draft)), events);
        Box::pin(async move {
            match self.answer(sent).await? {
                Answered::Created(created) => {
                    if let (Created::New(_), Some(token)) = (&created, claim) {
                        self.acknowledged(token);
                    }
                    Ok(created)
                }
                Answered::Replaced(_) => Err(out_of_place()),
            }
        })
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        Box::pin(self.look(move |inner| inner.visible(&intent).map(|record| inner.stored(record))))
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        let claim = match &change {
            Change::Put(draft) => claim_in(draft),
            Change::Remove => None,
        };
        let sent = self.send(intent, Asked::Replace(expected, change), events);
        Box::pin(async move {
            match self.answer(sent).await? {
                Answered::Replaced(replaced) => {
                    if let (Replaced::Done(Some(_)), Some(token)) = (&replaced, claim) {
                        self.acknowledged(token);
                    }
                    Ok(replaced)
                }
                Answered::Created(_) => Err(out_of_place()),
            }
        })
    }

    fn note(&self, events: Vec<Event>) -> StoreFuture<'_, ()> {
        Box::pin(self.look(move |inner| {
            let at = inner.now;
            for event in events {
                let seq = inner.log.len() as u64 + 1;
                inner.log.push(LoggedEvent { seq, at, event });
            }
        }))
    }

    fn watch(&self, intent: IntentId, seen: Version) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let patience = self.world.random(|rng| rng.between(1, WATCH_TICKS_MAX));
            let until = self.world.ticks() + patience;
            while !self.may_have_changed(&intent, seen, until) {
                yield_now().await;
            }
            Ok(())
        })
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        self.world.lock().liveness(self.process, owner)
    }

    fn owner(&self) -> Owner {
        self.world.lock().owner(self.process)
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        Box::pin(self.look(|inner| inner.now))
    }

    fn steady_since(&self) -> Millis {
        Millis(0)
    }

    fn scan(&self, filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>> {
        Box::pin(self.look(move |inner| {
            let limit = limit.min(PAGE_MAX);
            let mut found: Vec<_> =
                inner.records.values().filter(|r| r.version.0 > from && filter.accepts(r)).cloned().collect();
            found.sort_by_key(|r| r.version);
            let more = found.len() > limit;
            found.truncate(limit);
            let next = found.last().filter(|_| more).map(|r| r.version.0);
            Page::of(found.into_iter().map(|r| inner.stored(r)).collect(), next, inner.now)
        }))
    }

    fn log(&self, query: LogQuery) -> StoreFuture<'_, Page<LoggedEvent>> {
        Box::pin(self.look(move |inner| {
            let wanted = |e: &&LoggedEvent| {
                e.seq > query.after && query.intent.is_none_or(|intent| e.event.intent == intent)
            };
            let mut items: Vec<LoggedEvent> = inner.log.iter().filter(wanted).cloned().collect();
            let beyond = items.len().saturating_sub(query.limit);
            if query.newest {
                items.drain(..beyond);
            } else {
                items.truncate(query.limit);
            }
            let next = items.last().filter(|_| beyond > 0 && !query.newest).map(|e| e.seq);
            Page::of(items, next, inner.now)
        }))
    }

    fn purge(&self, limit: usize) -> StoreFuture<'_, PurgeReport> {
        Box::pin(self.look(move |inner| inner.purge(limit)))
    }

    fn tally(&self, _: &Namespace, _: &ToolName, _: &[(Counter, u64)]) {}

    fn tallies(&self) -> StoreFuture<'_, Vec<Tally>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn census(&self) -> StoreFuture<'_, Vec<(StateName, u64)>> {
        Box::pin(self.look(|inner| {
            let count =
                |state| inner.records.values().filter(|r| r.body.state.name() == state).count() as u64;
            StateName::ALL.into_iter().map(|state| (state, count(state))).collect()
        }))
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.look(|_| ()))
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::local()
    }

    /// No move is simulated.
    fn gate(&self) -> StoreFuture<'_, Gate> {
        Box::pin(std::future::ready(Ok(Gate::Open)))
    }

    fn turn_gate(&self, _: Gate, _: Gate) -> StoreFuture<'_, Gate> {
        Box::pin(std::future::ready(Err(oncely_core::gate::cannot_move(&self.describe()))))
    }

    fn import(&self, _: Move, _: Import) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Err(oncely_core::gate::cannot_move(&self.describe()))))
    }
}
