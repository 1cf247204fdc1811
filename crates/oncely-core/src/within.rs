//! A ledger inside the caller's own transaction: record and effect commit together, or neither is there.
//!
//! What [`Within`] writes is seen by nobody else, and is not durable, until the caller commits. So for an effect in the
//! same database there is no moment at which one has happened and the other has not. The rules are the machine's, as
//! everywhere; an implementation only reads and writes.

use crate::audit::Event;
use crate::name::IntentId;
use crate::owner::{Liveness, Owner};
use crate::record::{Draft, Millis, Version};
use crate::store::{Change, Created, Replaced, StoreFuture, Stored};

/// The tables of a ledger, inside a transaction that the caller began and will end.
///
/// The same as [`Store`](crate::Store) as far as one call needs it, except that an acknowledged write is durable only
/// with the caller's commit. A write for an intent that another open transaction is writing waits for that transaction's
/// end.
pub trait Within {
    /// Reads a record.
    fn load(&mut self, intent: IntentId) -> StoreFuture<'_, Option<Stored>>;

    /// Writes the record if there is none; else returns what is there.
    fn create(&mut self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created>;

    /// Changes the record if its version is the expected one.
    fn replace(
        &mut self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced>;

    /// Who this process is, as an owner.
    fn owner(&self) -> Owner;

    /// What can be seen of an owner from here.
    fn liveness(&self, owner: &Owner) -> Liveness;

    /// Since when the ledger's clock is known to have run without a gap.
    fn steady_since(&self) -> Millis;
}
