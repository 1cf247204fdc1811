//! Listens: accepts connections up to a limit, with or without TLS, and drains.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::connection::{Client, Patience};
use super::forward::Peer;
use super::handle::Gateway;

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
    /// How much patience there is with clients.
    pub patience: Patience,
}

/// Serves until `stop` resolves, then accepts no more and lets running requests end. Says how many connections were
/// still open when the time for that was over.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    listening: Listening,
    stop: impl Future<Output = ()>,
) -> usize {
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
        let scheme = if listening.tls.is_some() { "https" } else { "http" };
        let peer = peer(address, scheme, place);
        let client =
            Client { gateway: gateway.clone(), peer, patience: listening.patience, stop: stopped.clone() };
        // Two kinds of tasks, so that a plain connection does not take the room of one with TLS.
        match listening.tls.clone() {
            None => drop(tokio::spawn(attend(client, stream))),
            Some(tls) => drop(tokio::spawn(attend_tls(client, stream, tls))),
        }
    }
    drop((listener, stopped));
    stopping.send_replace(true);
    match tokio::time::timeout(listening.drain, stopping.closed()).await {
        Ok(()) => 0,
        Err(_) => stopping.receiver_count(),
    }
}

fn peer(address: SocketAddr, scheme: &'static str, place: Option<OwnedSemaphorePermit>) -> Peer {
    let ip = HeaderValue::try_from(address.ip().to_canonical().to_string());
    let ip = ip.unwrap_or_else(|_| HeaderValue::from_static("unknown"));
    Peer { place: place.map(Arc::new), ip, scheme, tunnel: None }
}

async fn attend(client: Client, stream: TcpStream) {
    let gateway = client.gateway.clone();
    let _open = gateway.counters().open();
    client.speak_plain(stream).await;
}

async fn attend_tls(client: Client, stream: TcpStream, tls: TlsAcceptor) {
    let gateway = client.gateway.clone();
    let _open = gateway.counters().open();
    // A client that does not get through its handshake in time has not asked for anything.
    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_PATIENCE, Box::pin(tls.accept(stream))).await {
        client.speak_tls(stream).await;
    }
}
