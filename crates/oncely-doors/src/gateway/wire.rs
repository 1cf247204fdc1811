//! One connection of HTTP/1.1 to a service, moved by whoever waits for its answer.
//!
//! hyper's connection is a future of its own. In a task of its own every request would wake that task, and every answer
//! wake the caller's, often on another core; here the two take turns in one task. While a connection is kept for the next
//! request nobody moves it, and whatever came of it meanwhile, such as its end, is found by the next request, before
//! anything of that is sent.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::SendRequest;
use oncely::tower::BoxError;
use tokio::task::coop::unconstrained;

use super::activity::Activity;
use super::upstream::{Outgoing, Upstream};

/// Moves a connection; resolves when it has ended.
pub(super) type Motion = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection and what moves it.
pub(super) struct Wire {
    sender: SendRequest<Outgoing>,
    motion: Mover,
    /// What goes on on it.
    activity: Arc<Activity>,
}

enum Mover {
    /// Whoever waits.
    Us(Motion),
    /// A task: it will be taken over and leave HTTP.
    Task,
    /// It has ended.
    Nobody,
}

impl Wire {
    /// A connection that is moved from here.
    pub(super) fn ours(sender: SendRequest<Outgoing>, motion: Motion, activity: Arc<Activity>) -> Self {
        Self { sender, motion: Mover::Us(motion), activity }
    }

    /// A connection that a task moves.
    pub(super) fn of_task(sender: SendRequest<Outgoing>) -> Self {
        Self { sender, motion: Mover::Task, activity: Arc::default() }
    }

    fn advance(&mut self, context: &mut Context<'_>) {
        if let Mover::Us(motion) = &mut self.motion
            && motion.as_mut().poll(context).is_ready()
        {
            // What waits for it hears of its end when it is dropped.
            self.motion = Mover::Nobody;
        }
    }

    /// What only this connection can bring about: moved first, and then looked at. Nobody else wakes it.
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut look: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if matches!(self.motion, Mover::Task) {
            return look(context);
        }
        let mut nobody = Context::from_waker(Waker::noop());
        self.advance(context);
        look(&mut nobody)
    }

    /// Sends a request, and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Outgoing>>> {
        self.activity.begin();
        // Nobody wakes it if it has to pause for the sake of other tasks.
        let mut answer = pin!(unconstrained(self.sender.try_send_request(request)));
        std::future::poll_fn(|context| self.poll(context, |nobody| answer.as_mut().poll(nobody))).await
    }

    /// Whether the next request may go out on it, as far as is known without moving it.
    fn is_free(&self) -> bool {
        matches!(self.motion, Mover::Us(_)) && self.sender.is_ready()
    }

    /// Gives it back if it is free. One on which the request still goes out, although its answer is here already, ends
    /// by itself, in time: a client that does not send the rest of its request keeps neither side open.
    fn release(mut self, home: &Arc<Upstream>, context: &mut Context<'_>) {
        if !self.is_free() {
            self.advance(context);
        }
        if self.is_free() {
            home.give_back(self);
        } else if let Mover::Us(motion) = self.motion {
            tokio::spawn(tokio::time::timeout(home.patience(), motion));
        }
    }
}

/// The body of an answer: of a service, or of our own making.
pub struct AnswerBody {
    body: Option<Incoming>,
    whole: Option<Bytes>,
    /// What moves it, and where that goes when the body has ended.
    on: Option<(Wire, Arc<Upstream>)>,
}

impl AnswerBody {
    /// A body that needs nobody here to move it.
    pub(super) fn alone(body: Incoming) -> Self {
        Self { body: Some(body), whole: None, on: None }
    }

    /// A body that comes over this connection.
    pub(super) async fn over(body: Incoming, wire: Wire, home: Arc<Upstream>) -> Self {
        let mut body = Self { body: Some(body), whole: None, on: Some((wire, home)) };
        std::future::poll_fn(|context| {
            body.release_if_ended(context);
            Poll::Ready(())
        })
        .await;
        body
    }

    /// A body of our own.
    pub fn whole(bytes: Bytes) -> Self {
        Self { body: None, whole: (!bytes.is_empty()).then_some(bytes), on: None }
    }

    fn release_if_ended(&mut self, context: &mut Context<'_>) {
        if self.body.as_ref().is_none_or(|body| body.is_end_stream()) {
            self.release(context);
        }
    }

    fn release(&mut self, context: &mut Context<'_>) {
        if let Some((wire, home)) = self.on.take() {
            wire.release(&home, context);
        }
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { body, whole, on } = &mut *self;
        let Some(body) = body else {
            return Poll::Ready(whole.take().map(|bytes| Ok(Frame::data(bytes))));
        };
        let mut frame = |context: &mut Context<'_>| Pin::new(&mut *body).poll_frame(context);
        let polled = match on {
            None => frame(context),
            Some((wire, _)) => {
                // What is here already needs no moving; and asking for more is what lets more come.
                match frame(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => wire.poll(context, frame),
                    ready => ready,
                }
            }
        };
        match &polled {
            Poll::Ready(None) => self.release(context),
            // What it did not bring to an end is not used again.
            Poll::Ready(Some(Err(_))) => self.on = None,
            Poll::Ready(Some(Ok(_))) => self.release_if_ended(context),
            Poll::Pending => {}
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => self.whole.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(self.whole.as_ref().map_or(0, |b| b.len() as u64)),
        }
    }
}

#[cfg(test)]
mod tests;
