//! Requests, and the queue of those that wait for one server.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use oncely_core::{StoreError, StoreErrorKind, Wrote};
use tokio::sync::{Notify, oneshot};

use super::options::RedisServer;
use super::outstanding::Ticket;
use super::resp::Value;

/// The answer to a request, for its caller.
pub(crate) type Answer = Result<Vec<Value>, StoreError>;

/// A request on its way.
pub(crate) struct Request {
    /// The shard that it concerns, which says where it goes.
    pub(crate) shard: u16,
    /// Its commands, encoded.
    pub(crate) bytes: Vec<u8>,
    /// How many replies they get.
    pub(crate) replies: usize,
    /// Whether it may write. Its one reply then is an array that begins with 1 if it did.
    pub(crate) writes: bool,
    /// How often it was sent somewhere else.
    pub(crate) hops: u32,
    /// Whether the next server is to be told that it was sent there for once.
    pub(crate) asking: bool,
    pub(crate) caller: oneshot::Sender<Answer>,
    pub(crate) ticket: Ticket,
}

impl Request {
    /// Answers the caller. If it has gone away, nobody hears it.
    pub(crate) fn answer(self, answer: Answer) {
        // Before the caller can know: a flush that follows must not wait for this.
        drop(self.ticket);
        let _ = self.caller.send(answer);
    }

    /// What is known of it once it was sent.
    pub(crate) fn may_have_written(&self) -> Wrote {
        if self.writes { Wrote::Maybe } else { Wrote::No }
    }
}

/// What waits for one server.
pub(crate) struct Node {
    pub(crate) server: RedisServer,
    queue: Mutex<VecDeque<Request>>,
    queued: AtomicUsize,
    stir: Notify,
}

impl Node {
    pub(crate) fn new(server: RedisServer) -> Self {
        Self { server, queue: Mutex::default(), queued: AtomicUsize::new(0), stir: Notify::new() }
    }

    /// Queues a request, unless too much waits already.
    pub(crate) fn push(&self, request: Request, most: usize) {
        if self.queued.fetch_add(1, Ordering::Relaxed) >= most {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            let message =
                format!("{most} requests wait for {} already; nothing was written; try again", self.server);
            return request.answer(Err(StoreError::before(StoreErrorKind::Overloaded, message)));
        }
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(request);
        self.stir.notify_one();
    }

    /// Takes what is queued, up to so many bytes, but at least one request. Nothing, if nothing is queued.
    pub(crate) fn take(&self, bytes_max: usize) -> Vec<Request> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut count, mut bytes) = (0, 0);
        for request in queue.iter() {
            bytes += request.bytes.len();
            if count > 0 && bytes > bytes_max {
                break;
            }
            count += 1;
        }
        let batch: Vec<Request> = queue.drain(..count).collect();
        let more = !queue.is_empty();
        drop(queue);
        self.queued.fetch_sub(batch.len(), Ordering::Relaxed);
        if more {
            self.stir.notify_one();
        }
        batch
    }

    /// [`take`](Self::take), when there is something. Nothing is lost if this is given up.
    pub(crate) async fn next(&self, bytes_max: usize) -> Vec<Request> {
        loop {
            let batch = self.take(bytes_max);
            if !batch.is_empty() {
                return batch;
            }
            self.stir.notified().await;
        }
    }
}
