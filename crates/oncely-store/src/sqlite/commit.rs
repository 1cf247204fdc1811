//! What goes into one commit, and what follows it.

use oncely_core::{IntentId, StoreError, Tally, Wrote};
use rusqlite::Connection;

use super::Shared;
use super::batch::{Answer, Batch, Changed, Request};
use super::connect::newest;
use super::errors::Trouble;
use super::rows::Tools;
use super::turnstile::Turn;

/// Applies all requests. SQLite's own errors end the batch; others concern one request.
pub(super) fn apply<'a>(
    shared: &Shared,
    connection: &'a Connection,
    tools: &'a mut Tools,
    turn: &Turn<'_>,
    requests: Vec<Request>,
    tallies: &[Tally],
) -> Result<(BatchEnd, Vec<Result<Answer, StoreError>>), Trouble> {
    let (last, last_at) = newest(connection)?;
    let now = shared.clock.at_least(last_at).max(shared.clock.now());
    let mut batch = Batch::new(connection, tools, last + 1, now)?;
    let ledger = shared.address();
    let space = match requests.iter().any(Request::is_claim) {
        true => shared.files.has_free(shared.options.min_free_bytes),
        false => Ok(()),
    };
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        let refused = if request.is_claim() { space.clone().err() } else { None };
        let answer = match refused {
            Some(error) => Err(error),
            None => match batch.apply(request, &ledger) {
                Ok(answer) => Ok(answer),
                Err(fatal @ (Trouble::Sqlite(_) | Trouble::System(_))) => return Err(fatal),
                Err(own) => Err(own.at(shared.files.path(), Wrote::No)),
            },
        };
        answers.push(answer);
    }
    batch.count(tallies)?;
    batch.finish()?;
    let end = BatchEnd { changed: batch.changed, unsettled: batch.unsettled };
    turn.unsettle(&end.unsettled)?;
    Ok((end, answers))
}

/// What is left of a batch when its transaction is ready to commit.
pub(super) struct BatchEnd {
    pub(super) changed: Vec<Changed>,
    pub(super) unsettled: Vec<IntentId>,
}

/// Sees to caches and to other processes, while it is still our turn. Nothing here can undo the commit: a word that
/// cannot be written leaves a cache unused or a waiter to its own clock.
pub(super) fn after_commit(shared: &Shared, turn: &Turn<'_>, batch: &BatchEnd) {
    let _ = turn.settle(&batch.unsettled);
    if !batch.changed.is_empty() {
        let _ = turn.announce_commit();
    }
    for intent in &batch.unsettled {
        shared.remembered.drop(intent);
    }
    for record in batch.changed.iter().filter_map(|changed| changed.now.as_ref()) {
        shared.remembered.keep_written(record);
    }
}
