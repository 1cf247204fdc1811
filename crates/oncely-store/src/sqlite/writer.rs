//! The one that writes, on a thread of its own or on its caller's ([`super::thread`]): it takes whatever has queued up and
//! commits it in one go, so that many callers share one sync. While one batch is being synced, the next one queues up.
//! What happens when COMMIT fails: [`super::barrier`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use oncely_core::{StoreError, Tally, Wrote};
use rusqlite::Connection;

use super::Shared;
use super::barrier::{pass_barrier, roll_back, with_barrier};
use super::batch::{Answered, Changed, Op, Reply, Request};
use super::checkpoint::{Checkpointer, copy_some, pages_in_log};
use super::commit::{after_commit, apply};
use super::errors::Trouble;
use super::rows::Tools;
use super::turnstile::{Turn, Turnstile};
use crate::clock::boottime_ms;
use crate::courier;

/// Most requests in one batch: what comes in meanwhile waits for the next.
const BATCH_MAX: usize = 512;
/// Batches up to this size have time to carry the counters along.
const SMALL_BATCH: usize = 8;
/// Larger ones carry them when they have waited for this long.
const TALLY_AFTER_MS: u64 = 250;
/// A process that has not committed this often yet keeps the log short: the next one to open it reads all of it.
const YOUNG_COMMITS: u64 = 64;
/// How short, in pages.
const YOUNG_PAGES: u32 = 100;

/// Where commits are shared by fewer than this, there is time to copy often and little: what is copied at once is what
/// somebody's sync may have to wait behind.
const CALM_BATCH: usize = 12;
/// How short the log is then, in pages.
const CALM_PAGES: u32 = 100;

type Written = (Vec<Changed>, Vec<Answered>);

/// The writer: its place in the queue of writers, and its desk.
pub(crate) struct Writer {
    stile: Turnstile,
    desk: Desk,
}

/// What it needs while it is its turn.
struct Desk {
    shared: Arc<Shared>,
    connection: Connection,
    /// Whether a commit has failed and the barrier is not on disk yet.
    doubtful: bool,
    tools: Tools,
    checkpointer: Checkpointer,
    poke_at_pages: u32,
    commits: u64,
    /// How many requests shared a commit, on average over the last few, in sixteenths.
    shared_by: usize,
    tally_due_ms: u64,
}

/// What a transaction wants done once it is committed.
struct Applied {
    changed: Vec<Changed>,
    answers: Vec<(Reply, Answered)>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        connection: Connection,
        stile: Turnstile,
        checkpointer: Checkpointer,
    ) -> Self {
        let desk = Desk {
            shared,
            connection,
            doubtful: false,
            tools: Tools::default(),
            checkpointer,
            poke_at_pages: 0,
            commits: 0,
            shared_by: 0,
            tally_due_ms: 0,
        };
        Self { stile, desk }
    }

    /// Serves until no sender is left and the queue is empty.
    pub(crate) fn run(mut self, queue: &Receiver<Op>) {
        while let Some(first) = self.desk.next(queue) {
            self.commit(first, queue);
            self.desk.look_after_log();
        }
        self.desk.tally_due_ms = 0;
        self.commit(None, queue);
        self.close_log();
    }

    fn commit(&mut self, first: Option<Op>, queue: &Receiver<Op>) {
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        if let Some(first) = first {
            self.desk.admit(first, &mut requests, &mut replies);
        }
        let counters_are_due =
            !self.desk.shared.tallies.is_empty() && boottime_ms() >= self.desk.tally_due_ms;
        if requests.is_empty() && !counters_are_due {
            return;
        }
        let Self { stile, desk } = self;
        let written = match stile.enter() {
            Ok(turn) => desk.write(turn, requests, &mut replies, queue.try_iter()),
            Err(error) => Err(Trouble::from(error).at(desk.shared.files.path(), Wrote::No)),
        };
        desk.answer(written, replies);
    }

    /// Does what is asked on the calling thread, which waits for the disk but for nobody's turn: if another process has
    /// it, the request is given back.
    pub(crate) fn commit_at_once(&mut self, op: Op) -> Option<Op> {
        let Self { stile, desk } = self;
        // Trouble with the turn is told where it is waited for.
        let Ok(Some(turn)) = stile.enter_if_free() else { return Some(op) };
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        desk.admit(op, &mut requests, &mut replies);
        let written = desk.write(turn, requests, &mut replies, std::iter::empty());
        desk.answer(written, replies);
        None
    }

    /// The end of one that never had a thread. What is left to be counted is written if nobody else writes; else the
    /// writer is given back.
    pub(crate) fn close(mut self: Box<Self>) -> Result<(), Box<Self>> {
        let Self { stile, desk } = &mut *self;
        if !desk.shared.tallies.is_empty() {
            let Ok(Some(turn)) = stile.enter_if_free() else { return Err(self) };
            // Nobody is there to be told.
            let _ = desk.write(turn, Vec::new(), &mut Vec::new(), std::iter::empty());
        }
        if let Ok(Some(_turn)) = stile.enter_if_free() {
            desk.shorten_log();
        }
        Ok(())
    }

    /// Leaves a short log behind.
    fn close_log(&mut self) {
        if let Ok(_turn) = self.stile.enter() {
            self.desk.shorten_log();
        }
    }
}

impl Desk {
    /// Writes a batch in our turn, and ends the turn.
    fn write(
        &mut self,
        turn: Turn<'_>,
        mut requests: Vec<Request>,
        replies: &mut Vec<Reply>,
        more: impl Iterator<Item = Op>,
    ) -> Result<Applied, StoreError> {
        let shared = Arc::clone(&self.shared);
        // Looked at in our turn: whoever had it before may have found another file, too.
        shared.files.still_the_same().inspect_err(|_| shared.distrust_cache())?;
        // Only now: all that came in while others had their turn shares this sync.
        for op in more.take(BATCH_MAX - requests.len()) {
            self.admit(op, &mut requests, replies);
        }
        let tallies = self.take_tallies(&requests);
        let written = self.transact(&turn, requests, &tallies);
        drop(turn);
        if written.as_ref().is_err_and(|error| error.wrote == Wrote::No) {
            shared.tallies.put_back(tallies);
        }
        let (changed, answers) = written?;
        Ok(Applied { changed, answers: replies.drain(..).zip(answers).collect() })
    }

    fn answer(&mut self, written: Result<Applied, StoreError>, replies: Vec<Reply>) {
        match written {
            Ok(applied) => self.tell(applied),
            Err(error) => {
                // Counters that could not be written wait their time again.
                self.tally_due_ms = boottime_ms() + TALLY_AFTER_MS;
                courier::answer(replies.into_iter().map(|reply| (reply, Err(error.clone()))));
            }
        }
    }

    /// Leaves a short log behind, in our turn: whoever opens the ledger next reads all of it. To copy it is not enough,
    /// as that is forgotten with the last process; a write must follow, which starts the log over.
    fn shorten_log(&mut self) {
        // Who has written nothing leaves that to those who have.
        let is_ours = self.commits > 0 && !self.doubtful;
        if !is_ours || pages_in_log(&self.connection).is_ok_and(|pages| pages <= YOUNG_PAGES) {
            return;
        }
        // Only tidying: all is committed, and the next process can do it as well.
        let _ = copy_some(&self.connection).and_then(|()| pass_barrier(&self.connection));
    }

    /// Waits for a request, or until counters are due (then there is none); the outer `None` is the end.
    fn next(&mut self, queue: &Receiver<Op>) -> Option<Option<Op>> {
        if self.shared.tallies.is_empty() {
            return queue.recv().ok().map(Some);
        }
        let wait_ms = self.tally_due_ms.saturating_sub(boottime_ms());
        match queue.recv_timeout(Duration::from_millis(wait_ms)) {
            Ok(op) => Some(Some(op)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Takes a request into the batch that is being put together.
    fn admit(&mut self, op: Op, requests: &mut Vec<Request>, replies: &mut Vec<Reply>) {
        self.shared.crowd.leave();
        if matches!(op.request, Request::Wake) {
            // To be woken is no reason to commit: it only makes the next wait a bounded one.
            self.tally_due_ms = boottime_ms() + TALLY_AFTER_MS;
        } else {
            requests.push(op.request);
            replies.push(op.reply);
        }
    }

    /// Counters ride along where it costs little or where it is time.
    fn take_tallies(&self, requests: &[Request]) -> Vec<Tally> {
        let due = boottime_ms() >= self.tally_due_ms;
        let asked = requests.iter().any(|request| matches!(request, Request::Flush));
        let small = !requests.is_empty() && requests.len() <= SMALL_BATCH;
        if due || asked || small { self.shared.tallies.take() } else { Vec::new() }
    }

    /// One transaction, in our turn.
    fn transact(
        &mut self,
        turn: &Turn<'_>,
        requests: Vec<Request>,
        tallies: &[Tally],
    ) -> Result<Written, StoreError> {
        let Self { shared, connection, doubtful, tools, commits, .. } = self;
        let path = shared.files.path();
        let before = |trouble: Trouble| trouble.at(path, Wrote::No);
        if *doubtful || shared.is_doubtful.swap(false, Ordering::AcqRel) {
            *doubtful = true;
            *connection = with_barrier(path)?;
            *doubtful = false;
        }
        connection.execute_batch("BEGIN IMMEDIATE").map_err(|e| before(e.into()))?;
        let transacted = apply(shared, connection, tools, turn, requests, tallies);
        let (batch, answers) = match transacted {
            Ok(done) => done,
            Err(trouble) => {
                tools.clear();
                roll_back(connection);
                return Err(before(trouble));
            }
        };
        let committed = connection.execute_batch("COMMIT");
        if let Err(error) = committed {
            tools.clear();
            roll_back(connection);
            *doubtful = true;
            if let Ok(fresh) = with_barrier(path) {
                *connection = fresh;
                *doubtful = false;
            }
            // Also where the words cannot be written: they stay odd, and the next turn mends them.
            let _ = turn.settle(&batch.unsettled);
            return Err(Trouble::from(error).at(path, Wrote::Maybe));
        }
        *commits += 1;
        after_commit(shared, turn, &batch);
        Ok((batch.changed, answers))
    }

    /// Answers the callers and wakes those who wait.
    fn tell(&mut self, applied: Applied) {
        self.shared.crowd.told();
        self.shared_by = self.shared_by - self.shared_by / 16 + applied.answers.len();
        courier::answer(applied.answers);
        for changed in applied.changed {
            let version = changed.now.as_ref().map(|record| record.version);
            self.shared.watchers.changed(&changed.intent, version);
        }
    }

    fn look_after_log(&mut self) {
        // If it cannot be asked, the next time is as good.
        let Ok(pages) = pages_in_log(&self.connection) else { return };
        let most = self.log_pages_max();
        if pages < most {
            self.poke_at_pages = most;
        } else if pages >= self.poke_at_pages {
            self.checkpointer.poke();
            // If readers keep the log from starting over, do not copy after every commit.
            self.poke_at_pages = pages.saturating_add(most);
        }
    }

    fn log_pages_max(&self) -> u32 {
        let most = self.shared.options.checkpoint_pages;
        if self.commits < YOUNG_COMMITS {
            most.min(YOUNG_PAGES)
        } else if self.shared_by < 16 * CALM_BATCH {
            most.min(CALM_PAGES)
        } else {
            most
        }
    }
}
