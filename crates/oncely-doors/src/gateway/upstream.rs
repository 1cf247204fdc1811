//! Connections to one service: kept alive, reused, and exact about whether anything of a request was sent.
//!
//! The doubt of a lost answer is expensive, so it is not raised lightly: a request that comes back unsent from a kept
//! connection which the service had closed meanwhile goes out again on another one. hyper hands such a request back
//! (`TrySendError::take_message`); one that it does not hand back may have left, and is never sent again from here.

mod version;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use oncely::tower::{Body, BoxError};
use oncely_core::limits::HTTP_HEAD_BYTES_MAX;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::activity::{Activity, Underway, Watched};
use super::address::{Address, Speech};
use super::counters::Counters;
use super::upload::{Pause, Upload, answer_in_time};
pub use super::wire::AnswerBody;
use super::wire::Wire;

/// What is sent to a service.
pub type Outgoing = Body<Underway<Incoming>>;

/// Most idle connections kept for one route, by all lanes together.
const IDLE_MAX: usize = 512;

/// How many of them one of so many lanes may keep: its share, so that no lane has to ask another.
pub(super) fn idle_share(lanes: usize) -> usize {
    (IDLE_MAX / lanes.max(1)).max(1)
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect, TLS included.
    pub connect: Duration,
    /// From the request to the head of the answer.
    pub answer: Duration,
    /// How long an idle connection is kept: less than services keep theirs, so that a request seldom meets a
    /// connection that is being closed.
    pub idle: Duration,
    /// How often a shared connection is asked whether it still leads anywhere. The answer may take half as long.
    pub ping: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(60),
            idle: Duration::from_secs(4),
            ping: Duration::from_secs(20),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendFailure {
    /// Nothing was sent.
    NotSent(String),
    /// It may have arrived.
    MaybeSent(String),
    /// It may have arrived, and no answer came in time.
    TimedOut(Duration),
    /// A part of it may have arrived, its end was not sent; who paused.
    CutShort(Pause),
}

/// Connections to one service.
pub struct Upstream {
    address: Address,
    tls: Option<TlsConnector>,
    timeouts: Timeouts,
    /// Most idle connections kept here.
    idle_max: usize,
    kept: Mutex<Kept>,
    shared: Mutex<Option<Shared>>,
    /// How many connections to share there have been.
    shares: AtomicU64,
    /// It is known to speak HTTP/1.1, where every request under way needs a connection of its own.
    speaks_http1: AtomicBool,
    /// Held by whoever opens a connection that all may share.
    connecting: tokio::sync::Mutex<()>,
    /// The clients on whose behalf it is used.
    lane: Arc<Counters>,
}

/// Connections that wait for the next request, the newest last.
#[derive(Default)]
struct Kept {
    idle: Vec<Idle>,
    /// Somebody closes those that have waited for too long.
    swept: bool,
}

struct Idle {
    wire: Wire,
    since: Instant,
}

/// A connection of HTTP/2.
#[derive(Clone)]
struct Shared {
    sender: http2::SendRequest<Outgoing>,
    /// Which one it is.
    number: u64,
}

enum Connection {
    One { wire: Wire, reused: bool },
    Shared { shared: Shared, reused: bool },
}

/// Whether a connection may be one that was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// A kept one is as good.
    Allowed,
    /// A new one that speaks HTTP/1.1: it will be taken over.
    ForUpgrade,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upstream {
    /// Connections to this address, of which so many are kept while nobody uses them; none is opened yet.
    pub fn new(
        address: Address,
        tls: Option<TlsConnector>,
        timeouts: Timeouts,
        idle_max: usize,
        lane: Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new(Self {
            speaks_http1: AtomicBool::new(address.speech == Speech::Http1),
            address,
            tls,
            timeouts,
            idle_max,
            kept: Mutex::default(),
            shared: Mutex::default(),
            shares: AtomicU64::new(0),
            connecting: tokio::sync::Mutex::default(),
            lane,
        })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// How long it may take from a request to its answer.
    pub(super) fn patience(&self) -> Duration {
        self.timeouts.answer
    }

    /// Sends a request, and waits for the head of the answer; `upload` tells how far a body has got that is not here as a
    /// whole.
    pub async fn send(
        self: &Arc<Self>,
        mut request: Request<Outgoing>,
        reuse: Reuse,
        upload: Option<&Upload>,
    ) -> Result<Response<AnswerBody>, SendFailure> {
        loop {
            let patience = self.timeouts.answer;
            let (mut error, reused) = match self.connection(reuse).await? {
                Connection::One { mut wire, reused } => {
                    version::for_http1(&mut request);
                    match answer_in_time(patience, upload, wire.send(request)).await? {
                        Ok(response) => return Ok(self.watched(response, wire, reuse).await),
                        Err(error) => (error, reused),
                    }
                }
                Connection::Shared { mut shared, reused } => {
                    version::for_http2(&mut request, &self.address);
                    let sending = shared.sender.try_send_request(request);
                    let sent = answer_in_time(patience, upload, sending).await;
                    if !matches!(sent, Ok(Ok(_)) | Err(SendFailure::CutShort(Pause::Client))) {
                        // Whatever is wrong with it, the next request begins anew.
                        lock(&self.shared).take_if(|there| there.number == shared.number);
                    }
                    match sent? {
                        Ok(response) => return Ok(response.map(AnswerBody::alone)),
                        Err(error) => (error, reused),
                    }
                }
            };
            match error.take_message() {
                Some(unsent) if reused => request = unsent,
                Some(_) => return Err(SendFailure::NotSent(error.into_error().to_string())),
                None => return Err(SendFailure::MaybeSent(describe(&error.into_error()))),
            }
        }
    }

    async fn connection(self: &Arc<Self>, reuse: Reuse) -> Result<Connection, SendFailure> {
        if reuse == Reuse::Allowed {
            if let Some(shared) = self.shared() {
                return Ok(Connection::Shared { shared, reused: true });
            }
            // One that the service has closed meanwhile hands the request back.
            if let Some(wire) = self.take_idle() {
                return Ok(Connection::One { wire, reused: true });
            }
        }
        // Rare, and large: not part of every request's room.
        Box::pin(self.connect_in_turn(reuse)).await.map_err(SendFailure::NotSent)
    }

    /// The connection of HTTP/2, if there is one that still leads somewhere.
    fn shared(&self) -> Option<Shared> {
        if self.speaks_http1.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.shared).clone().filter(|shared| !shared.sender.is_closed())
    }

    fn take_idle(&self) -> Option<Wire> {
        let mut kept = lock(&self.kept);
        let newest = kept.idle.pop()?;
        (newest.since.elapsed() < self.timeouts.idle).then_some(newest.wire)
    }

    /// Keeps a connection for the next request.
    pub(super) fn give_back(self: &Arc<Self>, wire: Wire) {
        let mut kept = lock(&self.kept);
        if kept.idle.len() < self.idle_max {
            kept.idle.push(Idle { wire, since: Instant::now() });
        }
        if !kept.swept {
            kept.swept = true;
            tokio::spawn(sweep(Arc::downgrade(self), self.timeouts.idle));
        }
    }

    /// Closes connections that have waited for too long; answers whether any is left.
    fn close_idle(&self) -> bool {
        let mut kept = lock(&self.kept);
        let fresh = kept.idle.partition_point(|idle| idle.since.elapsed() >= self.timeouts.idle);
        let old: Vec<Idle> = kept.idle.drain(..fresh).collect();
        kept.swept = !kept.idle.is_empty();
        let left = kept.swept;
        drop(kept);
        drop(old);
        left
    }

    /// One connection of HTTP/2 is enough for all: who comes while it is opened waits for it, and opens no second one.
    async fn connect_in_turn(self: &Arc<Self>, reuse: Reuse) -> Result<Connection, String> {
        if reuse == Reuse::ForUpgrade || self.speaks_http1.load(Ordering::Relaxed) {
            return self.connect_in_time(reuse).await;
        }
        let turn = tokio::time::timeout(self.timeouts.connect, self.connecting.lock());
        let Ok(turn) = turn.await else { return Err(self.too_late()) };
        if let Some(shared) = self.shared() {
            return Ok(Connection::Shared { shared, reused: true });
        }
        if self.speaks_http1.load(Ordering::Relaxed) {
            // Found out by the one before.
            drop(turn);
        }
        // Whoever has the turn has all the time there is: with what is left of theirs, one after the other would fail.
        self.connect_in_time(reuse).await
    }

    async fn connect_in_time(self: &Arc<Self>, reuse: Reuse) -> Result<Connection, String> {
        let connected = match tokio::time::timeout(self.timeouts.connect, self.connect(reuse)).await {
            Ok(connected) => connected.map_err(|e| format!("could not connect: {e}")),
            Err(_) => Err(self.too_late()),
        };
        self.lane.reach.note(&self.address, connected.as_ref().err());
        connected
    }

    fn too_late(&self) -> String {
        format!("could not connect within {} ms", self.timeouts.connect.as_millis())
    }

    async fn connect(self: &Arc<Self>, reuse: Reuse) -> Result<Connection, BoxError> {
        let stream = TcpStream::connect((self.address.host.as_str(), self.address.port)).await?;
        stream.set_nodelay(true)?;
        match (&self.tls, self.address.speech) {
            (Some(tls), Speech::Tls) => {
                let name = ServerName::try_from(self.address.host.clone())?;
                let agreed = |config: &rustls::ClientConfig| {
                    let mut config = config.clone();
                    config.alpn_protocols = vec![b"http/1.1".to_vec()];
                    TlsConnector::from(Arc::new(config))
                };
                let stream = match reuse {
                    Reuse::Allowed => tls.connect(name, stream).await?,
                    Reuse::ForUpgrade => agreed(tls.config()).connect(name, stream).await?,
                };
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                if reuse == Reuse::Allowed {
                    self.speaks_http1.store(!is_http2, Ordering::Relaxed);
                }
                if is_http2 {
                    return self.speak_http2(TokioIo::new(stream)).await;
                }
                self.speak_http1(stream, reuse).await
            }
            (_, Speech::Http2) => self.speak_http2(TokioIo::new(stream)).await,
            _ => self.speak_http1(stream, reuse).await,
        }
    }

    async fn speak_http2<T>(&self, io: T) -> Result<Connection, BoxError>
    where
        T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // A connection that leads nowhere any more is found by asking, not by losing requests on it.
        let ping = self.timeouts.ping;
        builder.timer(TokioTimer::new()).keep_alive_interval(ping).keep_alive_timeout(ping / 2);
        let (sender, connection) = builder.handshake(io).await?;
        // Its end shows in the sender.
        tokio::spawn(async move { drop(connection.await) });
        let shared = Shared { sender, number: self.shares.fetch_add(1, Ordering::Relaxed) };
        *lock(&self.shared) = Some(shared.clone());
        Ok(Connection::Shared { shared, reused: false })
    }

    async fn speak_http1<T>(&self, stream: T, reuse: Reuse) -> Result<Connection, BoxError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HTTP_HEAD_BYTES_MAX);
        let activity = Arc::new(Activity::default());
        let io = Watched::new(stream, Bytes::new(), activity.clone());
        // How it ends shows in what was sent on it.
        let wire = match reuse {
            Reuse::Allowed => {
                let (sender, connection) = builder.handshake(io.among(self.lane.clone())).await?;
                Wire::ours(sender, Box::pin(async move { drop(connection.await) }), activity)
            }
            Reuse::ForUpgrade => {
                let (sender, connection) = builder.handshake(io).await?;
                tokio::spawn(async move { drop(connection.with_upgrades().await) });
                Wire::of_task(sender)
            }
        };
        Ok(Connection::One { wire, reused: false })
    }

    /// Ties the connection to the body: it is free again when the body has ended.
    async fn watched(
        self: &Arc<Self>,
        response: Response<Incoming>,
        wire: Wire,
        reuse: Reuse,
    ) -> Response<AnswerBody> {
        let (head, body) = response.into_parts();
        let body = match reuse {
            Reuse::ForUpgrade => AnswerBody::alone(body),
            Reuse::Allowed => AnswerBody::over(body, wire, self.clone()).await,
        };
        Response::from_parts(head, body)
    }
}

/// Closes connections that nobody has used for a while, for as long as there are any.
async fn sweep(upstream: Weak<Upstream>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if !upstream.upgrade().is_some_and(|upstream| upstream.close_idle()) {
            return;
        }
    }
}

/// An error with what caused it.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
