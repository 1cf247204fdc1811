//! Requests of the hot path, as one statement: many callers, one round trip, one commit.

use std::collections::HashMap;
use std::sync::Arc;

use oncely_core::{
    Created, Draft, IntentId, Millis, Record, Replaced, StoreError, StoreErrorKind, Stored, Version,
};
use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use super::errors::{Doing, Trouble};
use super::params::{self, Creates, Puts};
use super::queue::{Answer, Batch, Job, Lane, Op, Request};
use super::rows::{self, Half};
use super::session::Session;
use super::sql::Hot;
use super::{Shared, jobs};

/// How often something is tried again that others keep getting in the way of.
const TRIES: usize = 8;

pub(crate) type Reply = oneshot::Sender<Result<Answer, StoreError>>;

/// A record that is to be written.
pub(crate) struct Entry {
    pub(crate) intent: IntentId,
    pub(crate) expected: Version,
    pub(crate) draft: Box<Draft>,
    pub(crate) events: Option<Vec<u8>>,
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    GoOn,
    Reconnect,
}

impl Afterwards {
    fn of(trouble: &Trouble) -> Self {
        if trouble.ends_connection() { Self::Reconnect } else { Self::GoOn }
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

/// What became of one entry.
pub(crate) enum Outcome {
    Written {
        version: Version,
        now: Millis,
    },
    /// Another record stands there.
    There(Stored),
    /// Nothing is there.
    Gone,
    /// This one failed; others did not.
    Failed(StoreError),
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
        outcomes.push(alone(shared, session, entry, what, afterwards).await);
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
                if trouble.ends_connection() {
                    *afterwards = Afterwards::Reconnect;
                }
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
                    Err(trouble) => {
                        outcomes[at] = Some(Outcome::Failed(trouble.at(&shared.address, Doing::Writing)));
                    }
                },
            }
        }
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Gone)).collect())
}

/// Writes those that are not there. `None`: neither written nor seen.
pub(crate) async fn create_all(
    shared: &Shared,
    session: &mut Session,
    entries: &[Entry],
) -> Result<Vec<Option<Outcome>>, Trouble> {
    let floor = shared.floor();
    let creates = Creates::new(entries);
    let answered = match entries {
        [_] => session.write(Hot::CreateOne, &creates.one(&floor)).await?,
        _ => session.write(Hot::CreateMany, &creates.many(&floor, &(entries.len() as i64))).await?,
    };
    let mut outcomes: Vec<Option<Outcome>> = entries.iter().map(|_| None).collect();
    let Some(first) = answered.first() else { return Ok(outcomes) };
    let now = shared.passed(rows::now(first, 0)?);
    let won: Vec<i64> = match entries {
        [_] => first.try_get::<_, Option<i64>>(1)?.into_iter().collect(),
        _ => first.try_get::<_, Option<Vec<i64>>>(1)?.unwrap_or_default(),
    };
    for id in won {
        // Numbers in arrays count from 1; a single one has none.
        let at = usize::try_from((id & 0xffff).max(1) - 1).unwrap_or(usize::MAX);
        let version = Version(u64::try_from(id >> 16).unwrap_or(0));
        if let Some(outcome) = outcomes.get_mut(at) {
            *outcome = Some(Outcome::Written { version, now });
        }
    }
    let places: HashMap<Half, usize> =
        entries.iter().enumerate().map(|(at, entry)| (rows::head(&entry.intent), at)).collect();
    for row in &answered {
        let Some(at) = row.try_get::<_, Option<Half>>(2)?.and_then(|head| places.get(&head)) else {
            continue;
        };
        outcomes[*at] = Some(match rows::read(row, 2, &entries[*at].intent) {
            Ok(record) => Outcome::There(Stored { record, now }),
            // What is wrong with one row is no reason to doubt the others.
            Err(trouble) => Outcome::Failed(trouble.at(&shared.address, Doing::Reading)),
        });
    }
    Ok(outcomes)
}

/// Writes those whose version is the expected one. `None`: it was not.
async fn put_all(
    shared: &Shared,
    session: &mut Session,
    entries: &[Entry],
) -> Result<Vec<Option<Outcome>>, Trouble> {
    let floor = shared.floor();
    let puts = Puts::new(entries);
    let answered = match entries {
        [_] => session.write(Hot::PutOne, &puts.one(&floor)).await?,
        _ => session.write(Hot::PutMany, &puts.many(&floor, &(entries.len() as i64))).await?,
    };
    let mut outcomes: Vec<Option<Outcome>> = entries.iter().map(|_| None).collect();
    let Some(row) = answered.first() else { return Ok(outcomes) };
    let now = shared.passed(rows::now(row, 0)?);
    let version = Version(u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0));
    let numbers = |column: usize| -> Result<Vec<usize>, Trouble> {
        if entries.len() == 1 {
            return Ok(if row.try_get::<_, bool>(column)? { vec![0] } else { Vec::new() });
        }
        let numbers: Vec<i64> = row.try_get::<_, Option<Vec<i64>>>(column)?.unwrap_or_default();
        Ok(numbers.into_iter().filter_map(|n| usize::try_from(n - 1).ok()).collect())
    };
    for at in numbers(2)? {
        if let Some(outcome) = outcomes.get_mut(at) {
            *outcome = Some(Outcome::Written { version, now });
        }
    }
    let waited: Vec<Half> = numbers(3)?
        .into_iter()
        .filter_map(|at| entries.get(at))
        .map(|entry| rows::head(&entry.intent))
        .collect();
    shared.tell_others(waited);
    Ok(outcomes)
}

/// Writes records that nobody asked for; those that have changed meanwhile are left alone. Answers how many were written.
pub(crate) async fn put_quietly(
    shared: &Shared,
    session: &mut Session,
    entries: &mut [Entry],
) -> Result<u64, Trouble> {
    if entries.is_empty() {
        return Ok(0);
    }
    entries.sort_by_key(|entry| entry.intent.0);
    let outcomes = put_all(shared, session, entries).await?;
    for (entry, outcome) in entries.iter().zip(&outcomes) {
        if let Some(Outcome::Written { version, .. }) = outcome {
            shared.watchers.changed(&entry.intent, Some(*version));
        }
    }
    Ok(outcomes.iter().flatten().count() as u64)
}

/// Records by their ids; a row that is damaged concerns nobody else.
pub(crate) type Found = HashMap<IntentId, Result<Arc<Record>, StoreError>>;

/// Reads records.
pub(crate) async fn load_many(
    shared: &Shared,
    session: &mut Session,
    intents: &[IntentId],
) -> Result<(Millis, Found), Trouble> {
    let floor = shared.floor();
    let heads: Vec<Half> = intents.iter().map(rows::head).collect();
    let answered = match heads.as_slice() {
        [head] => session.read(Hot::LoadOne, &[(head, Type::UUID), (&floor, Type::INT8)]).await?,
        _ => session.read(Hot::LoadMany, &params::heads(&heads, &floor, &(heads.len() as i64))).await?,
    };
    let places: HashMap<Half, &IntentId> = heads.iter().copied().zip(intents).collect();
    let (mut now, mut found) = (Millis(0), Found::new());
    for row in &answered {
        now = shared.passed(rows::now(row, 0)?);
        let Some(intent) = row.try_get::<_, Option<Half>>(1)?.and_then(|head| places.get(&head)) else {
            continue;
        };
        let record =
            rows::read(row, 1, intent).map_err(|trouble| trouble.at(&shared.address, Doing::Reading));
        found.insert(**intent, record);
    }
    Ok((now, found))
}

fn in_the_way() -> StoreError {
    StoreError::before(
        StoreErrorKind::Overloaded,
        "others keep writing and removing the same record; nothing was written; try again",
    )
}
