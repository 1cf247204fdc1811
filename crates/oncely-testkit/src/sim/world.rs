//! The world: one ledger, one clock, several processes, and writes that are under way between them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncely_core::{IntentId, Liveness, LoggedEvent, Millis, Owner, ProcessId, Record, State, Stored};

use super::faults::{Counts, Fate, Faults, Flaw};
use super::writes::{LATE_TICKS_MAX, Op};
use super::{Rng, SimStore};
use crate::auditor::Auditor;

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
    pub(super) version: u64,
    pub(super) records: BTreeMap<IntentId, Arc<Record>>,
    pub(super) log: Vec<LoggedEvent>,
    pub(super) under_way: BTreeMap<(u64, u64), Op>,
    pub(super) ops: u64,
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
pub(super) enum Life {
    Lives,
    /// It is being shut down in order. The order in which a runtime drops its tasks is not the seed's, so nothing is
    /// drawn at random meanwhile.
    Leaves,
    Gone,
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
        let due = inner.tick;
        while inner.under_way.first_key_value().is_some_and(|((at, _), _)| *at <= due) {
            if let Some((at, op)) = inner.under_way.pop_first() {
                inner.carry_out(at, op);
            }
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
        let (State::Running { owner, .. } | State::InDoubt { owner, .. }) = &record.body.state else {
            return true;
        };
        inner.auditor.has_ended(record.body.token) || !inner.is_alive(owner)
    }

    /// What the audit log tells, in order: for people who look for the reason of a finding.
    pub fn story(&self) -> Vec<String> {
        let inner = self.lock();
        let line = |e: &LoggedEvent| {
            let (actor, note) =
                (e.event.actor.as_deref().unwrap_or(""), e.event.note.as_deref().unwrap_or(""));
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

    pub(super) fn life(&self, process: ProcessNumber) -> Life {
        self.processes.get(process.0 as usize).map_or(Life::Gone, |p| p.life)
    }

    fn set_life(&mut self, process: ProcessNumber, life: Life) {
        if let Some(process) = self.processes.get_mut(process.0 as usize) {
            process.life = life;
        }
    }

    pub(super) fn is_alive(&self, owner: &Owner) -> bool {
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
}
