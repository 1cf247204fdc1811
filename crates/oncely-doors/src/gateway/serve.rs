//! Listens: accepts connections up to a limit, speaks HTTP/1.1 and HTTP/2 with or without TLS, and drains.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use oncely_core::limits::HTTP_HEAD_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::forward::Peer;
use super::handle::Gateway;

/// How long a client may take for a request's head, and how long a connection may be idle: longer than load balancers
/// keep theirs, so that it is they who close.
const HEAD_PATIENCE: Duration = Duration::from_secs(75);
/// How long a client may take for its part of a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, say because the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Most requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;

/// What the listener is told.
#[derive(Clone)]
pub struct Listening {
    /// TLS, if it is spoken.
    pub tls: Option<TlsAcceptor>,
    /// Most connections open at once; beyond that none is accepted until one ends.
    pub connections_max: usize,
    /// How long running requests may take once a stop is asked for.
    pub drain: Duration,
}

/// Serves until `stop` resolves, then accepts no more and lets running requests end. Says how many connections were
/// still open when the time for that was over.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    listening: Listening,
    stop: impl Future<Output = ()>,
) -> usize {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(listening.connections_max));
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            // Never closed.
            let place = places.clone().acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // A connection without it is slower, not wrong.
        let _ = stream.set_nodelay(true);
        let place = place.map(Arc::new);
        let spoken = Spoken { gateway: gateway.clone(), watcher: graceful.watcher(), place };
        // Two kinds of tasks, so that a plain connection does not take the room of one with TLS.
        match listening.tls.clone() {
            None => drop(tokio::spawn(spoken.speak(stream, address, "http"))),
            Some(tls) => drop(tokio::spawn(spoken.speak_tls(stream, address, tls))),
        }
    }
    drop(listener);
    let open = graceful.count();
    match tokio::time::timeout(listening.drain, graceful.shutdown()).await {
        Ok(()) => 0,
        Err(_) => open,
    }
}

/// A connection on which requests are answered.
struct Spoken {
    gateway: Arc<Gateway>,
    watcher: Watcher,
    /// Held until the connection ends.
    place: Option<Arc<OwnedSemaphorePermit>>,
}

impl Spoken {
    async fn speak_tls(self, stream: TcpStream, address: SocketAddr, tls: TlsAcceptor) {
        // A client that does not get through its handshake in time has not asked for anything.
        if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_PATIENCE, tls.accept(stream)).await {
            self.speak(stream, address, "https").await;
        }
    }

    async fn speak<T>(self, stream: T, address: SocketAddr, scheme: &'static str)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { gateway, watcher, place } = self;
        let counters = gateway.counters().clone();
        let _open = counters.open();
        let ip = HeaderValue::try_from(address.ip().to_canonical().to_string());
        let ip = ip.unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        let peer = Peer { place, ip, scheme };
        let begun = Arc::new(Notify::new());
        let asked = begun.clone();
        let service = service_fn(move |request| {
            asked.notify_one();
            let (gateway, peer) = (gateway.clone(), peer.clone());
            // A connection keeps the room of its request while it is idle, so that it had better be small.
            Box::pin(async move { Ok::<_, Infallible>(gateway.handle(request, &peer).await) })
        });
        let connection = builder().serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        // How a connection ends is the client's business; the requests on it have been answered or recorded.
        let mut connection = pin!(watcher.watch(connection));
        tokio::select! {
            _ = &mut connection => return,
            () = begun.notified() => {}
            // Whoever has not asked for anything by now holds a place that somebody else needs.
            () = tokio::time::sleep(HEAD_PATIENCE) => return,
        }
        drop(connection.await);
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HTTP_HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HTTP_HEAD_BYTES_MAX as u32)
        .keep_alive_interval(HEAD_PATIENCE);
    builder
}
