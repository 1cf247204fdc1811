//! What is written to the audit log, in the same atomic step as the transition it tells of.

use crate::name::IntentId;
use crate::record::Millis;

/// Stands for no record, in what concerns the ledger as a whole.
pub const NO_INTENT: IntentId = IntentId([0; 32]);

/// One thing that happened to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which record; [`NO_INTENT`] for none.
    pub intent: IntentId,
    /// Which attempt it concerns; 0 for none.
    pub attempt: u32,
    /// What happened.
    pub kind: EventKind,
    /// Who did it, where a person did.
    pub actor: Option<String>,
    /// More, in a sentence.
    pub note: Option<String>,
}

impl Event {
    /// An event without an actor and a note.
    pub fn new(intent: IntentId, attempt: u32, kind: EventKind) -> Self {
        Self { intent, attempt, kind, actor: None, note: None }
    }

    /// Adds a note.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(crate::limits::clip_to(note.into(), 512));
        self
    }

    /// Adds who did it.
    pub fn by(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(crate::limits::clip_to(actor.into(), crate::limits::ACTOR_BYTES_MAX));
        self
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// An attempt began.
    Began = 1,
    /// An attempt succeeded.
    Succeeded = 2,
    /// An attempt was rejected: nothing happened.
    Rejected = 3,
    /// An attempt's outcome became unknown.
    InDoubt = 4,
    /// An attempt that was in doubt reported its end after all.
    LateTruth = 5,
    /// An attempt ended that had been superseded: the one sign of a possible double effect.
    Superseded = 6,
    /// A probe found that the effect had happened.
    ProbeHappened = 7,
    /// A probe found that it had not.
    ProbeNotHappened = 8,
    /// A probe could not tell.
    ProbeUnsure = 9,
    /// A person settled the doubt: it happened.
    ResolvedSucceeded = 10,
    /// A person settled the doubt: it did not.
    ResolvedRejected = 11,
    /// A person had the record forgotten.
    Forgotten = 12,
    /// A person had checked and let an attempt in doubt run again.
    RetriedUnknown = 13,
    /// A person had everything dropped that was due; of no record.
    Purged = 14,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::Began,
        Self::Succeeded,
        Self::Rejected,
        Self::InDoubt,
        Self::LateTruth,
        Self::Superseded,
        Self::ProbeHappened,
        Self::ProbeNotHappened,
        Self::ProbeUnsure,
        Self::ResolvedSucceeded,
        Self::ResolvedRejected,
        Self::Forgotten,
        Self::RetriedUnknown,
        Self::Purged,
    ];

    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Succeeded => "succeeded",
            Self::Rejected => "rejected",
            Self::InDoubt => "in_doubt",
            Self::LateTruth => "late_truth",
            Self::Superseded => "superseded",
            Self::ProbeHappened => "probe_happened",
            Self::ProbeNotHappened => "probe_not_happened",
            Self::ProbeUnsure => "probe_unsure",
            Self::ResolvedSucceeded => "resolved_succeeded",
            Self::ResolvedRejected => "resolved_rejected",
            Self::Forgotten => "forgotten",
            Self::RetriedUnknown => "retried_unknown",
            Self::Purged => "purged",
        }
    }

    /// The kind with this number, as stores keep it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|k| *k as u8 == number)
    }
}

/// An event as the log returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Its place in the log; grows.
    pub seq: u64,
    /// When, by the store's clock.
    pub at: Millis,
    /// What.
    pub event: Event,
}
