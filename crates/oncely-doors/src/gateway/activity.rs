//! Whether a connection is at rest: nothing of a request or of an answer is under way on it.
//!
//! Three things tell: the bodies that are still held, requests and answers alike; whether what was written has left;
//! and how many requests there have been.
//!
//! Where many connections are served, an answer is not written at once, nor is a request to a service sent, but when the
//! others that have something to do had their turn, too. Then all that is ready is read and worked out first, and all answers
//! leave one after the other: a client on the same machine is woken for many of them instead of each, and code that takes
//! turns less often stays in the caches.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http_body::{Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::alert::FEW;
use super::counters::Counters;
use super::upload::Upload;

/// What is going on on one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    requests: AtomicU64,
    written: AtomicU64,
    open: AtomicUsize,
    unflushed: AtomicBool,
}

/// How much has happened on a connection, and whether anything is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// Requests so far.
    pub(super) requests: u64,
    /// Bytes written so far.
    pub(super) written: u64,
    /// Requests or answers under way.
    pub(super) open: usize,
    /// Something written has not left yet.
    pub(super) unflushed: bool,
}

impl Activity {
    /// Notes a request.
    pub(super) fn begin(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that something is under way, for as long as what it returns is kept.
    pub(super) fn open(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }

    pub(super) fn seen(&self) -> Seen {
        Seen {
            requests: self.requests.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Acquire),
            unflushed: self.unflushed.load(Ordering::Relaxed),
        }
    }
}

/// Something under way on a connection.
#[derive(Debug)]
pub(super) struct Open(Arc<Activity>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Release);
    }
}

/// A body that keeps its connection from resting.
pub struct Underway<B> {
    body: B,
    /// Where it is noted how far it has got, if anybody asks.
    upload: Option<Arc<Upload>>,
    _open: Open,
}

impl<B> Underway<B> {
    pub(super) fn new(body: B, activity: &Arc<Activity>) -> Self {
        Self { body, upload: None, _open: activity.open() }
    }
}

impl<B: http_body::Body> Underway<B> {
    /// Notes from now on how far it gets; nothing if there is nothing more of it.
    pub(super) fn noted(&mut self) -> Option<Arc<Upload>> {
        self.upload = (!self.body.is_end_stream()).then(|| Arc::new(Upload::begin()));
        self.upload.clone()
    }
}

impl<B: http_body::Body + Unpin> http_body::Body for Underway<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Some(upload) = &self.upload {
            upload.note(&polled, |frame| !matches!(frame, Some(Ok(_))) || self.body.is_end_stream());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection whose reading and writing is noted, and which may begin with bytes that were read before.
pub(super) struct Watched<T> {
    io: TokioIo<T>,
    before: Bytes,
    activity: Arc<Activity>,
    /// The others that are served here, if they go first.
    others: Option<Arc<Counters>>,
    /// The latest request for which others have gone first.
    waited: u64,
}

impl<T> Watched<T> {
    pub(super) fn new(io: T, before: Bytes, activity: Arc<Activity>) -> Self {
        Self { io: TokioIo::new(io), before, activity, others: None, waited: 0 }
    }

    /// Lets others go first before a request is sent or answered, where there are many.
    pub(super) fn among(self, others: Arc<Counters>) -> Self {
        Self { others: Some(others), ..self }
    }

    /// Whether the latest request, or the answer to it, waits until others had their turn: once, and only if there are many.
    fn lets_others_go_first(&mut self, context: &Context<'_>) -> bool {
        let request = self.activity.requests.load(Ordering::Relaxed);
        let waits = self.waited != request && self.others.as_ref().is_some_and(|o| o.awake() > FEW);
        if waits {
            self.waited = request;
            // Queued behind all who have something to do already.
            context.waker().wake_by_ref();
        }
        waits
    }

    /// The connection itself, and what was read before and not taken.
    pub(super) fn into_inner(self) -> (T, Bytes) {
        (self.io.into_inner(), self.before)
    }
}

impl<T: AsyncRead + Unpin> Read for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            let length = self.before.len().min(buffer.remaining());
            buffer.put_slice(&self.before[..length]);
            self.before.advance(length);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> Watched<T> {
    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.unflushed.store(true, Ordering::Relaxed);
        if let Poll::Ready(Ok(length)) = &written {
            self.activity.written.fetch_add(*length as u64, Ordering::Relaxed);
        }
        written
    }
}

impl<T: AsyncWrite + Unpin> Write for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = if self.lets_others_go_first(context) {
            Poll::Pending
        } else {
            Pin::new(&mut self.io).poll_write(context, bytes)
        };
        self.noted(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.activity.unflushed.store(false, Ordering::Relaxed);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = if self.lets_others_go_first(context) {
            Poll::Pending
        } else {
            Pin::new(&mut self.io).poll_write_vectored(context, parts)
        };
        self.noted(written)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use bytes::Bytes;
    use hyper::rt::Write as _;

    use super::{Activity, Watched};
    use crate::gateway::alert::FEW;
    use crate::gateway::counters::Counters;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether each of the writes leaves at once, where so many connections are awake and `true` is a new request before it.
    fn writes(awake: u64, requests: &[bool]) -> Vec<bool> {
        let counters = Arc::new(Counters::default());
        let _open: Vec<_> = (0..awake).map(|_| counters.open()).collect();
        let activity = Arc::new(Activity::default());
        let io = tokio::io::join(tokio::io::empty(), tokio::io::sink());
        let mut io = Watched::new(io, Bytes::new(), activity.clone()).among(counters);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let each = requests.iter().map(|is_new| {
            if *is_new {
                activity.begin();
            }
            let before = woken.0.load(Ordering::Relaxed);
            let written = Pin::new(&mut io).poll_write(&mut context, b"answer");
            assert!(activity.seen().unflushed, "a connection with an answer to write is not at rest");
            let is_woken = woken.0.load(Ordering::Relaxed) > before;
            assert_eq!(written.is_pending(), is_woken, "whoever waits is polled again");
            matches!(written, Poll::Ready(Ok(6)))
        });
        each.collect()
    }

    #[test]
    fn an_answer_lets_others_go_first_once_and_only_among_many() {
        let (new, same) = (true, false);
        let requests = [new, same, same, new, same];
        assert_eq!(writes(FEW + 1, &requests), [false, true, true, false, true]);
        assert_eq!(writes(FEW, &requests), [true; 5]);
    }
}
