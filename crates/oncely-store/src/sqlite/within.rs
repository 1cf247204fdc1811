//! A transaction of the caller's own in the file of the ledger, with rusqlite: record and effect commit together.

use std::ops::Deref;

use oncely_core::{
    Change, Created, Draft, Event, IntentId, Liveness, Millis, Owner, Replaced, StoreError, StoreFuture,
    Stored, Version, Within,
};
use rusqlite::Connection;

use super::SqliteStore;
use super::barrier::roll_back;
use super::inside::SqliteInside;
use crate::requests::ready;

/// A transaction on a connection of the caller's, begun by [`SqliteStore::transaction`]. It stands for the connection: the
/// caller's own statements run through it. Rolled back when it is dropped without [`commit`](Self::commit).
///
/// While it is there, the connection commits nothing else: a statement after one that made SQLite end the transaction by itself
/// fails. Hooks of the caller's own on commit and rollback are replaced for that.
pub struct SqliteTransaction<'c> {
    connection: &'c Connection,
    inside: SqliteInside,
}

impl SqliteStore {
    /// Begins a transaction on the caller's own connection to the ledger's file, in which its tables and the ledger's
    /// change together. Waits for its turn at writing; nobody else writes to the ledger until it ends, so keep it short, and
    /// do not use this ledger in any other way meanwhile.
    pub fn transaction<'c>(
        &self,
        connection: &'c mut Connection,
    ) -> Result<SqliteTransaction<'c>, StoreError> {
        self.suits(connection)?;
        let inside = self.inside_now()?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| inside.trouble(error))?;
        // Whatever fails from here on, dropping this ends what was begun.
        let (may_commit, rolled_back) = (inside.may_commit(), inside.rolled_back());
        // Here a hook is asked whether to roll back instead.
        let hooked = connection
            .commit_hook(Some(move || !may_commit()))
            .and_then(|()| connection.rollback_hook(Some(rolled_back)));
        let transaction = SqliteTransaction { connection, inside };
        hooked.map_err(|error| transaction.inside.trouble(error))?;
        Ok(transaction)
    }
}

impl SqliteTransaction<'_> {
    /// Commits the caller's work and the record together. Refused, and rolled back, if an attempt was begun in it and not
    /// completed.
    pub fn commit(mut self) -> Result<(), StoreError> {
        self.inside.commit(self.connection)
    }

    /// Gives everything up, the caller's own statements too.
    pub fn rollback(self) {}
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
        ready(self.inside.load(self.connection, intent))
    }

    fn create(&mut self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        ready(self.inside.create(self.connection, intent, draft, events))
    }

    fn replace(
        &mut self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        ready(self.inside.replace(self.connection, intent, expected, change, events))
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
