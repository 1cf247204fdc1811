//! An Oncely ledger inside a transaction of sqlx on SQLite: record and effect are committed together, or neither is there.
//!
//! ```no_run
//! use oncely::within::{self, Begun};
//! use oncely::{Answer, Call, outcome};
//! use oncely_sqlx_sqlite::SqlxSqliteTransaction;
//! use oncely_store::SqliteStore;
//! use sqlx_core::query::query;
//! use sqlx_sqlite::{Sqlite, SqliteConnection};
//!
//! # type Failed = Box<dyn std::error::Error>;
//! async fn order(ledger: &SqliteStore, connection: &mut SqliteConnection, call: &Call, key: &str) -> Result<Option<Answer>, Failed> {
//!     let mut tx = SqlxSqliteTransaction::begin(ledger, connection).await?; // waits for its turn at writing
//!     match within::begin(&mut tx, call).await? {
//!         Begun::Run(pending) => {
//!             query::<Sqlite>("INSERT INTO orders (key) VALUES (?1)").bind(key.to_owned()).execute(tx.connection()).await?;
//!             pending.complete(&mut tx, outcome::created(&key)).await?;
//!             tx.commit().await?; // both, or neither
//!             Ok(None)
//!         }
//!         Begun::Answered(answer) => Ok(Some(answer)),
//!     }
//! }
//! ```
//!
//! sqlx runs a connection's statements on a thread of its own. The ledger's few statements, and the commit, run on the thread
//! that asks for them instead, while that one rests. So nothing lies between the steps of a commit at which a caller
//! that goes away could leave it half done.

use oncely_core::{
    Change, Created, Draft, Event, IntentId, Liveness, Millis, Owner, Replaced, StoreError, StoreErrorKind,
    StoreFuture, Stored, Version, Within,
};
use oncely_store::{SqliteInside, SqliteStore};
use rusqlite::Connection;
use sqlx_core::connection::Connection as _;
use sqlx_core::transaction::{Transaction, TransactionManager};
use sqlx_sqlite::{LockedSqliteHandle, Sqlite, SqliteConnection, SqliteTransactionManager};

/// A transaction on a connection of the caller's, with the ledger's turn at writing. Rolled back when it is dropped without
/// [`commit`](Self::commit).
///
/// While it is there, the connection commits nothing else. SQLite ends a transaction by itself on some errors (a full disk,
/// `OR ROLLBACK`), and sqlx ends it if a savepoint's `begin` fails or is given up: the caller's next statement would then be
/// committed alone, without its record. So it fails instead. Hooks of the caller's own on commit and rollback are replaced for
/// that.
///
/// A statement that you stopped waiting for may still be run by sqlx. End the transaction with [`rollback`](Self::rollback)
/// then, which waits for it: after a drop the connection is yours alone again at once.
pub struct SqlxSqliteTransaction<'c> {
    // Dropped first: a rollback is on its way before the turn is let go.
    transaction: Transaction<'c, Sqlite>,
    inside: SqliteInside,
}

impl<'c> SqlxSqliteTransaction<'c> {
    /// Begins a transaction on the caller's own connection to the ledger's file, in which its tables and the ledger's change
    /// together. Waits for its turn at writing; nobody else writes to the ledger until it ends, so keep it short, and do not
    /// use this ledger in any other way meanwhile.
    pub async fn begin(
        ledger: &SqliteStore,
        connection: &'c mut SqliteConnection,
    ) -> Result<Self, StoreError> {
        clear(connection).await?;
        lend(connection, |connection| ledger.suits(connection)).await?;
        let inside = ledger.inside().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(unusable)?;
        let (mut locked, _) = lock(&mut transaction).await?;
        locked.set_commit_hook(inside.may_commit());
        locked.set_rollback_hook(inside.rolled_back());
        drop(locked);
        Ok(Self { transaction, inside })
    }

    /// The transaction's connection, for statements of your own. `begin` on it makes a savepoint.
    pub fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }

    /// Commits the caller's work and the record together. Refused, and rolled back, if an attempt was begun in it and not
    /// completed.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        let (mut locked, depth) = lock(&mut self.transaction).await?;
        let borrowed = borrow(&mut locked)?;
        let committed = self.inside.commit(&borrowed);
        stand_in(&borrowed, depth);
        drop(borrowed);
        remove_hooks(&mut locked);
        drop(locked);
        let Self { transaction, inside } = self;
        drop(inside);
        // Only for sqlx to know. If nobody waits for this, dropping does the same.
        let _ = transaction.rollback().await;
        committed
    }

    /// Gives everything up, the caller's own statements too. Unlike dropping, it returns when that is done, and keeps the
    /// turn until then.
    pub async fn rollback(self) -> Result<(), StoreError> {
        let Self { mut transaction, inside: _inside } = self;
        let (mut locked, depth) = lock(&mut transaction).await?;
        stand_in(&borrow(&mut locked)?, depth);
        remove_hooks(&mut locked);
        drop(locked);
        transaction.rollback().await.map_err(unusable)
    }
}

fn remove_hooks(locked: &mut LockedSqliteHandle<'_>) {
    locked.remove_commit_hook();
    locked.remove_rollback_hook();
}

fn unusable(error: impl std::fmt::Display) -> StoreError {
    let message = format!("the connection could not be used: {error}; nothing was written");
    StoreError::before(StoreErrorKind::Unavailable, message)
}

/// Takes a connection's handle away from sqlx's own thread for a while; and how many transactions sqlx counts on it.
async fn lock(connection: &mut SqliteConnection) -> Result<(LockedSqliteHandle<'_>, usize), StoreError> {
    // What was handed to that thread and not waited for, such as the rollback of a savepoint that was dropped, comes first. The
    // lock by itself does not see to that: it can be had before the thread has come back from the last time.
    connection.ping().await.map_err(unusable)?;
    let depth = SqliteTransactionManager::get_transaction_depth(connection);
    Ok((connection.lock_handle().await.map_err(unusable)?, depth))
}

/// A connection of sqlx, as rusqlite sees it. It must not outlive the lock.
fn borrow(locked: &mut LockedSqliteHandle<'_>) -> Result<Connection, StoreError> {
    #[allow(unsafe_code, reason = "the two drivers share a handle, not a type for it")]
    // SAFETY: the handle is open and used by nobody else for as long as it is locked, and no caller here keeps what it gets for
    // longer; both drivers call the same library, since a program links only one; and what borrows a handle does not close it.
    let borrowed = unsafe { Connection::from_handle(locked.as_raw_handle().as_ptr()) };
    borrowed.map_err(unusable)
}

/// Works on a connection as rusqlite sees it.
async fn lend<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let (mut locked, _) = lock(connection).await?;
    let borrowed = borrow(&mut locked)?;
    work(&borrowed)
}

/// Where sqlx counts a transaction that SQLite has ended, an empty one stands in for it: sqlx would go on trying to end
/// it, and count it for ever.
fn stand_in(borrowed: &Connection, depth: usize) -> bool {
    depth == 1 && borrowed.is_autocommit() && borrowed.execute_batch("BEGIN").is_ok()
}

/// Ends what sqlx counts although SQLite has ended it, after a full disk, say.
async fn clear(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let (mut locked, depth) = lock(connection).await?;
    let stands_in = stand_in(&borrow(&mut locked)?, depth);
    drop(locked);
    if stands_in {
        // Not waited for here: whoever gave up meanwhile would leave it open.
        SqliteTransactionManager::start_rollback(connection);
    }
    Ok(())
}

impl Within for SqlxSqliteTransaction<'_> {
    fn load(&mut self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        let Self { transaction, inside } = self;
        Box::pin(lend(transaction, move |connection| inside.load(connection, intent)))
    }

    fn create(&mut self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        let Self { transaction, inside } = self;
        Box::pin(lend(transaction, move |connection| inside.create(connection, intent, draft, events)))
    }

    fn replace(
        &mut self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        let Self { transaction, inside } = self;
        let work =
            move |connection: &Connection| inside.replace(connection, intent, expected, change, events);
        Box::pin(lend(transaction, work))
    }

    fn owner(&self) -> Owner {
        self.inside.owner()
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        self.inside.liveness(owner)
    }

    fn steady_since(&self) -> Millis {
        self.inside.steady_since()
    }
}
