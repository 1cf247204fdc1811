//! Bodies of replies: whole, streamed from a server, or made of events as they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use memchr::memmem;
use tokio::sync::mpsc;

use super::sse;
use crate::mcp::guard::Guard;
use crate::mcp::link::{Boxed, Client};

/// Why a body broke off.
pub(in crate::mcp) type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// Any body.
pub(in crate::mcp) type AnyBody = UnsyncBoxBody<Bytes, BodyError>;
/// Any reply.
pub(in crate::mcp) type AnyResponse = Response<AnyBody>;

/// Most messages that wait for a client that reads slowly; more are let go, so that no client holds up a write.
const WAITING_MAX: usize = 1_024;

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

/// A body of chunks as they come.
pub(super) fn chunks(from: mpsc::Receiver<Bytes>) -> AnyBody {
    Chunks { from, make: std::convert::identity, _kept: Box::new(()) }.map_err(never).boxed_unsync()
}

/// A reply of messages as they come.
pub(super) fn events(from: mpsc::Receiver<Bytes>, kept: impl Send + 'static) -> AnyResponse {
    let make = |line: Bytes| sse::event(&line).into();
    let chunks = Chunks { from, make, _kept: Box::new(kept) };
    let mut response = Response::new(chunks.map_err(never).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    response
}

struct Chunks {
    from: mpsc::Receiver<Bytes>,
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
        self.from.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(make(line)))))
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

/// A client that waits for the reply to one request.
pub(super) struct Sink {
    to: mpsc::Sender<Bytes>,
    /// The place that is kept for the answer.
    last: Mutex<Option<mpsc::OwnedPermit<Bytes>>>,
}

impl Sink {
    /// A sink, and what comes out of it.
    pub(super) fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (to, from) = mpsc::channel(WAITING_MAX + 1);
        let last = Mutex::new(to.clone().try_reserve_owned().ok());
        (Self { to, last }, from)
    }

    /// Hands a message over; one that went away, or does not keep up, misses it.
    pub(super) fn put(&self, line: Bytes) {
        let _ = self.to.try_send(line);
    }

    /// Hands the answer over, which nobody misses who is still there; once.
    pub(super) fn put_last(&self, answer: Bytes) {
        let place = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        match place {
            Some(place) => drop(place.send(answer)),
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
    use super::{Bytes, Sink, WAITING_MAX};

    #[tokio::test]
    async fn a_client_that_reads_slowly_may_miss_progress_but_never_the_answer() {
        let (sink, mut from) = Sink::new();
        for number in 0..2 * WAITING_MAX {
            sink.put(number.to_string().into());
        }
        sink.put_last(Bytes::from_static(b"answer"));
        drop(sink);
        let mut seen = Vec::new();
        while let Some(line) = from.recv().await {
            seen.push(line);
        }
        assert_eq!(seen.len(), WAITING_MAX + 1);
        assert_eq!(seen.last().unwrap(), "answer");
    }
}
