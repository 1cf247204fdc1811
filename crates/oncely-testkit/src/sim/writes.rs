//! Writes in the simulated world: from being sent to landing, with everything that may go wrong on the way.

use std::sync::{Arc, Mutex, PoisonError};

use oncely_core::machine::{Input, Write, step};
use oncely_core::{
    Change, Created, Draft, Event, IntentId, LoggedEvent, PurgeReport, Record, Replaced, State, StoreError,
    StoreErrorKind, Version,
};

use super::faults::{Fate, Flaw};
use super::world::{Inner, Life, ProcessNumber};
use crate::auditor::{Hand, Written};

/// Most ticks that a call takes before it is carried out, and again before it is answered.
const CALL_TICKS_MAX: u64 = 3;
/// Most ticks after which a late write lands.
pub(super) const LATE_TICKS_MAX: u64 = 120;

/// A write on its way.
pub(super) struct Op {
    pub(super) process: ProcessNumber,
    pub(super) intent: IntentId,
    write: Asked,
    events: Vec<Event>,
    pub(super) fate: Fate,
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

impl Inner {
    /// Takes a write in; it lands some ticks from now.
    pub(super) fn send(
        &mut self,
        process: ProcessNumber,
        intent: IntentId,
        write: Asked,
        events: Vec<Event>,
    ) -> Reply {
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

    pub(super) fn carry_out(&mut self, at: (u64, u64), mut op: Op) {
        let ambiguous =
            || StoreError::ambiguous(StoreErrorKind::Unavailable, "simulated: the answer was lost");
        let answer = match op.fate {
            Fate::Before => {
                self.counts.errors_before += 1;
                if self.flaw == Some(Flaw::AcknowledgesFailures) {
                    self.pretend(&op)
                } else {
                    Err(StoreError::before(
                        StoreErrorKind::Unavailable,
                        "simulated: refused before the write",
                    ))
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
            Asked::Create(draft) => {
                if let Some(record) = there {
                    return Answered::Created(Created::Exists(self.stored(record)));
                }
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
        let lapsed =
            |r: &Record| matches!(&r.body.state, State::Running { owner, .. } if self.is_alive(owner));
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
                    matches!(record.body.state, State::InDoubt { .. })
                        && age >= record.body.retention.remember_for_ms
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
            if after.is_some() {
                report.results_dropped += 1
            } else {
                report.records_removed += 1
            }
            self.counts.purged += 1;
            self.write(record.intent, Some(record.clone()), after, &[], Hand::Purge);
        }
        report
    }
}

fn answer_with(reply: &Reply, seen_at: u64, answer: Result<Answered, StoreError>) {
    *reply.lock().unwrap_or_else(PoisonError::into_inner) = Some((seen_at, answer));
}
