//! Claims on their way to the store, and the attempts that this process is running.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_core::limits::{HEARTBEAT_MS, LEASE_MS, OPEN_CALLS_MAX};
use oncely_core::{AttemptToken, Record, StoreError, StoreErrorKind};

use crate::disown::{Sent, Unanswered};
use crate::engine::{Inner, Oncely};
use crate::error::Error;

/// The attempts that this process is running, whichever engine began them: what tells an attempt of ours that was
/// dropped from one that lives.
static LIVE: LazyLock<Mutex<HashSet<AttemptToken>>> = LazyLock::new(Mutex::default);
/// Attempts whose claim may have been written although the store answered with an error. Their effect was never
/// started, so a record that carries such a token is certain not to have happened.
/// With what was there before it.
static NEVER_STARTED: LazyLock<Mutex<HashMap<AttemptToken, Option<Arc<Record>>>>> =
    LazyLock::new(Mutex::default);
/// Most tokens remembered in [`NEVER_STARTED`]; beyond it such records are merely in doubt.
const NEVER_STARTED_MAX: usize = 100_000;
/// How long a claim is awaited. A ledger that is held up for longer, say by a stopped process, is unavailable. Its lease
/// counts from when it was written: one that is acknowledged later than this could lapse before its first heartbeat, and
/// somebody else could find it in doubt and check it before its effect has begun.
const STORE_PATIENCE: Duration = Duration::from_millis(LEASE_MS / 2);

const _: () =
    assert!(LEASE_MS / 2 + HEARTBEAT_MS < LEASE_MS, "the first heartbeat comes before the lease lapses");

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of the places for open effects; given back when dropped.
pub(crate) struct OpenPlace {
    inner: Arc<Inner>,
}

impl OpenPlace {
    /// Takes a place, if one is left.
    pub(crate) fn take(inner: &Arc<Inner>) -> Result<Self, Error> {
        let open = inner.open.fetch_add(1, Ordering::AcqRel);
        let place = Self { inner: inner.clone() };
        if open >= OPEN_CALLS_MAX { Err(Error::Overloaded { open }) } else { Ok(place) }
    }
}

impl Drop for OpenPlace {
    fn drop(&mut self) {
        if self.inner.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inner.closed.notify_waiters();
        }
    }
}

/// Counts an attempt that nobody attends while the ledger is told of it.
pub(crate) struct Disowned {
    inner: Arc<Inner>,
}

impl Disowned {
    pub(crate) fn count(inner: &Arc<Inner>) -> Self {
        inner.disowned.fetch_add(1, Ordering::AcqRel);
        Self { inner: inner.clone() }
    }
}

impl Drop for Disowned {
    fn drop(&mut self) {
        self.inner.disowned.fetch_sub(1, Ordering::AcqRel);
        self.inner.closed.notify_waiters();
    }
}

/// Counts a caller while it waits.
pub(crate) struct CountGuard<'a> {
    count: &'a AtomicUsize,
    pub(crate) before: usize,
}

impl<'a> CountGuard<'a> {
    pub(crate) fn enter(count: &'a AtomicUsize) -> Self {
        Self { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A claim on its way to the store. Dropped without an answer (the caller went away, or the store answered with an
/// error that proves nothing) it may be durable, or become so, although the effect was not started.
pub(crate) struct Claim {
    oncely: Oncely,
    /// What was sent, until it is answered.
    unanswered: Option<Unanswered>,
}

impl Claim {
    pub(crate) fn new(oncely: &Oncely, sent: &Sent) -> Self {
        let unanswered = Unanswered::of(sent);
        lock(&LIVE).insert(unanswered.token());
        Self { oncely: oncely.clone(), unanswered: Some(unanswered) }
    }

    /// A claim under a token that somebody outside chose: who may ask again and be told to act. It is never taken back
    /// here; only its lease, or its holder's word, ends it.
    pub(crate) fn held(oncely: &Oncely) -> Self {
        Self { oncely: oncely.clone(), unanswered: None }
    }

    /// The claim is durable: the attempt lives on.
    pub(crate) fn won(mut self) {
        self.unanswered = None;
    }

    /// The claim was certainly not written.
    pub(crate) fn lost(mut self) {
        if let Some(unanswered) = self.unanswered.take() {
            forget_live(unanswered.token());
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(unanswered) = self.unanswered.take() else { return };
        let mut tokens = lock(&NEVER_STARTED);
        if tokens.len() < NEVER_STARTED_MAX {
            tokens.insert(unanswered.token(), unanswered.over.as_ref().map(|seen| seen.record.clone()));
        }
        drop(tokens);
        forget_live(unanswered.token());
        self.oncely.take_back_in_background(unanswered);
    }
}

/// A claim that is not answered in time was not won: it may still be written, and is then taken back.
pub(crate) async fn bounded<T>(answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(STORE_PATIENCE, answer).await {
        Ok(answered) => answered,
        Err(_) => Err(StoreError::ambiguous(
            StoreErrorKind::Unavailable,
            format!("it has not answered for {} s; another process may hold it", STORE_PATIENCE.as_secs()),
        )),
    }
}

/// Whether this process runs the attempt.
pub(crate) fn is_live(token: AttemptToken) -> bool {
    lock(&LIVE).contains(&token)
}

/// What was there before an attempt of ours whose effect was certainly not started; `None`: this is not known to be one.
pub(crate) fn before_never_started(token: AttemptToken) -> Option<Option<Arc<Record>>> {
    lock(&NEVER_STARTED).get(&token).cloned()
}

/// The claim was taken back: nobody will meet it again.
pub(crate) fn forget_never_started(token: AttemptToken) {
    lock(&NEVER_STARTED).remove(&token);
}

/// The attempt is over, or never was.
pub(crate) fn forget_live(token: AttemptToken) {
    lock(&LIVE).remove(&token);
}

/// 128 random bits; without them nothing may run, for the token is what tells attempts apart.
pub(crate) fn new_token() -> Result<AttemptToken, Error> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        StoreError::before(StoreErrorKind::Unavailable, format!("the system gives no random numbers: {e}"))
    })?;
    Ok(AttemptToken(bytes))
}
