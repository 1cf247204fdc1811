//! The PostgreSQL ledger: many machines, one service, and an engine that is already run by people who know it.
//!
//! - `options`, `tls`, `connect`, `timeline`, `settings`, `schema`, `examine`: opening, and refusing what is not safe.
//! - `request`, `queue`, `gather`, `bells`, `tickets`, `pool`, `shared`: requests wait together and leave together.
//! - `session`, `worth`, `sql`, `params`, `rows`, `batch`, `exec`: one statement for many requests. `jobs`, `read`, `settled`: the rest.
//! - `waiters`, `listen`: how waiting callers learn of what others do. `moving`: how it moves.
//! - `within`, `within_sqlx`: one transaction with the caller's own data.

mod batch;
mod bells;
mod connect;
mod errors;
mod examine;
mod exec;
mod gather;
mod jobs;
mod likely;
pub mod limits;
mod listen;
mod moving;
mod options;
mod params;
mod pool;
mod purge;
mod queue;
mod read;
mod request;
mod rows;
mod schema;
mod session;
mod settings;
mod settled;
mod shared;
mod sql;
mod tickets;
mod timeline;
mod tls;
mod waiters;
mod within;
#[cfg(feature = "sqlx-postgres")]
mod within_sqlx;
mod worth;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use oncely_core::{
    Change, Counter, Created, Draft, Event, Filter, Gate, Import, IntentId, Liveness, LogQuery, LoggedEvent,
    Millis, Move, Namespace, Owner, Page, PurgeReport, Replaced, StateName, Store, StoreError,
    StoreErrorKind, StoreFuture, StoreHealth, Stored, Tally, ToolName, Version,
};
use tokio::sync::oneshot;

pub(crate) use examine::{check, is_absent};
pub use options::{Durability, PostgresOptions, Prepared, Tls};
pub use schema::{Migrated, migrate, migration_sql};
pub use within::PostgresWithin;
#[cfg(feature = "sqlx-postgres")]
pub use within_sqlx::SqlxWithin;

use crate::codec::pack_events;
use crate::process;
use crate::requests::{check_events, ready};
use limits::EVENTS_MAX;
use request::{Answer, Job, Request};
use shared::{Shared, stopped};

/// A ledger in a PostgreSQL database.
///
/// Dropping the last handle writes what was handed in, for at most a few seconds, and ends the connections.
pub struct PostgresStore {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl PostgresStore {
    /// Opens a ledger, and makes it if there is none and the role may.
    pub async fn open(options: PostgresOptions) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::new(options)?);
        let (opened, told) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("oncely-postgres".into())
            .spawn(move || pool::serve(&serving, opened))
            .map_err(|error| {
                let message =
                    format!("the ledger's thread could not be started: {error}; nothing was written");
                StoreError::before(StoreErrorKind::Unavailable, message)
            })?;
        let store = Self { shared, thread: Mutex::new(Some(thread)) };
        told.await.map_err(|_| stopped())??;
        Ok(store)
    }

    fn check_process(&self) -> Result<(), StoreError> {
        self.shared.opened_by.check()
    }

    fn ask<T: Send + 'static>(&self, request: Request, pick: fn(Answer) -> Option<T>) -> StoreFuture<'_, T> {
        let submitted = self.check_process().and_then(|()| self.shared.queue.submit(request));
        Box::pin(async move {
            let answer = submitted?.await.map_err(|_| stopped())??;
            pick(answer).ok_or_else(stopped)
        })
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|_| self.check_process().is_ok()) {
            self.shared.closing.notify_one();
            // A panic there has answered its callers by dropping them.
            let _ = thread.join();
        }
    }
}

impl Store for PostgresStore {
    fn describe(&self) -> String {
        self.shared.address.clone()
    }

    /// Never: another machine may have removed or changed the record a moment ago, and would not have told this one.
    fn peek(&self, _: &IntentId) -> Option<Stored> {
        None
    }

    /// To look for a record takes the server half as long as to try to make it.
    fn expects(&self, intent: &IntentId) -> bool {
        self.shared.likely.has(intent)
    }

    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        let events = match packed(&events) {
            Ok(events) => events,
            Err(error) => return ready(Err(error)),
        };
        self.ask(Request::Create { intent, draft: Box::new(draft), events }, |answer| match answer {
            Answer::Created(created) => Some(created),
            _ => None,
        })
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        self.ask(Request::Load { intent }, |answer| match answer {
            Answer::Loaded(stored) => Some(stored),
            _ => None,
        })
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        let events = match packed(&events) {
            Ok(events) => events,
            Err(error) => return ready(Err(error)),
        };
        let request = match change {
            Change::Put(draft) => Request::Put { intent, expected, draft, events },
            Change::Remove => Request::Job(Job::Remove { intent, expected, events }),
        };
        self.ask(request, |answer| match answer {
            Answer::Replaced(replaced) => Some(replaced),
            _ => None,
        })
    }

    fn note(&self, events: Vec<Event>) -> StoreFuture<'_, ()> {
        match packed(&events) {
            Ok(_) => self.ask(Request::Job(Job::Note { events }), done),
            Err(error) => ready(Err(error)),
        }
    }

    fn watch(&self, intent: IntentId, seen: Version) -> StoreFuture<'_, ()> {
        let woken = self.shared.watchers.register(intent, seen);
        Box::pin(async move {
            // A watch that ends without a word is a reason to look, too.
            let _ = woken.await;
            Ok(())
        })
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        process::liveness_across_hosts(owner)
    }

    fn owner(&self) -> Owner {
        process::this_process()
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        self.ask(Request::Job(Job::Now), |answer| match answer {
            Answer::Now(now) => Some(now),
            _ => None,
        })
    }

    /// Since the server that was started last was started or took over, and its clock has not been set far back.
    fn steady_since(&self) -> Millis {
        let door = &self.shared.door;
        Millis(door.steady_since.load(Ordering::Acquire)).max(door.clock.doubted())
    }

    fn scan(&self, filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>> {
        self.ask(Request::Job(Job::Scan { filter: Box::new(filter), from, limit }), |answer| match answer {
            Answer::Scanned(page) => Some(page),
            _ => None,
        })
    }

    fn log(&self, query: LogQuery) -> StoreFuture<'_, Page<LoggedEvent>> {
        self.ask(Request::Job(Job::Log(query)), |answer| match answer {
            Answer::Logged(page) => Some(page),
            _ => None,
        })
    }

    fn purge(&self, limit: usize) -> StoreFuture<'_, PurgeReport> {
        self.ask(Request::Job(Job::Purge { limit }), |answer| match answer {
            Answer::Purged(report) => Some(report),
            _ => None,
        })
    }

    fn tally(&self, namespace: &Namespace, tool: &ToolName, increments: &[(Counter, u64)]) {
        self.shared.tallies.add(namespace, tool, increments);
    }

    fn tallies(&self) -> StoreFuture<'_, Vec<Tally>> {
        let flushed = self.flush();
        Box::pin(async move {
            flushed.await?;
            let read = |answer| match answer {
                Answer::Tallies(tallies) => Some(tallies),
                _ => None,
            };
            self.ask(Request::Job(Job::Tallies), read).await
        })
    }

    fn census(&self) -> StoreFuture<'_, Vec<(StateName, u64)>> {
        self.ask(Request::Job(Job::Census), |answer| match answer {
            Answer::Census(census) => Some(census),
            _ => None,
        })
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        let tallies = self.shared.tallies.take();
        let counted = match tallies.is_empty() {
            true => None,
            false => Some(self.ask(Request::Job(Job::Count(tallies.clone())), done)),
        };
        Box::pin(async move {
            self.shared.queue.settled().await;
            let Some(counted) = counted else { return Ok(()) };
            counted.await.inspect_err(|error| {
                if error.wrote == oncely_core::Wrote::No {
                    self.shared.tallies.put_back(tallies);
                }
            })
        })
    }

    fn health(&self) -> StoreHealth {
        self.shared.health()
    }

    fn gate(&self) -> StoreFuture<'_, Gate> {
        self.ask(Request::Job(Job::Gate), the_gate)
    }

    fn turn_gate(&self, from: Gate, to: Gate) -> StoreFuture<'_, Gate> {
        self.ask(Request::Job(Job::TurnGate { from, to }), the_gate)
    }

    fn import(&self, under: Move, import: Import) -> StoreFuture<'_, ()> {
        self.ask(Request::Job(Job::Import { under, import }), done)
    }
}

/// Packs the events of one request.
fn packed(events: &[Event]) -> Result<Option<Vec<u8>>, StoreError> {
    check_events(events, EVENTS_MAX)?;
    Ok(if events.is_empty() { None } else { Some(pack_events(events)) })
}

fn the_gate(answer: Answer) -> Option<Gate> {
    match answer {
        Answer::Gate(gate) => Some(gate),
        _ => None,
    }
}

fn done(answer: Answer) -> Option<()> {
    matches!(answer, Answer::Done).then_some(())
}
