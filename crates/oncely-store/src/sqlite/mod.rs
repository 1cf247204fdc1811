//! The SQLite ledger: one file that several processes share, durable before acknowledged.
//!
//! - [`options`], [`files`], [`connect`], [`schema`], [`examine`]: opening, and refusing what is not safe.
//! - [`writer`], [`batch`], [`rows`], [`commit`], [`barrier`], [`thread`], [`crowd`]: one commits for many.
//! - [`turnstile`]: how processes take turns. [`checkpoint`]: how the log is kept short. [`gate`], [`moving`]: how it moves.
//! - [`read`], [`cache`], [`elsewhere`]: reading, beside the writer. [`inside`], [`within`]: one transaction with the
//!   caller's data.

mod barrier;
mod batch;
mod cache;
mod checkpoint;
mod commit;
mod connect;
mod crowd;
mod elsewhere;
mod errors;
mod examine;
mod files;
mod gate;
mod inside;
mod moving;
mod options;
mod read;
mod rows;
mod schema;
mod thread;
mod turnstile;
mod within;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use oncely_core::{
    Change, Counter, Created, Draft, Event, Filter, Gate, Import, IntentId, Liveness, LogQuery, LoggedEvent,
    Millis, Move, Namespace, Owner, Page, PurgeReport, Replaced, StateName, Store, StoreError,
    StoreErrorKind, StoreFuture, StoreHealth, Stored, Tally, ToolName, Version, Wrote,
};
use tokio::sync::oneshot;

pub(crate) use examine::{check, migrate, migration_sql};
pub use inside::SqliteInside;
pub use options::{SqliteOptions, WrittenBy};
pub use within::SqliteTransaction;

use crate::clock::LedgerClock;
use crate::process;
use crate::requests::{Opener, check_events, ready};
use crate::tallies::Tallies;
use crate::watch::Watchers;
use batch::{Answer, Answered, Op, Reply, Request};
use cache::Remembered;
use checkpoint::Checkpointer;
use crowd::{Crowd, Wanted};
use elsewhere::Elsewhere;
use errors::Trouble;
use files::Files;
use read::Readers;
use thread::Hands;
use turnstile::{Board, Turnstile};
use writer::Writer;

/// Most events in one request: the log has room for so many from each request of a batch.
const EVENTS_MAX: usize = 128;

/// A ledger in a SQLite file.
///
/// Dropping the last handle writes what was handed in and ends the threads.
pub struct SqliteStore {
    shared: Arc<Shared>,
    queue: Option<Sender<Op>>,
    hands: Hands,
}

/// What the threads of one ledger share.
struct Shared {
    /// The process that opened the ledger.
    opened_by: Opener,
    options: SqliteOptions,
    files: Files,
    board: Board,
    clock: LedgerClock,
    readers: Readers,
    remembered: Remembered,
    /// Unset for good when the side files were replaced: epochs would be told elsewhere.
    trusts_cache: AtomicBool,
    /// Whether a commit failed whose barrier the writer has to see to.
    is_doubtful: AtomicBool,
    tallies: Tallies,
    watchers: Watchers,
    /// Whether records have been asked for before.
    is_warm: AtomicBool,
    crowd: Crowd,
}

impl Shared {
    /// A forked child holds copies of its parent's connections, whose locks are not its own.
    fn check_process(&self) -> Result<(), StoreError> {
        self.opened_by.check()
    }

    fn address(&self) -> String {
        format!("sqlite:{}", self.files.path().display())
    }

    fn distrust_cache(&self) {
        self.trusts_cache.store(false, Ordering::Release);
    }

    fn read<T>(
        &self,
        query: impl FnOnce(&rusqlite::Connection) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        self.check_process()?;
        self.readers.with(&self.files, query)
    }

    fn load(&self, intent: &IntentId) -> Result<Option<Stored>, StoreError> {
        let epoch = self.remembered.epoch(intent);
        let Some(record) = self.read(|connection| rows::read(connection, intent))? else { return Ok(None) };
        let record = Arc::new(record);
        self.remembered.keep_read(&record, epoch);
        Ok(Some(Stored { now: self.clock.at_least(record.changed_at).max(self.clock.now()), record }))
    }
}

impl SqliteStore {
    /// The version of the SQLite library that this program carries.
    pub fn library_version() -> &'static str {
        rusqlite::version()
    }

    /// Opens a ledger, and makes it if there is none.
    pub fn open(options: SqliteOptions) -> Result<Self, StoreError> {
        let mut files = Files::prepare(&options.path)?;
        let (turn, lock) = files.open_side_files()?;
        let fail = |files: &Files, e: rustix::io::Errno| Trouble::from(e).at(files.path(), Wrote::No);
        let board = Board::new(turn, &lock).map_err(|e| fail(&files, e))?;
        let stile = |files: &Files| -> Result<Turnstile, StoreError> {
            let (turn, lock) = files.open_side_files()?;
            Ok(Turnstile::new(turn, lock, board.clone()))
        };
        let mut writers_stile = stile(&files)?;
        let (connection, anchor) = connect::open_ledger(files.path(), &mut writers_stile)?;
        files.remember()?;
        let checkpointer = Checkpointer::new(files.path().to_owned(), stile(&files)?);
        let (queue, queued) = channel();
        let shared = Arc::new(Shared {
            opened_by: Opener::this(),
            remembered: Remembered::new(options.cache_bytes, board.clone()),
            options,
            files,
            board,
            clock: LedgerClock::new(anchor),
            readers: Readers::default(),
            trusts_cache: AtomicBool::new(true),
            is_doubtful: AtomicBool::new(false),
            tallies: Tallies::default(),
            watchers: Watchers::new(),
            is_warm: AtomicBool::new(false),
            crowd: Crowd::default(),
        });
        let writer = Writer::new(Arc::clone(&shared), connection, writers_stile, checkpointer);
        let hands = Hands::new(writer, queued);
        if shared.options.written_by == WrittenBy::Thread {
            hands.start()?;
        }
        Ok(Self { shared, queue: Some(queue), hands })
    }

    fn is_written_by_callers(&self) -> bool {
        self.shared.options.written_by == WrittenBy::Caller
    }

    /// Hands a request to the writer, at once; the result is for its answer.
    fn submit(&self, request: Request) -> Result<oneshot::Receiver<Answered>, StoreError> {
        self.shared.check_process()?;
        let (reply, answer) = Reply::channel();
        let closed =
            || StoreError::before(StoreErrorKind::Unavailable, "the ledger is closed; nothing was written");
        self.shared.crowd.join(self.shared.options.queue_max)?;
        let op = Op { request, reply };
        let taken = if self.is_written_by_callers() { self.hands.take_on(op) } else { Ok(Some(op)) };
        let handed_in = taken.and_then(|left| match (left, &self.queue) {
            (None, _) => Ok(()),
            (Some(op), Some(queue)) => queue.send(op).map_err(|_| closed()),
            (Some(_), None) => Err(closed()),
        });
        handed_in.inspect_err(|_| self.shared.crowd.leave()).map(|()| answer)
    }

    fn ask<T: Send + 'static>(&self, request: Request, pick: fn(Answer) -> Option<T>) -> StoreFuture<'_, T> {
        let submitted = self.submit(request);
        Box::pin(async move {
            // The writer answers or dies: if it died, it is not known how far it came.
            let lost =
                || StoreError::ambiguous(StoreErrorKind::Unavailable, "the ledger's writer has stopped");
            let answer = submitted?.await.map_err(|_| lost())??;
            pick(answer).ok_or_else(lost)
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue = None;
        let hand = self.hands.take();
        if self.shared.check_process().is_ok() {
            hand.end();
            // Now, and not with the last reference: its thread may hold that one for a moment.
            self.shared.watchers.stop();
        } else {
            // A copy of what our parent works with: not to be closed from here.
            std::mem::forget(hand);
        }
    }
}

impl Store for SqliteStore {
    fn describe(&self) -> String {
        self.shared.address()
    }

    fn peek(&self, intent: &IntentId) -> Option<Stored> {
        let record = self.shared.remembered.get(intent)?;
        let trusted = self.shared.trusts_cache.load(Ordering::Acquire);
        trusted.then(|| Stored { record, now: self.shared.clock.now() })
    }

    fn expects(&self, _: &IntentId) -> bool {
        false
    }

    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        let is_first = !self.shared.is_warm.swap(true, Ordering::Relaxed);
        // Else the writer does: where many wait, and the first time, since one call then needs no second connection.
        let looks = !is_first && !self.shared.crowd.is_dense();
        if looks {
            match self.shared.load(&intent) {
                Ok(None) => {}
                Ok(Some(there)) => return ready(Ok(Created::Exists(there))),
                Err(error) => return ready(Err(error)),
            }
        }
        if let Err(error) = check_events(&events, EVENTS_MAX) {
            return ready(Err(error));
        }
        let (token, wanted) = (draft.body.token, (!looks && !is_first).then(Wanted::default));
        let request = Request::Create { intent, draft: Box::new(draft), events, wanted: wanted.clone() };
        let asked = self.ask(request, |answer| match answer {
            Answer::Created(created) => Some(created),
            _ => None,
        });
        match wanted {
            _ if looks => asked,
            None => Box::pin(self.shared.read_if_refused(intent, asked)),
            Some(wanted) => {
                let unseen = self.shared.claim_unseen(intent, token, wanted, asked);
                Box::pin(self.shared.read_if_refused(intent, unseen))
            }
        }
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        ready(self.shared.load(&intent))
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        if let Err(error) = check_events(&events, EVENTS_MAX) {
            return ready(Err(error));
        }
        self.ask(Request::Replace { intent, expected, change, events }, |answer| match answer {
            Answer::Replaced(replaced) => Some(replaced),
            _ => None,
        })
    }

    fn note(&self, events: Vec<Event>) -> StoreFuture<'_, ()> {
        if let Err(error) = check_events(&events, EVENTS_MAX) {
            return ready(Err(error));
        }
        self.ask(Request::Note { events }, done)
    }

    fn watch(&self, intent: IntentId, seen: Version) -> StoreFuture<'_, ()> {
        let shared = &self.shared;
        let woken = shared.watchers.register(intent, seen, || Box::new(Elsewhere::new(shared)));
        // Looked at after signing in, so that no change falls between.
        let current = shared.read(|connection| rows::read_version(connection, &intent));
        Box::pin(async move {
            if current? == Some(seen) {
                // A watch that ends without a word is a reason to look, too.
                let _ = woken.await;
            }
            Ok(())
        })
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        process::liveness(owner)
    }

    fn owner(&self) -> Owner {
        process::this_process()
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        ready(Ok(self.shared.clock.now()))
    }

    fn steady_since(&self) -> Millis {
        self.shared.clock.steady_since()
    }

    fn scan(&self, filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>> {
        let found = self.shared.read(|connection| read::scan(connection, &filter, from, limit));
        let now = self.shared.clock.now();
        ready(found.map(|read::Listed { records, unreadable, next }| {
            let items = records.into_iter().map(|record| Stored { record: Arc::new(record), now }).collect();
            Page { items, unreadable, next, now }
        }))
    }

    fn log(&self, query: LogQuery) -> StoreFuture<'_, Page<LoggedEvent>> {
        let found = self.shared.read(|connection| read::log(connection, &query));
        let now = self.shared.clock.now();
        ready(found.map(|(items, next)| Page::of(items, next, now)))
    }

    fn purge(&self, limit: usize) -> StoreFuture<'_, PurgeReport> {
        self.ask(Request::Purge { limit }, |answer| match answer {
            Answer::Purged(report) => Some(report),
            _ => None,
        })
    }

    fn tally(&self, namespace: &Namespace, tool: &ToolName, increments: &[(Counter, u64)]) {
        let is_first = self.shared.tallies.add(namespace, tool, increments);
        if is_first && (!self.is_written_by_callers() || self.hands.has_thread()) {
            // If the queue is full, a commit is near that takes them along.
            let _ = self.submit(Request::Wake);
        }
    }

    fn tallies(&self) -> StoreFuture<'_, Vec<Tally>> {
        let flushed = self.flush();
        Box::pin(async move {
            flushed.await?;
            self.shared.read(read::tallies)
        })
    }

    fn census(&self) -> StoreFuture<'_, Vec<(StateName, u64)>> {
        ready(self.shared.read(read::census))
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        let callers_write = self.is_written_by_callers() && self.shared.check_process().is_ok();
        if callers_write && self.hands.have_written_all() && self.shared.tallies.is_empty() {
            return ready(Ok(()));
        }
        self.ask(Request::Flush, done)
    }

    fn health(&self) -> StoreHealth {
        let (options, queued) = (&self.shared.options, self.shared.crowd.waiting());
        let link = self.shared.files.link(options.min_free_bytes);
        StoreHealth { link, queued, queue_max: options.queue_max, ..StoreHealth::local() }
    }

    fn gate(&self) -> StoreFuture<'_, Gate> {
        ready(self.shared.read(gate::read))
    }

    fn turn_gate(&self, from: Gate, to: Gate) -> StoreFuture<'_, Gate> {
        self.ask(Request::TurnGate { from, to }, |answer| match answer {
            Answer::Gate(gate) => Some(gate),
            _ => None,
        })
    }

    fn import(&self, under: Move, import: Import) -> StoreFuture<'_, ()> {
        self.ask(Request::Import { under, import }, done)
    }
}

fn done(answer: Answer) -> Option<()> {
    matches!(answer, Answer::Done).then_some(())
}
