//! That a request which lets others go first is sent, and that an answer which is there is seen, whatever else the task
//! has done before.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use hyper::client::conn::http1;
use hyper::rt::{Read, ReadBufCursor, Write};
use oncely::tower::Body;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::coop::{consume_budget, has_budget_remaining};

use super::Wire;
use crate::gateway::activity::{Activity, Watched};
use crate::gateway::alert::FEW;
use crate::gateway::counters::Counters;

const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

/// A service that has its answer ready as soon as anything is sent. Reading it is the last thing that the task may do before
/// it has to let others run.
#[derive(Default)]
struct AnswersAtOnce {
    asked: bool,
    answered: Arc<AtomicBool>,
    reader: Option<Waker>,
}

impl Read for AnswersAtOnce {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.asked || self.answered.load(Ordering::Relaxed) {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.answered.store(true, Ordering::Relaxed);
        use_up_budget();
        buffer.put_slice(ANSWER);
        Poll::Ready(Ok(()))
    }
}

impl Write for AnswersAtOnce {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.asked = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Uses up what a task may do before it has to let others run.
fn use_up_budget() {
    let mut nobody = Context::from_waker(Waker::noop());
    // Far more than tokio grants.
    for _ in 0..10_000 {
        // Pending where there is none left.
        let _ = pin!(consume_budget()).poll(&mut nobody);
    }
    assert!(!has_budget_remaining());
}

/// Nobody would wake the task for it: the next thing to happen would be its time limit.
#[tokio::test]
async fn an_answer_is_seen_by_a_task_that_has_used_up_its_time() {
    let service = AnswersAtOnce::default();
    let answered = service.answered.clone();
    let (sender, connection) = http1::handshake(service).await.unwrap();
    let mut wire = Wire::ours(sender, Box::pin(async move { drop(connection.await) }), Arc::default());
    let request = Request::get("/").header("host", "up").body(Body::whole(Bytes::new())).unwrap();
    let mut sending = pin!(wire.send(request));
    let answer = poll_fn(|context| {
        let polled = sending.as_mut().poll(context);
        let is_there = answered.load(Ordering::Relaxed);
        assert!(polled.is_ready() || !is_there, "the answer is there, and was not looked at");
        polled
    });
    assert_eq!(answer.await.map_err(|_| "not sent").unwrap().status(), 204);
}

#[tokio::test]
async fn among_many_a_request_is_sent_when_others_had_their_turn() {
    let counters = Arc::new(Counters::default());
    let _clients: Vec<_> = (0..=FEW).map(|_| counters.open()).collect();
    let (near, mut far) = tokio::io::duplex(1024);
    let service = tokio::spawn(async move {
        far.read_u8().await.unwrap();
        far.write_all(ANSWER).await.unwrap();
        far
    });
    let activity = Arc::new(Activity::default());
    let io = Watched::new(near, Bytes::new(), activity.clone()).among(counters);
    let (sender, connection) = http1::handshake(io).await.unwrap();
    let mut wire = Wire::ours(sender, Box::pin(async move { drop(connection.await) }), activity.clone());
    let request = Request::get("/").header("host", "up").body(Body::whole(Bytes::new())).unwrap();
    let mut sending = pin!(wire.send(request));
    let first = poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
    assert!(first.is_pending());
    assert_eq!(activity.seen().written, 0, "others go first");
    assert_eq!(sending.await.map_err(|_| "not sent").unwrap().status(), 204);
    service.await.unwrap();
}
