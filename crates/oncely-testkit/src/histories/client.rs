//! A client of a recorded history: chooses operations, and writes down what it asked and was answered.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use oncely_core::{
    AttemptToken, Body, Change, Created, Digest, Draft, Effect, Event, EventKind, Fingerprint, IntentId,
    IntentName, Millis, Owner, Record, Replaced, Retention, Settled, Stamp, State, Store, StoreError, Stored,
    Wrote,
};

use super::{Asked, Operation, Plan, Said, Seen, stamp};
use crate::sim::Rng;

const KEPT: Retention = Retention { replay_for_ms: 86_400_000, remember_for_ms: 86_400_000 };

type Name = Option<(IntentId, IntentName)>;

pub(super) struct Client {
    number: usize,
    store: Arc<dyn Store>,
    names: Vec<Name>,
    stamps: Arc<AtomicU64>,
    rng: Rng,
    plan: Plan,
    writes: u64,
    /// What this client last saw of each record.
    known: Vec<Option<Arc<Record>>>,
}

impl Client {
    pub(super) fn new(
        number: usize,
        store: Arc<dyn Store>,
        names: Vec<Name>,
        stamps: Arc<AtomicU64>,
        rng: Rng,
        plan: Plan,
    ) -> Self {
        let known = vec![None; names.len()];
        Self { number, store, names, stamps, rng, plan, writes: 0, known }
    }

    pub(super) async fn run(mut self) -> Vec<Operation> {
        let mut operations = Vec::new();
        for _ in 0..self.plan.operations {
            let key = self.rng.below(self.names.len() as u64) as usize;
            let Some((intent, name)) = self.names[key].clone() else { continue };
            let asked = self.choose(key);
            let invoked = stamp(&self.stamps);
            let asking = self.ask(intent, name, key, asked);
            let answer = tokio::time::timeout(self.plan.patience, asking).await;
            let (said, known) = match answer {
                Ok(Ok((said, known))) => (said, known),
                Ok(Err(error)) if error.wrote == Wrote::No => (Said::Refused, None),
                Ok(Err(_)) | Err(_) => (Said::Nothing, None),
            };
            let answered = stamp(&self.stamps);
            self.known[key] = known;
            operations.push(Operation { client: self.number, key, invoked, answered, asked, said });
            let pause_us = self.plan.pause.as_micros() as u64;
            tokio::time::sleep(std::time::Duration::from_micros(self.rng.below(pause_us))).await;
        }
        operations
    }

    fn choose(&mut self, key: usize) -> Asked {
        let what = self.rng.below(10);
        let from = self.known[key].as_deref().and_then(seen);
        match (what, from) {
            (0..3, _) => Asked::Load,
            (3..9, Some(from)) => Asked::Put { from, token: self.next_token() },
            (9, Some(from)) => Asked::Remove { from },
            _ => Asked::Create { token: self.next_token() },
        }
    }

    /// No two writes of a history have the same.
    fn next_token(&mut self) -> u64 {
        self.writes += 1;
        ((self.number as u64 + 1) << 32) | self.writes
    }

    async fn ask(
        &self,
        intent: IntentId,
        name: IntentName,
        key: usize,
        asked: Asked,
    ) -> Result<(Said, Option<Arc<Record>>), StoreError> {
        let kept = |stored: Option<Stored>| stored.map(|stored| stored.record);
        let shown = |record: &Option<Arc<Record>>| record.as_deref().and_then(seen);
        match asked {
            Asked::Load => {
                let there = kept(self.store.load(intent).await?);
                Ok((Said::Found(shown(&there)), there))
            }
            Asked::Create { token } => {
                let events = vec![Event::new(intent, 1, EventKind::Began)];
                Ok(match self.store.create(intent, draft(name, token, None), events).await? {
                    Created::New(stored) => {
                        let there = kept(Some(stored));
                        (Said::Done(shown(&there)), there)
                    }
                    Created::Exists(stored) => {
                        let there = kept(Some(stored));
                        (Said::Found(shown(&there)), there)
                    }
                })
            }
            Asked::Put { from, token } => {
                let draft = draft(name, token, self.known[key].as_deref());
                self.replace(intent, from, Change::Put(Box::new(draft))).await
            }
            Asked::Remove { from } => self.replace(intent, from, Change::Remove).await,
        }
    }

    async fn replace(
        &self,
        intent: IntentId,
        from: Seen,
        change: Change,
    ) -> Result<(Said, Option<Arc<Record>>), StoreError> {
        let expected = oncely_core::Version(from.version);
        let events = vec![Event::new(intent, 1, EventKind::Began)];
        let (done, there) = match self.store.replace(intent, expected, change, events).await? {
            Replaced::Done(there) => (true, there.map(|stored| stored.record)),
            Replaced::Stale(there) => (false, there.map(|stored| stored.record)),
        };
        let shown = there.as_deref().and_then(seen);
        Ok((if done { Said::Done(shown) } else { Said::Found(shown) }, there))
    }
}

/// What a record shows of itself. Its token names the write, as every write here has one of its own.
fn seen(record: &Record) -> Option<Seen> {
    let token = u64::from_be_bytes(record.body.token.0[8..].try_into().ok()?);
    Some(Seen { token, version: record.version.0 })
}

fn draft(name: IntentName, token: u64, before: Option<&Record>) -> Draft {
    let digest = Digest::of(name.key.as_str().as_bytes());
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&token.to_be_bytes());
    // Some are ended: what has ended is what stores keep copies of.
    let state = if token.is_multiple_of(3) {
        State::Succeeded { effect: Effect::Created, result: None, settled: Settled::Attempt }
    } else {
        State::Running { owner: Owner::default(), lease_ms: 30_000 }
    };
    let body = Body {
        name,
        fingerprint: Fingerprint { canonical: digest, raw: digest },
        generation: 1,
        attempts: 1,
        tries: 1,
        rejections: 0,
        token: AttemptToken(bytes),
        retention: KEPT,
        state,
    };
    let kept = |at: fn(&Record) -> Millis| before.map_or(Stamp::OnWrite, |record| Stamp::Kept(at(record)));
    Draft { created: kept(|r| r.created_at), sent: kept(|r| r.sent_at), changed: Stamp::OnWrite, body }
}
