//! One client's connection: HTTP/1.1 or HTTP/2, watched for silence, and put to rest while nothing happens on it.
//!
//! hyper keeps two buffers of 8 KiB for every connection of HTTP/1.1, in use or not. Ten thousand clients that keep a
//! connection open for their next request would cost hundreds of megabytes, so a connection at rest is taken apart:
//! what is left is the socket and a timer. When the client sends again, it is put together anew.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service as HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use oncely::tower::Body;
use oncely_core::limits::HTTP_HEAD_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_rustls::server::TlsStream;

use super::activity::{Activity, Seen, Underway, Watched};
use super::counters::OpenConnection;
use super::forward::Peer;
use super::handle::{Answer, Gateway};
use super::upstream::AnswerBody;

/// How long nothing may happen before a connection is put to rest: short enough to save memory, long enough that a busy
/// client never notices.
const REST_AFTER: Duration = Duration::from_secs(1);
/// Most requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// How every HTTP/2 connection begins.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a connection is carried by.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// What wakes it.
    fn socket(&self) -> &TcpStream;
}

impl Transport for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Transport for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// How much patience there is with clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// With one that asks for nothing, or takes nothing of its answer.
    pub silence: Duration,
    /// How often an HTTP/2 client is asked whether it is still there. The answer may take half as long.
    pub ping: Duration,
}

/// A client and what serves it.
pub(super) struct Client {
    pub(super) gateway: Arc<Gateway>,
    pub(super) peer: Arc<Peer>,
    /// Turns true when no more requests are wanted. Whoever holds one is waited for.
    pub(super) stop: watch::Receiver<bool>,
    /// It is counted for as long as it is here.
    pub(super) open: OpenConnection,
}

/// What a client of a connection without TLS begins with.
pub(super) enum First {
    /// Nothing that leads anywhere.
    Nothing,
    /// HTTP/1.1: what was read so far.
    Http1(Bytes),
    /// The preface of HTTP/2.
    Http2(Bytes),
}

/// Since when a connection has been silent.
struct Silence {
    since: Instant,
    seen: Seen,
}

/// What is found when a connection is looked at.
enum Found {
    Busy,
    /// Nothing is under way.
    AtRest,
    /// Nothing has happened for longer than there is patience.
    Abandoned,
}

/// How a turn of HTTP/1.1 ended.
enum Turn<T> {
    Ended,
    AtRest(T, Bytes),
    Tunnel(T, Bytes),
}

impl Silence {
    fn new() -> Self {
        Self { since: Instant::now(), seen: Seen::default() }
    }

    fn look(&mut self, activity: &Activity, patience: Duration) -> Found {
        let (before, now) = (std::mem::replace(&mut self.seen, activity.seen()), Instant::now());
        let seen = self.seen;
        // An answer that the client does not take is as silent as no request at all.
        let works = seen.open > 0 && !seen.unflushed;
        if works || seen.requests != before.requests || seen.written != before.written {
            self.since = now;
            return Found::Busy;
        }
        if now.duration_since(self.since) >= patience {
            return Found::Abandoned;
        }
        if seen.open > 0 || seen.unflushed { Found::Busy } else { Found::AtRest }
    }
}

impl Client {
    /// Finds out which protocol is spoken from the first bytes.
    pub(super) async fn first_words(&mut self, stream: &mut TcpStream) -> First {
        let deadline = Instant::now() + self.gateway.patience().silence;
        let mut first = [0; HTTP2_PREFACE.len()];
        let mut length = 0;
        while length < first.len() && first[..length] == HTTP2_PREFACE[..length] {
            let read = tokio::select! {
                read = tokio::time::timeout_at(deadline, stream.read(&mut first[length..])) => read,
                _ = self.stop.wait_for(|stop| *stop) => return First::Nothing,
            };
            match read {
                Ok(Ok(read)) if read > 0 => length += read,
                // Gone, or silent for too long: nothing was asked for.
                _ => return First::Nothing,
            }
        }
        let before = Bytes::copy_from_slice(&first[..length]);
        if first == *HTTP2_PREFACE { First::Http2(before) } else { First::Http1(before) }
    }

    pub(super) async fn speak_http1<T: Transport>(mut self, mut stream: T, mut before: Bytes) {
        let patience = self.gateway.patience().silence;
        let mut silence = Silence::new();
        loop {
            // In a box: what a connection needs while it works is given back while it rests.
            match Box::pin(self.turn(stream, before, &mut silence)).await {
                Turn::Ended => return,
                Turn::Tunnel(stream, before) => return Box::pin(self.tunnel(stream, before)).await,
                Turn::AtRest(rests, rest) => (stream, before) = (rests, rest),
            }
            let _resting = self.gateway.counters().rest();
            let socket = stream.socket();
            let readable = std::future::poll_fn(|context| socket.poll_read_ready(context));
            let readable = tokio::select! {
                readable = tokio::time::timeout_at(silence.since + patience, readable) => readable,
                _ = self.stop.wait_for(|stop| *stop) => return,
            };
            if !matches!(readable, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// Serves requests until the connection ends or is at rest.
    async fn turn<T: Transport>(&mut self, stream: T, before: Bytes, silence: &mut Silence) -> Turn<T> {
        let activity = Arc::new(Activity::default());
        let patience = self.gateway.patience();
        silence.seen = Seen::default();
        let service = service(self.gateway.clone(), self.peer.clone(), activity.clone());
        let mut builder = http1::Builder::new();
        // Silence is watched here, and costs no timer for each request.
        builder.header_read_timeout(None).max_buf_size(HTTP_HEAD_BYTES_MAX);
        let io = Watched::new(stream, before, activity.clone()).among(self.gateway.counters().clone());
        let mut connection = builder.serve_connection(io, service);
        let mut looks = looks(patience);
        let mut stopping = false;
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut connection => break ended,
                _ = self.stop.wait_for(|stop| *stop), if !stopping => {
                    stopping = true;
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                }
                // The connection has just been polled: what is found is how it left things.
                _ = looks.tick() => match silence.look(&activity, patience.silence) {
                    Found::Busy => {}
                    Found::AtRest if stopping => {}
                    Found::Abandoned => return Turn::Ended,
                    Found::AtRest => {
                        let parts = connection.into_parts();
                        let (stream, unread) = parts.io.into_inner();
                        return Turn::AtRest(stream, joined(&parts.read_buf, &unread));
                    }
                }
            }
        };
        // How a connection ends is the client's business; the requests on it have been answered or recorded.
        if ended.is_ok() && self.peer.tunnel.is_set() {
            let parts = connection.into_parts();
            let (stream, unread) = parts.io.into_inner();
            return Turn::Tunnel(stream, joined(&parts.read_buf, &unread));
        }
        Turn::Ended
    }

    /// Bytes pass both ways until either side has had enough. It counts as a connection, and nobody waits for its end.
    async fn tunnel<T: Transport>(self, stream: T, before: Bytes) {
        let Self { gateway, peer, stop, open } = self;
        // Whatever the gateway holds, such as the ledger, must not wait for this.
        drop((gateway, stop));
        let client = Watched::new(stream, before, Arc::default());
        peer.tunnel.join(TokioIo::new(client)).await;
        drop(open);
    }

    pub(super) async fn speak_http2<T: Transport>(mut self, stream: T, before: Bytes) {
        let activity = Arc::new(Activity::default());
        let patience = self.gateway.patience();
        let service = service(self.gateway.clone(), self.peer.clone(), activity.clone());
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HTTP_HEAD_BYTES_MAX as u32)
            .keep_alive_interval(patience.ping)
            .keep_alive_timeout(patience.ping / 2);
        let io = Watched::new(stream, before, activity.clone());
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        let mut looks = looks(patience);
        let (mut since, mut requests, mut stopping) = (Instant::now(), 0, false);
        loop {
            tokio::select! {
                biased;
                _ = &mut connection => return,
                _ = self.stop.wait_for(|stop| *stop), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = looks.tick() => {
                    let seen = activity.seen();
                    if seen.open > 0 || seen.requests != requests {
                        (since, requests) = (Instant::now(), seen.requests);
                    } else if since.elapsed() >= patience.silence {
                        return;
                    }
                }
            }
        }
    }
}

fn looks(patience: Patience) -> tokio::time::Interval {
    let every = REST_AFTER.min(patience.silence);
    let mut looks = tokio::time::interval_at(Instant::now() + every, every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// What was read and not used, in the order in which it came, and in no more room than it needs.
fn joined(read: &[u8], unread: &[u8]) -> Bytes {
    if read.is_empty() && unread.is_empty() {
        return Bytes::new();
    }
    [read, unread].concat().into()
}

/// What hyper sends to a client.
type Sent = Response<Underway<Body<AnswerBody>>>;

/// The gateway, as hyper calls it: notes how long requests and their answers are under way.
fn service(
    gateway: Arc<Gateway>,
    peer: Arc<Peer>,
    activity: Arc<Activity>,
) -> impl HttpService<
    Request<Incoming>,
    Response = Sent,
    Error = Infallible,
    Future = impl Future<Output = Result<Sent, Infallible>> + Send,
> {
    service_fn(move |request: Request<Incoming>| {
        activity.begin();
        let (gateway, peer, activity) = (gateway.clone(), peer.clone(), activity.clone());
        let request = request.map(|body| Underway::new(body, &activity));
        // The answer is under way from now on, not only when its head is there.
        let open = activity.open();
        // In a box: hyper moves it about, and it is large.
        Box::pin(async move {
            let answer: Answer = gateway.handle(request, &peer).await;
            let answer = answer.map(|body| Underway::new(body, &activity));
            drop(open);
            Ok::<Sent, Infallible>(answer)
        })
    })
}
