//! Answers and the memory that they may take.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use oncely_core::limits::HTTP_BUFFERED_BYTES_MAX;
use tower_layer::Layer as _;
use tower_service::Service;

use super::super::{Body, Gate, OncelyLayer, OncelyService};
use crate::Oncely;

/// What is left of the memory: enough for the request, and for the start of the answer.
const LEFT: usize = 600;
const PIECES: usize = 10;
const PIECE: usize = 100;

/// Answers with a hundred bytes ten times, and counts how often.
#[derive(Clone)]
struct Long {
    kind: &'static str,
    runs: Arc<AtomicU32>,
}

impl Service<Request<Body<Full<Bytes>>>> for Long {
    type Response = Response<StreamBody<Pieces>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body<Full<Bytes>>>) -> Self::Future {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let answer = Response::builder().status(201).header("content-type", self.kind);
        ready(Ok(answer.body(StreamBody::new(Pieces(0))).unwrap()))
    }
}

struct Pieces(usize);

impl futures_core::Stream for Pieces {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0 += 1;
        let piece = (self.0 <= PIECES).then(|| vec![b'a' + self.0 as u8; PIECE].into());
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}

async fn send(service: &OncelyService<Long>) -> Response<Bytes> {
    let request = Request::post("/orders").header("idempotency-key", "k").body(Full::from("{}")).unwrap();
    let (head, body) = service.clone().call(request).await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn an_answer_that_there_is_no_memory_for_goes_on_to_the_client_and_is_not_kept() {
    let whole: Vec<u8> = (1..=PIECES).flat_map(|number| vec![b'a' + number as u8; PIECE]).collect();
    for kind in ["application/json", "text/event-stream"] {
        // There is room for it; requests take all but a little; answers take all but a little of their half.
        for (taken, of_answers) in
            [(0, false), (HTTP_BUFFERED_BYTES_MAX - LEFT, false), (HTTP_BUFFERED_BYTES_MAX / 2 - LEFT, true)]
        {
            let gate = Arc::new(Gate::new(9, 9));
            let mut others = gate.enter().unwrap();
            assert!(if of_answers { others.keep(taken) } else { others.set_aside(taken) });
            let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
            let long = Long { kind, runs: Arc::default() };
            let service = OncelyLayer::new(oncely).gate(gate.clone()).layer(long.clone());
            let first = send(&service).await;
            assert_eq!((first.status().as_u16(), first.body()), (201, &Bytes::from(whole.clone())), "{kind}");
            let retry = send(&service).await;
            assert_eq!(retry.headers()["idempotent-replayed"], "true", "{kind}");
            if taken == 0 {
                assert_eq!(retry.body(), first.body(), "{kind}");
            } else {
                let said = String::from_utf8(retry.body().to_vec()).unwrap();
                assert!(said.contains("its answer is not kept") && said.contains("noop"), "{kind}: {said}");
            }
            assert_eq!(long.runs.load(Ordering::SeqCst), 1, "{kind}");
            assert_eq!((gate.bytes(), gate.calls()), (taken, 1), "all is given back");
        }
    }
}
