//! From the errors of the server and of the way to it to the store's own kinds, with words that say what to do.

use oncely_core::{Gate, IntentId, Millis, Move, StoreError, StoreErrorKind, Wrote};
use tokio_postgres::error::{DbError, Severity};

use super::sql::{NOT_PROVED, OVERTAKEN};
use crate::unreadable;
use crate::wire::Damaged;

/// What the triggers of the gate raise.
const REFUSED_BY_GATE: &str = "ON001";

/// What the server says of a lock that was not to be had in time.
const HELD: &str = "55P03";

/// What a server said, whichever driver heard it.
#[derive(Debug)]
pub(crate) struct Said {
    /// Whether it is an ERROR: the transaction is undone, and the session goes on.
    pub(crate) is_error: bool,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
}

impl From<&DbError> for Said {
    fn from(said: &DbError) -> Self {
        Self {
            is_error: said.parsed_severity() == Some(Severity::Error),
            code: said.code().code().to_owned(),
            message: said.message().to_owned(),
            detail: said.detail().map(str::to_owned),
        }
    }
}

/// What can go wrong with a request.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server said so. It rolled the statement back, unless [`Trouble::may_have_written`].
    Server(Box<Said>),
    /// The connection failed, or the answer did not come in time: what was sent may have been done.
    Lost(String),
    /// The answer has not come in time, and the connection stands: the server may still be at it.
    Silent(String),
    /// The connection failed before the request was sent.
    Unsent(String),
    /// The server warned while it wrote: it may have stopped waiting for its standby.
    Warned(String),
    /// Stored bytes do not follow their format.
    Damaged(Damaged),
    /// Those of this very record do not.
    Unreadable(IntentId, Damaged),
    /// A ready-made error.
    Store(StoreError),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) => Self::Server(Box::new(said.into())),
            None => Self::Lost(full_text(&error)),
        }
    }
}

impl From<Damaged> for Trouble {
    fn from(error: Damaged) -> Self {
        Self::Damaged(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Trouble {
    /// Whether the statement may have taken effect although it ended in this.
    pub(crate) fn may_have_written(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Silent(_) | Self::Warned(_) => true,
            Self::Damaged(_) | Self::Unreadable(..) | Self::Store(_) | Self::Unsent(_) => false,
            // An ERROR undoes its transaction. A session that ends (FATAL) may have committed before. Classes 08, 57P, 58
            // and XX are also what poolers and relatives of PostgreSQL say when they have lost the server in the
            // middle, and 40003 says itself that it does not know.
            Self::Server(said) => {
                !said.is_error
                    || ["08", "57P", "58", "XX"].iter().any(|class| said.code.starts_with(class))
                    || said.code == "40003"
            }
        }
    }

    /// Whether the connection is of no more use.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Silent(_) | Self::Unsent(_) | Self::Warned(_) => true,
            // After a change of roles the server at the other end may have become a standby: look for the primary.
            Self::Server(said) => {
                !said.is_error
                    || said.code == "25006"
                    || said.code.starts_with("08")
                    || said.code.starts_with("57P")
            }
            _ => false,
        }
    }

    /// Whether a name that we gave a statement means nothing, or something else, at the other end: nothing was done, and
    /// something that hands out sessions stands between.
    pub(crate) fn is_lost_name(&self) -> bool {
        matches!(self, Self::Server(said) if matches!(said.code.as_str(), "26000" | "42P05" | NOT_PROVED)
            || (said.code == "08P01" && said.message.contains("prepared statement")))
    }

    /// Whether two transactions were in each other's way: nothing was written, and it may be tried again.
    pub(crate) fn is_collision(&self) -> bool {
        matches!(self.code(), Some("40P01" | "40001"))
    }

    /// Whether somebody else has made a record since the statement looked for it: nothing was written, and the next look finds
    /// it.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.code() == Some(OVERTAKEN)
    }

    /// Whether another transaction holds what was to be written, and was not waited for any longer: nothing was written.
    pub(crate) fn is_held(&self) -> bool {
        self.code() == Some(HELD)
    }

    /// The server's code.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Server(said) => Some(&said.code),
            _ => None,
        }
    }

    /// The store's error for trouble with the ledger at this address.
    pub(crate) fn at(&self, address: &str, doing: Doing) -> StoreError {
        let wrote = match doing {
            Doing::Writing if self.may_have_written() => Wrote::Maybe,
            _ => Wrote::No,
        };
        let (kind, what) = match self {
            Self::Store(error) => return error.clone(),
            Self::Unreadable(intent, Damaged(why)) => return unreadable::refusal(intent, why, address),
            Self::Server(said) if said.code == REFUSED_BY_GATE => return refusal(said, address),
            Self::Damaged(Damaged(what)) => (StoreErrorKind::Corrupt, (*what).to_owned()),
            Self::Lost(why) | Self::Silent(why) | Self::Unsent(why) => {
                (StoreErrorKind::Unavailable, why.clone())
            }
            Self::Warned(why) => (StoreErrorKind::Unavailable, format!("it warned: {why}")),
            Self::Server(said) if said.code == HELD => {
                (StoreErrorKind::Overloaded, "another transaction holds what was to be written".to_owned())
            }
            Self::Server(said) => (kind_of(&said.code), format!("{}, {}", said.message, said.code)),
        };
        let written = match wrote {
            Wrote::No => "nothing was written",
            Wrote::Maybe => "it is not known whether the write took place",
        };
        let next = match kind {
            StoreErrorKind::Full => "free some space on the server",
            StoreErrorKind::ReadOnly => "name the primary, and a role that may write to the ledger's schema",
            StoreErrorKind::Corrupt => "restore it from a backup, do not delete it",
            StoreErrorKind::Foreign => "name another schema, or run `oncely store migrate`",
            StoreErrorKind::BadAddress => "check the user, the password and the database",
            _ => "try again",
        };
        StoreError { kind, message: format!("the ledger {address}: {what}; {written}; {next}"), wrote }
    }
}

/// What the triggers of the gate say: the message is the other end of the move, the detail says how the gate stands.
fn refusal(said: &Said, address: &str) -> StoreError {
    let other = said.message.clone();
    let of = Move { id: [0; 16], run: 0, other, shift_ms: 0, steady_since: Millis(0) };
    let gate = match said.detail.as_deref() {
        Some("1") => Gate::Closing(of),
        Some("2") => Gate::Closed(of),
        Some("3") => Gate::Filling(of),
        _ => Gate::Open,
    };
    gate.refusal(address)
}

/// Whether what failed would have changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Reading,
    Writing,
}

fn kind_of(code: &str) -> StoreErrorKind {
    match code {
        "53100" => StoreErrorKind::Full,
        "25006" | "42501" => StoreErrorKind::ReadOnly,
        "XX001" | "XX002" => StoreErrorKind::Corrupt,
        "42P01" | "42703" | "3F000" => StoreErrorKind::Foreign,
        "40P01" | "40001" | "53300" | "53200" => StoreErrorKind::Overloaded,
        code if code.starts_with("28") || code == "3D000" => StoreErrorKind::BadAddress,
        _ => StoreErrorKind::Unavailable,
    }
}

/// An error with all that caused it.
pub(crate) fn full_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
