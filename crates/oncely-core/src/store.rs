//! The contract that every ledger keeps.
//!
//! A store knows nothing of states and rules. It creates, loads, replaces and removes records by compare-and-swap on
//! their version, tells waiters that something may have changed, lists, purges by the machine's rule, and counts.
//! What it must get right:
//!
//! 1. **Durable before acknowledged.** When `create` or `replace` answers, the record and its events survive a crash of
//!    the process, and of the machine where the store says so.
//! 2. **Atomic.** A record and the events of the same step are there together or not at all.
//! 3. **One winner.** Of two `create`s for one intent, or two `replace`s from one version, one succeeds; the other gets
//!    what is there. The version grows with every write and never restarts, not even after a removal.
//! 4. **An error says whether something may have been written** ([`Wrote`]). After [`Wrote::Maybe`] the caller must look
//!    for its own token before it decides anything, and must not start the effect.
//! 5. **Time is the store's.** Stamps are taken at the write, and every read returns `now` by the same clock, which
//!    does not follow jumps of the wall clock and stamps nothing of one handle earlier than what it stamped before. Where a
//!    server's clock was set back, `now` may follow it: ages then look smaller than they are, and never larger.
//! 6. **A ledger that moves claims nothing** ([`Gate`]): the gate is looked at in the same atomic step as every write.
//!    A write that is acknowledged after the gate was turned has passed the gate as it is now.
//! 7. **A call that is dropped half-way** either happened or did not; it never leaves a lock behind.
//! 8. **A record that cannot be read stops no other** ([`Unreadable`]): it is damaged, or a newer version wrote it. To claim,
//!    load or end it is an error that names it. A listing tells of it beside the others; a purge leaves it, since it may be
//!    the only sign of an effect, and goes on behind it. [`Change::Remove`] with its version removes it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::audit::{Event, LoggedEvent};
use crate::gate::{Gate, Import, Move};
use crate::health::StoreHealth;
use crate::name::{IntentId, Namespace, ToolName};
use crate::owner::{Liveness, Owner};
use crate::record::{Draft, Millis, Record, StateName, Version};
use crate::tally::{Counter, Tally};

/// What store calls return: no runtime is assumed.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A record and the store's clock when it was read.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The record.
    pub record: Arc<Record>,
    /// The store's clock.
    pub now: Millis,
}

/// How a `create` went.
#[derive(Debug, Clone)]
pub enum Created {
    /// The draft is the record now, durably.
    New(Stored),
    /// There was one already.
    Exists(Stored),
}

/// How a `replace` went.
#[derive(Debug, Clone)]
pub enum Replaced {
    /// The change is durable; the record as it is now, or nothing after a removal.
    Done(Option<Stored>),
    /// The version was not the expected one; what is there.
    Stale(Option<Stored>),
}

/// What `replace` does to a record.
#[derive(Debug, Clone)]
pub enum Change {
    /// Writes this in its place.
    Put(Box<Draft>),
    /// Removes it.
    Remove,
}

/// Which records to list. Every field that is set has to match.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only this tenant's.
    pub namespace: Option<Namespace>,
    /// Only this state.
    pub state: Option<StateName>,
    /// Only tools that match this pattern: exact, or with `*` for any run of characters.
    pub tool: Option<String>,
    /// Only this scope.
    pub scope: Option<String>,
    /// Only this exact key.
    pub key: Option<String>,
    /// Only ids that start with these hexadecimal digits.
    pub id_prefix: Option<String>,
    /// Only records changed at or after this moment.
    pub changed_since: Option<Millis>,
    /// Only records changed before this moment.
    pub changed_before: Option<Millis>,
}

impl Filter {
    /// Whether a record matches.
    pub fn accepts(&self, record: &Record) -> bool {
        let name = &record.body.name;
        self.namespace.as_ref().is_none_or(|n| *n == name.namespace)
            && self.state.is_none_or(|s| s == record.body.state.name())
            && self.tool.as_ref().is_none_or(|t| glob(t, name.tool.as_str()))
            && self.scope.as_ref().is_none_or(|s| s == name.scope.as_str())
            && self.key.as_ref().is_none_or(|k| k == name.key.as_str())
            && self.id_prefix.as_ref().is_none_or(|p| record.intent.to_string().starts_with(p.as_str()))
            && self.changed_since.is_none_or(|at| record.changed_at >= at)
            && self.changed_before.is_none_or(|at| record.changed_at < at)
    }
}

/// Whether a text matches a pattern in which `*` stands for any run of characters.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// A record that is there and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Which.
    pub intent: IntentId,
    /// Its version, by which it can be removed; `None` where not even that can be read.
    pub version: Option<Version>,
    /// The state under which the ledger has filed it.
    pub state: StateName,
    /// What is wrong with it.
    pub why: String,
}

/// One page of a listing.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// Records between them that cannot be read, and may match: each counts as one entry of the page.
    pub unreadable: Vec<Unreadable>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<u64>,
    /// The store's clock.
    pub now: Millis,
}

impl<T> Page<T> {
    /// A page on which everything could be read.
    pub fn of(items: Vec<T>, next: Option<u64>, now: Millis) -> Self {
        Self { items, unreadable: Vec::new(), next, now }
    }
}

/// Which events to read.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// Only events after this place in the log.
    pub after: u64,
    /// Only this record's.
    pub intent: Option<IntentId>,
    /// At most this many.
    pub limit: usize,
    /// The newest `limit` events (still in ascending order) instead of the oldest after `after`.
    pub newest: bool,
}

/// What one step of a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgeReport {
    /// Results dropped; their keys are still known.
    pub results_dropped: u64,
    /// Records removed.
    pub records_removed: u64,
    /// Audit events removed.
    pub events_removed: u64,
    /// Records that cannot be read: they were left, and are not looked at again for a while.
    pub unreadable: u64,
    /// Whether another step would make progress: what somebody holds is due, too, and is not waited for.
    pub more: bool,
}

/// Whether something may have been written when an error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrote {
    /// Certainly not.
    No,
    /// Perhaps: an error on commit does not prove that nothing was committed.
    Maybe,
}

/// What kind of trouble a store is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// It cannot be reached, or is shut down.
    Unavailable,
    /// No space is left, or less than the floor kept for completions.
    Full,
    /// It cannot be written to.
    ReadOnly,
    /// It is damaged.
    Corrupt,
    /// It is not a ledger of ours.
    Foreign,
    /// A newer version of the program wrote it.
    TooNew,
    /// It lies where several processes cannot share it safely.
    Unsuitable,
    /// Too much is waiting.
    Overloaded,
    /// The address or a setting is wrong.
    BadAddress,
    /// It is moving, has moved, or is being filled: see [`Gate`].
    Moved,
}

/// An error of a store.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What kind.
    pub kind: StoreErrorKind,
    /// What happened, with names; and what to do.
    pub message: String,
    /// Whether something may have been written.
    pub wrote: Wrote,
}

impl StoreError {
    /// An error before anything was written.
    pub fn before(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), wrote: Wrote::No }
    }

    /// An error after which something may have been written.
    pub fn ambiguous(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), wrote: Wrote::Maybe }
    }
}

/// A ledger. See the module's documentation for what an implementation promises.
pub trait Store: Send + Sync + 'static {
    /// What it is, for messages: an address without secrets.
    fn describe(&self) -> String;

    /// An ended record that is known, without I/O that waits, to be current. `None` says nothing.
    fn peek(&self, intent: &IntentId) -> Option<Stored>;

    /// Whether a record is likely there, so that it is better looked for before it is made. A wrong guess costs one more
    /// round trip and nothing else. A store for which to look costs as much as to make guesses nothing: `false`.
    fn expects(&self, intent: &IntentId) -> bool;

    /// Writes the record if there is none; else returns what is there.
    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created>;

    /// Reads a record.
    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>>;

    /// Changes the record if its version is the expected one. The request is made when this is called, not when the
    /// future is first polled: a caller that is being torn down can still hand in its end.
    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced>;

    /// Writes events that change no record.
    fn note(&self, events: Vec<Event>) -> StoreFuture<'_, ()>;

    /// Returns when the record may have changed since it had this version, or after a bounded time.
    fn watch(&self, intent: IntentId, seen: Version) -> StoreFuture<'_, ()>;

    /// What can be seen of an owner from here.
    fn liveness(&self, owner: &Owner) -> Liveness;

    /// Who this process is, as an owner.
    fn owner(&self) -> Owner;

    /// The store's clock.
    fn now(&self) -> StoreFuture<'_, Millis>;

    /// Since when the clock is known to have run without a gap, by itself: a machine that was off only knows the wall
    /// clock's word for how long. Moment 0 says: always.
    fn steady_since(&self) -> Millis;

    /// Lists records, oldest first, from a place that an earlier page named (0 for the start). A page may end before the limit
    /// where its records are large: only one that names no next page is the last.
    fn scan(&self, filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>>;

    /// Reads the audit log.
    fn log(&self, query: LogQuery) -> StoreFuture<'_, Page<LoggedEvent>>;

    /// Drops a bounded number of what is due, by the machine's rule. Whoever goes on while there is `more` comes to an end: a
    /// step that changed nothing does not say so.
    fn purge(&self, limit: usize) -> StoreFuture<'_, PurgeReport>;

    /// Adds one call's increments to a tool's counters; durable within a second, without delaying calls. Called on
    /// every call, also on replays from memory, so it must cost well under a microsecond.
    fn tally(&self, namespace: &Namespace, tool: &ToolName, increments: &[(Counter, u64)]);

    /// Reads the counters.
    fn tallies(&self) -> StoreFuture<'_, Vec<Tally>>;

    /// How many records there are in each state; ended ones may be an estimate.
    fn census(&self) -> StoreFuture<'_, Vec<(StateName, u64)>>;

    /// Writes what is pending (counters, handed-in ends) and returns when it is durable.
    fn flush(&self) -> StoreFuture<'_, ()>;

    /// How the way to the ledger is, as far as this process knows: asks nobody.
    fn health(&self) -> StoreHealth;

    /// Whether the ledger takes writes.
    fn gate(&self) -> StoreFuture<'_, Gate>;

    /// Turns the gate if it stands as `from` says; answers how it stands now, durably. Somebody who has to know that it was
    /// them makes `to` unlike any other. When this answers, every write
    /// that passed the gate as it was before is there to be read.
    fn turn_gate(&self, from: Gate, to: Gate) -> StoreFuture<'_, Gate>;

    /// Takes what a move brings, while the gate stands at [`Gate::Filling`] with this very move. May be repeated.
    fn import(&self, under: Move, import: Import) -> StoreFuture<'_, ()>;
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn a_star_stands_for_any_run() {
        for (pattern, text, expected) in [
            ("cmd:pay", "cmd:pay", true),
            ("cmd:pay", "cmd:payment", false),
            ("cmd:*", "cmd:", true),
            ("*", "", true),
            ("*pay*", "cmd:payment", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("a*a", "a", false),
            ("POST /*/x", "POST /orders/x", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} on {text}");
        }
    }
}
