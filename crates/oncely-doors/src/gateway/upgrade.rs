//! WebSockets and their like: once both sides have agreed to change the protocol, bytes are passed both ways.

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use oncely::tower::Body;

use super::forward;
use super::guarded::nothing;
use super::handle::Answer;
use super::upstream::AnswerBody;

/// Answers `101 Switching Protocols` and joins the two connections.
pub(super) fn join(client: OnUpgrade, mut response: Response<AnswerBody>) -> Answer {
    let service = hyper::upgrade::on(&mut response);
    let protocol = response.headers().get(UPGRADE).cloned();
    forward::drop_hop_by_hop(response.headers_mut());
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        response.headers_mut().insert(UPGRADE, protocol);
    }
    tokio::spawn(async move {
        // Either side may go away before or after; both connections end with this task.
        if let (Ok(client), Ok(service)) = tokio::join!(client, service) {
            let _ =
                tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(service)).await;
        }
    });
    response.map(|_| Body::passed(nothing()))
}
