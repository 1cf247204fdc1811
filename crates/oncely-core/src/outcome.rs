//! The three outcomes of an attempt, what it changed, and what is known when it is not known.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes of a result, as a door stored them; cheap to clone.
pub type Payload = Arc<[u8]>;

/// What a call changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Something new exists.
    Created,
    /// Something changed.
    Updated,
    /// Something is gone.
    Deleted,
    /// A message left.
    Sent,
    /// Something ran; what it changed is not known more closely.
    Executed,
    /// Nothing changed.
    Noop,
}

impl Effect {
    /// All effects, in the order in which they are documented.
    pub const ALL: [Self; 6] =
        [Self::Created, Self::Updated, Self::Deleted, Self::Sent, Self::Executed, Self::Noop];

    /// The word used everywhere: JSON, flags, documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Sent => "sent",
            Self::Executed => "executed",
            Self::Noop => "noop",
        }
    }

    /// The word for what a dry run says would happen.
    pub fn would(self) -> &'static str {
        match self {
            Self::Created => "would_create",
            Self::Updated => "would_update",
            Self::Deleted => "would_delete",
            Self::Sent => "would_send",
            Self::Executed => "would_execute",
            Self::Noop => "noop",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Effect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|e| e.as_str() == text).ok_or_else(|| {
            format!("{text:?} is not an effect; allowed: created, updated, deleted, sent, executed, noop")
        })
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The effect happened, and this is its result.
    Succeeded {
        /// What changed.
        effect: Effect,
        /// The result to replay; `None` when it is too large to keep.
        result: Option<Payload>,
    },
    /// It is certain that nothing happened.
    Rejected(Failure),
    /// Nothing was even begun: nothing was sent, no process was started. It is remembered as rejected and costs no retry,
    /// so that a key outlasts a service that cannot be reached for a while.
    NotStarted(Failure),
    /// It may have happened.
    Unknown(Doubt),
}

impl Outcome {
    /// It happened, and this is the result to replay. A result beyond the limit is not kept.
    pub fn succeeded(effect: Effect, result: impl Into<Payload>) -> Self {
        let result: Payload = result.into();
        let kept = result.len() <= crate::limits::RESULT_BYTES_MAX;
        Self::Succeeded { effect, result: kept.then_some(result) }
    }

    /// It is certain that nothing happened.
    pub fn rejected(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Rejected(Failure::new(code, message))
    }

    /// Nothing was even begun.
    pub fn not_started(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::NotStarted(Failure::new(code, message))
    }

    /// Why it is certain that nothing happened, if it is.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Rejected(failure) | Self::NotStarted(failure) => Some(failure),
            Self::Succeeded { .. } | Self::Unknown(_) => None,
        }
    }

    /// It may have happened; what is known.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::Unknown(Doubt::new(DoubtCause::Reported, message))
    }
}

/// Why an attempt was rejected: a code for programs, a message for people, and what a door wants back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// UPPER_SNAKE.
    pub code: String,
    /// What happened, in a sentence.
    pub message: String,
    /// What a door stored to answer with again.
    pub detail: Option<Payload>,
}

impl Failure {
    /// A failure with a code and a message.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: crate::limits::clip_to(code.into(), 64),
            message: crate::limits::clip(message),
            detail: None,
        }
    }

    /// Adds what a door wants to answer with again.
    pub fn with_detail(mut self, detail: impl Into<Payload>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// What is known of an attempt whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The kind of event that left it in doubt.
    pub cause: DoubtCause,
    /// What is known, in a sentence.
    pub message: String,
    /// Evidence that a door kept: output so far, a status.
    pub evidence: Option<Payload>,
}

impl Doubt {
    /// A doubt with its cause and what is known.
    pub fn new(cause: DoubtCause, message: impl Into<String>) -> Self {
        Self { cause, message: crate::limits::clip(message), evidence: None }
    }

    /// Adds evidence.
    pub fn with_evidence(mut self, evidence: impl Into<Payload>) -> Self {
        self.evidence = Some(evidence.into());
        self
    }
}

/// What left an attempt in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DoubtCause {
    /// The attempt itself said so: an error that does not prove that nothing happened.
    Reported,
    /// No answer in time.
    TimedOut,
    /// The attempt panicked, was dropped or lost its connection before its end was seen.
    Abandoned,
    /// The process that ran it is gone.
    OwnerLost,
}

impl DoubtCause {
    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::TimedOut => "timed_out",
            Self::Abandoned => "abandoned",
            Self::OwnerLost => "owner_lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Effect;

    #[test]
    fn every_effect_reads_back_and_an_unknown_one_names_the_allowed() {
        for effect in Effect::ALL {
            assert_eq!(effect.as_str().parse::<Effect>(), Ok(effect));
        }
        assert!("made".parse::<Effect>().unwrap_err().contains("created, updated"));
    }
}
