//! What the tasks of one ledger share: the way to the server, the queue, the clock, and how they are doing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use oncely_core::{Link as Reached, Millis, StoreError, StoreErrorKind, StoreHealth};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connect::{Door, Link};
use super::likely::Likely;
use super::options::PostgresOptions;
use super::queue::Queue;
use super::request::{Answer, Job, Request};
use super::rows::Half;
use super::session::{Names, Session};
use super::settled::Settled;
use super::sql::Statements;
use super::waiters::Waiters;
use crate::leap::Asked;
use crate::requests::Opener;
use crate::tallies::Tallies;

/// What the tasks of one ledger share.
pub(crate) struct Shared {
    /// The process that opened the ledger.
    pub(crate) opened_by: Opener,
    pub(crate) address: String,
    /// The channel of messages between machines.
    pub(crate) channel: String,
    pub(crate) door: Door,
    /// Which ledger was opened.
    pub(crate) ledger: OnceLock<Half>,
    /// For connections that lead to one server, and for those that may come to lead to another.
    statements: [Arc<Statements>; 2],
    pub(crate) names: Arc<Names>,
    pub(crate) queue: Queue,
    pub(crate) watchers: Waiters,
    pub(crate) likely: Likely,
    pub(crate) settled: Settled,
    pub(crate) tallies: Tallies,
    pub(crate) connected: AtomicUsize,
    pub(crate) reconnects: AtomicU64,
    pub(crate) refused: Mutex<Option<StoreError>>,
    /// Since when there is no connection.
    lost_at: Mutex<Option<Instant>>,
    pub(crate) closing: Notify,
    /// Held by the one that looks for a server that has taken over.
    pub(crate) scouting: tokio::sync::Mutex<()>,
    /// Rung when somebody waits for the first time.
    pub(crate) listen: Notify,
}

impl Shared {
    pub(crate) fn new(options: PostgresOptions) -> Result<Self, StoreError> {
        Ok(Self {
            opened_by: Opener::this(),
            address: options.describe(),
            channel: channel(&options.schema),
            ledger: OnceLock::new(),
            statements: [false, true].map(|told| Arc::new(Statements::new(&options.schema, told))),
            names: Arc::default(),
            queue: Queue::new(options.queue_max, options.pool),
            watchers: Waiters::new(options.look_every),
            door: Door::new(options)?,
            likely: Likely::default(),
            settled: Settled::default(),
            tallies: Tallies::default(),
            connected: AtomicUsize::new(0),
            reconnects: AtomicU64::new(0),
            refused: Mutex::new(None),
            lost_at: Mutex::new(None),
            closing: Notify::new(),
            scouting: tokio::sync::Mutex::default(),
            listen: Notify::new(),
        })
    }

    pub(crate) fn session(&self, link: Link) -> Session {
        let told = !link.server.is_ours_alone && link.server.born.is_some();
        let statements = Arc::clone(&self.statements[usize::from(told)]);
        Session::new(link, statements, Arc::clone(&self.names), &self.door)
    }

    /// The newest time rightly seen, below which no stamp may fall.
    pub(crate) fn floor(&self) -> i64 {
        i64::try_from(self.door.clock.newest().0).unwrap_or(i64::MAX)
    }

    /// Takes note of a time that the server told, and answers by which time records are judged.
    pub(crate) fn judged(&self, now: Millis, asked: Asked) -> Result<Millis, StoreError> {
        self.door.clock.judged(now, asked).map_err(|leapt| {
            let message = leapt.text(&format!("the server of {}", self.address));
            StoreError::before(StoreErrorKind::Unavailable, message)
        })
    }

    /// Tells other machines that records have changed for which somebody waits.
    pub(crate) fn tell_others(&self, heads: Vec<Half>) {
        if !heads.is_empty() {
            // If there is no room for it, those who wait find out by themselves.
            let _ = self.queue.submit(Request::Job(Job::Tell { heads }));
        }
    }

    /// Counts a connection in.
    pub(crate) fn gained(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
        *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Counts it out.
    pub(crate) fn lost(&self) {
        if self.connected.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
            *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    /// How the way to the server is.
    pub(crate) fn health(&self) -> StoreHealth {
        let connected = self.connected.load(Ordering::Relaxed);
        let lost_at = *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner);
        let link = match lost_at.filter(|_| connected == 0) {
            None => Reached::Connected,
            Some(at) => {
                let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let closed =
                    || StoreError::before(StoreErrorKind::Unavailable, "the last connection was closed");
                Reached::lost(&refused.unwrap_or_else(closed), at.elapsed())
            }
        };
        StoreHealth {
            link,
            connected,
            reconnects: self.reconnects.load(Ordering::Relaxed),
            queued: self.queue.len(),
            queue_max: self.door.options.queue_max,
            hears: self.watchers.hears(),
        }
    }

    /// Remembers why there is no connection.
    pub(crate) fn refuse(&self, error: StoreError) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Why a request that waited for too long was not served.
    pub(crate) fn unreachable(&self) -> StoreError {
        let seconds = self.door.options.wait.as_secs();
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match refused.filter(|_| self.connected.load(Ordering::Relaxed) == 0) {
            Some(error) => error,
            None => StoreError::before(
                StoreErrorKind::Overloaded,
                format!(
                    "the ledger {} had no connection free for {seconds} s; nothing was written; try again",
                    self.address
                ),
            ),
        }
    }

    pub(crate) async fn ask_job(&self, job: Job) -> Result<Answer, StoreError> {
        self.queue.submit(Request::Job(job))?.await.map_err(|_| stopped())?
    }
}

/// The channel of a ledger's messages; a name of ours in a namespace that is the whole database's.
fn channel(schema: &str) -> String {
    let mut name = format!("oncely:{schema}");
    let mut end = name.len().min(63);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

/// The thread answers or dies: if it died, it is not known how far it came.
pub(crate) fn stopped() -> StoreError {
    StoreError::ambiguous(
        StoreErrorKind::Unavailable,
        "the ledger was closed before it answered; it is not known whether the write took place",
    )
}
