//! What a caller is told.

use std::sync::Arc;

use oncely_core::machine::{Decision, HaltReason};
use oncely_core::{
    Counter, Effect, IntentId, Millis, Outcome, Payload, Record, State, StoreError, StoreErrorKind, Stored,
};

use crate::error::Error;

/// The answer to a call.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The effect ran now.
    Executed(Execution),
    /// It had happened before: nothing ran.
    Replayed(Replay),
    /// It had been rejected before and the retry budget is spent: nothing ran.
    Refused(Replay),
    /// An attempt is under way elsewhere: nothing ran here.
    InProgress(InProgress),
    /// The key was used for another payload: nothing ran.
    Conflict {
        /// The intent that the key names.
        intent: IntentId,
    },
    /// An earlier attempt may have happened: nothing ran.
    Unknown(Unresolved),
}

/// An effect that ran now.
#[derive(Debug, Clone)]
pub struct Execution {
    /// Which intent.
    pub intent: IntentId,
    /// The number of the attempt; 0 for a read, which is not recorded.
    pub attempt: u32,
    /// How it went.
    pub outcome: Outcome,
    /// Set if the end could not be recorded as usual.
    pub unrecorded: Option<Unrecorded>,
}

/// Why the end of an attempt is not the record's state.
#[derive(Debug, Clone)]
pub enum Unrecorded {
    /// The store fails; recording is tried on for as long as the process lives.
    StoreFailed(StoreError),
    /// Another attempt had taken its place: the effect may have happened twice.
    Superseded,
    /// It was rejected, but what an attempt before it did is not known: nothing is settled by it.
    EarlierUnknown,
}

impl Execution {
    /// Whether the effect happened.
    pub fn succeeded(&self) -> bool {
        matches!(self.outcome, Outcome::Succeeded { .. })
    }
}

/// A record that answers for a call.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The record, ended.
    pub record: Arc<Record>,
    /// The store's clock.
    pub now: Millis,
    /// Whether the result is still kept.
    pub kept: bool,
}

impl Replay {
    pub(crate) fn new(stored: Stored, kept: bool) -> Self {
        Self { record: stored.record, now: stored.now, kept }
    }

    /// The stored result, if it is kept.
    pub fn result(&self) -> Option<&[u8]> {
        self.shared_result().map(|result| &**result)
    }

    /// The same, as the ledger's memory holds it.
    pub(crate) fn shared_result(&self) -> Option<&Payload> {
        match &self.record.body.state {
            State::Succeeded { result, .. } if self.kept => result.as_ref(),
            _ => None,
        }
    }

    /// What the first execution changed.
    pub fn first_effect(&self) -> Option<Effect> {
        match &self.record.body.state {
            State::Succeeded { effect, .. } => Some(*effect),
            _ => None,
        }
    }

    /// How long ago it ended, in milliseconds.
    pub fn age_ms(&self) -> u64 {
        self.now.since(self.record.changed_at)
    }
}

/// An attempt that is under way elsewhere.
#[derive(Debug, Clone)]
pub struct InProgress {
    /// The record, running.
    pub record: Arc<Record>,
    /// When to ask again.
    pub retry_after_ms: u64,
}

/// An attempt whose outcome is not known.
#[derive(Debug, Clone)]
pub struct Unresolved {
    /// The record, in doubt.
    pub record: Arc<Record>,
    /// The store's clock.
    pub now: Millis,
    /// Why the call stops at that.
    pub reason: HaltReason,
}

/// What a call would do now. Nothing ran, nothing was written, no key was used up.
#[derive(Debug, Clone)]
pub enum Forecast {
    /// It would run.
    WouldRun {
        /// The attempt that it would be.
        attempt: u32,
        /// What the tool declares to change.
        effect: Effect,
    },
    /// It would ask the tool's probe about an attempt in doubt, and then run or not.
    WouldCheck {
        /// The record, in doubt.
        record: Arc<Record>,
    },
    /// It would be answered without running.
    WouldAnswer(Answer),
}

/// The answer that a decision of the machine means.
pub(crate) fn answer_of(decision: Decision, intent: IntentId, seen: Option<Stored>) -> Result<Answer, Error> {
    match (decision, seen) {
        (Decision::Conflict, _) => Ok(Answer::Conflict { intent }),
        (Decision::TokenUsed, _) => Err(Error::TokenUsed),
        (Decision::Replay, Some(stored)) => Ok(Answer::Replayed(Replay::new(stored, true))),
        (Decision::ReplayWithoutResult, Some(stored)) => Ok(Answer::Replayed(Replay::new(stored, false))),
        (Decision::ReplayRejection, Some(stored)) => Ok(Answer::Refused(Replay::new(stored, true))),
        (Decision::Halt(reason), Some(stored)) => {
            Ok(Answer::Unknown(Unresolved { record: stored.record, now: stored.now, reason }))
        }
        // The machine answers a call with nothing else; saying so beats running anything.
        (decision, _) => Err(Error::Store(StoreError::before(
            StoreErrorKind::Unavailable,
            format!("the machine answered a call with {decision:?}, which is a bug in oncely"),
        ))),
    }
}

/// What an answer counts as.
pub(crate) fn counter_of(answer: &Answer) -> Counter {
    match answer {
        Answer::Executed(_) => Counter::Executions,
        Answer::Replayed(_) => Counter::Replays,
        Answer::Refused(_) => Counter::Refusals,
        Answer::InProgress(_) => Counter::InProgress,
        Answer::Conflict { .. } => Counter::Conflicts,
        Answer::Unknown(_) => Counter::Unknowns,
    }
}
