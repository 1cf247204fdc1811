//! Bodies of replies: whole, streamed from a server, or made of events as they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use memchr::memmem;
use oncely_core::limits::{MCP_WAITING_BYTES_MAX, MCP_WAITING_MAX};
use tokio::sync::mpsc;

use super::headers::MISMATCH;
use super::sse;
use crate::mcp::guard::Guard;
use crate::mcp::handle::MISSING_CAPABILITY;
use crate::mcp::link::{Boxed, Client};
use crate::mcp::message::{METHOD_NOT_FOUND, Response as Answer};
use crate::mcp::reply::Era;

/// Why a body broke off.
pub(in crate::mcp) type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// Any body.
pub(in crate::mcp) type AnyBody = UnsyncBoxBody<Bytes, BodyError>;
/// Any reply.
pub(in crate::mcp) type AnyResponse = Response<AnyBody>;

/// The protocol's code for a version that the server does not speak.
const UNSUPPORTED_VERSION: i32 = -32022;

fn never(never: Infallible) -> BodyError {
    match never {}
}

/// A whole body.
pub(super) fn whole(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into()).map_err(never).boxed_unsync()
}

/// A reply with a status and a text.
pub(super) fn plain(status: StatusCode, text: &str) -> AnyResponse {
    let mut response = Response::new(whole(text.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Why a request is not taken.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    why: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: &str) -> Self {
        Self { status, why: why.to_owned() }
    }

    /// No call is taken any more.
    pub(super) fn about_to_end() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "this is about to end; nothing ran")
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The reply that says so.
    pub(super) fn response(&self) -> AnyResponse {
        plain(self.status, &self.why)
    }
}

/// A reply with a JSON-RPC message.
pub(super) fn message(status: StatusCode, message: impl Into<Bytes>) -> AnyResponse {
    let mut response = Response::new(whole(message));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The status that goes with an answer: in the era in which requests describe themselves, that of some errors is given by the
/// protocol.
pub(super) fn status_of(era: Era, answer: &[u8]) -> StatusCode {
    // Hardly any answer is an error, and this is seen soon.
    if era == Era::Legacy || memmem::find(answer, b"\"error\"").is_none() {
        return StatusCode::OK;
    }
    let error = std::str::from_utf8(answer).ok().and_then(Answer::read).and_then(|answer| answer.error());
    match error.and_then(|(code, _)| i32::try_from(code).ok()) {
        Some(MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION) => StatusCode::BAD_REQUEST,
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

/// A body of chunks as they come.
pub(super) fn chunks(from: Waiting) -> AnyBody {
    Chunks { from, make: std::convert::identity, _kept: Box::new(()) }.map_err(never).boxed_unsync()
}

/// A reply of messages as they come.
pub(super) fn events(from: Waiting, kept: impl Send + 'static) -> AnyResponse {
    let make = |line: Bytes| sse::event(&line).into();
    let chunks = Chunks { from, make, _kept: Box::new(kept) };
    let mut response = Response::new(chunks.map_err(never).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    response
}

struct Chunks {
    from: Waiting,
    make: fn(Bytes) -> Bytes,
    /// Dropped when the reply is over, or the client goes away.
    _kept: Box<dyn Send>,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let make = self.make;
        self.from.poll(context).map(|line| line.map(|line| Ok(Frame::data(make(line)))))
    }
}

/// Passes a server's body on as it comes, and notices where it says that its tools have changed.
pub(super) struct Watched {
    body: Incoming,
    guard: Arc<Guard>,
    /// The end of what came before: the words may be cut in two.
    tail: Vec<u8>,
}

/// What a server says when its tools have changed; how it writes the slash before it differs.
const CHANGED: &[u8] = b"list_changed";

impl Watched {
    pub(super) fn body(body: Incoming, guard: &Arc<Guard>) -> AnyBody {
        Self { body, guard: guard.clone(), tail: Vec::new() }.map_err(Into::into).boxed_unsync()
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(chunk) = frame.data_ref()
        {
            let mut seam = std::mem::take(&mut self.tail);
            seam.extend_from_slice(&chunk[..chunk.len().min(CHANGED.len())]);
            if memmem::find(chunk, CHANGED).is_some() || memmem::find(&seam, CHANGED).is_some() {
                self.guard.catalog.changed();
            }
            let tail = if chunk.len() >= CHANGED.len() { &chunk[..] } else { &seam[..] };
            self.tail = tail[tail.len().saturating_sub(CHANGED.len() - 1)..].to_vec();
        }
        polled
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// What waits for a client to read it.
pub(super) struct Waiting {
    from: mpsc::Receiver<Bytes>,
    /// How many bytes that are, where it is counted.
    bytes: Arc<AtomicUsize>,
}

impl Waiting {
    /// Room for one message, and whoever has another one waits.
    pub(super) fn next_in_line() -> (mpsc::Sender<Bytes>, Self) {
        let (to, from) = mpsc::channel(1);
        (to, Self { from, bytes: Arc::default() })
    }

    fn taken(&self, line: Option<Bytes>) -> Option<Bytes> {
        let length = line.as_ref().map_or(0, Bytes::len);
        // What is not counted stays at nothing.
        let _ = self
            .bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bytes| Some(bytes.saturating_sub(length)));
        line
    }

    /// The next message; `None` when no more will come.
    pub(super) async fn recv(&mut self) -> Option<Bytes> {
        let line = self.from.recv().await;
        self.taken(line)
    }

    /// The next message, if it is there.
    pub(super) fn try_recv(&mut self) -> Option<Bytes> {
        let line = self.from.try_recv().ok();
        self.taken(line)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.from.poll_recv(context).map(|line| self.taken(line))
    }
}

/// A client that waits for the reply to one request.
pub(super) struct Sink {
    to: mpsc::Sender<Bytes>,
    /// How many bytes wait for it.
    bytes: Arc<AtomicUsize>,
    /// The place that is kept for the answer.
    last: Mutex<Option<mpsc::OwnedPermit<Bytes>>>,
}

impl Sink {
    /// A sink, and what comes out of it.
    pub(super) fn new() -> (Self, Waiting) {
        let (to, from) = mpsc::channel(MCP_WAITING_MAX + 1);
        let last = Mutex::new(to.clone().try_reserve_owned().ok());
        let bytes: Arc<AtomicUsize> = Arc::default();
        (Self { to, bytes: bytes.clone(), last }, Waiting { from, bytes })
    }

    /// Hands a message over; one that went away, or does not keep up, misses it, so that no client holds up a write.
    pub(super) fn put(&self, line: Bytes) {
        let length = line.len();
        let before = self.bytes.fetch_add(length, Ordering::AcqRel);
        // One that finds nothing before it passes, however long it is.
        let has_room = before == 0 || before.saturating_add(length) <= MCP_WAITING_BYTES_MAX;
        if !has_room || self.to.try_send(line).is_err() {
            self.bytes.fetch_sub(length, Ordering::AcqRel);
        }
    }

    /// Hands the answer over, which nobody misses who is still there; once.
    pub(super) fn put_last(&self, answer: Bytes) {
        let place = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        match place {
            Some(place) => {
                self.bytes.fetch_add(answer.len(), Ordering::AcqRel);
                drop(place.send(answer));
            }
            None => self.put(answer),
        }
    }

    /// Whether anybody is at the other end.
    pub(super) fn is_open(&self) -> bool {
        !self.to.is_closed()
    }
}

impl Client for Sink {
    fn send(&self, line: Bytes) -> Boxed<'_, ()> {
        self.put(line);
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use oncely_core::limits::{MCP_WAITING_BYTES_MAX, MCP_WAITING_MAX};

    use super::{Bytes, Sink, Waiting, status_of};
    use crate::mcp::reply::Era;

    async fn all_of(mut from: Waiting) -> Vec<Bytes> {
        let mut seen = Vec::new();
        while let Some(line) = from.recv().await {
            seen.push(line);
        }
        seen
    }

    #[tokio::test]
    async fn a_client_that_reads_slowly_may_miss_progress_but_never_the_answer() {
        let (sink, from) = Sink::new();
        for number in 0..2 * MCP_WAITING_MAX {
            sink.put(number.to_string().into());
        }
        sink.put_last(Bytes::from_static(b"answer"));
        drop(sink);
        let seen = all_of(from).await;
        assert_eq!(seen.len(), MCP_WAITING_MAX + 1);
        assert_eq!(seen.last().unwrap(), "answer");
    }

    #[tokio::test]
    async fn what_waits_for_a_client_is_bounded_in_bytes_too_and_reading_makes_room() {
        let (sink, mut from) = Sink::new();
        let long = |part: usize| Bytes::from(vec![b'x'; MCP_WAITING_BYTES_MAX / part]);
        for _ in 0..5 {
            sink.put(long(2));
        }
        assert!(from.try_recv().is_some() && from.try_recv().is_some() && from.try_recv().is_none());
        // One that finds nothing before it passes, and one after it does not.
        sink.put(Bytes::from(vec![b'x'; 2 * MCP_WAITING_BYTES_MAX]));
        sink.put(Bytes::from_static(b"missed"));
        sink.put_last(long(1));
        drop(sink);
        let lengths: Vec<usize> = all_of(from).await.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [2 * MCP_WAITING_BYTES_MAX, MCP_WAITING_BYTES_MAX]);
    }

    #[test]
    fn some_errors_have_a_status_of_their_own_in_the_era_that_says_so() {
        let status = |era: Era, code: i32| {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"m"}}}}"#);
            status_of(era, answer.as_bytes()).as_u16()
        };
        let codes = [-32020, -32021, -32022, -32601, -32602, -32603, 7];
        assert_eq!(codes.map(|code| status(Era::Modern, code)), [400, 400, 400, 404, 200, 200, 200]);
        assert_eq!(codes.map(|code| status(Era::Legacy, code)), [200; 7]);
        let quoting = br#"{"id":1,"result":{"error":{"code":-32021}}}"#;
        assert_eq!(status_of(Era::Modern, quoting), StatusCode::OK);
    }
}
