//! The ledger's part of a transaction of somebody's own in its file, on whatever connection that runs.
//!
//! The caller's connection writes our tables, so it has to behave as our writer does. It takes its turn at the turnstile
//! first (lock M is held until the end, and then the write lock of SQLite), every step gets a place in the log of its own,
//! and before the commit the epochs of succeeded records that change are unsettled, so that no cache of any process takes
//! them for current. A process that dies in between leaves what a dead writer leaves, and the next turn mends it.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncely_core::{
    AttemptToken, Change, Created, Draft, Event, EventKind, IntentId, Liveness, Millis, Owner, Record,
    Replaced, State, StoreError, StoreErrorKind, Stored, Version, Wrote,
};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use super::barrier::{break_tail, roll_back};
use super::batch::{Answer, Batch, Request};
use super::commit::BatchEnd;
use super::connect::{SYNC_TO_DISK, newest};
use super::errors::Trouble;
use super::rows::{self, Tools};
use super::turnstile::{Turn, Turnstile};
use super::{EVENTS_MAX, Shared, SqliteStore};
use crate::process;
use crate::requests::check_events;

/// How long the turn at writing is waited for.
const TURN_WITHIN: Duration = Duration::from_secs(30);
/// The number of the setting with which commits are synced.
const FULL: i64 = 2;

/// The ledger's part of one transaction, for drivers of SQLite other than rusqlite: what they lend for a moment is their
/// connection, as rusqlite sees it. Programs use [`SqliteStore::transaction`], or the driver's own adapter.
///
/// It has the turn at writing until it is dropped. The order is: [`SqliteStore::suits`], [`SqliteStore::inside`], `BEGIN
/// IMMEDIATE`, hooks for [`may_commit`](Self::may_commit) and [`rolled_back`](Self::rolled_back), the steps,
/// [`commit`](Self::commit).
pub struct SqliteInside {
    shared: Arc<Shared>,
    turn: Turn<'static>,
    tools: Tools,
    written: BatchEnd,
    /// Attempts that have begun in it, by their records. Which of them are open the tables say: a savepoint may have taken
    /// back a beginning, or an end.
    begun: Vec<(IntentId, AttemptToken)>,
    /// A step failed half-way: only a rollback is right.
    is_broken: bool,
    may_commit: Arc<AtomicBool>,
    /// The transaction was ended; what is open now is another one, which has none of our steps.
    has_ended: Arc<AtomicBool>,
}

impl SqliteStore {
    /// Whether a transaction with the ledger can begin on a connection: it is to the ledger's file and no other, is in no
    /// transaction, and its commits reach the disk.
    pub fn suits(&self, connection: &Connection) -> Result<(), StoreError> {
        let shared = &self.shared;
        shared.check_process()?;
        let refuse = |message: &str| Err(StoreError::before(StoreErrorKind::BadAddress, message));
        if !same_file(connection, shared) {
            return refuse(
                "the connection is to another file than the ledger's; nothing was begun; open the same file",
            );
        }
        if !connection.is_autocommit() {
            return refuse("the connection is in a transaction already; nothing was begun; end it first");
        }
        check_settings(connection, shared)?;
        check_alone(connection, shared)?;
        connection
            .execute_batch(SYNC_TO_DISK)
            .map_err(|e| Trouble::from(e).at(shared.files.path(), Wrote::No))
    }

    /// Waits for the turn at writing, on a thread of its own. Whoever stops waiting gives it up.
    pub async fn inside(&self) -> Result<SqliteInside, StoreError> {
        let shared = Arc::clone(&self.shared);
        let (tell, told) = oneshot::channel();
        let lost = |why: &str| {
            let message = format!("the turn at writing could not be waited for: {why}; nothing was begun");
            StoreError::before(StoreErrorKind::Unavailable, message)
        };
        std::thread::Builder::new()
            .name("oncely-turn".into())
            .spawn(move || drop(tell.send(SqliteInside::enter(shared))))
            .map_err(|error| lost(&error.to_string()))?;
        told.await.map_err(|_| lost("its thread ended"))?
    }

    /// The same on this thread.
    pub(super) fn inside_now(&self) -> Result<SqliteInside, StoreError> {
        SqliteInside::enter(Arc::clone(&self.shared))
    }
}

/// A commit that is acknowledged has to survive a loss of power, whoever makes it.
fn check_settings(connection: &Connection, shared: &Shared) -> Result<(), StoreError> {
    let synchronous = connection
        .query_row("PRAGMA main.synchronous", [], |row| row.get::<_, i64>(0))
        .map_err(|e| Trouble::from(e).at(shared.files.path(), Wrote::No))?;
    if synchronous >= FULL {
        return Ok(());
    }
    let message = "the connection runs with synchronous below FULL, which loses commits; nothing was begun; set PRAGMA \
                   synchronous = FULL on it";
    Err(StoreError::before(StoreErrorKind::Unsuitable, message))
}

/// A commit over several files is atomic for each of them, and not for all: a kill could leave one without the other.
fn check_alone(connection: &Connection, shared: &Shared) -> Result<(), StoreError> {
    let others = connection
        .query_row(
            "SELECT count(*) FROM pragma_database_list WHERE name NOT IN ('main', 'temp')",
            [],
            |row| row.get::<_, i64>(0),
        )
        .map_err(|e| Trouble::from(e).at(shared.files.path(), Wrote::No))?;
    if others == 0 {
        return Ok(());
    }
    let message = "another database is attached to the connection, and would not be committed together with the record; \
                   nothing was written; detach it, and keep the tables in the ledger's file";
    Err(StoreError::before(StoreErrorKind::Unsuitable, message))
}

/// Whether a connection is to the file of a ledger, under whatever name.
fn same_file(connection: &Connection, shared: &Shared) -> bool {
    let identity = |path: &std::path::Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let theirs = connection.path().and_then(|path| identity(std::path::Path::new(path)));
    theirs.is_some() && theirs == identity(shared.files.path())
}

impl SqliteInside {
    fn enter(shared: Arc<Shared>) -> Result<Self, StoreError> {
        let fail = |e: rustix::io::Errno| Trouble::from(e).at(shared.files.path(), Wrote::No);
        let (turn, lock) = shared.files.open_side_files()?;
        let turn = Turnstile::new(turn, lock, shared.board.clone()).into_turn(TURN_WITHIN).map_err(fail)?;
        shared.files.still_the_same().inspect_err(|_| shared.distrust_cache())?;
        Ok(Self {
            shared,
            turn,
            tools: Tools::default(),
            written: BatchEnd { changed: Vec::new(), unsettled: Vec::new() },
            begun: Vec::new(),
            is_broken: false,
            may_commit: Arc::default(),
            has_ended: Arc::default(),
        })
    }

    /// What a commit hook of the connection has to answer with from the beginning of the transaction on. SQLite ends one by
    /// itself on some errors (a full disk, `OR ROLLBACK`): the caller's next statement would then be committed alone,
    /// without its record, and a retry would do it again. So nothing is committed but by [`commit`](Self::commit), until
    /// this is dropped.
    pub fn may_commit(&self) -> impl Fn() -> bool + Send + 'static {
        let may_commit = Arc::clone(&self.may_commit);
        move || may_commit.load(Ordering::Acquire)
    }

    /// What a rollback hook of the connection has to do from the beginning of the transaction on. A transaction that SQLite has
    /// ended may be followed by another that the caller did not mean (a savepoint outside of one begins it): to commit that
    /// would be to commit the caller's work without the record. Going back to a savepoint does not call such a hook.
    pub fn rolled_back(&self) -> impl Fn() + Send + 'static {
        let has_ended = Arc::clone(&self.has_ended);
        move || has_ended.store(true, Ordering::Release)
    }

    /// Says what became of a statement that a driver ran around the steps.
    pub fn trouble(&self, error: rusqlite::Error) -> StoreError {
        Trouble::from(error).at(self.shared.files.path(), Wrote::No)
    }

    /// Commits the caller's work and the record together. Refused if an attempt was begun and not completed. Whatever the
    /// answer, the connection is in no transaction afterwards.
    pub fn commit(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let path = self.shared.files.path();
        let may_commit = self
            .check_open(connection)
            .and_then(|()| check_alone(connection, &self.shared))
            .and_then(|()| self.check_completed(connection))
            .and_then(|()| {
                let unsettled = self.turn.unsettle(&self.written.unsettled);
                unsettled.map_err(|e| Trouble::from(e).at(path, Wrote::No))
            });
        if let Err(error) = may_commit {
            roll_back(connection);
            return Err(error);
        }
        self.may_commit.store(true, Ordering::Release);
        let committed = connection.execute_batch("COMMIT");
        if let Err(error) = committed {
            let is_open = !connection.is_autocommit();
            roll_back(connection);
            if is_open && error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) {
                // A constraint of the caller's that is looked at only now: SQLite has not begun to commit.
                let _ = self.turn.settle(&self.written.unsettled);
                return Err(Trouble::from(error).at(path, Wrote::No));
            }
            // What became of it is not known, and must not come back once others have been told that it is not there.
            break_tail(&self.shared);
            let _ = self.turn.settle(&self.written.unsettled);
            return Err(Trouble::from(error).at(path, Wrote::Maybe));
        }
        let _ = self.turn.settle(&self.written.unsettled);
        let _ = self.turn.announce_commit();
        for changed in std::mem::take(&mut self.written.changed) {
            // What was asked for need not be what was committed: the caller may have gone back to a savepoint. So nothing
            // of it is kept in memory, and whoever waits looks for themselves.
            self.shared.remembered.drop(&changed.intent);
            self.shared.watchers.changed(&changed.intent, None);
        }
        Ok(())
    }

    /// The caller, or SQLite itself on some errors, can end a transaction behind our back.
    fn check_open(&self, connection: &Connection) -> Result<(), StoreError> {
        let has_ended = self.has_ended.load(Ordering::Acquire) || connection.is_autocommit();
        if !self.is_broken && !has_ended {
            return Ok(());
        }
        let message =
            "the transaction has ended or failed already; nothing more was written; begin another one";
        Err(StoreError::before(StoreErrorKind::Unavailable, message))
    }

    /// A record that is committed as running would be nobody's.
    fn check_completed(&self, connection: &Connection) -> Result<(), StoreError> {
        for (intent, token) in &self.begun {
            let there = rows::read(connection, intent)
                .map_err(|trouble| trouble.at(self.shared.files.path(), Wrote::No))?;
            let is_open = |record: &Record| {
                record.body.token == *token && matches!(record.body.state, State::Running { .. })
            };
            if there.as_ref().is_some_and(is_open) {
                let message = "an attempt was begun in this transaction and not completed; it was rolled back: nothing happened";
                return Err(StoreError::before(StoreErrorKind::Unavailable, message));
            }
        }
        Ok(())
    }

    /// One step: a batch of its own, with a place in the log of its own.
    fn apply<T>(
        &mut self,
        connection: &Connection,
        request: Request,
        pick: fn(Answer) -> Option<T>,
    ) -> Result<T, StoreError> {
        self.check_open(connection)?;
        let Self { shared, tools, written, is_broken, .. } = self;
        // Going back to a savepoint takes back numbers of tools as well.
        tools.clear();
        let worked = (|| {
            let (last, last_at) = newest(connection)?;
            let now = shared.clock.at_least(last_at).max(shared.clock.now());
            let mut batch = Batch::new(connection, tools, last + 1, now)?;
            let done = batch.apply(request, &shared.address())?;
            batch.finish()?;
            written.changed.append(&mut batch.changed);
            written.unsettled.append(&mut batch.unsettled);
            Ok(done)
        })();
        let answer = worked.map_err(|trouble: Trouble| {
            *is_broken |= matches!(trouble, Trouble::Sqlite(_) | Trouble::System(_));
            trouble.at(shared.files.path(), Wrote::No)
        })?;
        pick(answer)
            .ok_or_else(|| StoreError::before(StoreErrorKind::Unavailable, "the ledger gave another answer"))
    }

    /// Remembers an attempt that begins with these events.
    fn mind(&mut self, intent: IntentId, token: AttemptToken, events: &[Event]) {
        if events.iter().any(|event| event.kind == EventKind::Began) {
            self.begun.push((intent, token));
        }
    }

    /// [`oncely_core::Within::load`].
    pub fn load(&mut self, connection: &Connection, intent: IntentId) -> Result<Option<Stored>, StoreError> {
        self.check_open(connection)?;
        let found = rows::read(connection, &intent).map_err(|e| e.at(self.shared.files.path(), Wrote::No))?;
        let now = |changed_at| self.shared.clock.at_least(changed_at).max(self.shared.clock.now());
        Ok(found.map(|record| Stored { now: now(record.changed_at), record: Arc::new(record) }))
    }

    /// [`oncely_core::Within::create`].
    pub fn create(
        &mut self,
        connection: &Connection,
        intent: IntentId,
        draft: Draft,
        events: Vec<Event>,
    ) -> Result<Created, StoreError> {
        check_events(&events, EVENTS_MAX)?;
        self.mind(intent, draft.body.token, &events);
        let request = Request::Create { intent, draft: Box::new(draft), events, wanted: None };
        self.apply(connection, request, |answer| match answer {
            Answer::Created(created) => Some(created),
            _ => None,
        })
    }

    /// [`oncely_core::Within::replace`].
    pub fn replace(
        &mut self,
        connection: &Connection,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> Result<Replaced, StoreError> {
        check_events(&events, EVENTS_MAX)?;
        if let Change::Put(draft) = &change {
            self.mind(intent, draft.body.token, &events);
        }
        let request = Request::Replace { intent, expected, change, events };
        self.apply(connection, request, |answer| match answer {
            Answer::Replaced(replaced) => Some(replaced),
            _ => None,
        })
    }

    /// [`oncely_core::Within::owner`].
    pub fn owner(&self) -> Owner {
        process::this_process()
    }

    /// [`oncely_core::Within::liveness`].
    pub fn liveness(&self, owner: &Owner) -> Liveness {
        process::liveness(owner)
    }

    /// [`oncely_core::Within::steady_since`].
    pub fn steady_since(&self) -> Millis {
        self.shared.clock.steady_since()
    }
}

/// The connection is the caller's alone again.
impl Drop for SqliteInside {
    fn drop(&mut self) {
        self.may_commit.store(true, Ordering::Release);
    }
}
