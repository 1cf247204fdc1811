//! WebSockets: once both sides have agreed to change the protocol, bytes are passed both ways.

use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use oncely::tower::Body;

use super::forward::{self, Peer};
use super::guarded::nothing;
use super::handle::Answer;
use super::upstream::AnswerBody;

/// Answers `101 Switching Protocols` and joins the two connections. They count as the client's one connection.
pub(super) fn join(client: OnUpgrade, mut response: Response<AnswerBody>, peer: &Peer) -> Answer {
    let service = hyper::upgrade::on(&mut response);
    forward::drop_hop_by_hop(response.headers_mut());
    forward::grant(response.headers_mut());
    let place = peer.place.clone();
    tokio::spawn(async move {
        let _place = place;
        // Either side may go away before or after; both connections end with this task.
        if let (Ok(client), Ok(service)) = tokio::join!(client, service) {
            let _ =
                tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(service)).await;
        }
    });
    response.map(|_| Body::passed(nothing()))
}
