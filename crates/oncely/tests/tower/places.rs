//! The places that guarded calls take, and the memory for their bodies: taken for as long as they are needed, and given back.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use oncely::tower::Gate;
use tokio::sync::Notify;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::{Counted, Frames, futures_of, layer, post, send, text};

#[tokio::test]
async fn an_effect_keeps_its_place_when_its_caller_goes_away() {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, wait) = (begun.clone(), go.clone());
    let counted = Counted::new(move |run, _| {
        let (told, wait) = (told.clone(), wait.clone());
        async move {
            if run == 1 {
                told.notify_one();
                wait.notified().await;
            }
            Ok(text(201, "made"))
        }
    });
    let gate = Arc::new(Gate::new(2, 9));
    let service = layer().await.gate(gate.clone()).layer(counted.clone());
    let mut call = service.clone().call(post(Some("a"), "{}"));
    tokio::select! {
        _ = &mut call => panic!("it answered before it was let go"),
        () = begun.notified() => {}
    }
    drop(call);
    // The retry waits for the effect, in the second place.
    let mut retry = pin!(send(&service, post(Some("a"), "{}")));
    tokio::select! {
        biased;
        _ = &mut retry => panic!("it answered before it was let go"),
        () = std::future::ready(()) => {}
    }
    let third = send(&service, post(Some("b"), "{}")).await.unwrap();
    assert_eq!((third.status, counted.runs()), (503, 1), "{}", third.body);
    go.notify_one();
    let retry = retry.await.unwrap();
    assert_eq!((retry.status, retry.body.as_str(), retry.replayed()), (201, "made", true));
    assert_eq!((counted.runs(), gate.calls()), (1, 0));
}

#[tokio::test]
async fn a_stream_keeps_its_place_and_not_the_memory_of_its_request() {
    let go = Arc::new(Notify::new());
    let wait = go.clone();
    let counted = Counted::new(move |_, _| {
        let wait = wait.clone();
        async move {
            let frames = futures_of([Ok(Frame::data(Bytes::from_static(b"data: one\n\n")))]);
            let body = StreamBody::new(Held { frames, wait: Box::pin(async move { wait.notified().await }) });
            let response = Response::builder().header("content-type", "text/event-stream");
            Ok(response.body(body.boxed_unsync()).unwrap())
        }
    });
    let gate = Arc::new(Gate::new(9, 9));
    let service = layer().await.gate(gate.clone()).layer(counted);
    // Far longer than what there is of the answer, which is held to be kept.
    const LONG: &str =
        r#"{"item":"tea","wrapping":"in silver paper, with a bow and a card that says from whom it is"}"#;
    let (_, body) = service.clone().call(post(Some("k"), LONG)).await.unwrap().into_parts();
    assert_eq!(gate.calls(), 1);
    assert!(gate.bytes() <= "data: one\n\n".len(), "{}", gate.bytes());
    go.notify_one();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "data: one\n\n");
    // Recorded, and so over.
    assert!(send(&service, post(Some("k"), LONG)).await.unwrap().replayed());
    assert_eq!((gate.calls(), gate.bytes()), (0, 0));
}

/// Frames of which the last is followed by a pause.
struct Held<T> {
    frames: Frames<T>,
    wait: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<T: Unpin> futures_core::Stream for Held<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        match self.frames.0.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => self.wait.as_mut().poll(context).map(|()| None),
        }
    }
}
