//! Counters that survive a restart, kept per namespace and tool.

use crate::name::{Namespace, ToolName};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Counter {
    /// Calls that reached the ledger.
    Calls = 1,
    /// Effects that were started.
    Executions = 2,
    /// Calls answered from memory: duplicates prevented.
    Replays = 3,
    /// Keys reused for another payload.
    Conflicts = 4,
    /// Calls answered *outcome unknown*.
    Unknowns = 5,
    /// Calls that found an attempt under way and waited.
    Waits = 6,
    /// Calls that gave up waiting: in progress elsewhere.
    InProgress = 7,
    /// Rejections replayed because the retry budget was spent.
    Refusals = 8,
    /// Ends of superseded attempts: possible double effects.
    Superseded = 9,
}

impl Counter {
    /// All counters.
    pub const ALL: [Self; 9] = [
        Self::Calls,
        Self::Executions,
        Self::Replays,
        Self::Conflicts,
        Self::Unknowns,
        Self::Waits,
        Self::InProgress,
        Self::Refusals,
        Self::Superseded,
    ];

    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Executions => "executions",
            Self::Replays => "duplicates_prevented",
            Self::Conflicts => "conflicts",
            Self::Unknowns => "unknown_answers",
            Self::Waits => "waits",
            Self::InProgress => "in_progress_answers",
            Self::Refusals => "refusals",
            Self::Superseded => "superseded",
        }
    }

    /// The counter with this number, as stores keep it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|c| *c as u8 == number)
    }
}

/// A total, as a store reads it back.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    /// Whose.
    pub namespace: Namespace,
    /// Which tool's.
    pub tool: ToolName,
    /// What.
    pub counter: Counter,
    /// How many.
    pub count: u64,
}
