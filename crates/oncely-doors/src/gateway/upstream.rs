//! Connections to one service: kept alive, reused, and exact about whether anything of a request was sent.
//!
//! The doubt of a lost answer is expensive, so it is not raised lightly: a request that comes back unsent from a kept
//! connection which the service had closed meanwhile goes out again on another one. hyper hands such a request back
//! (`TrySendError::take_message`); one that it does not hand back may have left, and is never sent again from here.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use oncely::tower::{Body, BoxError};
use oncely_core::limits::HTTP_HEAD_BYTES_MAX;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::activity::Underway;
use super::address::{Address, Speech};

/// What is sent to a service.
pub type Outgoing = Body<Underway<Incoming>>;

/// Most idle connections kept to one service.
const IDLE_MAX: usize = 512;
/// How long a connection that has just ended a response may take to be ready for the next request.
const READY_PATIENCE: Duration = Duration::from_millis(20);

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
}

/// Connections to one service.
pub struct Upstream {
    address: Address,
    tls: Option<TlsConnector>,
    timeouts: Timeouts,
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Option<http2::SendRequest<Outgoing>>>,
}

struct Idle {
    sender: http1::SendRequest<Outgoing>,
    since: Instant,
}

enum Connection {
    One { sender: http1::SendRequest<Outgoing>, reused: bool },
    Shared { sender: http2::SendRequest<Outgoing>, reused: bool },
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
    /// Connections to this address; none is opened yet.
    pub fn new(address: Address, tls: Option<TlsConnector>, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self { address, tls, timeouts, idle: Mutex::default(), shared: Mutex::default() })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sends a request, and waits for the head of the answer.
    pub async fn send(
        self: &Arc<Self>,
        mut request: Request<Outgoing>,
        reuse: Reuse,
    ) -> Result<Response<AnswerBody>, SendFailure> {
        loop {
            let patience = self.timeouts.answer;
            let (mut error, reused) = match self.connection(reuse).await? {
                Connection::One { mut sender, reused } => {
                    *request.version_mut() = Version::HTTP_11;
                    match tokio::time::timeout(patience, sender.try_send_request(request)).await {
                        Ok(Ok(response)) => return Ok(self.watched(response, sender, reuse)),
                        Ok(Err(error)) => (error, reused),
                        Err(_) => return Err(SendFailure::TimedOut(patience)),
                    }
                }
                Connection::Shared { mut sender, reused } => {
                    self.complete_uri(&mut request);
                    let sent = tokio::time::timeout(patience, sender.try_send_request(request)).await;
                    if let Ok(Ok(response)) = sent {
                        return Ok(response.map(AnswerBody::alone));
                    }
                    // Whatever is wrong with it, the next request begins anew.
                    *lock(&self.shared) = None;
                    match sent {
                        Ok(Err(error)) => (error, reused),
                        _ => return Err(SendFailure::TimedOut(patience)),
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

    /// HTTP/2 wants the whole URI, HTTP/1.1 just the path.
    fn complete_uri(&self, request: &mut Request<Outgoing>) {
        *request.version_mut() = Version::HTTP_2;
        let mut parts = request.uri().clone().into_parts();
        parts.scheme = self.address.scheme().parse().ok();
        if parts.authority.is_none() {
            let host = request.headers().get(http::header::HOST).and_then(|h| h.to_str().ok());
            parts.authority =
                host.and_then(|h| h.parse().ok()).or_else(|| Some(self.address.authority.clone()));
        }
        if let Ok(uri) = http::Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        request.headers_mut().remove(http::header::HOST);
    }

    async fn connection(self: &Arc<Self>, reuse: Reuse) -> Result<Connection, SendFailure> {
        if reuse == Reuse::Allowed {
            let shared = lock(&self.shared).clone();
            if let Some(sender) = shared.filter(|s| !s.is_closed()) {
                return Ok(Connection::Shared { sender, reused: true });
            }
            while let Some(mut sender) = self.take_idle() {
                if matches!(tokio::time::timeout(READY_PATIENCE, sender.ready()).await, Ok(Ok(()))) {
                    return Ok(Connection::One { sender, reused: true });
                }
            }
        }
        // Rare, and large: not part of every request's room.
        match tokio::time::timeout(self.timeouts.connect, Box::pin(self.connect(reuse))).await {
            Ok(connected) => connected.map_err(|e| SendFailure::NotSent(format!("could not connect: {e}"))),
            Err(_) => {
                let waited = self.timeouts.connect.as_millis();
                Err(SendFailure::NotSent(format!("could not connect within {waited} ms")))
            }
        }
    }

    fn take_idle(&self) -> Option<http1::SendRequest<Outgoing>> {
        let mut idle = lock(&self.idle);
        while let Some(kept) = idle.pop() {
            if !kept.sender.is_closed() && kept.since.elapsed() < self.timeouts.idle {
                return Some(kept.sender);
            }
        }
        None
    }

    fn give_back(&self, sender: http1::SendRequest<Outgoing>) {
        if sender.is_closed() {
            return;
        }
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(Idle { sender, since: Instant::now() });
        }
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
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    return self.speak_http2(TokioIo::new(stream)).await;
                }
                speak_http1(TokioIo::new(stream)).await
            }
            (_, Speech::Http2) => self.speak_http2(TokioIo::new(stream)).await,
            _ => speak_http1(TokioIo::new(stream)).await,
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
        *lock(&self.shared) = Some(sender.clone());
        Ok(Connection::Shared { sender, reused: false })
    }

    /// Ties the connection to the body: it is free again when the body has ended.
    fn watched(
        self: &Arc<Self>,
        response: Response<Incoming>,
        sender: http1::SendRequest<Outgoing>,
        reuse: Reuse,
    ) -> Response<AnswerBody> {
        if reuse == Reuse::ForUpgrade {
            return response.map(AnswerBody::alone);
        }
        response.map(|body| {
            let mut body = AnswerBody { body: Some(body), whole: None, kept: Some((sender, self.clone())) };
            body.free_if_ended();
            body
        })
    }
}

async fn speak_http1<T>(io: T) -> Result<Connection, BoxError>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HTTP_HEAD_BYTES_MAX);
    let (sender, connection) = builder.handshake(io).await?;
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok(Connection::One { sender, reused: false })
}

/// An error with what caused it.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// The body of an answer: of a service, or of our own making.
pub struct AnswerBody {
    body: Option<Incoming>,
    whole: Option<Bytes>,
    kept: Option<(http1::SendRequest<Outgoing>, Arc<Upstream>)>,
}

impl AnswerBody {
    fn alone(body: Incoming) -> Self {
        Self { body: Some(body), whole: None, kept: None }
    }

    /// A body of our own.
    pub fn whole(bytes: Bytes) -> Self {
        Self { body: None, whole: (!bytes.is_empty()).then_some(bytes), kept: None }
    }

    fn free_if_ended(&mut self) {
        if self.body.as_ref().is_none_or(|body| body.is_end_stream())
            && let Some((sender, upstream)) = self.kept.take()
        {
            upstream.give_back(sender);
        }
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(self.whole.take().map(|bytes| Ok(Frame::data(bytes))));
        };
        let polled = Pin::new(body).poll_frame(context);
        match &polled {
            Poll::Ready(None) => {
                if let Some((sender, upstream)) = self.kept.take() {
                    upstream.give_back(sender);
                }
            }
            Poll::Ready(Some(Err(_))) => self.kept = None,
            Poll::Ready(Some(Ok(_))) => self.free_if_ended(),
            Poll::Pending => {}
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => self.whole.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(self.whole.as_ref().map_or(0, |b| b.len() as u64)),
        }
    }
}
