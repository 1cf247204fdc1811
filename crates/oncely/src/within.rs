//! One transaction with your own data: the record and the effect commit together, or neither is there. For effects in the
//! same database there is no crash window left, and no outcome is ever unknown.
//!
//! Begin a transaction, ask [`begin`] inside it, do the work with the same connection, [`Pending::complete`], commit. See
//! `docs/transactions.md`, and `examples/one_transaction.rs` for a program that is killed in between.

use std::sync::Arc;

use oncely_core::fingerprint::{Identity, identify};
use oncely_core::machine::{Begin, Checked, Decision, HaltReason, Input, Transition, Write, step};
use oncely_core::{
    Change, Counter, Created, IntentId, IntentName, Liveness, Millis, Outcome, Record, Replaced, State,
    StoreError, StoreErrorKind, Stored, Within,
};

use crate::answer::{Answer, InProgress, Unresolved, answer_of, counter_of};
use crate::attempt::AttemptInfo;
use crate::call::Call;
use crate::claim::{before_never_started, is_live, new_token};
use crate::disown::withdrawing;
use crate::error::Error;

/// How often a record that others change meanwhile is looked at again.
const LOOKS_MAX: usize = 16;

/// What sealed bytes begin with, whatever sealed them.
const SEALED: &[u8] = b"\xffoncely";

/// The answer to [`begin`].
#[derive(Debug)]
pub enum Begun {
    /// Do the work in the same transaction, complete, and commit.
    Run(Pending),
    /// There is an answer already; do nothing.
    Answered(Answer),
}

impl Begun {
    /// What this call adds to the counters of its tool. They are no part of the transaction, since all calls of a tool would
    /// then wait for each other: hand them to [`Store::tally`](oncely_core::Store::tally) after the commit.
    pub fn increments(&self) -> [(Counter, u64); 2] {
        let how = match self {
            Self::Run(_) => Counter::Executions,
            Self::Answered(answer) => counter_of(answer),
        };
        [(Counter::Calls, 1), (how, 1)]
    }
}

/// Permission to do the work, in this transaction. Dropped without [`complete`](Self::complete), the transaction has to be
/// rolled back: a ledger refuses the commit where it can, and else the record is in doubt.
#[derive(Debug)]
pub struct Pending {
    info: AttemptInfo,
    seen: Stored,
}

/// Asks for permission to do the work of a call inside the caller's transaction. It never waits for an attempt that runs
/// elsewhere, since others wait for this transaction meanwhile: that is answered as in progress. Another transaction with
/// the same key is waited for by the database itself. A probe is not asked here either: what is in doubt stays so.
pub async fn begin<T: Within + ?Sized>(within: &mut T, call: &Call) -> Result<Begun, Error> {
    call.validate()?;
    let Identity { key, fingerprint } = identify(call.key.clone(), &call.payload, &call.policy)?;
    let name = IntentName {
        namespace: call.namespace.clone(),
        scope: call.scope.clone(),
        tool: call.tool.clone(),
        key,
    };
    let (intent, owner, token) = (name.intent_id(), within.owner(), new_token()?);
    let mut seen = within.load(intent).await?;
    for _ in 0..LOOKS_MAX {
        let record = seen.as_ref().map(|stored| stored.record.as_ref());
        let begin = Input::Begin(Begin {
            intent,
            name: &name,
            fingerprint,
            token,
            owner: &owner,
            liveness: record.map_or(Liveness::ByLease, |record| liveness(within, record)),
            policy: &call.policy,
            steady_since: within.steady_since(),
            checked: call.checked.as_ref().map(|(by, doubted)| Checked { by, doubted: *doubted }),
        });
        let now = seen.as_ref().map_or(Millis(0), |stored| stored.now);
        let Transition { write, events, decision } =
            match record.map(|record| (record, never_started(within, record))) {
                // It is what it was before, and then it is decided.
                Some((record, Some(over))) => Transition {
                    decision: Decision::Again,
                    ..step(Some(record), &withdrawing(&record.body, over.as_deref()), now)
                },
                _ => step(record, &begin, now),
            };
        let Write::Put(draft) = write else {
            return Ok(Begun::Answered(answered(decision, intent, seen, call)?));
        };
        let written = match &seen {
            None => match within.create(intent, *draft, events).await? {
                Created::New(stored) => Ok(stored),
                Created::Exists(there) => Err(Some(there)),
            },
            Some(stored) => {
                let change = Change::Put(draft);
                match within.replace(intent, stored.record.version, change, events).await? {
                    Replaced::Done(Some(stored)) => Ok(stored),
                    Replaced::Done(None) => Err(None),
                    Replaced::Stale(there) => Err(there),
                }
            }
        };
        match (written, decision) {
            (Ok(stored), Decision::Execute(execute)) => {
                let key_age_ms = stored.now.since(stored.record.sent_at);
                let info = AttemptInfo { intent, name, execute, key_age_ms };
                return Ok(Begun::Run(Pending { info, seen: stored }));
            }
            (Ok(stored), _) => seen = Some(stored),
            (Err(there), _) => seen = there,
        }
    }
    Err(StoreError::before(
        StoreErrorKind::Overloaded,
        "others keep changing the same record; nothing was written; roll back and try again",
    )
    .into())
}

impl Pending {
    /// What the work may know of its attempt.
    pub fn info(&self) -> &AttemptInfo {
        &self.info
    }

    /// Writes how it ended, in the same transaction. Then commit: only then is any of it there. After an error roll back.
    pub async fn complete<T: Within + ?Sized>(
        self,
        within: &mut T,
        outcome: Outcome,
    ) -> Result<(), StoreError> {
        let Self { info, seen } = self;
        let input = Input::Complete { token: info.token(), outcome };
        let transition = step(Some(&seen.record), &input, seen.now);
        if let Write::Put(draft) = transition.write {
            let change = Change::Put(draft);
            let replaced =
                within.replace(info.intent, seen.record.version, change, transition.events).await?;
            if let Replaced::Done(Some(_)) = replaced {
                return Ok(());
            }
        }
        Err(StoreError::before(
            StoreErrorKind::Unavailable,
            "the record has changed within this transaction; roll back: then nothing has happened",
        ))
    }
}

/// An answer for which nothing has to be written.
fn answered(
    decision: Decision,
    intent: IntentId,
    seen: Option<Stored>,
    call: &Call,
) -> Result<Answer, Error> {
    if let Some(State::Succeeded { result: Some(bytes), .. }) = seen.as_ref().map(|s| &s.record.body.state)
        && bytes.starts_with(SEALED)
    {
        let message =
            "the result is encrypted; nothing ran; begin through `Sealed::within`, with the ledger's keys";
        return Err(StoreError::before(StoreErrorKind::Corrupt, message).into());
    }
    match (decision, seen) {
        (Decision::Wait, Some(stored)) => {
            let retry_after_ms = call.policy.wait_for_ms.clamp(100, 5_000);
            Ok(Answer::InProgress(InProgress { record: stored.record, retry_after_ms }))
        }
        (Decision::Probe, Some(stored)) => Ok(Answer::Unknown(Unresolved {
            record: stored.record,
            now: stored.now,
            reason: HaltReason::Unsure,
        })),
        (decision, seen) => answer_of(decision, intent, seen),
    }
}

/// What was there before a claim of this process that started nothing, and is not taken back yet.
fn never_started<T: Within + ?Sized>(within: &T, record: &Record) -> Option<Option<Arc<Record>>> {
    match &record.body.state {
        State::Running { owner, .. } if owner.process == within.owner().process => {
            before_never_started(record.body.token)
        }
        _ => None,
    }
}

/// What can be seen of the owner of a record's running attempt.
fn liveness<T: Within + ?Sized>(within: &T, record: &Record) -> Liveness {
    match &record.body.state {
        State::Running { owner, .. } if owner.process == within.owner().process => {
            if is_live(record.body.token) { Liveness::Alive } else { Liveness::Lost }
        }
        State::Running { owner, .. } => within.liveness(owner),
        _ => Liveness::ByLease,
    }
}
