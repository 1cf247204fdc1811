//! A reply whose answer is rewritten, in the form that it has: one JSON text, or events that pass as they come.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use tokio::sync::mpsc;

use super::body::{self, AnyResponse, Waiting};
use super::headers::end_to_end;
use super::messages::is_event_stream;
use super::sse::{self, Parser};
use crate::mcp::frames::content;

/// Passes a reply on; `rewrite` makes another message out of the one that it knows.
pub(super) async fn reply(
    response: Response<Incoming>,
    limit: usize,
    rewrite: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static,
) -> AnyResponse {
    let streams = is_event_stream(&response);
    let (mut parts, incoming) = response.into_parts();
    parts.headers = end_to_end(&parts.headers);
    if streams {
        let (sink, from) = Waiting::next_in_line();
        tokio::spawn(pass_events(incoming, limit, rewrite, sink));
        return Response::from_parts(parts, body::chunks(from));
    }
    let Ok(collected) = Limited::new(incoming, limit).collect().await else {
        return body::plain(
            StatusCode::BAD_GATEWAY,
            "the server's reply broke off, or is longer than allowed",
        );
    };
    let bytes = collected.to_bytes();
    let bytes = rewrite(&bytes).map_or(bytes, |line| Bytes::copy_from_slice(content(&line)));
    Response::from_parts(parts, body::whole(bytes))
}

async fn pass_events(
    mut incoming: Incoming,
    limit: usize,
    rewrite: impl Fn(&[u8]) -> Option<Vec<u8>> + Send,
    sink: mpsc::Sender<Bytes>,
) {
    let mut parser = Parser::default();
    let mut retry_ms = None;
    // A stream that breaks breaks for the client, too; it knows how to take it up again.
    while let Some(Ok(frame)) = incoming.frame().await {
        let Ok(chunk) = frame.into_data() else { continue };
        parser.feed(&chunk);
        loop {
            let mut event = match parser.next(limit) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                // Nothing after it can be told apart: the client sees that the stream broke.
                Err(_) => return,
            };
            if let Some(line) = rewrite(event.data.as_bytes()) {
                event.data = String::from_utf8_lossy(content(&line)).into_owned();
            }
            let mut text = Vec::new();
            if let Some(ms) = parser.retry_ms.filter(|_| parser.retry_ms != retry_ms) {
                text.extend_from_slice(format!("retry: {ms}\n").as_bytes());
                retry_ms = parser.retry_ms;
            }
            text.extend_from_slice(&sse::render(&event));
            if sink.send(text.into()).await.is_err() {
                return;
            }
        }
    }
}
