//! Looking at the ledger and settling what is in doubt: for people, through any door.

use oncely_core::machine::{Decision, Input, Refusal, Verdict};
use oncely_core::{
    Change, Event, EventKind, Liveness, Record, Replaced, StateName, StoreError, Stored, Unreadable,
};

use crate::engine::Oncely;

/// Why a person's wish was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    /// There is no such record.
    #[error("there is no record with this id")]
    NoRecord,
    /// There is nothing to settle.
    #[error("the record is not in doubt: there is nothing to settle")]
    NotInDoubt,
    /// An attempt is under way.
    #[error("an attempt is running and its owner lives; wait for its end")]
    Running,
    /// The record has changed since it was looked at.
    #[error("the record has changed since you looked; look again")]
    Moved,
    /// It cannot be read, and cannot be forgotten either.
    #[error("the record cannot be read, and {0}")]
    Kept(&'static str),
    /// The ledger cannot be used.
    #[error("the ledger cannot be used: {0}")]
    Store(#[from] StoreError),
}

impl Oncely {
    /// Settles the doubt about a record by the word of a person who looked at it. The word is about the attempt that
    /// they saw: if another has taken its place since, it is refused.
    pub async fn resolve(&self, seen: &Record, by: &str, verdict: Verdict) -> Result<Stored, ResolveError> {
        let input = |record: Option<&Record>| Input::Resolve {
            by,
            doubted: seen.body.token,
            verdict: verdict.clone(),
            liveness: self.liveness_in(record),
        };
        match self.settle(seen.intent, None, input).await? {
            (Decision::Refused(refusal), _) => Err(refusal.into()),
            (_, Some(stored)) => Ok(stored),
            (_, None) => Err(ResolveError::NoRecord),
        }
    }

    /// Has a record forgotten, as a person looked at it: its key is new again. Refused if it has changed since.
    pub async fn forget(&self, seen: &Record, by: &str) -> Result<(), ResolveError> {
        let input = |record: Option<&Record>| Input::Forget {
            by,
            seen: seen.version,
            liveness: self.liveness_in(record),
        };
        match self.settle(seen.intent, None, input).await? {
            (Decision::Refused(refusal), _) => Err(refusal.into()),
            _ => Ok(()),
        }
    }

    /// Has a record forgotten that cannot be read, as a person looked at it: its key is new again. They have to know what
    /// became of its call, since nothing here can tell. Refused if it has changed since, and while it is filed as running:
    /// its owner may be a newer version that is at work.
    pub async fn forget_unreadable(&self, seen: &Unreadable, by: &str) -> Result<(), ResolveError> {
        if seen.state == StateName::Running {
            return Err(ResolveError::Kept("is filed as running: an attempt may be under way"));
        }
        let Some(version) = seen.version else {
            return Err(ResolveError::Kept(
                "has no version to name it by: remove it with the server's own tools",
            ));
        };
        let note = format!("it could not be read: {}", seen.why);
        let event = Event::new(seen.intent, 0, EventKind::Forgotten).by(by).with_note(note);
        match self.store().replace(seen.intent, version, Change::Remove, vec![event]).await? {
            Replaced::Done(_) => Ok(()),
            Replaced::Stale(None) => Err(ResolveError::NoRecord),
            Replaced::Stale(Some(_)) => Err(ResolveError::Moved),
        }
    }

    fn liveness_in(&self, record: Option<&Record>) -> Liveness {
        record.map_or(Liveness::ByLease, |record| self.liveness(record))
    }
}

impl From<Refusal> for ResolveError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoRecord => Self::NoRecord,
            Refusal::NotInDoubt => Self::NotInDoubt,
            Refusal::Running => Self::Running,
            Refusal::Moved => Self::Moved,
        }
    }
}
