//! The ledger on Redis or Valkey, one server or a cluster, for many machines.
//!
//! - `options`, `connect`, `checks`, `head`, `inspect`: opening, and refusing what is not safe.
//! - `thread`, `router`, `slots`, `link`, `queue`, `drive`, `flight`, `telling`, `resp`, `outstanding`, `reach`: many callers, few connections, whole pipelines.
//! - `keys`, `value`, `scripts`, `calls`: what is stored, and how it changes. `clocks`, `unconfirmed`: what is
//!   believed of time, and of what was perhaps written.
//! - `merge`, `listing`, `log`, `upkeep`: reading over all shards, purging, counting.
//! - `watching`, `subscriber`: waiting for a change. `gate`, `moving`: how it moves.
//!
//! What holds at every moment:
//!
//! - A record, its events and its entries belong to one shard, whose keys lie in one slot, and are changed by one script:
//!   all or nothing. The script compares versions; rules are the machine's.
//! - A write is acknowledged when the script has won and, where replicas are to confirm, `WAIT` on the very connection has
//!   counted enough of them. Else the answer is "perhaps", the engine starts nothing, and this handle reads the record
//!   from then on only together with a write that is confirmed. What others read may not be confirmed yet; that is
//!   harmless. An end that is read is true whether it is lost or not; what runs is only waited
//!   for; and whatever is written on top of it is confirmed after it, since replicas follow in order. So who has written
//!   nothing is answered without waiting for replicas.
//! - Whether the ledger takes writes stands in the head of the shard, and every script that writes looks at it there.
//! - Nothing is read from replicas.
//! - A request that may have been carried out is never sent a second time.

mod calls;
mod checks;
mod clocks;
mod connect;
mod drive;
mod errors;
mod flight;
mod gate;
mod head;
mod inspect;
mod keys;
mod link;
mod listing;
mod log;
mod merge;
mod moving;
mod options;
mod outstanding;
mod queue;
mod reach;
mod resp;
mod router;
mod scripts;
mod slots;
mod subscriber;
mod telling;
mod thread;
mod unconfirmed;
mod upkeep;
mod value;
mod watching;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncely_core::name::hex;
use oncely_core::{
    Change, Counter, Created, Draft, Event, Filter, Gate, Import, IntentId, Liveness, LogQuery, LoggedEvent,
    Millis, Move, Namespace, Owner, Page, PurgeReport, Replaced, StateName, Store, StoreError,
    StoreErrorKind, StoreFuture, StoreHealth, Stored, Tally, ToolName, Version,
};
use tokio::runtime::Handle;

pub use inspect::{RedisConcern, RedisFinding, RedisReport, inspect};
pub use options::{RedisDurability, RedisKind, RedisOptions, RedisServer};

use crate::process;
use crate::requests::{Opener, check_events, ready};
use crate::tallies::Tallies;
use clocks::Clocks;
use connect::Dialer;
use keys::Keys;
use resp::command;
use router::Router;
use thread::IoThread;
use unconfirmed::Unconfirmed;
use upkeep::Counting;
use watching::Watching;

/// Most events in one write.
const EVENTS_MAX: usize = 128;
/// How long counters are gathered before they are written.
const COUNT_EVERY: Duration = Duration::from_millis(400);
/// How long the last handle waits for what was handed in.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// A ledger on Redis or Valkey.
///
/// Dropping the last handle writes what was handed in and ends its thread.
pub struct RedisStore {
    shared: Arc<Shared>,
    thread: Option<IoThread>,
}

/// What the calls of one ledger share.
struct Shared {
    /// The process that opened the ledger.
    opened_by: Opener,
    describe: String,
    router: Arc<Router>,
    runtime: Handle,
    keys: Keys,
    clocks: Clocks,
    unconfirmed: Unconfirmed,
    tallies: Tallies,
    /// Whether somebody is about to write the counters.
    counts: AtomicBool,
    counting: tokio::sync::Mutex<Counting>,
    /// Names this handle among those that add to the counters.
    handle: String,
    watching: Watching,
}

impl Shared {
    /// The clock of the first shard's server.
    async fn now(&self) -> Result<Millis, StoreError> {
        let asked = self.ask(0, &[command(&[b"TIME"])]);
        let place = asked.place;
        let replies = asked.replies().await?;
        self.time_of(place, replies.first().unwrap_or(&resp::Value::Nil))
    }

    /// A forked child has no thread that would send anything.
    fn check_process(&self) -> Result<(), StoreError> {
        self.opened_by.check()
    }

    fn check(&self, events: &[Event]) -> Result<(), StoreError> {
        check_events(events, EVENTS_MAX)?;
        self.check_process()
    }
}

impl RedisStore {
    /// Opens a ledger, and makes it if there is none.
    pub async fn open(options: RedisOptions) -> Result<Self, StoreError> {
        let options = options.checked()?;
        let (thread, runtime) = IoThread::start().map_err(|e| {
            let message = format!("the ledger's thread could not be started: {e}; nothing was written");
            StoreError::before(StoreErrorKind::Unavailable, message)
        })?;
        let on_thread = runtime.clone();
        let opening = runtime.spawn(async move { Shared::open(options, on_thread).await });
        let stopped = |_| StoreError::before(StoreErrorKind::Unavailable, "the ledger's thread has stopped");
        let shared = opening.await.map_err(stopped)??;
        Ok(Self { shared: Arc::new(shared), thread: Some(thread) })
    }
}

impl Shared {
    async fn open(options: RedisOptions, runtime: Handle) -> Result<Self, StoreError> {
        let (describe, look_every) = (options.describe(), options.look_every);
        let router = Router::find(Dialer::new(options)?, runtime.clone()).await?;
        let (head, keys) = head::open(&router).await?;
        router.set_ledger(head, keys.clone());
        let mut handle = [0_u8; 12];
        getrandom::fill(&mut handle).map_err(|e| {
            StoreError::before(
                StoreErrorKind::Unavailable,
                format!("the system gives no random numbers: {e}"),
            )
        })?;
        Ok(Self {
            opened_by: Opener::this(),
            describe,
            watching: Watching::start(&router, keys.clone(), &runtime, look_every),
            router,
            runtime,
            clocks: Clocks::new(keys.shards()),
            unconfirmed: Unconfirmed::default(),
            keys,
            tallies: Tallies::default(),
            counts: AtomicBool::new(false),
            counting: tokio::sync::Mutex::default(),
            handle: hex(&handle),
        })
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            // The thread is the parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        if !self.shared.tallies.is_empty() {
            let shared = Arc::clone(&self.shared);
            let ticket = self.shared.router.outstanding.enter();
            self.shared.runtime.spawn(async move {
                // Counters that cannot be written now are lost with this process.
                let _ = shared.write_tallies().await;
                drop(ticket);
            });
        }
        self.shared.router.outstanding.wait(CLOSE_PATIENCE);
    }
}

impl Store for RedisStore {
    fn describe(&self) -> String {
        self.shared.describe.clone()
    }

    /// Nothing is known to be current without asking the server.
    fn peek(&self, _: &IntentId) -> Option<Stored> {
        None
    }

    fn expects(&self, _: &IntentId) -> bool {
        false
    }

    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        if let Err(error) = self.shared.check(&events) {
            return ready(Err(error));
        }
        let asked = self.shared.ask_create(&intent, &draft, &events);
        Box::pin(async move { self.shared.created(asked, intent, draft).await })
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        if let Err(error) = self.shared.check_process() {
            return ready(Err(error));
        }
        let asked = self.shared.ask_load(&intent);
        Box::pin(async move { self.shared.loaded(asked, intent).await })
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        if let Err(error) = self.shared.check(&events) {
            return ready(Err(error));
        }
        let asked = self.shared.ask_replace(&intent, expected, &change, &events);
        Box::pin(async move { self.shared.replaced(asked, intent, change).await })
    }

    fn note(&self, events: Vec<Event>) -> StoreFuture<'_, ()> {
        if let Err(error) = self.shared.check(&events) {
            return ready(Err(error));
        }
        let mut by_intent: Vec<(IntentId, Vec<Event>)> = Vec::new();
        let mut places = HashMap::new();
        for event in events {
            let at = *places.entry(event.intent).or_insert(by_intent.len());
            match by_intent.get_mut(at) {
                Some((_, of_it)) => of_it.push(event),
                None => by_intent.push((event.intent, vec![event])),
            }
        }
        let asked: Vec<_> =
            by_intent.iter().map(|(intent, events)| self.shared.ask_note(intent, events)).collect();
        Box::pin(async move {
            for asked in asked {
                asked.replies().await?;
            }
            Ok(())
        })
    }

    fn watch(&self, intent: IntentId, seen: Version) -> StoreFuture<'_, ()> {
        if let Err(error) = self.shared.check_process() {
            return ready(Err(error));
        }
        let woken = self.shared.watching.watch(intent, seen);
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
        Box::pin(self.shared.now())
    }

    /// Since the server that was started last was started, and no clock has been set far back.
    fn steady_since(&self) -> Millis {
        self.shared.router.started_at().max(self.shared.clocks.doubted())
    }

    fn scan(&self, filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>> {
        Box::pin(self.shared.scan(filter, from, limit))
    }

    fn log(&self, query: LogQuery) -> StoreFuture<'_, Page<LoggedEvent>> {
        Box::pin(self.shared.log(query))
    }

    fn purge(&self, limit: usize) -> StoreFuture<'_, PurgeReport> {
        Box::pin(self.shared.purge(limit))
    }

    fn tally(&self, namespace: &Namespace, tool: &ToolName, increments: &[(Counter, u64)]) {
        self.shared.tallies.add(namespace, tool, increments);
        if self.shared.counts.swap(true, Ordering::AcqRel) || self.shared.check_process().is_err() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.shared.runtime.spawn(async move {
            tokio::time::sleep(COUNT_EVERY).await;
            // Whoever adds from here on starts the next round; what cannot be written now is written with it.
            shared.counts.store(false, Ordering::Release);
            let _ = shared.write_tallies().await;
        });
    }

    fn tallies(&self) -> StoreFuture<'_, Vec<Tally>> {
        Box::pin(async move {
            self.shared.check_process()?;
            self.shared.write_tallies().await?;
            self.shared.read_tallies().await
        })
    }

    fn census(&self) -> StoreFuture<'_, Vec<(StateName, u64)>> {
        Box::pin(self.shared.census())
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        let before = self.shared.router.outstanding.all_before_now();
        Box::pin(async move {
            self.shared.check_process()?;
            // Nothing under way keeps a flush waiting for ever: every request has its time.
            let _ = before.await;
            self.shared.write_tallies().await
        })
    }

    fn health(&self) -> StoreHealth {
        self.shared.router.health()
    }

    fn gate(&self) -> StoreFuture<'_, Gate> {
        Box::pin(self.shared.gate())
    }

    fn turn_gate(&self, from: Gate, to: Gate) -> StoreFuture<'_, Gate> {
        Box::pin(self.shared.turn_gate(from, to))
    }

    fn import(&self, under: Move, import: Import) -> StoreFuture<'_, ()> {
        Box::pin(self.shared.import(under, import))
    }
}
