//! Requests, and the queue of those that wait for one server.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use oncely_core::{StoreError, StoreErrorKind, Wrote};
use tokio::sync::{Notify, oneshot};

use super::options::RedisServer;
use super::outstanding::Ticket;
use super::reach::Reach;
use super::resp::{Value, encode_parts};
use super::scripts::Script;

/// Most bytes of requests that wait for one server.
const QUEUED_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The answer to a request, for its caller.
pub(crate) type Answer = Result<Vec<Value>, StoreError>;

/// What is asked.
pub(crate) enum Asks {
    /// Commands, encoded, and how many replies they get.
    Plain {
        /// The commands.
        bytes: Vec<u8>,
        /// The replies.
        replies: usize,
    },
    /// Commands of which each reads one value. A key of another type is no refusal of them all: it is the answer in its
    /// place, and whoever reads it knows what it means there.
    Values {
        /// The commands.
        bytes: Vec<u8>,
        /// The replies.
        replies: usize,
    },
    /// One record's part of a script that takes several of one shard.
    Part(Part),
}

/// One record's part of a script: what it adds to the keys and to the arguments, encoded.
pub(crate) struct Part {
    /// Which script.
    pub(crate) script: Script,
    /// Its keys, of which the first is the record.
    keys: Vec<u8>,
    key_count: usize,
    arguments: Vec<u8>,
    argument_count: usize,
}

impl Part {
    pub(crate) fn new(script: Script, keys: &[&[u8]], arguments: &[&[u8]]) -> Self {
        Self {
            script,
            keys: encode_parts(keys),
            key_count: keys.len(),
            arguments: encode_parts(arguments),
            argument_count: arguments.len(),
        }
    }
}

/// What all parts of a shard have in common.
pub(crate) struct Terms<'a> {
    /// The script's name.
    pub(crate) name: &'a [u8],
    /// The shard's keys.
    pub(crate) keys: &'a [Vec<u8>],
    /// The ledger's arguments.
    pub(crate) arguments: &'a [Vec<u8>],
}

/// Appends one call of a script for several records.
pub(crate) fn encode_together(out: &mut Vec<u8>, terms: &Terms<'_>, parts: &[&Part]) {
    let keys = terms.keys.len() + parts.iter().map(|part| part.key_count).sum::<usize>();
    let arguments = terms.arguments.len() + parts.iter().map(|part| part.argument_count).sum::<usize>();
    out.extend_from_slice(format!("*{}\r\n", 3 + keys + arguments).as_bytes());
    out.extend_from_slice(&encode_parts(&[b"EVALSHA", terms.name, keys.to_string().as_bytes()]));
    let shared: Vec<&[u8]> = terms.keys.iter().map(Vec::as_slice).collect();
    out.extend_from_slice(&encode_parts(&shared));
    parts.iter().for_each(|part| out.extend_from_slice(&part.keys));
    let shared: Vec<&[u8]> = terms.arguments.iter().map(Vec::as_slice).collect();
    out.extend_from_slice(&encode_parts(&shared));
    parts.iter().for_each(|part| out.extend_from_slice(&part.arguments));
}

/// Whether a request may write, and who has to confirm that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// It only reads.
    No,
    /// As many replicas as every write needs.
    Yes,
    /// At least so many replicas.
    ConfirmedBy(u32),
}

impl Writes {
    /// Whether it may.
    pub(crate) fn may(self) -> bool {
        self != Self::No
    }

    /// How many replicas have to confirm it, where every write needs so many.
    pub(crate) fn replicas(self, every: u32) -> u32 {
        match self {
            Self::No => 0,
            Self::Yes => every,
            Self::ConfirmedBy(at_least) => every.max(at_least),
        }
    }
}

/// A request on its way.
pub(crate) struct Request {
    /// The shard that it concerns, which says where it goes.
    pub(crate) shard: u16,
    /// What is asked.
    pub(crate) asks: Asks,
    /// Whether it may write. Its one reply then is an array that begins with 1 if it did.
    pub(crate) writes: Writes,
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
        if self.writes.may() { Wrote::Maybe } else { Wrote::No }
    }

    /// About how many bytes it takes.
    pub(crate) fn len(&self) -> usize {
        match &self.asks {
            Asks::Plain { bytes, .. } | Asks::Values { bytes, .. } => bytes.len(),
            Asks::Part(part) => part.keys.len() + part.arguments.len(),
        }
    }

    /// Whether both can be parts of one call: the same script on two records of one shard.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let (Asks::Part(one), Asks::Part(two)) = (&self.asks, &other.asks) else { return false };
        self.shard == other.shard
            && one.script == two.script
            // A removal names one more key, which is hardly ever there: where a slot moves, others would wait with it.
            && one.key_count == two.key_count
            && one.keys != two.keys
            && !self.asking
            && !other.asking
    }
}

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
    /// How often something was taken.
    taken: u64,
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

    /// Wakes who takes what is queued: a connection that has nothing to do, or else one that is made for it.
    fn wake_one(&self, waiting: MutexGuard<'_, Waiting>) {
        let is_any_idle = waiting.idle > 0;
        drop(waiting);
        if is_any_idle { self.stir.notify_last() } else { self.more.notify_last() }
    }

    /// How often something was taken.
    pub(crate) fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// Takes what is queued, up to so many bytes, but at least one request. Nothing, if nothing is queued.
    pub(crate) fn take(&self, bytes_max: usize) -> Vec<Request> {
        self.take_from(self.lock(), bytes_max)
    }

    fn take_from(&self, mut waiting: MutexGuard<'_, Waiting>, bytes_max: usize) -> Vec<Request> {
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
        if !waiting.queue.is_empty() {
            self.wake_one(waiting);
        }
        batch
    }

    /// [`take`](Self::take) for a connection, when there is something. Nothing is lost if this is given up.
    pub(crate) async fn next(&self, bytes_max: usize) -> Vec<Request> {
        let mut idle = Idle { node: self, is_counted: false };
        loop {
            {
                let mut waiting = self.lock();
                idle.set(&mut waiting, false);
                if !waiting.queue.is_empty() {
                    return self.take_from(waiting, bytes_max);
                }
                idle.set(&mut waiting, true);
            }
            self.stir.notified().await;
        }
    }

    /// Returns when something is queued that no connection is there for. It stays there: while one more connection is made,
    /// another may have time for it.
    pub(crate) async fn wants_more(&self) {
        loop {
            {
                let waiting = self.lock();
                if !waiting.queue.is_empty() && waiting.idle == 0 {
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
            // It may have been woken for this, and does not come back for it.
            if !waiting.queue.is_empty() {
                self.node.wake_one(waiting);
            }
        }
    }
}
