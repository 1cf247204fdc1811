//! Requests of the hot path, as one statement: many callers, one round trip, one commit.

use std::collections::VecDeque;
use std::sync::Arc;

use oncely_core::{Created, Draft, IntentId, Replaced, StoreError, StoreErrorKind, Stored, Version};
use tokio::time::Instant;

use super::errors::{Doing, Trouble};
use super::exec::{Entry, Outcome, Patience, create_all, load_many, put_all};
use super::gather::Batch;
use super::jobs;
use super::limits::HELD_ALONE;
use super::queue::{Answered, Op};
use super::request::{Answer, Job, Lane, Request};
use super::session::Session;
use super::shared::Shared;
use crate::courier::Answers;

/// How often something is tried again that others keep getting in the way of.
pub(crate) const TRIES: usize = 8;
/// How often a whole statement is run again because others have made one of its records since it looked.
const OVERTAKEN: usize = 3;

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
        // Whoever asked has gone.
        _ if batch.ops.is_empty() => Afterwards::GoOn,
        Lane::Create => write(shared, session, batch, What::Create).await,
        Lane::Put => write(shared, session, batch, What::Put).await,
        Lane::Load => load(shared, session, batch).await,
        Lane::Job => match batch.ops.into_iter().next() {
            Some(Op { request: Request::Job(job), reply, .. }) => {
                jobs::run(shared, session, job, reply).await
            }
            _ => Afterwards::GoOn,
        },
    }
}

/// Requests that are written with one statement, and whom to answer.
struct Group {
    entries: Vec<Entry>,
    ops: Vec<Op>,
    patience: Patience,
    tries: usize,
    since: Instant,
    /// Another transaction was found to hold its record.
    held: Option<StoreError>,
}

impl Group {
    fn new(ops: Vec<Op>) -> Self {
        let mut group = Self {
            entries: Vec::with_capacity(ops.len()),
            ops: Vec::with_capacity(ops.len()),
            patience: if ops.len() == 1 { Patience::Alone } else { Patience::Among },
            tries: 0,
            since: Instant::now(),
            held: None,
        };
        for mut op in ops {
            let request = std::mem::replace(&mut op.request, Request::Job(Job::Now));
            let entry = match request {
                Request::Create { intent, draft, events } => {
                    Entry { intent, expected: Version(0), draft, events }
                }
                Request::Put { intent, expected, draft, events } => Entry { intent, expected, draft, events },
                Request::Load { .. } | Request::Job(_) => continue,
            };
            group.entries.push(entry);
            group.ops.push(op);
        }
        group
    }

    /// Takes the second half away.
    fn halve(&mut self) -> Self {
        let at = self.entries.len() / 2;
        self.patience = Patience::Apart;
        let (entries, ops) = (self.entries.split_off(at), self.ops.split_off(at));
        Self { entries, ops, held: None, ..*self }
    }
}

/// One statement for all. If the server refuses it, one for each half, and so on: what one cannot have must not keep it
/// from others. What another transaction holds is tried again when everybody else has an answer, for a bounded time.
async fn write(shared: &Shared, session: &mut Session, batch: Batch, what: What) -> Afterwards {
    let mut followers = batch.followers;
    let mut todo = VecDeque::from([Group::new(batch.ops)]);
    let mut afterwards = Afterwards::GoOn;
    while let Some(mut group) = todo.pop_back() {
        let tried = match (afterwards, group.held.take()) {
            (Afterwards::GoOn, Some(error)) if group.since.elapsed() >= HELD_ALONE => {
                Err(Trouble::Store(error))
            }
            (Afterwards::GoOn, _) => try_all(shared, session, &group, what).await,
            // What was not sent was not written.
            _ => Err(Trouble::Unsent("the connection was lost".to_owned())),
        };
        let trouble = match tried {
            Ok(outcomes) => {
                let mut answers = Answers::new();
                for ((entry, op), outcome) in group.entries.into_iter().zip(group.ops).zip(outcomes) {
                    let alike = followers.remove(&entry.intent).unwrap_or_default();
                    what.answer(shared, entry, outcome, (op, alike), &mut answers);
                }
                continue;
            }
            Err(trouble) => trouble,
        };
        if afterwards == Afterwards::GoOn {
            afterwards = Afterwards::of(&trouble);
        }
        group.tries += 1;
        let hopeless = trouble.may_have_written() || trouble.ends_connection();
        match group.entries.len() {
            // What the server refuses again and again has another reason.
            2.. if trouble.is_overtaken() && group.tries <= OVERTAKEN => todo.push_back(group),
            // However many are held, it comes to an end.
            2.. if !hopeless && (!trouble.is_held() || group.since.elapsed() < HELD_ALONE) => {
                let second = group.halve();
                todo.extend([second, group]);
            }
            1 if trouble.is_held() && group.patience != Patience::Alone => {
                group.patience = Patience::Among;
                group.held = Some(trouble.at(&shared.address, Doing::Writing));
                todo.push_front(group);
            }
            1 if trouble.is_collision() && group.tries < TRIES => todo.push_back(group),
            _ => {
                let error = trouble.at(&shared.address, Doing::Writing);
                let mut answers = Answers::new();
                for (entry, op) in group.entries.into_iter().zip(group.ops) {
                    for op in followers.remove(&entry.intent).into_iter().flatten().chain([op]) {
                        answers.add(op.reply, Err(error.clone()));
                    }
                }
            }
        }
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
    let mut answers = Answers::new();
    for op in ops {
        let Some(intent) = intent_of(&op.request) else { continue };
        let answer = match &found {
            Ok((now, records)) => {
                let record = records.get(&intent).cloned().transpose();
                match &record {
                    Ok(None) => shared.likely.missed(&intent),
                    Ok(Some(_)) => shared.likely.met(&intent),
                    Err(_) => {}
                }
                record.map(|record| record.map(|record| Stored { record, now: *now }))
            }
            Err(error) => Err(error.clone()),
        };
        for op in followers.remove(&intent).into_iter().flatten().chain([op]) {
            answers.add(op.reply, answer.clone().map(Answer::Loaded));
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

impl What {
    /// Tells a caller, and those that asked for the same, what became of its request.
    fn answer(
        self,
        shared: &Shared,
        entry: Entry,
        outcome: Outcome,
        (op, alike): (Op, Vec<Op>),
        answers: &mut Answers<Answered>,
    ) {
        let intent = entry.intent;
        match &outcome {
            Outcome::Written { .. } | Outcome::There(_) => shared.likely.met(&intent),
            Outcome::Gone => shared.likely.missed(&intent),
            Outcome::Failed(_) => {}
        }
        let stored = |version, at, now, draft: Box<Draft>| {
            shared.watchers.changed(&intent, Some(version));
            Stored { record: Arc::new(draft.stamped(intent, version, at)), now }
        };
        let answer = match (self, outcome) {
            (Self::Create, Outcome::Written { version, at, now }) => {
                Ok(Answer::Created(Created::New(stored(version, at, now, entry.draft))))
            }
            (Self::Create, Outcome::There(there)) => Ok(Answer::Created(Created::Exists(there))),
            (Self::Create, Outcome::Gone) => Err(in_the_way()),
            (Self::Put, Outcome::Written { version, at, now }) => {
                Ok(Answer::Replaced(Replaced::Done(Some(stored(version, at, now, entry.draft)))))
            }
            (Self::Put, Outcome::There(there)) => Ok(Answer::Replaced(Replaced::Stale(Some(there)))),
            (Self::Put, Outcome::Gone) => Ok(Answer::Replaced(Replaced::Stale(None))),
            (_, Outcome::Failed(error)) => Err(error),
        };
        for follower in alike {
            // They asked before it was written: to them it is there already.
            let same = match &answer {
                Ok(Answer::Created(Created::New(stored) | Created::Exists(stored))) => {
                    Ok(Answer::Created(Created::Exists(stored.clone())))
                }
                Err(error) => Err(error.clone()),
                Ok(_) => Err(in_the_way()),
            };
            answers.add(follower.reply, same);
        }
        answers.add(op.reply, answer);
    }
}

async fn try_all(
    shared: &Shared,
    session: &mut Session,
    group: &Group,
    what: What,
) -> Result<Vec<Outcome>, Trouble> {
    let (entries, patience) = (&group.entries, group.patience);
    let mut outcomes: Vec<Option<Outcome>> = match what {
        What::Create => create_all(shared, session, entries, patience).await?,
        What::Put => put_all(shared, session, entries, patience).await?,
    };
    // What was neither taken nor seen is looked at again: of a create, another's was being committed meanwhile.
    for _ in 0..TRIES {
        let open: Vec<usize> = (0..outcomes.len()).filter(|at| outcomes[*at].is_none()).collect();
        if open.is_empty() {
            break;
        }
        let intents: Vec<IntentId> = open.iter().map(|at| entries[*at].intent).collect();
        // Part of the statement's work is done: that this look failed does not undo it.
        let (now, found) = match load_many(shared, session, &intents).await {
            Ok(found) => found,
            // That the time cannot be judged concerns those that were to be looked at.
            Err(Trouble::Store(error)) => {
                open.iter().for_each(|at| outcomes[*at] = Some(Outcome::Failed(error.clone())));
                break;
            }
            Err(trouble) if outcomes.len() == 1 => return Err(trouble),
            Err(trouble) => {
                return Err(Trouble::Lost(trouble.at(&shared.address, Doing::Reading).message));
            }
        };
        for at in open {
            let entry = &entries[at];
            match found.get(&entry.intent) {
                Some(Ok(record)) => {
                    outcomes[at] = Some(Outcome::There(Stored { record: Arc::clone(record), now }));
                }
                Some(Err(error)) => outcomes[at] = Some(Outcome::Failed(error.clone())),
                None if what == What::Put => outcomes[at] = Some(Outcome::Gone),
                // Made and removed again by others, meanwhile.
                None => match create_all(shared, session, std::slice::from_ref(entry), patience).await {
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
