//! What callers ask for, and what they are answered.

use std::collections::HashMap;

use oncely_core::{
    Body, Created, Draft, Event, Filter, Gate, Import, IntentId, LogQuery, LoggedEvent, Millis, Move, Page,
    PurgeReport, Replaced, StateName, Stored, Tally, Version,
};

use super::rows::Half;

/// What a caller asks for.
pub(crate) enum Request {
    Create { intent: IntentId, draft: Box<Draft>, events: Option<Vec<u8>> },
    Put { intent: IntentId, expected: Version, draft: Box<Draft>, events: Option<Vec<u8>> },
    Load { intent: IntentId },
    Job(Job),
}

/// What is asked for seldom: a statement of its own.
pub(crate) enum Job {
    Remove {
        intent: IntentId,
        expected: Version,
        events: Option<Vec<u8>>,
    },
    Note {
        events: Vec<Event>,
    },
    Scan {
        filter: Box<Filter>,
        from: u64,
        limit: usize,
    },
    Log(LogQuery),
    Purge {
        limit: usize,
    },
    Count(Vec<Tally>),
    Tallies,
    Census,
    Now,
    /// Says that these are waited for, and asks for their versions.
    Look {
        intents: Vec<IntentId>,
    },
    /// Tells other machines that these have changed.
    Tell {
        heads: Vec<Half>,
    },
    /// Tells every listener a text.
    Say(String),
    Gate,
    TurnGate {
        from: Gate,
        to: Gate,
    },
    /// What a move brings.
    Import {
        under: Move,
        import: Import,
    },
}

/// What a caller is answered.
pub(crate) enum Answer {
    Created(Created),
    Replaced(Replaced),
    Loaded(Option<Stored>),
    Scanned(Page<Stored>),
    Logged(Page<LoggedEvent>),
    Purged(PurgeReport),
    Tallies(Vec<Tally>),
    Census(Vec<(StateName, u64)>),
    Now(Millis),
    Versions(HashMap<IntentId, Version>),
    Gate(Gate),
    Done,
}

/// The kinds that share a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Create,
    Put,
    Load,
    Job,
}

pub(crate) const LANES: [Lane; 4] = [Lane::Create, Lane::Put, Lane::Load, Lane::Job];

/// What a request takes besides what it keeps for a caller, in bytes.
const BESIDES: usize = 512;

/// What a record takes in a statement, about.
pub(crate) fn bytes_of(body: &Body) -> usize {
    BESIDES + body.state.kept().map_or(0, |bytes| bytes.len())
}

impl Request {
    pub(crate) fn lane(&self) -> Lane {
        match self {
            Self::Create { .. } => Lane::Create,
            Self::Put { .. } => Lane::Put,
            Self::Load { .. } => Lane::Load,
            Self::Job(_) => Lane::Job,
        }
    }

    pub(crate) fn intent(&self) -> Option<IntentId> {
        match self {
            Self::Create { intent, .. } | Self::Put { intent, .. } | Self::Load { intent } => Some(*intent),
            Self::Job(_) => None,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Create { draft, events, .. } | Self::Put { draft, events, .. } => {
                bytes_of(&draft.body) + events.as_ref().map_or(0, Vec::len)
            }
            _ => BESIDES,
        }
    }

    /// Whether it is still worth doing when nobody waits for the answer. An end that was handed in always is.
    pub(crate) fn outlives_caller(&self) -> bool {
        matches!(
            self,
            Self::Put { .. }
                | Self::Job(
                    Job::Remove { .. } | Job::Note { .. } | Job::Count(_) | Job::Tell { .. } | Job::Say(_)
                )
        )
    }
}
