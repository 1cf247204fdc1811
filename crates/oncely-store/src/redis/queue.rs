//! The queue of what waits for one server, and who takes from it.
//!
//! While something is under way, waiting a little makes the next call larger, and the server spends little more on a larger
//! one: it parses, runs and syncs once. So one more pipeline is sent at once only if enough waits for it. A caller that is
//! alone never waits, and what takes long holds up nobody.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncely_core::{StoreError, StoreErrorKind};
use tokio::sync::Notify;

use super::link::Request;
use super::options::RedisServer;
use super::reach::Reach;

/// Most bytes of requests that wait for one server.
const QUEUED_BYTES_MAX: usize = 512 * 1024 * 1024;
/// One more pipeline for each so many requests that wait for every one under way.
const WORTHWHILE: usize = 16;

/// What waits for one server.
pub(crate) struct Node {
    pub(crate) server: RedisServer,
    pub(crate) reach: Reach,
    waiting: Mutex<Waiting>,
    queued: AtomicUsize,
    queued_bytes: AtomicUsize,
    /// Wakes a connection that has nothing to do: the one that had something last, so that few are kept busy.
    stir: Notify,
    /// Asks for one more connection.
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Request>,
    /// Connections that wait for something to do.
    idle: usize,
    /// Pipelines that are under way, and have not taken long yet.
    under_way: usize,
    /// How often something was taken.
    taken: u64,
}

impl Waiting {
    /// Whether one more pipeline should leave now.
    fn may_start(&self) -> bool {
        !self.queue.is_empty() && self.queue.len() >= WORTHWHILE * self.under_way
    }
}

/// A pipeline that is under way, for as long as it is waited for.
pub(crate) struct UnderWay(Arc<Node>);

impl Drop for UnderWay {
    /// Whoever drops it takes what may start now, or has others woken.
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

impl Node {
    pub(crate) fn new(server: RedisServer) -> Self {
        Self {
            server,
            reach: Reach::default(),
            waiting: Mutex::default(),
            queued: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            stir: Notify::new(),
            more: Notify::new(),
        }
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Queues a request, unless too much waits already.
    pub(crate) fn push(&self, request: Request, most: usize) {
        let bytes = request.len();
        let before = self.queued.fetch_add(1, Ordering::Relaxed);
        let bytes_before = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before >= most || bytes_before + bytes > QUEUED_BYTES_MAX {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let message = format!(
                "{before} requests ({bytes_before} bytes) wait for {} already; nothing was written; try again",
                self.server
            );
            return request.answer(Err(StoreError::before(StoreErrorKind::Overloaded, message)));
        }
        let mut waiting = self.lock();
        waiting.queue.push_back(request);
        self.wake_one(waiting);
    }

    /// Has what may start taken: by a connection that has nothing to do, or else by one that is made for it.
    fn wake_one(&self, waiting: MutexGuard<'_, Waiting>) {
        let (may_start, is_any_idle) = (waiting.may_start(), waiting.idle > 0);
        drop(waiting);
        match (may_start, is_any_idle) {
            (true, true) => self.stir.notify_last(),
            (true, false) => self.more.notify_last(),
            (false, _) => {}
        }
    }

    /// Has others take what may start: whoever was at it does not.
    pub(crate) fn nudge(&self) {
        self.wake_one(self.lock());
    }

    /// How often something was taken.
    pub(crate) fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// Takes what is queued, up to so many bytes, but at least one request. Nothing, if nothing is queued.
    pub(crate) fn take(&self, bytes_max: usize) -> Vec<Request> {
        self.take_from(&mut self.lock(), bytes_max)
    }

    fn take_from(&self, waiting: &mut Waiting, bytes_max: usize) -> Vec<Request> {
        let (mut count, mut bytes) = (0, 0);
        for request in &waiting.queue {
            if count > 0 && bytes + request.len() > bytes_max {
                break;
            }
            bytes += request.len();
            count += 1;
        }
        let batch: Vec<Request> = waiting.queue.drain(..count).collect();
        waiting.taken += 1;
        self.queued.fetch_sub(batch.len(), Ordering::Relaxed);
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        batch
    }

    /// The next pipeline for a connection, when one may start. Nothing is lost if this is given up.
    pub(crate) async fn next(self: &Arc<Self>, bytes_max: usize) -> (Vec<Request>, UnderWay) {
        let mut idle = Idle { node: self, is_counted: false };
        loop {
            {
                let mut waiting = self.lock();
                idle.set(&mut waiting, false);
                if waiting.may_start() {
                    let batch = self.take_from(&mut waiting, bytes_max);
                    waiting.under_way += 1;
                    // What is left may be worth one more.
                    self.wake_one(waiting);
                    return (batch, UnderWay(Arc::clone(self)));
                }
                idle.set(&mut waiting, true);
            }
            self.stir.notified().await;
        }
    }

    /// Returns when something may start that no connection is there for. It stays queued: while one more connection is made,
    /// another may have time for it.
    pub(crate) async fn wants_more(&self) {
        loop {
            {
                let waiting = self.lock();
                if waiting.may_start() && waiting.idle == 0 {
                    return;
                }
            }
            self.more.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that waits for something to do, as long as it is counted.
struct Idle<'a> {
    node: &'a Node,
    is_counted: bool,
}

impl Idle<'_> {
    fn set(&mut self, waiting: &mut Waiting, is_idle: bool) {
        waiting.idle = waiting.idle + usize::from(is_idle) - usize::from(self.is_counted);
        self.is_counted = is_idle;
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            let mut waiting = self.node.lock();
            self.set(&mut waiting, false);
            // It may have been woken for what is there, and need not come back for it.
            self.node.wake_one(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::{Node, UnderWay, WORTHWHILE};
    use crate::redis::link::{Asks, Request, Writes};
    use crate::redis::options::server;
    use crate::redis::outstanding::Outstanding;

    fn queue(node: &Node, requests: usize) {
        for _ in 0..requests {
            let asks = Asks::Plain { bytes: vec![0; 100], replies: 1 };
            let ticket = Arc::new(Outstanding::default()).enter();
            let caller = crate::courier::Reply::homeward().0;
            let (writes, asking) = (Writes::No, false);
            node.push(Request { shard: 0, asks, writes, hops: 0, asking, caller, ticket }, 1_000);
        }
    }

    /// How many requests leave now, if any.
    fn leave(node: &Arc<Node>) -> Option<(usize, UnderWay)> {
        let next = std::pin::pin!(node.next(1_000_000));
        match next.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready((batch, under_way)) => Some((batch.len(), under_way)),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_is_alone_leaves_at_once_and_others_when_enough_wait_or_nothing_is_under_way() {
        let node = Arc::new(Node::new(server("127.0.0.1:6379").unwrap()));
        queue(&node, 1);
        let (alone, first) = leave(&node).unwrap();
        assert_eq!(alone, 1);
        queue(&node, WORTHWHILE - 1);
        assert!(leave(&node).is_none(), "a pipeline of few was sent beside another");
        queue(&node, 1);
        let (many, second) = leave(&node).unwrap();
        assert_eq!(many, WORTHWHILE);
        queue(&node, WORTHWHILE);
        assert!(leave(&node).is_none(), "two are under way");
        drop(first);
        let (rest, third) = leave(&node).unwrap();
        assert_eq!(rest, WORTHWHILE);
        queue(&node, 1);
        drop((second, third));
        assert_eq!(leave(&node).map(|(rest, _)| rest), Some(1), "nothing is under way, and it waits");
        assert_eq!(node.lock().idle, 0);
    }
}
