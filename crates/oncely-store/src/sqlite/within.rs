//! A transaction of the caller's own in the file of the ledger: record and effect commit together.
//!
//! The caller's connection writes our tables, so it has to behave as our writer does. It takes its turn at the turnstile
//! first (lock M is held until the end, and then the write lock of SQLite), every step gets a place in the log of its own,
//! and before the commit the epochs of succeeded records that change are unsettled, so that no cache of any process takes
//! them for current. A process that dies in between leaves what a dead writer leaves, and the next turn mends it.

use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::{
    AttemptToken, Change, Created, Draft, Event, EventKind, IntentId, Liveness, Millis, Owner, Record,
    Replaced, State, StoreError, StoreErrorKind, StoreFuture, Stored, Version, Within, Wrote,
};
use rusqlite::{Connection, ErrorCode};

use super::barrier::{break_tail, roll_back};
use super::batch::{Answer, Batch, Request};
use super::commit::BatchEnd;
use super::connect::{SYNC_TO_DISK, newest};
use super::errors::Trouble;
use super::rows::{self, Tools};
use super::turnstile::{Turn, Turnstile};
use super::{EVENTS_MAX, Shared, SqliteStore};
use crate::process;
use crate::requests::{check_events, ready};

/// How long the turn at writing is waited for.
const TURN_WITHIN: Duration = Duration::from_secs(30);
/// The number of the setting with which commits are synced.
const FULL: i64 = 2;

/// A transaction on a connection of the caller's, begun by [`SqliteStore::transaction`]. It stands for the connection: the
/// caller's own statements run through it. Rolled back when it is dropped without [`commit`](Self::commit).
pub struct SqliteTransaction<'c> {
    shared: Arc<Shared>,
    connection: &'c Connection,
    turn: Turn<'static>,
    tools: Tools,
    written: BatchEnd,
    /// Attempts that have begun in it, by their records. Which of them are open the tables say: a savepoint may have taken
    /// back a beginning, or an end.
    begun: Vec<(IntentId, AttemptToken)>,
    /// A step failed half-way: only a rollback is right.
    is_broken: bool,
}

impl SqliteStore {
    /// Begins a transaction on the caller's own connection to the ledger's file, in which its tables and the ledger's
    /// change together. Waits for its turn at writing; nobody else writes to the ledger until it ends, so keep it short, and
    /// do not use this ledger in any other way meanwhile.
    pub fn transaction<'c>(
        &self,
        connection: &'c mut Connection,
    ) -> Result<SqliteTransaction<'c>, StoreError> {
        let shared = Arc::clone(&self.shared);
        shared.check_process()?;
        let refuse = |message: &str| Err(StoreError::before(StoreErrorKind::BadAddress, message));
        if !same_file(connection, &shared) {
            return refuse(
                "the connection is to another file than the ledger's; nothing was begun; open the same file",
            );
        }
        if !connection.is_autocommit() {
            return refuse("the connection is in a transaction already; nothing was begun; end it first");
        }
        check_settings(connection, &shared)?;
        check_alone(connection, &shared)?;
        let fail = |e: rustix::io::Errno| Trouble::from(e).at(shared.files.path(), Wrote::No);
        let (turn, lock) = shared.files.open_side_files()?;
        let turn = Turnstile::new(turn, lock, shared.board.clone()).into_turn(TURN_WITHIN).map_err(fail)?;
        shared.files.still_the_same().inspect_err(|_| shared.distrust_cache())?;
        connection
            .execute_batch(&format!("{SYNC_TO_DISK}; BEGIN IMMEDIATE"))
            .map_err(|e| Trouble::from(e).at(shared.files.path(), Wrote::No))?;
        Ok(SqliteTransaction {
            shared,
            connection,
            turn,
            tools: Tools::default(),
            written: BatchEnd { changed: Vec::new(), unsettled: Vec::new() },
            begun: Vec::new(),
            is_broken: false,
        })
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

impl SqliteTransaction<'_> {
    /// Commits the caller's work and the record together. Refused, and rolled back, if an attempt was begun in it and not
    /// completed.
    pub fn commit(mut self) -> Result<(), StoreError> {
        let path = self.shared.files.path();
        self.check_open()?;
        check_alone(self.connection, &self.shared)?;
        self.check_completed()?;
        self.turn.unsettle(&self.written.unsettled).map_err(|e| Trouble::from(e).at(path, Wrote::No))?;
        let committed = self.connection.execute_batch("COMMIT");
        if let Err(error) = committed {
            let is_open = !self.connection.is_autocommit();
            roll_back(self.connection);
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

    /// Gives everything up, the caller's own statements too.
    pub fn rollback(self) {}

    /// The caller, or SQLite itself on some errors, can end a transaction behind our back.
    fn check_open(&self) -> Result<(), StoreError> {
        if !self.is_broken && !self.connection.is_autocommit() {
            return Ok(());
        }
        let message =
            "the transaction has ended or failed already; nothing more was written; begin another one";
        Err(StoreError::before(StoreErrorKind::Unavailable, message))
    }

    /// A record that is committed as running would be nobody's.
    fn check_completed(&self) -> Result<(), StoreError> {
        for (intent, token) in &self.begun {
            let there = rows::read(self.connection, intent)
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
    fn step<T>(
        &mut self,
        work: impl FnOnce(&mut Batch<'_>, &str) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        self.check_open()?;
        let Self { shared, connection, tools, written, is_broken, .. } = self;
        let worked = (|| {
            let (last, last_at) = newest(connection)?;
            let now = shared.clock.at_least(last_at).max(shared.clock.now());
            let mut batch = Batch::new(connection, tools, last + 1, now)?;
            let done = work(&mut batch, &shared.address())?;
            batch.finish()?;
            written.changed.append(&mut batch.changed);
            written.unsettled.append(&mut batch.unsettled);
            Ok(done)
        })();
        worked.map_err(|trouble: Trouble| {
            *is_broken |= matches!(trouble, Trouble::Sqlite(_) | Trouble::System(_));
            trouble.at(shared.files.path(), Wrote::No)
        })
    }

    fn apply<T>(&mut self, request: Request, pick: fn(Answer) -> Option<T>) -> Result<T, StoreError> {
        let answer = self.step(|batch, ledger| batch.apply(request, ledger))?;
        pick(answer)
            .ok_or_else(|| StoreError::before(StoreErrorKind::Unavailable, "the ledger gave another answer"))
    }

    /// Remembers an attempt that begins with these events.
    fn mind(&mut self, intent: IntentId, token: AttemptToken, events: &[Event]) {
        if events.iter().any(|event| event.kind == EventKind::Began) {
            self.begun.push((intent, token));
        }
    }
}

/// The caller's connection, inside the transaction.
impl Deref for SqliteTransaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl Drop for SqliteTransaction<'_> {
    fn drop(&mut self) {
        roll_back(self.connection);
    }
}

impl Within for SqliteTransaction<'_> {
    fn load(&mut self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        if let Err(error) = self.check_open() {
            return ready(Err(error));
        }
        let found =
            rows::read(self.connection, &intent).map_err(|e| e.at(self.shared.files.path(), Wrote::No));
        let now = |changed_at| self.shared.clock.at_least(changed_at).max(self.shared.clock.now());
        ready(found.map(|record| {
            record.map(|record| Stored { now: now(record.changed_at), record: Arc::new(record) })
        }))
    }

    fn create(&mut self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        if let Err(error) = check_events(&events, EVENTS_MAX) {
            return ready(Err(error));
        }
        self.mind(intent, draft.body.token, &events);
        let request = Request::Create { intent, draft: Box::new(draft), events, wanted: None };
        ready(self.apply(request, |answer| match answer {
            Answer::Created(created) => Some(created),
            _ => None,
        }))
    }

    fn replace(
        &mut self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        if let Err(error) = check_events(&events, EVENTS_MAX) {
            return ready(Err(error));
        }
        if let Change::Put(draft) = &change {
            self.mind(intent, draft.body.token, &events);
        }
        let request = Request::Replace { intent, expected, change, events };
        ready(self.apply(request, |answer| match answer {
            Answer::Replaced(replaced) => Some(replaced),
            _ => None,
        }))
    }

    fn owner(&self) -> Owner {
        process::this_process()
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        process::liveness(owner)
    }

    fn steady_since(&self) -> Millis {
        self.shared.clock.steady_since()
    }
}
