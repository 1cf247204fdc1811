//! The connections, and who works on them: a thread of its own, so that what was handed in gets written whatever becomes
//! of the caller's runtime.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use oncely_core::{StoreError, StoreErrorKind, Wrote};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::{self, Afterwards};
use super::bells::Bell;
use super::gather::Batch;
use super::listen;
use super::queue::{Queue, Unless};
use super::request::{Answer, Job, Lane, Request};
use super::schema::{self, Found};
use super::session::Session;
use super::shared::Shared;

/// How often it is looked for requests that have waited too long, and for counters to write.
const TICK: Duration = Duration::from_millis(250);
/// A statement that takes longer waits for something itself, perhaps for a record that somebody holds: it is no reason for
/// others to wait any more.
const SLOW: Duration = Duration::from_millis(10);
/// First pause after a connection failed, doubled up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(2);
/// How long the end of the ledger waits for what was handed in.
const DRAIN: Duration = Duration::from_secs(5);
/// How long a server may take for an answer before it is looked whether another one has taken over from it, and how often
/// that is looked for from then on.
const SCOUT: Duration = Duration::from_secs(2);

/// The thread's work: opens the ledger, says how that went, and serves until it is closed.
pub(crate) fn serve(shared: &Arc<Shared>, opened: oneshot::Sender<Result<(), StoreError>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("the ledger's thread could not be started: {error}; nothing was written");
            let _ = opened.send(Err(StoreError::before(StoreErrorKind::Unavailable, message)));
            return;
        }
    };
    runtime.block_on(async {
        let first = tokio::select! {
            first = open_first(shared) => first,
            () = shared.closing.notified() => return,
        };
        match first {
            Ok(session) => {
                shared.queue.hire_first();
                tokio::spawn(work(Arc::clone(shared), Some(session)));
                // If nobody waits for it any more, the handle is gone and closes the ledger.
                let _ = opened.send(Ok(()));
                manage(shared).await;
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        }
    });
    shared.watchers.wake_all();
    // A name that is being looked up is not waited for.
    runtime.shutdown_background();
}

/// Opens a connection and makes the tables where there are none.
async fn open_first(shared: &Shared) -> Result<Session, StoreError> {
    let link = shared.door.open().await?;
    let ledger = schema::look_or_make(&link.client, &shared.door.options).await?;
    if let Some(id) = ledger.id {
        // Nobody else opens this handle.
        let _ = shared.ledger.set(id);
    }
    Ok(shared.session(link))
}

/// Sees to it that there are enough workers, that nobody waits for ever, and that counters are written.
async fn manage(shared: &Arc<Shared>) {
    let listener = tokio::spawn(listen::listen(Arc::clone(shared)));
    let lookout = tokio::spawn(listen::look_out(Arc::clone(shared)));
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            () = shared.queue.grow.notified() => {
                while shared.queue.hire() {
                    tokio::spawn(work(Arc::clone(shared), None));
                }
            }
            _ = tick.tick() => {
                shared.queue.fail(shared.door.options.wait, &shared.unreachable());
                shared.queue.nudge();
                count(shared);
            }
            () = shared.closing.notified() => break,
        }
    }
    count(shared);
    shared.queue.close();
    let _ = tokio::time::timeout(DRAIN, shared.queue.settled()).await;
    shared.queue.fail(Duration::ZERO, &shared.unreachable());
    listener.abort();
    lookout.abort();
}

/// Hands the counters in, if there are any.
pub(crate) fn count(shared: &Arc<Shared>) {
    let tallies = shared.tallies.take();
    if tallies.is_empty() {
        return;
    }
    let submitted = shared.queue.submit(Request::Job(Job::Count(tallies.clone())));
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let written = match submitted {
            Ok(answer) => answer.await.unwrap_or(Ok(Answer::Done)).map(drop),
            Err(error) => Err(error),
        };
        if written.is_err_and(|error| error.wrote == Wrote::No) {
            shared.tallies.put_back(tallies);
        }
    });
}

/// One worker: a connection, and whatever waits.
async fn work(shared: Arc<Shared>, mut session: Option<Session>) {
    let bell = shared.queue.bell();
    loop {
        let mut current = match session.take().filter(Session::is_current) {
            Some(session) => session,
            None => match reconnect(&shared).await {
                Some(session) => session,
                None => return,
            },
        };
        shared.gained();
        let mut afterwards = serve_session(&shared, &mut current, &bell).await;
        while afterwards == Afterwards::Await && looking_around(&shared, current.recover()).await {
            afterwards = serve_session(&shared, &mut current, &bell).await;
        }
        shared.lost();
        // To connect again may take long; others have a connection.
        shared.queue.nudge();
        if afterwards == Afterwards::GoOn {
            shared.queue.retire(Unless::Never);
            return;
        }
    }
}

/// Waits for an answer, and looks meanwhile whether another server has taken over from the one that owes it: its machine may
/// go on to take what is sent to it for ever. If so, whoever waits for that answer is told.
async fn looking_around<T>(shared: &Shared, answer: impl Future<Output = T>) -> T {
    tokio::select! {
        answer = answer => answer,
        never = scout(shared) => match never {},
    }
}

/// Connects again and again, and leaves at once: what matters is whom the door meets. One does so for all that wait, so that
/// a server which answers late has one connection more and not one for each.
async fn scout(shared: &Shared) -> Infallible {
    tokio::time::sleep(SCOUT).await;
    let _only_one = shared.scouting.lock().await;
    loop {
        drop(open_again(shared).await);
        tokio::time::sleep(SCOUT).await;
    }
}

/// Works on one connection until it is lost, or the ledger is closed and all is done.
async fn serve_session(shared: &Shared, session: &mut Session, bell: &Bell) -> Afterwards {
    loop {
        if !session.is_current() {
            return Afterwards::Reconnect;
        }
        match shared.queue.take_or_park(bell) {
            Some(batch) => {
                let turn = Turn::new(&shared.queue, &batch);
                let afterwards = in_turn(shared, turn, batch::run(shared, session, batch)).await;
                if afterwards != Afterwards::GoOn {
                    return afterwards;
                }
            }
            None if shared.queue.is_done() => return Afterwards::GoOn,
            None => bell.rings().await,
        }
    }
}

/// Runs a statement for as long as that takes; others wait for its end only for a while, to leave together.
async fn in_turn(shared: &Shared, turn: Turn<'_>, run: impl Future<Output = Afterwards>) -> Afterwards {
    let mut run = pin!(run);
    if let Ok(afterwards) = tokio::time::timeout(SLOW, run.as_mut()).await {
        return afterwards;
    }
    drop(turn);
    shared.queue.nudge();
    looking_around(shared, run).await
}

/// A statement that others wait for. However it ends, they do not wait for ever.
struct Turn<'a> {
    queue: &'a Queue,
    lane: Lane,
    requests: usize,
    since: Instant,
}

impl<'a> Turn<'a> {
    fn new(queue: &'a Queue, batch: &Batch) -> Self {
        Self { queue, lane: batch.lane, requests: batch.ops.len(), since: Instant::now() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.finish(self.lane, self.requests, self.since.elapsed());
    }
}

/// Connects, for as long as there is something to do. `None`: the worker has gone.
async fn reconnect(shared: &Shared) -> Option<Session> {
    let mut pause = RETRY_FIRST;
    loop {
        if shared.queue.retire(Unless::Needed) {
            return None;
        }
        match open_again(shared).await {
            Ok(session) => {
                shared.reconnects.fetch_add(1, Ordering::Relaxed);
                return Some(session);
            }
            // Others have a connection: they do the work. A server that has no room for one more is not asked for it again
            // at once.
            Err(_) if shared.connected.load(Ordering::Relaxed) > 0 => {
                shared.queue.hire_nobody_for(RETRY_LAST);
                shared.queue.retire(Unless::Never);
                return None;
            }
            Err(error) => {
                let passing =
                    [StoreErrorKind::Unavailable, StoreErrorKind::ReadOnly, StoreErrorKind::Overloaded];
                // It will not get better by trying: so those who wait are told.
                if !passing.contains(&error.kind) {
                    shared.queue.fail(Duration::ZERO, &error);
                }
                shared.refuse(error);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_LAST);
    }
}

/// Opens one more connection to the ledger that was opened.
async fn open_again(shared: &Shared) -> Result<Session, StoreError> {
    let link = shared.door.find().await?;
    let what = match shared.door.look(&link).await? {
        Found::Ledger(ledger) if ledger.id.as_ref() == shared.ledger.get() => {
            return Ok(shared.session(shared.door.admit(link)?));
        }
        Found::Ledger(_) => "is another one than the one that was opened",
        Found::Nothing => "is gone",
    };
    let message = format!("the ledger {} {what}; nothing was written; open it again", shared.address);
    Err(StoreError::before(StoreErrorKind::Foreign, message))
}
