//! Hearing what an engine does, as it does it: for metrics. Nothing is printed, and there is no global state.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::{
    Change, Created, Draft, Event, IntentId, Replaced, Store, StoreErrorKind, StoreFuture, Stored, ToolName,
    Version,
};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::call::Call;
use crate::engine::{Begun, Oncely};
use crate::error::Error;
use crate::remote::Claimant;

/// How a call was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnswerKind {
    /// It may run.
    Began,
    /// It had happened before.
    Replayed,
    /// It had been rejected before, and the retry budget is spent.
    Refused,
    /// An attempt is under way elsewhere.
    InProgress,
    /// The key was used for another payload.
    Conflict,
    /// An earlier attempt may have happened.
    Unknown,
    /// It got no answer: nothing ran.
    Failed,
}

impl AnswerKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Began,
        Self::Replayed,
        Self::Refused,
        Self::InProgress,
        Self::Conflict,
        Self::Unknown,
        Self::Failed,
    ];

    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Replayed => "replayed",
            Self::Refused => "refused",
            Self::InProgress => "in_progress",
            Self::Conflict => "conflict",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }

    fn of(begun: &Result<Begun, Error>) -> Self {
        match begun {
            Err(_) => Self::Failed,
            Ok(Begun::Run(_)) => Self::Began,
            Ok(Begun::Answered(answer)) => Self::of_answer(answer),
        }
    }

    pub(crate) fn of_answer(answer: &Answer) -> Self {
        match answer {
            Answer::Executed(_) => Self::Began,
            Answer::Replayed(_) => Self::Replayed,
            Answer::Refused(_) => Self::Refused,
            Answer::InProgress(_) => Self::InProgress,
            Answer::Conflict { .. } => Self::Conflict,
            Answer::Unknown(_) => Self::Unknown,
        }
    }
}

/// What a store was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoreOp {
    /// To read a record.
    Load,
    /// To write a first claim.
    Create,
    /// To change a record.
    Replace,
    /// To write events.
    Note,
}

impl StoreOp {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Load, Self::Create, Self::Replace, Self::Note];

    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Note => "note",
        }
    }
}

/// Hears what an engine does. Called on the way of every call: it has to be quick and must not block or panic.
pub trait Observer: Send + Sync + 'static {
    /// A call was answered. `took` includes waiting for another attempt, and not the effect.
    fn answered(&self, tool: &ToolName, kind: AnswerKind, took: Duration);

    /// The store answered; with an error of this kind, if it did.
    fn stored(&self, op: StoreOp, took: Duration, error: Option<StoreErrorKind>);
}

impl Oncely {
    /// An engine on this ledger, heard by `observer`.
    pub fn observed(store: Arc<dyn Store>, observer: Arc<dyn Observer>) -> Self {
        let heard = Heard { store, observer: Arc::clone(&observer) };
        Self::heard_by(Arc::new(heard), observer)
    }

    pub(crate) async fn begin_as(&self, call: &Call, claimant: Claimant<'_>) -> Result<Begun, Error> {
        let Some(observer) = &self.inner.observer else { return self.decide(call, claimant).await };
        let started = Instant::now();
        let begun = self.decide(call, claimant).await;
        observer.answered(&call.tool, AnswerKind::of(&begun), started.elapsed());
        begun
    }
}

/// A store whose answers are timed.
struct Heard {
    store: Arc<dyn Store>,
    observer: Arc<dyn Observer>,
}

impl Heard {
    /// The request is made already: only its answer is waited for here.
    fn time<'a, T: Send + 'a>(&'a self, op: StoreOp, asked: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        let started = Instant::now();
        Box::pin(async move {
            let answer = asked.await;
            self.observer.stored(op, started.elapsed(), answer.as_ref().err().map(|error| error.kind));
            answer
        })
    }
}

impl Store for Heard {
    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        self.time(StoreOp::Create, self.store.create(intent, draft, events))
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        self.time(StoreOp::Load, self.store.load(intent))
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        self.time(StoreOp::Replace, self.store.replace(intent, expected, change, events))
    }

    fn note(&self, events: Vec<Event>) -> StoreFuture<'_, ()> {
        self.time(StoreOp::Note, self.store.note(events))
    }

    oncely_core::hand_on!(store: describe peek expects watch liveness owner now steady_since scan log purge tally tallies census
        flush health gate turn_gate import);
}
