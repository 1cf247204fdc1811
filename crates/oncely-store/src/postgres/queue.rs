//! What callers ask for, waiting for a connection. Requests of one kind that wait together leave together, as one
//! statement with one commit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncely_core::{StoreError, StoreErrorKind};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::bells::{Bell, Bells};
use super::gather::{Batch, gather};
use super::limits::QUEUE_BYTES_MAX;
use super::request::{Answer, LANES, Lane, Request};
use super::tickets::{Ticket, Tickets};
use crate::courier;

/// What a request is answered with, and the way to who made it.
pub(crate) type Answered = Result<Answer, StoreError>;
pub(crate) type Reply = courier::Reply<Answered>;

/// A request and whom to answer.
pub(crate) struct Op {
    pub(crate) request: Request,
    pub(crate) reply: Reply,
    asked: Instant,
    pub(crate) bytes: usize,
    _ticket: Ticket,
}

/// The waiting requests.
pub(crate) struct Queue {
    state: Mutex<State>,
    tickets: Arc<Tickets>,
    /// Rung when one more connection would help.
    pub(crate) grow: Notify,
    queue_max: usize,
    pool: usize,
}

#[derive(Default)]
struct State {
    lanes: [VecDeque<Op>; 4],
    active: [usize; 4],
    /// Whether the last write took no longer than the server's processor needs for it.
    quick: bool,
    bytes: usize,
    bells: Bells,
    workers: usize,
    /// Until when nobody is hired besides those that work.
    enough_until: Option<Instant>,
    closed: bool,
}

impl State {
    fn queued(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    /// Whether one more statement of a kind should leave now. While one is under way, waiting a little makes the next one
    /// larger, and a larger one costs little more. While writes are quick, both kinds count together: then it is the
    /// server's processor that they wait for, and two at once get in each other's way. Where it is the network, a disk or a
    /// standby, a begin is no reason for an end to wait.
    fn may_start(&self, lane: Lane) -> bool {
        let alike: &[Lane] = match lane {
            Lane::Create | Lane::Put if self.quick => &[Lane::Create, Lane::Put],
            Lane::Create | Lane::Put | Lane::Load => &[lane],
            Lane::Job => &[],
        };
        // Both are counted alike: else many begins could keep a few ends waiting for ever.
        let waiting: usize = alike.iter().map(|lane| self.lanes[*lane as usize].len()).sum();
        let active: usize = alike.iter().map(|lane| self.active[*lane as usize]).sum();
        !self.lanes[lane as usize].is_empty() && waiting >= WORTHWHILE * active
    }

    /// Whether one more worker may be hired, of so many at most. Who is alone is always needed.
    fn may_hire(&self, pool: usize) -> bool {
        let is_enough = self.workers > 0 && self.enough_until.is_some_and(|until| Instant::now() < until);
        self.workers < pool && !is_enough
    }

    /// The kind whose first request has waited longest, of those that may start.
    fn next_lane(&self) -> Option<Lane> {
        let waiting = LANES.into_iter().filter(|lane| self.may_start(*lane));
        waiting.min_by_key(|lane| self.lanes[*lane as usize].front().map(|op| op.asked))
    }
}

/// One more statement for each so many requests that wait for every one under way.
const WORTHWHILE: usize = 32;
/// A statement that takes longer, and so much for each of its writes, waits for something else than a processor.
const QUICK: Duration = Duration::from_millis(1);
const QUICK_EACH: Duration = Duration::from_micros(50);

impl Queue {
    pub(crate) fn new(queue_max: usize, pool: usize) -> Self {
        Self { state: Mutex::default(), tickets: Arc::default(), grow: Notify::new(), queue_max, pool }
    }

    /// Takes a request in, at once.
    pub(crate) fn submit(&self, request: Request) -> Result<oneshot::Receiver<Answered>, StoreError> {
        let (reply, answer) = Reply::homeward();
        let (lane, bytes) = (request.lane(), request.bytes());
        let mut state = self.lock();
        if state.closed {
            let message = "the ledger is closed; nothing was written";
            return Err(StoreError::before(StoreErrorKind::Unavailable, message));
        }
        let queued = state.queued();
        if queued >= self.queue_max || state.bytes + bytes > QUEUE_BYTES_MAX {
            let message = format!("{queued} requests wait already; nothing was written; try again");
            return Err(StoreError::before(StoreErrorKind::Overloaded, message));
        }
        state.bytes += bytes;
        let op = Op { request, reply, asked: Instant::now(), bytes, _ticket: Tickets::draw(&self.tickets) };
        state.lanes[lane as usize].push_back(op);
        let start = state.may_start(lane);
        self.wake_one(state, start);
        Ok(answer)
    }

    /// A statement for so many requests is over, or has taken long enough.
    pub(crate) fn finish(&self, lane: Lane, requests: usize, took: Duration) {
        let mut state = self.lock();
        state.active[lane as usize] -= 1;
        if matches!(lane, Lane::Create | Lane::Put) {
            let each = QUICK_EACH.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
            state.quick = took <= QUICK + each;
        }
    }

    /// Wakes somebody for what may start: who was woken for it, or was at it, may not take it.
    pub(crate) fn nudge(&self) {
        let mut state = self.lock();
        state.bells.looked();
        let start = state.next_lane().is_some();
        self.wake_one(state, start);
    }

    fn wake_one(&self, mut state: MutexGuard<'_, State>, start: bool) {
        if !start || state.bells.is_rung() {
            return;
        }
        match state.bells.next() {
            Some(bell) => {
                drop(state);
                bell.notify_one();
            }
            None if state.may_hire(self.pool) => {
                drop(state);
                self.grow.notify_one();
            }
            None => {}
        }
    }

    /// A worker's bell.
    pub(crate) fn bell(&self) -> Bell {
        self.lock().bells.hand_out()
    }

    /// The next requests to run; else the worker's bell is hung up, to be rung when there are some.
    pub(crate) fn take_or_park(&self, bell: &Bell) -> Option<Batch> {
        let mut state = self.lock();
        state.bells.looked();
        let Some(lane) = state.next_lane() else {
            state.bells.hang(bell);
            return None;
        };
        let (batch, gone) = gather(&mut state.lanes[lane as usize], lane);
        state.bytes -= gone;
        state.active[lane as usize] += 1;
        // What is left may be worth one more.
        let start = state.next_lane().is_some();
        self.wake_one(state, start);
        Some(batch)
    }

    /// The worker that opened the ledger.
    pub(crate) fn hire_first(&self) {
        self.lock().workers += 1;
    }

    /// One more worker, if there may be.
    pub(crate) fn hire(&self) -> bool {
        let mut state = self.lock();
        let hired = state.may_hire(self.pool) && state.next_lane().is_some();
        state.workers += usize::from(hired);
        hired
    }

    /// A worker could not connect where others are connected: there is no room for more of them just now.
    pub(crate) fn hire_nobody_for(&self, pause: Duration) {
        self.lock().enough_until = Some(Instant::now() + pause);
    }

    /// A worker goes, unless it is needed.
    pub(crate) fn retire(&self, unless: Unless) -> bool {
        let mut state = self.lock();
        if unless == Unless::Needed && state.queued() > 0 {
            return false;
        }
        state.workers -= 1;
        state.bells.looked();
        // Somebody else sees to what it was woken for.
        let start = state.next_lane().is_some();
        self.wake_one(state, start);
        true
    }

    /// Answers those who have waited for too long, and everybody if the reason will not go away.
    pub(crate) fn fail(&self, older_than: Duration, error: &StoreError) {
        let mut failed = Vec::new();
        {
            let mut state = self.lock();
            let now = Instant::now();
            for lane in LANES {
                let waiting = std::mem::take(&mut state.lanes[lane as usize]);
                let (old, young) =
                    waiting.into_iter().partition(|op| now.duration_since(op.asked) >= older_than);
                state.lanes[lane as usize] = young;
                failed.extend::<VecDeque<Op>>(old);
            }
            state.bytes -= failed.iter().map(|op| op.bytes).sum::<usize>();
        }
        for op in failed {
            op.reply.send(Err(error.clone()));
        }
    }

    /// No more requests are taken in.
    pub(crate) fn close(&self) {
        let idle = {
            let mut state = self.lock();
            state.closed = true;
            state.bells.all()
        };
        for bell in idle {
            bell.notify_one();
        }
        self.grow.notify_one();
    }

    /// Whether nothing will ever wait here again.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.lock();
        state.closed && state.queued() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().queued()
    }

    /// Returns when everything that was asked for before has been done, and its answers are on their way.
    pub(crate) async fn settled(&self) {
        self.tickets.all_back().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a worker may go although there is work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unless {
    Needed,
    Never,
}

#[cfg(test)]
mod tests;
