//! Whether a connection is at rest: nothing of a request or of an answer is under way on it.
//!
//! Three things tell: the bodies that are still held, requests and answers alike; whether what was written has left;
//! and how many requests there have been.

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
    _open: Open,
}

impl<B> Underway<B> {
    pub(super) fn new(body: B, activity: &Arc<Activity>) -> Self {
        Self { body, _open: activity.open() }
    }
}

impl<B: http_body::Body + Unpin> http_body::Body for Underway<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
}

impl<T> Watched<T> {
    pub(super) fn new(io: T, before: Bytes, activity: Arc<Activity>) -> Self {
        Self { io: TokioIo::new(io), before, activity }
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
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
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
        let written = Pin::new(&mut self.io).poll_write_vectored(context, parts);
        self.noted(written)
    }
}
