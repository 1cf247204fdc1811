//! WebSockets: once both sides have agreed to change the protocol, bytes are passed both ways.

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use oncely::tower::Body;
use tokio::io::{AsyncRead, AsyncWrite};

use super::forward;
use super::guarded::nothing;
use super::handle::Answer;
use super::upstream::AnswerBody;

/// Where a client's connection leads once it has left HTTP; empty while it has not.
#[derive(Debug, Default)]
pub struct Tunnel(Mutex<Option<OnUpgrade>>);

impl Tunnel {
    fn lock(&self) -> MutexGuard<'_, Option<OnUpgrade>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether both sides have agreed.
    pub(super) fn is_set(&self) -> bool {
        self.lock().is_some()
    }

    /// Passes bytes both ways until either side has had enough.
    pub(super) async fn join(&self, mut client: impl AsyncRead + AsyncWrite + Unpin) {
        let service = self.lock().take();
        // Either side may go away before or after; both connections end here.
        if let Some(Ok(service)) = async { Some(service?.await) }.await {
            let _ = tokio::io::copy_bidirectional(&mut client, &mut TokioIo::new(service)).await;
        }
    }
}

/// Answers `101 Switching Protocols`. The client's connection is joined to the service's when the answer has left.
pub(super) fn agree(tunnel: &Tunnel, mut response: Response<AnswerBody>) -> Answer {
    *tunnel.lock() = Some(hyper::upgrade::on(&mut response));
    forward::drop_hop_by_hop(response.headers_mut());
    forward::grant(response.headers_mut());
    response.map(|_| Body::passed(nothing()))
}
