//! Requests of the hot path, as one statement: many callers, one round trip, one commit.

use std::sync::Arc;

use oncely_core::{Created, IntentId, Replaced, StoreError, StoreErrorKind, Stored, Version};
use tokio::sync::oneshot;

use super::errors::{Doing, Trouble};
use super::exec::{Entry, Outcome, create_all, load_many, put_all};
use super::jobs;
use super::queue::{Answer, Batch, Job, Lane, Op, Request};
use super::session::Session;
use super::shared::Shared;

/// How often something is tried again that others keep getting in the way of.
const TRIES: usize = 8;

pub(crate) type Reply = oneshot::Sender<Result<Answer, StoreError>>;

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    GoOn,
    /// It is of no more use.
    Reconnect,
    /// The server still owes an answer. Another connection in its place would only be one more that waits.
    Await,
}

impl Afterwards {
    pub(crate) fn of(trouble: &Trouble) -> Self {
        match trouble {
            Trouble::Silent(_) => Self::Await,
            trouble if trouble.ends_connection() => Self::Reconnect,
            _ => Self::GoOn,
        }
    }
}

/// Runs a batch and answers its callers.
pub(crate) async fn run(shared: &Shared, session: &mut Session, batch: Batch) -> Afterwards {
    match batch.lane {
        Lane::Create => create(shared, session, batch).await,
        Lane::Put => put(shared, session, batch).await,
        Lane::Load => load(shared, session, batch).await,
        Lane::Job => match batch.ops.into_iter().next() {
            Some(Op { request: Request::Job(job), reply, .. }) => {
                jobs::run(shared, session, job, reply).await
            }
            _ => Afterwards::GoOn,
        },
    }
}

/// Splits requests from whom to answer.
fn split(ops: Vec<Op>) -> (Vec<Entry>, Vec<Op>) {
    let mut entries = Vec::with_capacity(ops.len());
    let mut rest = Vec::with_capacity(ops.len());
    for mut op in ops {
        let request = std::mem::replace(&mut op.request, Request::Job(Job::Now));
        match request {
            Request::Create { intent, draft, events } => {
                entries.push(Entry { intent, expected: Version(0), draft, events });
                rest.push(op);
            }
            Request::Put { intent, expected, draft, events } => {
                entries.push(Entry { intent, expected, draft, events });
                rest.push(op);
            }
            Request::Load { .. } | Request::Job(_) => {}
        }
    }
    (entries, rest)
}

fn tell(op: Op, answer: Result<Answer, StoreError>) {
    // The caller is gone; what it asked for is done all the same.
    let _ = op.reply.send(answer);
}

async fn create(shared: &Shared, session: &mut Session, batch: Batch) -> Afterwards {
    let (entries, ops) = split(batch.ops);
    let mut followers = batch.followers;
    let mut afterwards = Afterwards::GoOn;
    let outcomes = together_or_alone(shared, session, &entries, What::Create, &mut afterwards).await;
    for ((entry, op), outcome) in entries.into_iter().zip(ops).zip(outcomes) {
        let intent = entry.intent;
        let answer = match outcome {
            Ok(Outcome::Written { version, now }) => {
                let record = Arc::new(entry.draft.stamped(intent, version, now));
                shared.watchers.changed(&intent, Some(version));
                Ok(Created::New(Stored { record, now }))
            }
            Ok(Outcome::There(there)) => Ok(Created::Exists(there)),
            Ok(Outcome::Gone) => Err(in_the_way()),
            Ok(Outcome::Failed(error)) | Err(error) => Err(error),
        };
        for follower in followers.remove(&intent).into_iter().flatten() {
            // They asked before it was written: to them it is there already.
            let seen = answer.clone().map(|created| match created {
                Created::New(stored) | Created::Exists(stored) => Answer::Created(Created::Exists(stored)),
            });
            tell(follower, seen);
        }
        tell(op, answer.map(Answer::Created));
    }
    afterwards
}

async fn put(shared: &Shared, session: &mut Session, batch: Batch) -> Afterwards {
    let (entries, ops) = split(batch.ops);
    let mut afterwards = Afterwards::GoOn;
    let outcomes = together_or_alone(shared, session, &entries, What::Put, &mut afterwards).await;
    for ((entry, op), outcome) in entries.into_iter().zip(ops).zip(outcomes) {
        let intent = entry.intent;
        let answer = outcome.and_then(|outcome| match outcome {
            Outcome::Written { version, now } => {
                let record = Arc::new(entry.draft.stamped(intent, version, now));
                shared.watchers.changed(&intent, Some(version));
                Ok(Replaced::Done(Some(Stored { record, now })))
            }
            Outcome::There(there) => Ok(Replaced::Stale(Some(there))),
            Outcome::Gone => Ok(Replaced::Stale(None)),
            Outcome::Failed(error) => Err(error),
        });
        tell(op, answer.map(Answer::Replaced));
    }
    afterwards
}

async fn load(shared: &Shared, session: &mut Session, batch: Batch) -> Afterwards {
    let Batch { ops, mut followers, .. } = batch;
    let intents: Vec<IntentId> = ops.iter().filter_map(|op| intent_of(&op.request)).collect();
    let (found, afterwards) = match load_many(shared, session, &intents).await {
        Ok(found) => (Ok(found), Afterwards::GoOn),
        Err(trouble) => {
            let error = trouble.at(&shared.address, Doing::Reading);
            (Err(error), Afterwards::of(&trouble))
        }
    };
    for op in ops {
        let Some(intent) = intent_of(&op.request) else { continue };
        let answer = match &found {
            Ok((now, records)) => {
                let record = records.get(&intent).cloned().transpose();
                record.map(|record| record.map(|record| Stored { record, now: *now }))
            }
            Err(error) => Err(error.clone()),
        };
        for op in followers.remove(&intent).into_iter().flatten().chain([op]) {
            tell(op, answer.clone().map(Answer::Loaded));
        }
    }
    afterwards
}

fn intent_of(request: &Request) -> Option<IntentId> {
    match request {
        Request::Load { intent } => Some(*intent),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Create,
    Put,
}

/// One statement for all; if the server refuses it, one for each: what one cannot have must not keep it from others.
async fn together_or_alone(
    shared: &Shared,
    session: &mut Session,
    entries: &[Entry],
    what: What,
    afterwards: &mut Afterwards,
) -> Vec<Result<Outcome, StoreError>> {
    let trouble = match try_all(shared, session, entries, what).await {
        Ok(outcomes) => return outcomes.into_iter().map(Ok).collect(),
        Err(trouble) => trouble,
    };
    *afterwards = Afterwards::of(&trouble);
    let hopeless = trouble.may_have_written() || trouble.ends_connection();
    if hopeless || (entries.len() == 1 && !trouble.is_collision()) {
        let error = trouble.at(&shared.address, Doing::Writing);
        return entries.iter().map(|_| Err(error.clone())).collect();
    }
    let mut outcomes = Vec::with_capacity(entries.len());
    for entry in entries {
        // What was not sent was not written.
        outcomes.push(match afterwards {
            Afterwards::GoOn => alone(shared, session, entry, what, afterwards).await,
            _ => {
                Err(Trouble::Unsent("the connection was lost".to_owned()).at(&shared.address, Doing::Writing))
            }
        });
    }
    outcomes
}

async fn alone(
    shared: &Shared,
    session: &mut Session,
    entry: &Entry,
    what: What,
    afterwards: &mut Afterwards,
) -> Result<Outcome, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_all(shared, session, std::slice::from_ref(entry), what).await {
            Ok(outcomes) => return outcomes.into_iter().next().ok_or_else(in_the_way),
            Err(trouble) if trouble.is_collision() && tries < TRIES => {}
            Err(trouble) => {
                *afterwards = Afterwards::of(&trouble);
                return Err(trouble.at(&shared.address, Doing::Writing));
            }
        }
    }
}

async fn try_all(
    shared: &Shared,
    session: &mut Session,
    entries: &[Entry],
    what: What,
) -> Result<Vec<Outcome>, Trouble> {
    let mut outcomes: Vec<Option<Outcome>> = match what {
        What::Create => create_all(shared, session, entries).await?,
        What::Put => put_all(shared, session, entries).await?,
    };
    // What was neither taken nor seen is looked at again: of a create, another's was being committed meanwhile.
    for _ in 0..TRIES {
        let open: Vec<usize> = (0..outcomes.len()).filter(|at| outcomes[*at].is_none()).collect();
        if open.is_empty() {
            break;
        }
        let intents: Vec<IntentId> = open.iter().map(|at| entries[*at].intent).collect();
        // Part of the statement's work is done: that this look failed does not undo it.
        let (now, found) =
            load_many(shared, session, &intents).await.map_err(|trouble| match outcomes.len() {
                1 => trouble,
                _ => Trouble::Lost(trouble.at(&shared.address, Doing::Reading).message),
            })?;
        for at in open {
            let entry = &entries[at];
            match found.get(&entry.intent) {
                Some(Ok(record)) => {
                    outcomes[at] = Some(Outcome::There(Stored { record: Arc::clone(record), now }));
                }
                Some(Err(error)) => outcomes[at] = Some(Outcome::Failed(error.clone())),
                None if what == What::Put => outcomes[at] = Some(Outcome::Gone),
                // Made and removed again by others, meanwhile.
                None => match create_all(shared, session, std::slice::from_ref(entry)).await {
                    Ok(mut again) => outcomes[at] = again.pop().flatten(),
                    Err(trouble) if trouble.is_collision() => {}
                    Err(trouble) if trouble.ends_connection() => return Err(broken(trouble, outcomes.len())),
                    Err(trouble) => {
                        outcomes[at] = Some(Outcome::Failed(trouble.at(&shared.address, Doing::Writing)));
                    }
                },
            }
        }
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Gone)).collect())
}

/// Part of a statement's work is done: that a look after it failed does not undo it.
fn broken(trouble: Trouble, entries: usize) -> Trouble {
    match trouble {
        trouble if entries == 1 => trouble,
        Trouble::Silent(why) => Trouble::Silent(why),
        other => Trouble::Lost(format!("{other:?}")),
    }
}

fn in_the_way() -> StoreError {
    StoreError::before(
        StoreErrorKind::Overloaded,
        "others keep writing and removing the same record; nothing was written; try again",
    )
}
