//! The terms in which the machine speaks: what comes in, and what it says.

use crate::audit::Event;
use crate::fingerprint::Fingerprint;
use crate::name::{DownstreamKey, IntentId, IntentName};
use crate::outcome::{Effect, Failure, Outcome, Payload};
use crate::owner::{AttemptToken, Liveness, Owner};
use crate::policy::Policy;
use crate::record::{Body, Draft, Millis, Record, Version};

/// What happens to a record.
#[derive(Debug, Clone)]
pub enum Input<'a> {
    /// Somebody calls.
    Begin(Begin<'a>),
    /// An attempt ended.
    Complete {
        /// Which.
        token: AttemptToken,
        /// How.
        outcome: Outcome,
    },
    /// The answer to a claim was lost, so that its effect was not started.
    Withdraw {
        /// What was to be written.
        claim: &'a Body,
        /// What it was to replace; `None`: there was no record.
        over: Option<&'a Record>,
        /// What is said of it.
        failure: Failure,
    },
    /// The owner says that it lives.
    Renew {
        /// Of which attempt.
        token: AttemptToken,
    },
    /// The probe was asked about the attempt in doubt.
    Probed {
        /// Which attempt was in doubt when the probe was asked.
        doubted: AttemptToken,
        /// What it found.
        finding: Finding,
        /// The call that asked, to run if it has not happened.
        call: Begin<'a>,
    },
    /// A person settles a doubt.
    Resolve {
        /// Who.
        by: &'a str,
        /// The attempt that they looked at.
        doubted: AttemptToken,
        /// What is true.
        verdict: Verdict,
        /// What can be seen of the owner, if the record says running.
        liveness: Liveness,
    },
    /// A person has the record forgotten.
    Forget {
        /// Who.
        by: &'a str,
        /// The record as they looked at it.
        seen: Version,
        /// What can be seen of the owner, if the record says running.
        liveness: Liveness,
    },
    /// Time has passed.
    Expire,
}

/// A call that wants to run.
#[derive(Debug, Clone, Copy)]
pub struct Begin<'a> {
    /// The intent.
    pub intent: IntentId,
    /// Its full name.
    pub name: &'a IntentName,
    /// What the payload is.
    pub fingerprint: Fingerprint,
    /// Names the attempt that this call would be.
    pub token: AttemptToken,
    /// Who would run it.
    pub owner: &'a Owner,
    /// What can be seen of the owner of the record's running attempt, if there is one.
    pub liveness: Liveness,
    /// What the tool declares.
    pub policy: &'a Policy,
    /// Since when the store's clock is known to have run without a gap: what was stamped before may be longer ago than
    /// it seems.
    pub steady_since: Millis,
    /// A person has checked that an attempt in doubt did not happen, and wants it run.
    pub checked: Option<Checked<'a>>,
}

/// A person's word about an attempt in doubt: it did not happen. It says nothing of any other attempt.
#[derive(Debug, Clone, Copy)]
pub struct Checked<'a> {
    /// Who.
    pub by: &'a str,
    /// The attempt that they looked at.
    pub doubted: AttemptToken,
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The effect has happened; its result, if the probe can tell.
    Happened(Option<Payload>),
    /// It has not.
    NotHappened,
    /// It cannot tell; why.
    Unsure(String),
}

/// How a person settles a doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It happened.
    Succeeded {
        /// What changed.
        effect: Effect,
        /// The result to replay from now on.
        result: Option<Payload>,
    },
    /// It did not.
    Rejected(Failure),
}

/// What to do and say about one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// What to write.
    pub write: Write,
    /// What to log, in the same atomic step.
    pub events: Vec<Event>,
    /// What the caller is told once the write is durable.
    pub decision: Decision,
}

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Nothing.
    Nothing,
    /// This, in place of what was read.
    Put(Box<Draft>),
    /// Remove the record.
    Remove,
}

/// What the caller is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Run the effect, once the write is durable.
    Execute(Execute),
    /// The key was used for another payload; nothing runs.
    Conflict,
    /// An attempt is under way elsewhere: wait for it.
    Wait,
    /// Ask the tool's probe, then come back with [`Input::Probed`].
    Probe,
    /// The outcome is unknown; nothing runs.
    Halt(HaltReason),
    /// Answer with the stored result.
    Replay,
    /// Answer that it happened; the result is no longer kept.
    ReplayWithoutResult,
    /// Answer with the stored rejection: the retry budget is spent.
    ReplayRejection,
    /// The write changed the ground: step again with what is there now.
    Again,
    /// The end of the attempt is recorded (or was already).
    Recorded,
    /// The attempt is no longer the latest: its end changes nothing.
    Superseded,
    /// The lease is renewed.
    Renewed,
    /// The record was settled or removed as asked.
    Done,
    /// What was asked cannot be done in this state.
    Refused(Refusal),
    /// The token names an attempt that has ended or is in doubt; nothing runs.
    TokenUsed,
    /// Nothing to do.
    Keep,
}

/// Permission to run an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execute {
    /// Names the attempt.
    pub token: AttemptToken,
    /// Its number, from 1, never reused.
    pub attempt: u32,
    /// The key for a downstream that de-duplicates.
    pub downstream_key: DownstreamKey,
    /// Why it may run.
    pub because: Because,
}

/// Why an attempt may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Because {
    /// The intent is new.
    Fresh,
    /// The guessed intent of an earlier equal call has ended: this is a new one.
    NewGeneration,
    /// The attempt before certainly did not happen.
    Rejected,
    /// Starting it again is harmless by the tool's own policy.
    Harmless,
    /// The probe found that the attempt in doubt did not happen.
    ProbedNotHappened,
    /// A person checked.
    PersonChecked,
    /// It was begun already and the answer got lost: this is the answer again.
    AskedAgain,
}

/// Why an unknown outcome stops a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HaltReason {
    /// The tool's policy says so.
    Policy,
    /// The probe could not tell.
    Unsure,
    /// The downstream no longer remembers our key: a retry would not be harmless.
    DownstreamForgot,
    /// The retry budget is spent.
    BudgetSpent,
}

/// Why a person's wish is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There is no such record.
    NoRecord,
    /// It is not in doubt: there is nothing to settle.
    NotInDoubt,
    /// An attempt is under way and its owner lives.
    Running,
    /// The record has changed since it was looked at.
    Moved,
}

impl Transition {
    pub(super) fn says(decision: Decision) -> Self {
        Self { write: Write::Nothing, events: Vec::new(), decision }
    }

    pub(super) fn put(draft: Draft, event: Event, decision: Decision) -> Self {
        Self { write: Write::Put(Box::new(draft)), events: vec![event], decision }
    }

    pub(super) fn with_event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }
}
