//! What is remembered of one intent.

use std::fmt;

use crate::fingerprint::Fingerprint;
use crate::name::{IntentId, IntentName};
use crate::outcome::{Doubt, Effect, Failure, Payload};
use crate::owner::{AttemptToken, Owner};

/// Milliseconds by the store's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// Milliseconds since an earlier moment; 0 if that lies ahead.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// A moment later by `ms`.
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// The fencing token of a record: grows with every write, never restarts, not even after the record is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

/// A record as a store returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Which intent.
    pub intent: IntentId,
    /// The fencing token.
    pub version: Version,
    /// When this generation of the intent was first seen.
    pub created_at: Millis,
    /// When the current downstream key was first used.
    pub sent_at: Millis,
    /// When the state was last written.
    pub changed_at: Millis,
    /// Everything else.
    pub body: Body,
}

/// What a transition decides of a record. All durations are relative; stores add the times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The full name of the intent.
    pub name: IntentName,
    /// What the payload was.
    pub fingerprint: Fingerprint,
    /// Counts from 1: how often the same name has meant a new intent.
    pub generation: u32,
    /// Attempts begun so far in all generations; the number of the latest.
    pub attempts: u32,
    /// Attempts begun so far in this generation, less those before the latest that were never started (and were no retry
    /// of something unknown), or that a probe or a person found not to have happened. More than one above `rejections`:
    /// an attempt before the latest may have happened. One above it, and rejected: the latest was never started.
    /// None: the first was only claimed, and that was withdrawn.
    pub tries: u32,
    /// Attempts of this generation that are certain not to have happened.
    pub rejections: u32,
    /// Names the latest attempt, so that only its own end, however late, is taken for it.
    pub token: AttemptToken,
    /// How long the record is kept once it has ended.
    pub retention: Retention,
    /// Where it stands.
    pub state: State,
}

impl Body {
    /// The same with another state; the one that it has is not copied.
    pub(crate) fn in_state(&self, state: State) -> Self {
        let Self { name, fingerprint, generation, attempts, tries, rejections, token, retention, state: _ } =
            self;
        Self {
            name: name.clone(),
            fingerprint: *fingerprint,
            generation: *generation,
            attempts: *attempts,
            tries: *tries,
            rejections: *rejections,
            token: *token,
            retention: *retention,
            state,
        }
    }
}

/// How long an ended record is kept, from its end on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retention {
    /// The result.
    pub replay_for_ms: u64,
    /// The bare key.
    pub remember_for_ms: u64,
}

/// Where a record stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// An attempt is under way.
    Running {
        /// Who runs it.
        owner: Owner,
        /// How long the owner is believed alive after the last write, where it cannot be looked at.
        lease_ms: u64,
    },
    /// The effect happened.
    Succeeded {
        /// What changed.
        effect: Effect,
        /// The result; `None` if it is not kept.
        result: Option<Payload>,
        /// How this came to be known.
        settled: Settled,
    },
    /// It is certain that nothing happened.
    Rejected {
        /// Why.
        failure: Failure,
        /// How this came to be known.
        settled: Settled,
    },
    /// The latest attempt may or may not have happened.
    InDoubt {
        /// Who ran it.
        owner: Owner,
        /// What is known.
        doubt: Doubt,
    },
}

/// How the end of a record came to be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The attempt itself reported it.
    Attempt,
    /// The tool's probe found it.
    Probe,
    /// A person said so; who.
    Person(String),
}

/// The name of a state, for filters and messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateName {
    /// An attempt is under way.
    Running,
    /// The effect happened.
    Succeeded,
    /// Nothing happened.
    Rejected,
    /// It may have happened.
    InDoubt,
}

impl StateName {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Running, Self::Succeeded, Self::Rejected, Self::InDoubt];

    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Rejected => "rejected",
            Self::InDoubt => "in_doubt",
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for StateName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| {
            format!("{text:?} is not a state; allowed: running, succeeded, rejected, in_doubt")
        })
    }
}

impl State {
    /// The state's name.
    pub fn name(&self) -> StateName {
        match self {
            Self::Running { .. } => StateName::Running,
            Self::Succeeded { .. } => StateName::Succeeded,
            Self::Rejected { .. } => StateName::Rejected,
            Self::InDoubt { .. } => StateName::InDoubt,
        }
    }

    /// The bytes that it keeps for a caller.
    pub fn kept(&self) -> Option<&Payload> {
        match self {
            Self::Running { .. } => None,
            Self::Succeeded { result, .. } => result.as_ref(),
            Self::Rejected { failure, .. } => failure.detail.as_ref(),
            Self::InDoubt { doubt, .. } => doubt.evidence.as_ref(),
        }
    }

    /// Whether the record has ended: such records expire, the others never do.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Succeeded { .. } | Self::Rejected { .. })
    }
}

impl Body {
    /// Whether an attempt of this generation before the latest may have happened: it was begun again because that was
    /// harmless, and has neither been rejected nor been found not to have happened since.
    pub fn is_unsettled(&self) -> bool {
        self.tries.saturating_sub(1) > self.rejections
    }

    /// How long after the last write something is due to be dropped: first the result, then the record.
    /// `None`: never (running and in-doubt records).
    pub fn due_after_ms(&self) -> Option<u64> {
        match &self.state {
            State::Succeeded { result: Some(_), .. } => Some(self.retention.replay_for_ms),
            State::Succeeded { result: None, .. } | State::Rejected { .. } => {
                Some(self.retention.remember_for_ms)
            }
            State::Running { .. } | State::InDoubt { .. } => None,
        }
    }
}

/// A time in a record that is about to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// The store's clock at the moment of the write.
    OnWrite,
    /// As it was.
    Kept(Millis),
}

impl Stamp {
    /// The time, given the moment of the write.
    pub fn at(self, now: Millis) -> Millis {
        match self {
            Self::OnWrite => now,
            Self::Kept(at) => at,
        }
    }
}

/// A record that is about to be written: the machine decides, the store's clock stamps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// See [`Record::created_at`].
    pub created: Stamp,
    /// See [`Record::sent_at`].
    pub sent: Stamp,
    /// See [`Record::changed_at`].
    pub changed: Stamp,
    /// Everything else.
    pub body: Body,
}

impl Draft {
    /// The record that this draft becomes when written at `now` as `version`.
    pub fn stamped(self, intent: IntentId, version: Version, now: Millis) -> Record {
        Record {
            intent,
            version,
            created_at: self.created.at(now),
            sent_at: self.sent.at(now),
            changed_at: self.changed.at(now),
            body: self.body,
        }
    }
}
