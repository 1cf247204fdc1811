//! Connections of the admin listener: bounded in number, in the time that a head may take, and ended in order.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use oncely_core::limits::ADMIN_CONNECTIONS_MAX;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::AdminState;
use super::routes::router;

/// How long a request's head may take.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long open requests may take when the listener closes.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failed accept: no descriptors are left, and asking again at once would be a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Answers on a listener until `shutdown` returns, then lets open requests end.
pub async fn serve(
    listener: TcpListener,
    state: AdminState,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    state
        .check(listener.local_addr()?)
        .map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error))?;
    let state = Arc::new(state);
    let service = router(&state);
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    let closing = state.closing.subscribe();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let service = TowerToHyperService::new(service.clone());
                tokio::spawn(attend(stream, service, closing.clone(), place));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    state.closing.send_replace(true);
    // All places free again: every connection has ended.
    let all = u32::try_from(ADMIN_CONNECTIONS_MAX).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(DRAIN_PATIENCE, places.acquire_many(all)).await;
    Ok(())
}

/// Waits for a place first: those beyond the limit queue in the kernel.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error means that the other end is gone: closed, too.
    let _ = closing.wait_for(|closing| *closing).await;
}

async fn attend(
    stream: TcpStream,
    service: TowerToHyperService<axum::Router>,
    mut closing: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    // Small answers should not wait for more; where this cannot be set they are merely later.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // A client that breaks the protocol or goes away is nobody's concern.
        _ = connection.as_mut() => {}
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
