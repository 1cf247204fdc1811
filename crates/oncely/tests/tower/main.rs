//! The HTTP layer around services of every temper: ones that panic, fail, say what they mean, answer with trailers.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browsers;
mod fields;
mod passing;
mod places;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use oncely::tower::{Body, Class, OncelyLayer, Said};
use oncely::{AttemptInfo, Effect, Oncely, Policy};
use oncely_core::Millis;
use oncely_core::select::Selector;
use oncely_store::MemoryStore;
use tokio::sync::Notify;
use tower_layer::Layer as _;
use tower_service::Service;

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, oncely::tower::BoxError>>;
type Handler = Arc<dyn Fn(u32, Request<Body<Full<Bytes>>>) -> Handled + Send + Sync>;
type Handled = Pin<Box<dyn Future<Output = Result<Answer, &'static str>> + Send>>;

/// A service that counts its runs outside of the layer.
#[derive(Clone)]
struct Counted {
    runs: Arc<AtomicU32>,
    handler: Handler,
}

impl Counted {
    fn new<F>(handler: impl Fn(u32, Request<Body<Full<Bytes>>>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Answer, &'static str>> + Send + 'static,
    {
        Self { runs: Arc::default(), handler: Arc::new(move |run, request| Box::pin(handler(run, request))) }
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

impl Service<Request<Body<Full<Bytes>>>> for Counted {
    type Response = Answer;
    type Error = &'static str;
    type Future = Handled;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body<Full<Bytes>>>) -> Handled {
        (self.handler)(self.runs.fetch_add(1, Ordering::SeqCst) + 1, request)
    }
}

fn text(status: u16, body: &'static str) -> Answer {
    Response::builder()
        .status(status)
        .body(Full::from(body).map_err(|never| match never {}).boxed_unsync())
        .unwrap()
}

async fn layer() -> OncelyLayer {
    OncelyLayer::new(Oncely::new(oncely_store::open("memory:").await.unwrap()))
}

fn post(key: Option<&str>, body: &'static str) -> Request<Full<Bytes>> {
    let mut request = Request::post("/orders").header("content-type", "application/json");
    request = request.header("authorization", "Bearer a");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(Full::from(body)).unwrap()
}

struct Seen {
    status: u16,
    headers: HeaderMap,
    trailers: Option<HeaderMap>,
    body: String,
}

impl Seen {
    fn replayed(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }
}

async fn send<S>(service: &S, request: Request<Full<Bytes>>) -> Result<Seen, S::Error>
where
    S: Service<Request<Full<Bytes>>, Response = Response<Body<<Answer as Inner>::Body>>> + Clone,
    S::Error: std::fmt::Debug,
{
    let (parts, body) = service.clone().call(request).await?.into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    let body = String::from_utf8(collected.to_bytes().to_vec()).unwrap();
    Ok(Seen { status: parts.status.as_u16(), headers: parts.headers, trailers, body })
}

/// The body of a response.
trait Inner {
    type Body;
}

impl<B> Inner for Response<B> {
    type Body = B;
}

#[tokio::test]
async fn a_panic_is_an_unknown_outcome_and_is_not_run_again() {
    let counted = Counted::new(|_, _| async { panic!("boom") });
    let service = layer().await.layer(counted.clone());
    let first = send(&service, post(Some("k"), "{}")).await.unwrap();
    assert_eq!(first.status, 500);
    assert!(first.body.contains("outcome_unknown") && !first.body.contains("boom"), "{}", first.body);
    let retry = send(&service, post(Some("k"), "{}")).await.unwrap();
    assert_eq!((retry.status, counted.runs()), (409, 1));
}

#[tokio::test]
async fn an_error_of_the_service_reaches_its_caller_and_leaves_a_doubt() {
    let counted = Counted::new(|_, _| async { Err("lost") });
    let service = layer().await.layer(counted.clone());
    assert_eq!(send(&service, post(Some("k"), "{}")).await.err(), Some("lost"));
    assert_eq!(send(&service, post(Some("k"), "{}")).await.unwrap().status, 409);
    assert_eq!(counted.runs(), 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_cancel_the_service() {
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, wait) = (begun.clone(), go.clone());
    let counted = Counted::new(move |_, _| {
        let (told, wait) = (told.clone(), wait.clone());
        async move {
            told.notify_one();
            wait.notified().await;
            Ok(text(201, "made"))
        }
    });
    let service = layer().await.layer(counted.clone());
    let mut call = service.clone().call(post(Some("k"), "{}"));
    tokio::select! {
        _ = &mut call => panic!("it answered before it was let go"),
        () = begun.notified() => {}
    }
    drop(call);
    go.notify_one();
    let retry = send(&service, post(Some("k"), "{}")).await.unwrap();
    assert_eq!((retry.status, retry.body.as_str(), retry.replayed()), (201, "made", true));
    assert_eq!(counted.runs(), 1);
}

#[tokio::test]
async fn a_service_can_say_itself_what_its_answer_proves() {
    let counted = Counted::new(|run, request: Request<Body<Full<Bytes>>>| async move {
        assert_eq!(request.extensions().get::<AttemptInfo>().unwrap().number(), run);
        let mut answer = text(500, "try again");
        if run == 1 {
            answer.extensions_mut().insert(Said { class: Class::Rejected, why: Some("out of stock".into()) });
        } else {
            answer = text(200, "made");
        }
        Ok(answer)
    });
    let service = layer().await.layer(counted.clone());
    assert_eq!(send(&service, post(Some("k"), "{}")).await.unwrap().status, 500);
    assert_eq!(send(&service, post(Some("k"), "{}")).await.unwrap().body, "made");
    assert_eq!(counted.runs(), 2);
}

#[tokio::test]
async fn a_rejection_is_replayed_once_its_retries_are_used_up() {
    let counted =
        Counted::new(|run, _| async move { Ok(text(422, if run == 1 { "first" } else { "later" })) });
    let policy = Policy { max_retries: 1, ..Policy::default() };
    let service = layer().await.policy(policy).layer(counted.clone());
    for (expected, replayed) in [("first", false), ("later", false), ("later", true), ("later", true)] {
        let seen = send(&service, post(Some("k"), "{}")).await.unwrap();
        assert_eq!((seen.status, seen.body.as_str(), seen.replayed()), (422, expected, replayed));
        let left = seen.headers.get("idempotency-retries-left").map(|left| left.to_str().unwrap());
        assert_eq!(left, replayed.then_some("0"), "it can be told from an answer that may be tried again");
    }
    assert_eq!(counted.runs(), 2);
}

#[tokio::test]
async fn what_was_never_begun_is_not_replayed_as_if_it_could_still_be_retried() {
    let counted = Counted::new(|_, _| async {
        let mut answer = text(502, "try again with the same key");
        let why = Some("nothing was sent: no route to 10.1.2.3".into());
        answer.extensions_mut().insert(Said { class: Class::NotStarted, why });
        Ok(answer)
    });
    let policy = Policy { max_retries: 0, ..Policy::default() };
    let service = layer().await.policy(policy).layer(counted.clone());
    let first = send(&service, post(Some("k"), "{}")).await.unwrap();
    assert_eq!((first.status, &first.headers["idempotency-retries-left"]), (502, &"0".parse().unwrap()));
    for _ in 0..2 {
        let seen = send(&service, post(Some("k"), "{}")).await.unwrap();
        let problem: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
        assert_eq!((seen.status, seen.replayed()), (409, false));
        assert_eq!(
            (&problem["code"], &problem["retryable"]),
            (&"rejected".into(), &false.into()),
            "{problem}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("nothing of it was sent") && detail.contains("Use another key"), "{detail}");
        assert!(!detail.contains("10.1.2.3"), "{detail}");
        assert_eq!(seen.headers["idempotency-retries-left"], "0");
        assert!(problem["instance"].is_string() && problem["idempotency_key"] == "k", "{problem}");
    }
    assert_eq!(counted.runs(), 1);
}

#[tokio::test]
async fn trailers_are_kept_and_decide_what_a_grpc_answer_means() {
    let counted = Counted::new(|run, _| async move {
        let message = Bytes::from_static(if run == 1 { b"" } else { b"reply" });
        Ok(grpc(message, if run == 1 { "5" } else { "0" }))
    });
    let service = layer().await.layer(counted.clone());
    // Not found: nothing happened, so the retry runs.
    for (status, body, replayed) in [("5", "", false), ("0", "reply", false), ("0", "reply", true)] {
        let seen = send(&service, post(Some("k"), "{}")).await.unwrap();
        assert_eq!(
            (seen.trailers.as_ref().unwrap()["grpc-status"].to_str().unwrap(), seen.replayed()),
            (status, replayed)
        );
        assert_eq!(seen.body, body);
    }
    assert_eq!(counted.runs(), 2);
}

#[tokio::test]
async fn a_grpc_error_after_a_message_proves_nothing_however_long_that_was() {
    // The second is too long to be looked at as a whole.
    for length in [5, 2 << 20] {
        let counted = Counted::new(move |_, _| async move { Ok(grpc(vec![b'x'; length].into(), "5")) });
        let service = layer().await.layer(counted.clone());
        let first = send(&service, post(Some("k"), "{}")).await.unwrap();
        assert_eq!(
            (first.body.len(), &first.trailers.unwrap()["grpc-status"]),
            (length, &"5".parse().unwrap())
        );
        let retry = send(&service, post(Some("k"), "{}")).await.unwrap();
        assert_eq!((retry.status, counted.runs()), (409, 1), "{}", retry.body);
        assert!(retry.body.contains("outcome_unknown") && retry.body.contains("NOT_FOUND"), "{}", retry.body);
    }
}

/// An answer of gRPC: a message, and a status in the trailers.
fn grpc(message: Bytes, status: &'static str) -> Answer {
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
    // What tonic leaves behind when a message is too long to be sent. Nobody reads beyond the trailers.
    let left = Frame::data(Bytes::from_static(b"left"));
    let frames = [Frame::data(message), Frame::trailers(trailers), left].map(Ok);
    let body = StreamBody::new(futures_of(frames));
    Response::builder().header("content-type", "application/grpc").body(body.boxed_unsync()).unwrap()
}

#[tokio::test]
async fn the_head_of_a_stream_says_what_is_certain_by_then() {
    let counted = Counted::new(|_, request: Request<Body<Full<Bytes>>>| async move {
        let path = request.uri().path().to_owned();
        let (status, kind) = match path.as_str() {
            "/made" => (201, "text/event-stream"),
            "/refused" => (422, "text/event-stream"),
            "/failed" => (500, "text/event-stream"),
            _ => (200, "application/grpc"),
        };
        let mut frames = vec![Ok(Frame::data(Bytes::from_static(b"data: one\n\n")))];
        if kind == "application/grpc" {
            // Too long to be looked at as a whole.
            frames.push(Ok(Frame::data(Bytes::from(vec![0; 2 << 20]))));
        }
        let response = Response::builder().status(status).header("content-type", kind);
        // What a service claims of itself is not what we know.
        let response = response.header("idempotency-outcome", "succeeded");
        Ok(response.body(StreamBody::new(futures_of(frames)).boxed_unsync()).unwrap())
    });
    let service = layer().await.layer(counted.clone());
    for (path, effect, outcome) in [
        ("/made", Some("created"), None),
        ("/refused", None, None),
        ("/failed", None, Some("unknown")),
        ("/grpc", None, None),
    ] {
        let mut request = post(Some(path), "{}");
        *request.uri_mut() = path.parse().unwrap();
        let (head, body) = service.clone().call(request).await.unwrap().into_parts();
        let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("idempotency-effect").as_deref(), effect, "{path}");
        assert_eq!(header("idempotency-outcome").as_deref(), outcome, "{path}");
        assert!(header("idempotency-record").is_some(), "{path}");
        body.collect().await.unwrap();
    }
    assert_eq!(counted.runs(), 4);
}

/// A stream of frames that are there already.
fn futures_of<T>(items: impl IntoIterator<Item = T>) -> Frames<T> {
    Frames(items.into_iter().collect())
}

struct Frames<T>(std::collections::VecDeque<T>);

impl<T: Unpin> futures_core::Stream for Frames<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
        Poll::Ready(self.0.pop_front())
    }
}

#[tokio::test]
async fn fields_of_the_body_can_be_the_intent() {
    let counted = Counted::new(|_, _| async { Ok(text(201, "sent")) });
    let policy =
        Policy { key: vec![Selector::parse("to").unwrap()], effect: Effect::Sent, ..Policy::default() };
    let service = layer().await.policy(policy).layer(counted.clone());
    let first = send(&service, post(None, r#"{"to":"a","text":"hello"}"#)).await.unwrap();
    assert_eq!(first.headers["idempotency-effect"], "sent");
    assert!(first.headers["idempotency-key"].to_str().unwrap().starts_with("\"derived "));
    let reworded = send(&service, post(None, r#"{"to":"a","text":"hi there"}"#)).await.unwrap();
    assert!(reworded.replayed());
    assert!(!send(&service, post(None, r#"{"to":"b","text":"hello"}"#)).await.unwrap().replayed());
    let missing = send(&service, post(None, r#"{"text":"hello"}"#)).await.unwrap();
    assert_eq!(missing.status, 400);
    assert!(missing.body.contains("body_unusable"), "{}", missing.body);
    assert_eq!(counted.runs(), 2);
}

#[tokio::test]
async fn a_replay_says_how_old_it_is() {
    let now = Arc::new(AtomicU64::new(1_000_000));
    let clock = now.clone();
    let store = MemoryStore::with_clock(move || Millis(clock.load(Ordering::SeqCst)));
    let counted = Counted::new(|_, _| async { Ok(text(201, "made")) });
    let service = OncelyLayer::new(Oncely::new(Arc::new(store))).layer(counted.clone());
    let age = |seen: &Seen| seen.headers.get("age").map(|age| age.to_str().unwrap().to_owned());
    assert_eq!(age(&send(&service, post(Some("k"), "{}")).await.unwrap()), None);
    for (later_ms, seconds) in [(0, "0"), (999, "0"), (1, "1"), (41_500, "42")] {
        now.fetch_add(later_ms, Ordering::SeqCst);
        let replay = send(&service, post(Some("k"), "{}")).await.unwrap();
        assert_eq!((replay.replayed(), age(&replay).as_deref()), (true, Some(seconds)));
    }
    assert_eq!(counted.runs(), 1);
}

#[tokio::test]
async fn a_service_sees_no_wish_for_compression_on_guarded_requests() {
    let counted = Counted::new(|_, request: Request<Body<Full<Bytes>>>| async move {
        assert!(!request.headers().contains_key("accept-encoding"));
        Ok(text(201, "made"))
    });
    let service = layer().await.layer(counted);
    let mut request = post(Some("k"), "{}");
    request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    assert_eq!(send(&service, request).await.unwrap().status, 201);
}
