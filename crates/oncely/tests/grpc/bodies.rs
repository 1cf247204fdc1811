//! What is brought back by a replay: head, messages and trailers, byte for byte.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use oncely::Oncely;
use oncely::tower::{BoxError, OncelyLayer};
use tower_layer::Layer as _;
use tower_service::Service;

use crate::shop::{Order, PLACE, Shop, WATCH};

/// A whole answer, as it is on the wire.
pub(crate) struct Seen {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    trailers: Option<HeaderMap>,
}

impl Seen {
    fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }
}

pub(crate) async fn send<S, B>(service: &S, path: &str, kind: &str, body: &[u8]) -> Seen
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes, Error = BoxError>,
{
    let request = Request::post(path).header("content-type", kind).header("idempotency-key", "k");
    let request = request.header("grpc-accept-encoding", "gzip").header("grpc-timeout", "9S");
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
    let (head, body) = service.clone().call(request).await.unwrap().into_parts();
    assert_eq!(head.status, 200);
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned();
    Seen { headers: head.headers, trailers, body: body.to_bytes() }
}

/// One message as it is framed.
fn framed(item: &str, act: &str) -> Vec<u8> {
    let message = prost::Message::encode_to_vec(&Order { item: item.to_owned(), act: act.to_owned() });
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend_from_slice(&message);
    framed
}

pub(crate) async fn layer() -> OncelyLayer {
    OncelyLayer::new(Oncely::new(oncely_store::open("memory:").await.unwrap()))
}

#[tokio::test]
async fn a_replay_has_the_messages_and_the_trailers_of_the_first_answer() {
    for path in [PLACE, WATCH] {
        let directory = tempfile::tempdir().unwrap();
        let shop = Shop::new(directory.path());
        let service = layer().await.replay_headers(["x-till".parse().unwrap()]).layer(shop.clone());
        let first = send(&service, path, "application/grpc", &framed("tea", "")).await;
        let replay = send(&service, path, "application/grpc", &framed("tea", "")).await;
        assert!(!first.is_replay() && replay.is_replay());
        assert_eq!((&replay.body, &replay.trailers), (&first.body, &first.trailers), "{path}");
        assert_eq!(replay.trailers.unwrap()["grpc-status"], "0");
        assert!(!replay.body.is_empty());
        for name in ["content-type", "x-till"] {
            assert_eq!(replay.headers.get(name), first.headers.get(name), "{path} {name}");
        }
        assert_eq!(replay.headers["idempotency-effect"], "noop");
        assert_eq!(shop.placed(), 1);
    }
}

#[tokio::test]
async fn a_stream_that_ends_badly_after_messages_proves_nothing_unless_it_says_so() {
    for (act, status, runs) in [("5", "5", 1), ("3", "3", 1), ("14", "14", 1), ("not-executed", "14", 2)] {
        let directory = tempfile::tempdir().unwrap();
        let shop = Shop::new(directory.path());
        let service = layer().await.layer(shop.clone());
        let first = send(&service, WATCH, "application/grpc", &framed("tea", act)).await;
        assert_eq!(first.trailers.unwrap()["grpc-status"], status);
        let outcome = if runs == 1 { "unknown" } else { "rejected" };
        assert_eq!(first.headers["idempotency-outcome"], outcome, "{act}");
        let again = send(&service, WATCH, "application/grpc", &framed("tea", act)).await;
        assert!(!again.is_replay());
        if runs == 1 {
            let told = again.headers["grpc-message"].to_str().unwrap();
            assert!(told.contains("after it had sent a message"), "{told}");
        }
        assert_eq!(shop.placed(), runs, "{act}");
    }
}

/// Something that answers gRPC-Web, or whatever it is told to.
#[derive(Clone)]
pub(crate) struct Says {
    pub(crate) kind: &'static str,
    pub(crate) body: &'static [u8],
    pub(crate) runs: Arc<AtomicU32>,
}

impl<B> Service<Request<B>> for Says {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        for of_the_client in ["grpc-accept-encoding", "grpc-timeout"] {
            assert!(!request.headers().contains_key(of_the_client), "{of_the_client}");
        }
        self.runs.fetch_add(1, Ordering::SeqCst);
        let answer =
            Response::builder().header("content-type", self.kind).header("grpc-encoding", "identity");
        ready(Ok(answer.body(Full::from(self.body)).unwrap()))
    }
}

#[tokio::test]
async fn grpc_web_is_judged_by_the_last_frame_of_its_body() {
    const WEB: &str = "application/grpc-web+proto";
    const TEXT: &str = "application/grpc-web-text+proto";
    for (kind, body, expected) in [
        (WEB, &b"\0\0\0\0\x02hi\x80\0\0\0\x0fgrpc-status:0\r\n"[..], "succeeded"),
        (WEB, b"\x80\0\0\0\x10grpc-status: 5\r\n", "rejected"),
        (WEB, b"\x80\0\0\0\x10grpc-status:14\r\n", "unknown"),
        // After a message, be it an empty one.
        (WEB, b"\0\0\0\0\x02hi\x80\0\0\0\x10grpc-status: 5\r\n", "unknown"),
        (WEB, b"\0\0\0\0\0\x80\0\0\0\x10grpc-status: 5\r\n", "unknown"),
        // Cut short, without trailers, with trailers that are not the last, and no frames at all.
        (WEB, b"\0\0\0\0\x02hi\x80\0\0\0\x0fgrpc-status:0", "unknown"),
        (WEB, b"\0\0\0\0\x02hi", "unknown"),
        (WEB, b"\x80\0\0\0\x0fgrpc-status:0\r\n\0\0\0\0\0", "unknown"),
        (WEB, b"\x80\xff\xff\xff\xffgrpc-status:0\r\n", "unknown"),
        (WEB, b"", "unknown"),
        // The same in base64, in two texts one after the other, and broken.
        (TEXT, b"AAAAAAJoaQ==gAAAAA9ncnBjLXN0YXR1czowDQo=", "succeeded"),
        (TEXT, b"gAAAABBncnBjLXN0YXR1czogNQ0K", "rejected"),
        (TEXT, b"AAAAAAJoaQ==gAAAABBncnBjLXN0YXR1czogNQ0K", "unknown"),
        (TEXT, b"AAAAAAJoaQ==gAAAAA9ncnBjLXN0YXR1czowDQo", "unknown"),
        (TEXT, b"!!!!", "unknown"),
        (TEXT, b"====", "unknown"),
    ] {
        let says = Says { kind, body, runs: Arc::default() };
        let service = layer().await.layer(says.clone());
        let shown = String::from_utf8_lossy(body);
        let first = send(&service, PLACE, kind, b"same").await;
        assert_eq!(first.headers["idempotency-outcome"], expected, "{shown:?}");
        assert_eq!(first.body, body);
        let again = send(&service, PLACE, kind, b"same").await;
        assert_eq!(says.runs.load(Ordering::SeqCst), if expected == "rejected" { 2 } else { 1 }, "{shown:?}");
        match expected {
            "succeeded" => {
                assert_eq!((again.is_replay(), &again.body), (true, &first.body));
                assert_eq!(again.headers["grpc-encoding"], "identity");
            }
            "rejected" => assert!(!again.is_replay()),
            _ => assert_eq!((&again.headers["grpc-status"], again.body.len()), (&"2".parse().unwrap(), 0)),
        }
    }
}

#[tokio::test]
async fn a_grpc_answer_that_lacks_its_status_was_cut_short() {
    let says = Says { kind: "application/grpc", body: b"\0\0\0\0\0", runs: Arc::default() };
    let service = layer().await.layer(says.clone());
    assert_eq!(
        send(&service, PLACE, "application/grpc", b"").await.headers["idempotency-outcome"],
        "unknown"
    );
    let again = send(&service, PLACE, "application/grpc", b"").await;
    assert_eq!(again.headers["idempotency-code"], "outcome_unknown");
    assert_eq!(says.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_an_oncely_behind_does_not_know_the_one_in_front_does_not_know_either() {
    let says = Says { kind: "application/grpc", body: b"\0\0\0\0\0", runs: Arc::default() };
    let behind = layer().await.layer(says.clone());
    assert_eq!(send(&behind, PLACE, "application/grpc", b"").await.headers["idempotency-outcome"], "unknown");
    // The one in front has heard nothing of it, and asks for the first time.
    let front = layer().await.layer(behind);
    let asked = send(&front, PLACE, "application/grpc", b"").await;
    assert_eq!((&asked.headers["grpc-status"], asked.body.len()), (&"2".parse().unwrap(), 0));
    assert_eq!(asked.headers["idempotency-code"], "outcome_unknown");
    assert_eq!(asked.headers["idempotency-outcome"], "unknown");
    let again = send(&front, PLACE, "application/grpc", b"").await;
    assert_eq!(again.headers["idempotency-code"], "outcome_unknown");
    assert!(!again.headers.contains_key("idempotency-outcome"), "it was not asked again");
    assert_eq!(says.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_dry_run_over_grpc_web_is_one_empty_message_and_a_success() {
    for (kind, expected) in [
        ("application/grpc-web", &b"\0\0\0\0\0\x80\0\0\0\x0fgrpc-status:0\r\n"[..]),
        ("application/grpc-web-text", b"AAAAAACAAAAAD2dycGMtc3RhdHVzOjANCg=="),
    ] {
        let says = Says { kind, body: b"", runs: Arc::default() };
        let mut service = layer().await.layer(says.clone());
        let request = Request::post(PLACE).header("content-type", kind).header("idempotency-key", "k");
        let request = request.header("idempotency-dry-run", "true").body(Full::<Bytes>::default()).unwrap();
        let answer = service.call(request).await.unwrap();
        assert_eq!(answer.headers()["content-type"], kind);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), expected);
        assert_eq!(says.runs.load(Ordering::SeqCst), 0);
    }
}
