//! The world: one ledger, one clock, several processes, and writes that are under way between them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncely_core::machine::{Input, Write, step};
use oncely_core::{
    Change, Created, Draft, Event, IntentId, Liveness, LoggedEvent, Millis, Owner, ProcessId, PurgeReport, Record,
    Replaced, State, StoreError, StoreErrorKind, Stored, Version,
};

use super::faults::{Counts, Fate, Faults, Flaw};
use super::{Rng, SimStore};
use crate::auditor::{Auditor, Hand, Written};

/// Most ticks that a call takes before it is carried out, and again before it is answered.
const CALL_TICKS_MAX: u64 = 3;
/// Most ticks after which a late write lands.
const LATE_TICKS_MAX: u64 = 120;

/// Names a process of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessNumber(pub u32);

/// The simulated world. Cheap to clone: all clones are the same world.
#[derive(Clone)]
pub struct World {
    inner: Arc<Mutex<Inner>>,
}

pub(super) struct Inner {
    pub(super) rng: Rng,
    pub(super) tick: u64,
    pub(super) now: Millis,
    version: u64,
    pub(super) records: BTreeMap<IntentId, Arc<Record>>,
    pub(super) log: Vec<LoggedEvent>,
    under_way: BTreeMap<(u64, u64), Op>,
    ops: u64,
    processes: Vec<Process>,
    pub(super) faults: Faults,
    pub(super) flaw: Option<Flaw>,
    pub(super) counts: Counts,
    pub(super) auditor: Auditor,
}

struct Process {
    life: Life,
    host: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Lives,
    /// It is being shut down in order. The order in which a runtime drops its tasks is not the seed's, so nothing is
    /// drawn at random meanwhile.
    Leaves,
    Gone,
}

/// A write on its way.
struct Op {
    process: ProcessNumber,
    intent: IntentId,
    write: Asked,
    events: Vec<Event>,
    fate: Fate,
    reply: Reply,
}

/// What a write asks for.
pub(super) enum Asked {
    Create(Box<Draft>),
    Replace(Version, Change),
}

/// Where the answer to a write appears, with the tick from which on it can be seen.
pub(super) type Reply = Arc<Mutex<Option<(u64, Result<Answered, StoreError>)>>>;

#[derive(Debug, Clone)]
pub(super) enum Answered {
    Created(Created),
    Replaced(Replaced),
}

impl World {
    /// An empty world.
    pub fn new(seed: u64, faults: Faults, flaw: Option<Flaw>) -> Self {
        let inner = Inner {
            rng: Rng::new(seed),
            tick: 0,
            now: Millis(1_000_000),
            version: 0,
            records: BTreeMap::new(),
            log: Vec::new(),
            under_way: BTreeMap::new(),
            ops: 0,
            processes: Vec::new(),
            faults,
            flaw,
            counts: Counts::default(),
            auditor: Auditor::default(),
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Starts a process on a host and gives it its handle on the ledger.
    pub fn start(&self, host: u8) -> (ProcessNumber, SimStore) {
        let mut inner = self.lock();
        let number = ProcessNumber(inner.processes.len() as u32);
        inner.processes.push(Process { life: Life::Lives, host });
        drop(inner);
        (number, SimStore::new(self.clone(), number))
    }

    /// Ends a process in order: what it hands in while `shut_down` runs still reaches the world.
    pub fn retire(&self, process: ProcessNumber, shut_down: impl FnOnce()) {
        self.lock().set_life(process, Life::Leaves);
        shut_down();
        let mut inner = self.lock();
        inner.set_life(process, Life::Gone);
        inner.counts.exits += 1;
    }

    /// Ends a process at once. Writes under way may land or not, and nothing that its handle is asked from now on
    /// reaches the world: to be called before the process is dropped.
    pub fn kill(&self, process: ProcessNumber) {
        let mut inner = self.lock();
        inner.set_life(process, Life::Gone);
        inner.counts.crashes += 1;
        let mine: Vec<(u64, u64)> =
            inner.under_way.iter().filter(|(_, op)| op.process == process).map(|(at, _)| *at).collect();
        inner.counts.crashes_with_writes_under_way += u64::from(!mine.is_empty());
        for at in mine {
            let Some(mut op) = inner.under_way.remove(&at) else { continue };
            // What was sent may arrive, soon or late, or is lost with the process.
            if op.fate != Fate::Before && op.fate != Fate::Never && inner.rng.chance(500) {
                op.fate = Fate::Landing;
                let due = at.0 + inner.rng.below(LATE_TICKS_MAX);
                inner.under_way.insert((due, at.1), op);
            }
        }
    }

    /// One moment passes: every write that is due lands.
    pub fn tick(&self) {
        let mut inner = self.lock();
        inner.tick += 1;
        while let Some(entry) = inner.under_way.first_entry() {
            if entry.key().0 > inner.tick {
                break;
            }
            let (at, op) = inner.under_way.pop_first().map_or_else(|| unreachable!(), |pair| pair);
            inner.carry_out(at, op);
        }
    }

    /// The current tick.
    pub fn ticks(&self) -> u64 {
        self.lock().tick
    }

    /// Lets the store's clock run.
    pub fn pass(&self, ms: u64) {
        let mut inner = self.lock();
        inner.now = inner.now.plus(ms);
        inner.counts.clock_jumps += u64::from(ms >= 60_000);
    }

    /// Changes what may go wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Whether no write is under way.
    pub fn is_quiet(&self) -> bool {
        self.lock().under_way.is_empty()
    }

    /// Whether no write to this record is under way.
    pub fn is_settled(&self, intent: &IntentId) -> bool {
        self.lock().under_way.values().all(|op| op.intent != *intent)
    }

    /// A record as it is at this moment: for those who look at the world from outside.
    pub fn record(&self, intent: &IntentId) -> Option<Arc<Record>> {
        self.lock().records.get(intent).cloned()
    }

    /// The store's clock.
    pub fn now(&self) -> Millis {
        self.lock().now
    }

    /// Draws from the world's random numbers.
    pub fn random<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.lock().rng)
    }

    /// What happened how often.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Talks to the auditor.
    pub fn audit<T>(&self, talk: impl FnOnce(&mut Auditor) -> T) -> T {
        talk(&mut self.lock().auditor)
    }

    /// An attempt acts on the outside: the auditor enters it into its ledger. Returns the result of the effect.
    pub fn act(&self, intent: IntentId, token: oncely_core::AttemptToken, downstream: &str) -> Vec<u8> {
        let mut inner = self.lock();
        let Inner { auditor, records, counts, .. } = &mut *inner;
        counts.effects += 1;
        auditor.effect(intent, token, downstream, records.get(&intent).map(AsRef::as_ref))
    }

    /// Whether an attempt can certainly no longer act: it ended, or its process did.
    pub fn is_over(&self, record: &Record) -> bool {
        let inner = self.lock();
        let (State::Running { owner, .. } | State::InDoubt { owner, .. }) = &record.body.state else { return true };
        inner.auditor.has_ended(record.body.token) || !inner.is_alive(owner)
    }

    /// What the audit log tells, in order: for people who look for the reason of a finding.
    pub fn story(&self) -> Vec<String> {
        let inner = self.lock();
        let line = |e: &LoggedEvent| {
            let (actor, note) = (e.event.actor.as_deref().unwrap_or(""), e.event.note.as_deref().unwrap_or(""));
            let (intent, kind) = (e.event.intent.short(), e.event.kind.as_str());
            format!("{:>9} ms {intent} attempt {} {kind} {actor} {note}", e.at.0, e.event.attempt)
        };
        inner.log.iter().map(line).collect()
    }

    /// Checks what can only be seen at the end, and returns everything that was found wrong.
    pub fn findings(&self) -> Vec<String> {
        let mut inner = self.lock();
        let Inner { auditor, records, now, .. } = &mut *inner;
        auditor.close(records, *now);
        auditor.findings().to_vec()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    pub(super) fn lives(&self, process: ProcessNumber) -> bool {
        self.life(process) != Life::Gone
    }

    fn life(&self, process: ProcessNumber) -> Life {
        self.processes.get(process.0 as usize).map_or(Life::Gone, |p| p.life)
    }

    fn set_life(&mut self, process: ProcessNumber, life: Life) {
        if let Some(process) = self.processes.get_mut(process.0 as usize) {
            process.life = life;
        }
    }

    fn is_alive(&self, owner: &Owner) -> bool {
        self.lives(ProcessNumber(owner.process.pid))
    }

    pub(super) fn owner(&self, process: ProcessNumber) -> Owner {
        let host = self.processes.get(process.0 as usize).map_or(0, |p| p.host);
        let id = ProcessId { boot: [host; 16], pid: process.0, ..ProcessId::default() };
        Owner { process: id, host: format!("host-{host}") }
    }

    /// On one host a process can be looked at, across hosts its lease decides.
    pub(super) fn liveness(&mut self, viewer: ProcessNumber, owner: &Owner) -> Liveness {
        let alive = self.is_alive(owner);
        if self.owner(viewer).host != owner.host {
            return Liveness::ByLease;
        }
        if alive { Liveness::Alive } else { Liveness::Lost }
    }

    /// Takes a write in; it lands some ticks from now.
    pub(super) fn send(&mut self, process: ProcessNumber, intent: IntentId, write: Asked, events: Vec<Event>) -> Reply {
        let reply = Reply::default();
        let (fate, due) = match self.life(process) {
            Life::Gone => return reply,
            Life::Leaves => (Fate::Fine, self.tick + 1),
            Life::Lives => {
                let fate = self.faults.draw(&mut self.rng);
                (fate, self.tick + self.rng.below(CALL_TICKS_MAX + 1))
            }
        };
        self.counts.operations += 1;
        self.ops += 1;
        let op = Op { process, intent, write, events, fate, reply: reply.clone() };
        self.under_way.insert((due, self.ops), op);
        reply
    }

    /// The caller is no longer there: a claim may be called off before it lands.
    pub(super) fn called_off(&mut self, process: ProcessNumber, reply: &Reply) {
        // What becomes of the writes of a process that ends is decided elsewhere.
        if self.life(process) != Life::Lives {
            return;
        }
        self.counts.dropped_calls += 1;
        if self.rng.chance(500) {
            return;
        }
        let is_it = |op: &Op| Arc::ptr_eq(&op.reply, reply) && matches!(op.write, Asked::Create(_));
        if let Some(at) = self.under_way.iter().find(|(_, op)| is_it(op)).map(|(at, _)| *at) {
            self.under_way.remove(&at);
        }
    }

    fn carry_out(&mut self, at: (u64, u64), mut op: Op) {
        let ambiguous = || StoreError::ambiguous(StoreErrorKind::Unavailable, "simulated: the answer was lost");
        let answer = match op.fate {
            Fate::Before => {
                self.counts.errors_before += 1;
                if self.flaw == Some(Flaw::AcknowledgesFailures) {
                    self.pretend(&op)
                } else {
                    Err(StoreError::before(StoreErrorKind::Unavailable, "simulated: refused before the write"))
                }
            }
            Fate::Never => {
                self.counts.never_writes += 1;
                Err(ambiguous())
            }
            Fate::Late => {
                self.counts.late_writes += 1;
                answer_with(&op.reply, self.tick, Err(ambiguous()));
                op.fate = Fate::Landing;
                let due = self.tick + self.rng.between(5, LATE_TICKS_MAX);
                self.under_way.insert((due, at.1), op);
                return;
            }
            Fate::LostAck => {
                self.counts.lost_acks += 1;
                self.apply(&op);
                Err(ambiguous())
            }
            Fate::Landing => {
                let before = self.version;
                self.apply(&op);
                self.counts.late_writes_landed += u64::from(self.version > before);
                return;
            }
            Fate::Fine => Ok(self.apply(&op)),
        };
        let seen_at = self.tick + self.rng.below(CALL_TICKS_MAX + 1);
        answer_with(&op.reply, seen_at, answer);
    }

    fn apply(&mut self, op: &Op) -> Answered {
        let there = self.visible(&op.intent);
        match &op.write {
            Asked::Create(_) if there.is_some() => match there {
                Some(record) => Answered::Created(Created::Exists(self.stored(record))),
                None => unreachable!(),
            },
            Asked::Create(draft) => {
                let (record, lost) = self.stamp(op, draft);
                if !lost {
                    self.put(op, Some(record.clone()));
                }
                Answered::Created(Created::New(self.stored(record)))
            }
            Asked::Replace(expected, change) => {
                let fits = there.as_ref().is_some_and(|r| r.version == *expected);
                let careless = self.flaw == Some(Flaw::IgnoresVersions) && there.is_some();
                if !fits && !careless {
                    self.counts.stale_writes_refused += 1;
                    return Answered::Replaced(Replaced::Stale(there.map(|r| self.stored(r))));
                }
                let Change::Put(draft) = change else {
                    self.put(op, None);
                    return Answered::Replaced(Replaced::Done(None));
                };
                let (record, lost) = self.stamp(op, draft);
                if !lost {
                    self.put(op, Some(record.clone()));
                }
                Answered::Replaced(Replaced::Done(Some(self.stored(record))))
            }
        }
    }

    /// A flawed ledger's acknowledgement of a write that it did not do.
    fn pretend(&mut self, op: &Op) -> Result<Answered, StoreError> {
        match &op.write {
            Asked::Create(draft) | Asked::Replace(_, Change::Put(draft)) => {
                let (record, _) = self.stamp(op, draft);
                let stored = self.stored(record);
                Ok(match op.write {
                    Asked::Create(_) => Answered::Created(Created::New(stored)),
                    Asked::Replace(..) => Answered::Replaced(Replaced::Done(Some(stored))),
                })
            }
            Asked::Replace(_, Change::Remove) => Ok(Answered::Replaced(Replaced::Done(None))),
        }
    }

    /// The record that a draft becomes, and whether a flawed ledger loses it.
    fn stamp(&mut self, op: &Op, draft: &Draft) -> (Arc<Record>, bool) {
        self.version += 1;
        let record = draft.clone().stamped(op.intent, Version(self.version), self.now);
        let lost = match (self.flaw, &record.body.state) {
            (Some(Flaw::LosesClaims), State::Running { .. }) => self.rng.chance(100),
            (Some(Flaw::LosesEnds), State::Succeeded { .. } | State::Rejected { .. }) => self.rng.chance(100),
            _ => false,
        };
        (Arc::new(record), lost)
    }

    fn put(&mut self, op: &Op, record: Option<Arc<Record>>) {
        let before = self.records.get(&op.intent).cloned();
        self.write(op.intent, before, record, &op.events, Hand::Call);
        let at = self.now;
        for event in &op.events {
            self.log.push(LoggedEvent { seq: self.log.len() as u64 + 1, at, event: event.clone() });
        }
    }

    /// Every write to a record passes here, before the auditor's eyes.
    fn write(
        &mut self,
        intent: IntentId,
        before: Option<Arc<Record>>,
        after: Option<Arc<Record>>,
        events: &[Event],
        hand: Hand,
    ) {
        let lapsed = |r: &Record| matches!(&r.body.state, State::Running { owner, .. } if self.is_alive(owner));
        let doubted = |r: &Record| matches!(r.body.state, State::InDoubt { .. });
        if before.as_deref().is_some_and(lapsed)
            && after.as_deref().is_some_and(doubted)
            && before.as_ref().is_some_and(|r| !self.auditor.has_ended(r.body.token))
        {
            self.counts.lease_lapses += 1;
        }
        let (before, now) = (before.as_deref(), self.now);
        self.auditor.wrote(&Written { intent, before, after: after.as_deref(), events, now, hand });
        match after {
            Some(record) => self.records.insert(intent, record),
            None => self.records.remove(&intent),
        };
    }

    /// What a reader gets to see; a flawed ledger hides what it takes for abandoned.
    pub(super) fn visible(&self, intent: &IntentId) -> Option<Arc<Record>> {
        let record = self.records.get(intent)?;
        let lost = |owner: &Owner| !self.is_alive(owner);
        match &record.body.state {
            State::Running { owner, .. } if self.flaw == Some(Flaw::FreesLostOwners) && lost(owner) => None,
            _ => Some(record.clone()),
        }
    }

    pub(super) fn stored(&self, record: Arc<Record>) -> Stored {
        Stored { record, now: self.now }
    }

    pub(super) fn purge(&mut self, limit: usize) -> PurgeReport {
        let mut report = PurgeReport::default();
        let due: Vec<Arc<Record>> = self.records.values().cloned().collect();
        for record in due {
            if report.results_dropped + report.records_removed >= limit as u64 {
                report.more = true;
                break;
            }
            let transition = step(Some(&record), &Input::Expire, self.now);
            let age = self.now.since(record.changed_at);
            let careless = match self.flaw {
                Some(Flaw::PurgesDoubts) => {
                    matches!(record.body.state, State::InDoubt { .. }) && age >= record.body.retention.remember_for_ms
                }
                Some(Flaw::ForgetsEarly) => record.body.state.has_ended() && age >= 60_000,
                _ => false,
            };
            let after = match transition.write {
                _ if careless => None,
                Write::Nothing => continue,
                Write::Remove => None,
                Write::Put(draft) => {
                    self.version += 1;
                    Some(Arc::new(draft.stamped(record.intent, Version(self.version), self.now)))
                }
            };
            if after.is_some() { report.results_dropped += 1 } else { report.records_removed += 1 }
            self.counts.purged += 1;
            self.write(record.intent, Some(record.clone()), after, &[], Hand::Purge);
        }
        report
    }
}

fn answer_with(reply: &Reply, seen_at: u64, answer: Result<Answered, StoreError>) {
    *reply.lock().unwrap_or_else(PoisonError::into_inner) = Some((seen_at, answer));
}
