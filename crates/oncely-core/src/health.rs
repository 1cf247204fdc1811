//! How the way to a ledger is: whether it is reached, since when not and why, and how much waits for it. For metrics and
//! examinations; nothing is decided by it.

use std::time::Duration;

use crate::store::{StoreError, StoreErrorKind};

/// How the way to a ledger is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHealth {
    /// Whether it is reached.
    pub link: Link,
    /// Open connections for calls.
    pub connected: usize,
    /// Connections that were made again after one was lost.
    pub reconnects: u64,
    /// Requests that wait.
    pub queued: usize,
    /// Requests that may wait (for each server, where there are several); more are refused. 0 where nothing waits.
    pub queue_max: usize,
    /// Whether changes by other machines are told as they happen; else waiters look for them, often.
    pub hears: bool,
}

/// Whether a ledger is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// There is no way to go: it is in this process, or in a file that this process has open.
    Local,
    /// It is.
    Connected,
    /// It is not, and is tried again.
    Reconnecting {
        /// For how long it has not been reached.
        for_how_long: Duration,
        /// What happened last.
        why: String,
    },
    /// It is there, and cannot be used as it is, or has no room for new attempts; it is tried again all the same.
    Refused {
        /// For how long it has not been usable.
        for_how_long: Duration,
        /// What is wrong with it.
        why: String,
    },
}

impl StoreHealth {
    /// Of a ledger in this process, or in a file that it has open.
    pub fn local() -> Self {
        Self { link: Link::Local, connected: 0, reconnects: 0, queued: 0, queue_max: 0, hears: true }
    }
}

impl Link {
    /// The words for all of them.
    pub const WORDS: [&str; 4] = ["local", "connected", "reconnecting", "refused"];

    /// A way that was lost, or never found, by this error.
    pub fn lost(error: &StoreError, for_how_long: Duration) -> Self {
        let why = error.message.clone();
        match error.kind {
            StoreErrorKind::Unavailable | StoreErrorKind::ReadOnly | StoreErrorKind::Overloaded => {
                Self::Reconnecting { for_how_long, why }
            }
            _ => Self::Refused { for_how_long, why },
        }
    }

    /// The word for it.
    pub fn as_str(&self) -> &'static str {
        let [local, connected, reconnecting, refused] = Self::WORDS;
        match self {
            Self::Local => local,
            Self::Connected => connected,
            Self::Reconnecting { .. } => reconnecting,
            Self::Refused { .. } => refused,
        }
    }

    /// For how long the ledger has not been usable; nothing if it is.
    pub fn down_for(&self) -> Option<Duration> {
        match self {
            Self::Local | Self::Connected => None,
            Self::Reconnecting { for_how_long, .. } | Self::Refused { for_how_long, .. } => {
                Some(*for_how_long)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Link;
    use crate::store::{StoreError, StoreErrorKind};

    #[test]
    fn what_passes_is_waited_for_and_what_does_not_is_a_refusal() {
        let word = |kind| Link::lost(&StoreError::before(kind, "why"), Duration::ZERO).as_str();
        assert_eq!(word(StoreErrorKind::Unavailable), "reconnecting");
        assert_eq!(word(StoreErrorKind::ReadOnly), "reconnecting");
        assert_eq!(word(StoreErrorKind::Unsuitable), "refused");
        assert_eq!(word(StoreErrorKind::Corrupt), "refused");
        assert_eq!(Link::Connected.down_for(), None);
    }
}
