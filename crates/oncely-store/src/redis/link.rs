//! One connection and what drives it: it takes whatever is queued for its server, sends it as one pipeline with at most
//! one `WAIT` behind it, reads all answers, and only then tells the callers.
//!
//! Answers belong to requests by their order on this connection and by nothing else. A caller that goes away leaves its
//! request where it is: the answer is read and dropped. A connection that broke, or was given up half-way, is never used
//! again. So no caller can be handed another one's answer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncely_core::{StoreError, StoreErrorKind, Wrote};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connect::Wire;
use super::errors::{Broken, Redirect, cut_off, odd, redirect, refused};
use super::options::RedisServer;
use super::outstanding::Ticket;
use super::resp::{Value, command};
use super::router::Router;

/// Most requests in one pipeline.
const BATCH_MAX: usize = 512;
/// Most bytes in one pipeline, unless a single request is larger.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// First pause after a failed connection, doubled up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(1);

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

    fn may_have_written(&self) -> Wrote {
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

    /// Takes what is queued, up to the size of a pipeline.
    fn take(&self) -> Vec<Request> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut count, mut bytes) = (0, 0);
        for request in queue.iter().take(BATCH_MAX) {
            bytes += request.bytes.len();
            if count > 0 && bytes > BATCH_BYTES_MAX {
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

    async fn next(&self) -> Vec<Request> {
        loop {
            let batch = self.take();
            if !batch.is_empty() {
                return batch;
            }
            self.stir.notified().await;
        }
    }
}

/// Drives one connection for as long as the ledger is open.
pub(crate) async fn drive(node: Arc<Node>, router: Arc<Router>) {
    let mut wire: Option<Wire> = None;
    let mut pause = PAUSE_FIRST;
    let mut not_before = Instant::now();
    loop {
        let batch = match &mut wire {
            Some(open) => tokio::select! {
                biased;
                // Closed while nothing was asked: the next request must not be sent into the void.
                _ = open.fails_by_itself() => { wire = None; continue; }
                batch = node.next() => batch,
            },
            None => node.next().await,
        };
        let open = match wire.take() {
            Some(open) => open,
            None => {
                sleep_until(not_before).await;
                match router.connect(&node.server).await {
                    Ok(open) => {
                        pause = PAUSE_FIRST;
                        open
                    }
                    Err(error) => {
                        not_before = Instant::now() + pause;
                        pause = (pause * 2).min(PAUSE_LAST);
                        router.unreached(batch, &error);
                        continue;
                    }
                }
            }
        };
        wire = exchange(open, batch, &node.server, &router).await;
    }
}

/// Sends a pipeline and answers its callers. Gives the connection back if it is still good.
async fn exchange(
    mut wire: Wire,
    batch: Vec<Request>,
    server: &RedisServer,
    router: &Arc<Router>,
) -> Option<Wire> {
    let options = &router.dialer.options;
    let replicas = if batch.iter().any(|request| request.writes) { router.replicas() } else { 0 };
    let limit = options.timeout + if replicas > 0 { options.wait_timeout } else { Duration::ZERO };
    let deadline = Instant::now() + limit;
    let pipeline = pipeline(&batch, replicas, options.wait_timeout);
    let sent = timeout_at(deadline, wire.send(&pipeline)).await.unwrap_or(Err(Broken::Slow(limit)));
    let mut answered = Vec::with_capacity(batch.len());
    let mut failed = sent.err();
    let mut batch = batch.into_iter();
    if failed.is_none() {
        for request in batch.by_ref() {
            match timeout_at(deadline, replies(&mut wire, &request)).await.unwrap_or(Err(Broken::Slow(limit)))
            {
                Ok(replies) => answered.push((request, replies)),
                Err(broken) => {
                    request_cut_off(request, &broken, server);
                    failed = Some(broken);
                    break;
                }
            }
        }
    }
    let confirmed = match &failed {
        _ if replicas == 0 => Ok(()),
        Some(broken) => Err(broken.to_string()),
        None => match timeout_at(deadline, wire.receive()).await.unwrap_or(Err(Broken::Slow(limit))) {
            Ok(reply) => confirmed(&reply, replicas, options.wait_timeout),
            Err(broken) => {
                let why = broken.to_string();
                failed = Some(broken);
                Err(why)
            }
        },
    };
    let mut keep = failed.is_none();
    for (request, replies) in answered {
        keep &= settle(request, replies, &confirmed, server, router);
    }
    if let Some(broken) = &failed {
        batch.for_each(|request| request_cut_off(request, broken, server));
        router.lost(server);
    }
    keep.then_some(wire)
}

/// All commands of a batch, and behind them the wait for replicas.
fn pipeline(batch: &[Request], replicas: u32, patience: Duration) -> Vec<u8> {
    let bytes = batch.iter().map(|request| request.bytes.len() + 24).sum::<usize>() + 64;
    let mut pipeline = Vec::with_capacity(bytes);
    for request in batch {
        if request.asking {
            pipeline.extend_from_slice(&command(&[b"ASKING"]));
        }
        pipeline.extend_from_slice(&request.bytes);
    }
    if replicas > 0 {
        let (replicas, patience) = (replicas.to_string(), patience.as_millis().to_string());
        pipeline.extend_from_slice(&command(&[b"WAIT", replicas.as_bytes(), patience.as_bytes()]));
    }
    pipeline
}

async fn replies(wire: &mut Wire, request: &Request) -> Result<Vec<Value>, Broken> {
    if request.asking {
        wire.receive().await?;
    }
    let mut replies = Vec::with_capacity(request.replies);
    for _ in 0..request.replies {
        replies.push(wire.receive().await?);
    }
    Ok(replies)
}

/// Whether enough replicas have what was written on this connection before.
fn confirmed(reply: &Value, wanted: u32, patience: Duration) -> Result<(), String> {
    match reply {
        Value::Int(count) if *count >= i64::from(wanted) => Ok(()),
        Value::Int(count) => Err(format!(
            "{count} of {wanted} replicas confirmed it within {} ms; with a failover it could be lost",
            patience.as_millis()
        )),
        other => Err(format!("the wait for replicas was answered with {other:?}")),
    }
}

fn request_cut_off(request: Request, broken: &Broken, server: &RedisServer) {
    let error = cut_off(broken, &server.to_string(), request.may_have_written());
    request.answer(Err(error));
}

/// Tells a caller, or sends the request elsewhere. Answers whether the connection is still good.
fn settle(
    request: Request,
    replies: Vec<Value>,
    confirmed: &Result<(), String>,
    server: &RedisServer,
    router: &Arc<Router>,
) -> bool {
    let refusal = replies.iter().find_map(|reply| match reply {
        Value::Error(words) => Some(words.clone()),
        _ => None,
    });
    if let Some(words) = refusal {
        return match redirect(&words) {
            Some(redirect) => {
                // The scripts are taught when a connection is made; a replica is left for its primary.
                let keep = !matches!(redirect, Redirect::NoScript | Redirect::Lost);
                router.reroute(request, redirect, refused(&words, &server.to_string()));
                keep
            }
            None => {
                request.answer(Err(refused(&words, &server.to_string())));
                true
            }
        };
    }
    let wrote =
        request.writes && replies.first().and_then(|reply| reply.items().first()) != Some(&Value::Int(0));
    if request.writes && replies.first().is_none_or(|reply| reply.items().is_empty()) {
        let error = odd(replies.first().unwrap_or(&Value::Nil), &server.to_string());
        request.answer(Err(error));
        return true;
    }
    match confirmed {
        Err(why) if wrote => {
            let message = format!("{server} has written it, but {why}; nothing was started");
            request.answer(Err(StoreError::ambiguous(StoreErrorKind::Unavailable, message)));
        }
        _ => request.answer(Ok(replies)),
    }
    true
}
