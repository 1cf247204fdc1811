//! A ledger in memory: for tests, and for calls that need not survive the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_core::limits::{AUDIT_FOR_MS, PAGE_MAX};
use oncely_core::machine::{Input, Write, step};
use oncely_core::{
    Change, Counter, Created, Draft, Event, Filter, Gate, Import, IntentId, Liveness, LogQuery, LoggedEvent,
    Millis, Move, Namespace, Owner, Page, PurgeReport, Record, Replaced, StateName, Store, StoreError,
    StoreFuture, StoreHealth, Stored, Tally, ToolName, Version,
};

use crate::clock::{Anchor, LedgerClock, Readings};
use crate::process;
use crate::requests::ready as answer;
use crate::tallies::Tallies;
use crate::watch::{Lookout, Watchers};

type Clock = Box<dyn Fn() -> Millis + Send + Sync>;

/// Its name in messages.
const ADDRESS: &str = "memory:";

/// A ledger that ends with the process.
pub struct MemoryStore {
    kept: Mutex<Kept>,
    clock: Clock,
    tallies: Tallies,
    watchers: Watchers,
}

#[derive(Default)]
struct Kept {
    /// Where each record stands in the order of making.
    places: HashMap<IntentId, u64>,
    records: BTreeMap<u64, Arc<Record>>,
    next_place: u64,
    version: u64,
    log: Vec<LoggedEvent>,
    log_seq: u64,
    gate: Gate,
}

impl Kept {
    fn get(&self, intent: &IntentId) -> Option<&Arc<Record>> {
        self.records.get(self.places.get(intent)?)
    }

    fn put(&mut self, intent: IntentId, draft: Draft, now: Millis) -> Arc<Record> {
        self.version += 1;
        let record = Arc::new(draft.stamped(intent, Version(self.version), now));
        self.place(&record);
        record
    }

    fn place(&mut self, record: &Arc<Record>) {
        let next_place = &mut self.next_place;
        let place = self.places.entry(record.intent).or_insert_with(|| {
            *next_place += 1;
            *next_place
        });
        self.records.insert(*place, Arc::clone(record));
    }

    /// A record or event of a move: its times are its own, version and place are ours.
    fn take(&mut self, import: Import) {
        for record in import.records {
            if !self.places.contains_key(&record.intent) {
                self.version += 1;
                self.place(&Arc::new(Record { version: Version(self.version), ..(*record).clone() }));
            }
        }
        for LoggedEvent { at, event, .. } in import.events {
            self.write_log(vec![event], at);
        }
    }

    fn remove(&mut self, intent: &IntentId) {
        if let Some(place) = self.places.remove(intent) {
            self.records.remove(&place);
        }
    }

    fn write_log(&mut self, events: Vec<Event>, at: Millis) {
        for event in events {
            self.log_seq += 1;
            self.log.push(LoggedEvent { seq: self.log_seq, at, event });
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty ledger.
    pub fn new() -> Self {
        let clock = LedgerClock::new(Anchor::first(&Readings::take()));
        Self::with_clock(move || clock.now())
    }

    /// An empty ledger that takes its time from elsewhere; it must not run backwards.
    pub fn with_clock(clock: impl Fn() -> Millis + Send + Sync + 'static) -> Self {
        Self {
            kept: Mutex::default(),
            clock: Box::new(clock),
            tallies: Tallies::default(),
            watchers: Watchers::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stored(&self, record: &Arc<Record>) -> Stored {
        Stored { record: Arc::clone(record), now: (self.clock)() }
    }

    fn find(&self, intent: &IntentId) -> Option<Stored> {
        self.lock().get(intent).map(|record| self.stored(record))
    }

    fn change(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> Result<Replaced, StoreError> {
        let now = (self.clock)();
        let mut kept = self.lock();
        let there = kept.get(&intent);
        if there.is_none_or(|record| record.version != expected) {
            return Ok(Replaced::Stale(there.map(|record| self.stored(record))));
        }
        kept.gate.admits(ADDRESS, &events)?;
        let record = match change {
            Change::Put(draft) => Some(kept.put(intent, *draft, now)),
            Change::Remove => {
                kept.remove(&intent);
                None
            }
        };
        kept.write_log(events, now);
        drop(kept);
        self.watchers.changed(&intent, record.as_ref().map(|r| r.version));
        Ok(Replaced::Done(record.map(|record| Stored { record, now })))
    }

    fn expire(&self, limit: usize) -> Result<PurgeReport, StoreError> {
        let now = (self.clock)();
        let mut kept = self.lock();
        kept.gate.admits_purge(ADDRESS)?;
        let due: Vec<Arc<Record>> = kept
            .records
            .values()
            .filter(|r| step(Some(r), &Input::Expire, now).write != Write::Nothing)
            .take(limit)
            .cloned()
            .collect();
        let mut report = PurgeReport { more: due.len() >= limit, ..PurgeReport::default() };
        for record in due {
            match step(Some(&record), &Input::Expire, now).write {
                Write::Put(draft) => {
                    kept.put(record.intent, *draft, now);
                    report.results_dropped += 1;
                }
                Write::Remove => {
                    kept.remove(&record.intent);
                    report.records_removed += 1;
                }
                Write::Nothing => {}
            }
        }
        let old = kept.log.iter().take(limit).take_while(|e| now.since(e.at) > AUDIT_FOR_MS).count();
        kept.log.drain(..old);
        report.events_removed = old as u64;
        report.more |= old >= limit;
        Ok(report)
    }
}

impl Store for MemoryStore {
    fn describe(&self) -> String {
        ADDRESS.to_owned()
    }

    fn peek(&self, intent: &IntentId) -> Option<Stored> {
        self.find(intent).filter(|stored| stored.record.body.state.has_ended())
    }

    fn expects(&self, _: &IntentId) -> bool {
        false
    }

    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        let now = (self.clock)();
        let mut kept = self.lock();
        if let Some(there) = kept.get(&intent) {
            return ready(Created::Exists(self.stored(there)));
        }
        if let Err(refusal) = kept.gate.admits(ADDRESS, &events) {
            return answer(Err(refusal));
        }
        let record = kept.put(intent, draft, now);
        kept.write_log(events, now);
        ready(Created::New(Stored { record, now }))
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        ready(self.find(&intent))
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        answer(self.change(intent, expected, change, events))
    }

    fn note(&self, events: Vec<Event>) -> StoreFuture<'_, ()> {
        let now = (self.clock)();
        let mut kept = self.lock();
        answer(kept.gate.admits(ADDRESS, &events).map(|()| kept.write_log(events, now)))
    }

    fn watch(&self, intent: IntentId, seen: Version) -> StoreFuture<'_, ()> {
        let woken = self.watchers.register(intent, seen, || Box::new(NobodyElse));
        // Looked at after signing in, so that no change falls between.
        let current = self.lock().get(&intent).map(|record| record.version);
        Box::pin(async move {
            if current == Some(seen) {
                // A watch that ends without a word is a reason to look, too.
                let _ = woken.await;
            }
            Ok(())
        })
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        process::liveness(owner)
    }

    fn owner(&self) -> Owner {
        process::this_process()
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        ready((self.clock)())
    }

    fn steady_since(&self) -> Millis {
        // It ends with the process, and no clock of a process has a gap.
        Millis(0)
    }

    fn scan(&self, filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>> {
        let limit = limit.clamp(1, PAGE_MAX);
        let kept = self.lock();
        let mut found = kept.records.range(from + 1..).filter(|(_, record)| filter.accepts(record));
        let page: Vec<_> = found.by_ref().take(limit).collect();
        let next = found.next().and_then(|_| page.last().map(|(place, _)| **place));
        let items = page.into_iter().map(|(_, record)| self.stored(record)).collect();
        ready(Page::of(items, next, (self.clock)()))
    }

    fn log(&self, query: LogQuery) -> StoreFuture<'_, Page<LoggedEvent>> {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let kept = self.lock();
        let wanted =
            |e: &&LoggedEvent| e.seq > query.after && query.intent.is_none_or(|i| i == e.event.intent);
        let mut found: Vec<&LoggedEvent> = kept.log.iter().filter(wanted).collect();
        let mut next = None;
        if query.newest {
            found.drain(..found.len().saturating_sub(limit));
        } else if found.len() > limit {
            found.truncate(limit);
            next = found.last().map(|e| e.seq);
        }
        ready(Page::of(found.into_iter().cloned().collect(), next, (self.clock)()))
    }

    fn purge(&self, limit: usize) -> StoreFuture<'_, PurgeReport> {
        answer(self.expire(limit))
    }

    fn tally(&self, namespace: &Namespace, tool: &ToolName, increments: &[(Counter, u64)]) {
        self.tallies.add(namespace, tool, increments);
    }

    fn tallies(&self) -> StoreFuture<'_, Vec<Tally>> {
        ready(self.tallies.all())
    }

    fn census(&self) -> StoreFuture<'_, Vec<(StateName, u64)>> {
        let kept = self.lock();
        let count = |state| kept.records.values().filter(|r| r.body.state.name() == state).count() as u64;
        ready(StateName::ALL.into_iter().map(|state| (state, count(state))).collect())
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        ready(())
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::local()
    }

    fn gate(&self) -> StoreFuture<'_, Gate> {
        ready(self.lock().gate.clone())
    }

    fn turn_gate(&self, from: Gate, to: Gate) -> StoreFuture<'_, Gate> {
        let gate = &mut self.lock().gate;
        if *gate == from {
            *gate = to;
        }
        ready(gate.clone())
    }

    fn import(&self, under: Move, import: Import) -> StoreFuture<'_, ()> {
        let mut kept = self.lock();
        if let Err(refusal) = kept.gate.admits_import(ADDRESS, &under) {
            return answer(Err(refusal));
        }
        for tally in &import.tallies {
            self.tallies.raise(tally);
        }
        kept.take(import);
        ready(())
    }
}

/// No other process can change this ledger: waiters are woken by commits or by their clock.
struct NobodyElse;

impl Lookout for NobodyElse {
    fn interval(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn stirred(&mut self) -> bool {
        false
    }

    fn version(&mut self, _: &IntentId) -> Option<Version> {
        None
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> StoreFuture<'a, T> {
    answer(Ok(value))
}
