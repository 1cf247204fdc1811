//! Listens: accepts connections up to a limit, with or without TLS, gives each to the emptiest lane, and drains.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::connection::{Client, First};
use super::forward::Peer;
use super::lanes::Lanes;
use super::upgrade::Tunnel;

/// How long a client may take for its part of a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, say because the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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

/// How serving has ended.
#[derive(Debug, Clone, Copy)]
pub struct Stopped {
    /// Connections that were still open when the time for running requests was over.
    pub open: usize,
    /// When it began to stop.
    pub since: Instant,
    /// When that time is over, for whatever else is waited for.
    pub deadline: Instant,
}

/// Serves on these lanes until `stop` resolves, then accepts no more and lets running requests end. Effects may go on after
/// that: the lanes are let go when the engine is drained.
pub async fn serve(
    listener: TcpListener,
    lanes: &Lanes,
    listening: Listening,
    stop: impl Future<Output = ()>,
) -> Stopped {
    let (stopping, stopped) = watch::channel(false);
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
        // It is watched by the lane that gets it from here on.
        let (Some(lane), Ok(stream)) = (lanes.emptiest(), stream.into_std()) else { continue };
        let scheme = if listening.tls.is_some() { "https" } else { "http" };
        let client = Client {
            gateway: lane.gateway().clone(),
            peer: Arc::new(peer(address, scheme, place)),
            stop: stopped.clone(),
            open: lane.gateway().counters().open(),
        };
        // Two kinds of tasks, so that a plain connection does not take the room of one with TLS.
        match listening.tls.clone() {
            None => lane.spawn(attend(client, stream)),
            Some(tls) => lane.spawn(attend_tls(client, stream, tls)),
        }
    }
    drop((listener, stopped));
    stopping.send_replace(true);
    let since = Instant::now();
    let deadline = since + listening.drain;
    let open = match tokio::time::timeout_at(deadline, stopping.closed()).await {
        Ok(()) => 0,
        Err(_) => stopping.receiver_count(),
    };
    Stopped { open, since, deadline }
}

fn peer(address: SocketAddr, scheme: &'static str, place: Option<OwnedSemaphorePermit>) -> Peer {
    let ip = HeaderValue::try_from(address.ip().to_canonical().to_string());
    let ip = ip.unwrap_or_else(|_| HeaderValue::from_static("unknown"));
    Peer { place, ip, scheme, tunnel: Tunnel::default() }
}

async fn attend(mut client: Client, stream: std::net::TcpStream) {
    // One that cannot be watched is closed: too many files are open.
    let Ok(mut stream) = TcpStream::from_std(stream) else { return };
    match client.first_words(&mut stream).await {
        First::Nothing => {}
        First::Http1(before) => client.speak_http1(stream, before).await,
        First::Http2(before) => Box::pin(client.speak_http2(stream, before)).await,
    }
}

async fn attend_tls(client: Client, stream: std::net::TcpStream, tls: TlsAcceptor) {
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    // A client that does not get through its handshake in time has not asked for anything.
    let shaken = tokio::time::timeout(HANDSHAKE_PATIENCE, Box::pin(tls.accept(stream))).await;
    let Ok(Ok(stream)) = shaken else { return };
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Box::pin(client.speak_http2(stream, Bytes::new())).await,
        _ => client.speak_http1(stream, Bytes::new()).await,
    }
}
