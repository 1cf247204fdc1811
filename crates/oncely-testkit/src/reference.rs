//! The smallest ledger that keeps every promise but durability: a map behind a lock. A model to read and to compare.
//!
//! It does in the plainest way what a real ledger does with transactions and indexes. Clones are handles on the same
//! ledger, which lives as long as the last of them.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oncely_core::machine::{self, Input, Write};
use oncely_core::{
    Change, Counter, Created, Draft, Event, Filter, Gate, Import, IntentId, Liveness, LogQuery, LoggedEvent,
    Millis, Move, Namespace, Owner, Page, PurgeReport, Record, Replaced, StateName, Store, StoreError,
    StoreFuture, StoreHealth, Stored, Tally, ToolName, Version,
};
use tokio::sync::Notify;

/// How long a watch lasts without a change.
const WATCH_FOR: Duration = Duration::from_millis(500);

/// Its name in messages.
const ADDRESS: &str = "reference:";

/// A ledger in memory. See the module's documentation.
#[derive(Clone)]
pub struct Reference {
    shared: Arc<Shared>,
}

struct Shared {
    started: Instant,
    changed: Notify,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    /// Versions and places come from one counter that never goes back: a removal cannot restart them.
    counter: u64,
    records: BTreeMap<IntentId, Entry>,
    log: Vec<LoggedEvent>,
    tallies: BTreeMap<(Namespace, ToolName, Counter), u64>,
    gate: Gate,
}

struct Entry {
    /// Where the record stands in listings: when it was created.
    place: u64,
    record: Arc<Record>,
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Reference {
    /// An empty ledger.
    pub fn new() -> Self {
        let ledger = Mutex::new(Ledger::default());
        Self { shared: Arc::new(Shared { started: Instant::now(), changed: Notify::new(), ledger }) }
    }

    /// A panic elsewhere cannot leave the map half changed, so a poisoned lock is still good.
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clock(&self) -> Millis {
        // Not from 0, so that moments before the first write can be named.
        Millis(1_000_000 + self.shared.started.elapsed().as_millis() as u64)
    }

    fn stored(&self, entry: &Entry) -> Stored {
        Stored { record: Arc::clone(&entry.record), now: self.clock() }
    }

    fn create_now(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> Result<Created, StoreError> {
        let mut ledger = self.lock();
        if let Some(entry) = ledger.records.get(&intent) {
            return Ok(Created::Exists(self.stored(entry)));
        }
        ledger.gate.admits(ADDRESS, &events)?;
        let now = self.clock();
        ledger.counter += 1;
        let version = Version(ledger.counter);
        let entry = Entry { place: version.0, record: Arc::new(draft.stamped(intent, version, now)) };
        let stored = self.stored(&entry);
        ledger.records.insert(intent, entry);
        ledger.append(events, now);
        Ok(Created::New(stored))
    }

    fn replace_now(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> Result<Replaced, StoreError> {
        let mut ledger = self.lock();
        let found = ledger.records.get(&intent).map(|entry| (entry.place, self.stored(entry)));
        let place = match found {
            Some((place, stored)) if stored.record.version == expected => place,
            other => return Ok(Replaced::Stale(other.map(|(_, stored)| stored))),
        };
        ledger.gate.admits(ADDRESS, &events)?;
        let now = self.clock();
        ledger.append(events, now);
        Ok(match change {
            Change::Remove => {
                ledger.records.remove(&intent);
                Replaced::Done(None)
            }
            Change::Put(draft) => {
                ledger.counter += 1;
                let record = Arc::new(draft.stamped(intent, Version(ledger.counter), now));
                let entry = Entry { place, record };
                let stored = self.stored(&entry);
                ledger.records.insert(intent, entry);
                Replaced::Done(Some(stored))
            }
        })
    }

    fn purge_now(&self, limit: usize) -> Result<PurgeReport, StoreError> {
        self.lock().gate.admits_purge(ADDRESS)?;
        let records: Vec<Arc<Record>> = self.lock().records.values().map(|e| Arc::clone(&e.record)).collect();
        let mut report = PurgeReport::default();
        let mut done = 0;
        for record in records {
            let step = machine::step(Some(&record), &Input::Expire, self.clock());
            let (change, counter) = match step.write {
                Write::Nothing => continue,
                Write::Put(draft) => (Change::Put(draft), &mut report.results_dropped),
                Write::Remove => (Change::Remove, &mut report.records_removed),
            };
            if done == limit {
                report.more = true;
                break;
            }
            // A record that was changed meanwhile is simply not due any more.
            if let Replaced::Done(_) = self.replace_now(record.intent, record.version, change, step.events)? {
                *counter += 1;
                done += 1;
            }
        }
        Ok(report)
    }
}

impl Ledger {
    fn append(&mut self, events: Vec<Event>, at: Millis) {
        for event in events {
            let seq = self.log.len() as u64 + 1;
            self.log.push(LoggedEvent { seq, at, event });
        }
    }

    fn take(&mut self, import: Import) {
        for record in import.records {
            if !self.records.contains_key(&record.intent) {
                self.counter += 1;
                let version = Version(self.counter);
                let record = Arc::new(Record { version, ..(*record).clone() });
                self.records.insert(record.intent, Entry { place: version.0, record });
            }
        }
        for LoggedEvent { at, event, .. } in import.events {
            self.append(vec![event], at);
        }
        for Tally { namespace, tool, counter, count } in import.tallies {
            let total = self.tallies.entry((namespace, tool, counter)).or_default();
            *total = count.max(*total);
        }
    }

    fn select(&self, query: &LogQuery) -> (Vec<LoggedEvent>, Option<u64>) {
        let wanted = |e: &&LoggedEvent| {
            e.seq > query.after && query.intent.is_none_or(|intent| intent == e.event.intent)
        };
        let mut all: Vec<LoggedEvent> = self.log.iter().filter(wanted).cloned().collect();
        if query.newest {
            all.drain(..all.len().saturating_sub(query.limit));
            return (all, None);
        }
        let more = all.len() > query.limit;
        all.truncate(query.limit);
        let next = if more { all.last().map(|e| e.seq) } else { None };
        (all, next)
    }
}

fn done<'a, T: Send + 'a>(value: T) -> StoreFuture<'a, T> {
    Box::pin(ready(Ok::<T, StoreError>(value)))
}

impl Store for Reference {
    fn describe(&self) -> String {
        ADDRESS.to_owned()
    }

    fn peek(&self, intent: &IntentId) -> Option<Stored> {
        let ledger = self.lock();
        let entry = ledger.records.get(intent).filter(|e| e.record.body.state.has_ended())?;
        Some(self.stored(entry))
    }

    fn expects(&self, _: &IntentId) -> bool {
        false
    }

    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        Box::pin(ready(self.create_now(intent, draft, events)))
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        let ledger = self.lock();
        done(ledger.records.get(&intent).map(|entry| self.stored(entry)))
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        let answer = self.replace_now(intent, expected, change, events);
        self.shared.changed.notify_waiters();
        Box::pin(ready(answer))
    }

    fn note(&self, events: Vec<Event>) -> StoreFuture<'_, ()> {
        let mut ledger = self.lock();
        let now = self.clock();
        Box::pin(ready(ledger.gate.admits(ADDRESS, &events).map(|()| ledger.append(events, now))))
    }

    fn watch(&self, intent: IntentId, seen: Version) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            // Registered before the look, so that a change in between is not missed.
            changed.as_mut().enable();
            let current = self.lock().records.get(&intent).map(|e| e.record.version);
            if current.is_none_or(|version| version == seen) {
                let _ = tokio::time::timeout(WATCH_FOR, changed).await;
            }
            Ok(())
        })
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        if *owner == self.owner() { Liveness::Alive } else { Liveness::ByLease }
    }

    fn owner(&self) -> Owner {
        let process = oncely_core::ProcessId { pid: std::process::id(), ..Default::default() };
        Owner { process, host: "here".to_owned() }
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        done(self.clock())
    }

    fn steady_since(&self) -> Millis {
        Millis(0)
    }

    fn scan(&self, filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>> {
        let ledger = self.lock();
        let mut found: Vec<(u64, Stored)> = ledger
            .records
            .values()
            .filter(|e| e.place > from && filter.accepts(&e.record))
            .map(|e| (e.place, self.stored(e)))
            .collect();
        found.sort_by_key(|(place, _)| *place);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = if more { found.last().map(|(place, _)| *place) } else { None };
        let items = found.into_iter().map(|(_, stored)| stored).collect();
        done(Page::of(items, next, self.clock()))
    }

    fn log(&self, query: LogQuery) -> StoreFuture<'_, Page<LoggedEvent>> {
        let (items, next) = self.lock().select(&query);
        done(Page::of(items, next, self.clock()))
    }

    fn purge(&self, limit: usize) -> StoreFuture<'_, PurgeReport> {
        let report = self.purge_now(limit);
        self.shared.changed.notify_waiters();
        Box::pin(ready(report))
    }

    fn tally(&self, namespace: &Namespace, tool: &ToolName, increments: &[(Counter, u64)]) {
        let mut ledger = self.lock();
        for (counter, count) in increments {
            *ledger.tallies.entry((namespace.clone(), tool.clone(), *counter)).or_default() += count;
        }
    }

    fn tallies(&self) -> StoreFuture<'_, Vec<Tally>> {
        let list = |((namespace, tool, counter), count): (&(Namespace, ToolName, Counter), &u64)| Tally {
            namespace: namespace.clone(),
            tool: tool.clone(),
            counter: *counter,
            count: *count,
        };
        done(self.lock().tallies.iter().map(list).collect())
    }

    fn census(&self) -> StoreFuture<'_, Vec<(StateName, u64)>> {
        let ledger = self.lock();
        let count = |state: StateName| {
            ledger.records.values().filter(|e| e.record.body.state.name() == state).count() as u64
        };
        done(StateName::ALL.map(|state| (state, count(state))).to_vec())
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        done(())
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::local()
    }

    fn gate(&self) -> StoreFuture<'_, Gate> {
        done(self.lock().gate.clone())
    }

    fn turn_gate(&self, from: Gate, to: Gate) -> StoreFuture<'_, Gate> {
        let gate = &mut self.lock().gate;
        if *gate == from {
            *gate = to;
        }
        done(gate.clone())
    }

    fn import(&self, under: Move, import: Import) -> StoreFuture<'_, ()> {
        let mut ledger = self.lock();
        let admitted = ledger.gate.admits_import(ADDRESS, &under);
        Box::pin(ready(admitted.map(|()| ledger.take(import))))
    }
}
