//! What the layer itself says to a gRPC client: a status of gRPC, whether anything ran, and whether to try again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use oncely::tower::{DryRun, Gate, OncelyLayer};
use oncely::{Oncely, Policy};
use tonic::Code;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::World;
use crate::shop::{PLACE, PLACE_AGAIN, Shop, assert_refused, metadata};

#[tokio::test]
async fn a_key_that_is_missing_malformed_or_reused_is_refused_before_anything_runs() {
    let world = World::new(OncelyLayer::require_key).await;
    let missing = world.client.place("tea", "", &[]).await;
    assert_refused(&missing, Code::InvalidArgument, "key_required", "-1");
    assert!(missing.unwrap_err().message().contains("nothing ran"));
    let malformed = world.client.place("tea", "", &[("idempotency-key", "a,b")]).await;
    assert_refused(&malformed, Code::InvalidArgument, "key_malformed", "-1");
    let nobody = world.client.place("tea", "", &[("idempotency-key", "a"), ("x-api-key", "s3cret")]).await;
    assert_refused(&nobody, Code::InvalidArgument, "tenant_required", "-1");
    assert_eq!(world.shop.placed(), 0);

    world.client.place("tea", "", &[("idempotency-key", "k")]).await.unwrap();
    let reused = world.client.place("coffee", "", &[("idempotency-key", "k")]).await;
    assert_refused(&reused, Code::FailedPrecondition, "key_reused", "-1");
    let said = metadata(&reused);
    assert_eq!(said["idempotency-key"], "k");
    assert_eq!(said["idempotency-record"].len(), 64);
    assert_eq!(world.shop.placed(), 1);
}

#[tokio::test]
async fn tenants_are_told_apart_as_over_http() {
    let world = World::plain().await;
    for (credential, number) in [("Bearer a", 1), ("Bearer b", 2), ("Bearer a", 1)] {
        let sent = [("idempotency-key", "k"), ("authorization", credential)];
        let placed = world.client.place("tea", "", &sent).await.unwrap();
        assert_eq!(placed.into_inner().number, number);
    }
    // Who can be told from others needs no key.
    for replayed in [false, true] {
        let placed = world.client.place("coffee", "", &[("authorization", "Bearer a")]).await;
        assert_eq!(metadata(&placed).contains_key("idempotent-replayed"), replayed);
    }
    assert_eq!(world.shop.placed(), 3);
}

#[tokio::test]
async fn a_call_that_is_still_running_is_aborted_here_and_goes_on_there() {
    let policy = Policy { wait_for_ms: 0, ..Policy::default() };
    let world = World::new(|layer| layer.policy(policy)).await;
    let first = {
        let client = world.client.clone();
        tokio::spawn(async move { client.place("tea", "hold", &[("idempotency-key", "k")]).await })
    };
    world.shop.wait_for(1).await;
    let meanwhile = world.client.place("tea", "hold", &[("idempotency-key", "k")]).await;
    let pushback = metadata(&meanwhile)["grpc-retry-pushback-ms"].to_str().unwrap().to_owned();
    assert!(pushback.parse::<i32>().unwrap() >= 1_000, "{pushback}");
    assert_refused(&meanwhile, Code::Aborted, "in_progress", &pushback);
    world.shop.go.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap().into_inner().number, 1);
    let replay = world.client.place("tea", "hold", &[("idempotency-key", "k")]).await;
    assert!(metadata(&replay).contains_key("idempotent-replayed"));
    assert_eq!((replay.unwrap().into_inner().number, world.shop.placed()), (1, 1));
}

#[tokio::test]
async fn a_panic_is_an_unknown_outcome_and_is_not_run_again() {
    let world = World::plain().await;
    let first = world.client.place("tea", "panic", &[("idempotency-key", "k")]).await;
    assert_refused(&first, Code::Unknown, "outcome_unknown", "-1");
    assert!(!first.unwrap_err().message().contains("boom"));
    let retry = world.client.place("tea", "panic", &[("idempotency-key", "k")]).await;
    assert_refused(&retry, Code::Unknown, "outcome_unknown", "-1");
    assert_eq!(world.shop.placed(), 1);
}

#[tokio::test]
async fn a_ledger_that_is_lost_lets_nothing_run_and_costs_a_running_call_a_warning() {
    let world = World::plain().await;
    let held = {
        let client = world.client.clone();
        tokio::spawn(async move { client.place("tea", "hold", &[("idempotency-key", "held")]).await })
    };
    world.shop.wait_for(1).await;
    let ledger = rusqlite::Connection::open(world.directory.path().join("ledger.db")).unwrap();
    ledger.execute_batch("ALTER TABLE record RENAME TO lost").unwrap();
    let refused = world.client.place("tea", "", &[("idempotency-key", "k")]).await;
    assert_refused(&refused, Code::Unavailable, "store_unavailable", "1000");
    assert!(refused.unwrap_err().message().contains("nothing ran"));
    world.shop.go.add_permits(1);
    let done = held.await.unwrap();
    assert!(metadata(&done)["idempotency-warning"].to_str().unwrap().starts_with("unrecorded"));
    assert_eq!((done.unwrap().into_inner().number, world.shop.placed()), (1, 1));
}

#[tokio::test]
async fn what_is_too_large_or_too_much_is_refused_and_only_the_latter_may_be_tried_again() {
    let gate = Arc::new(Gate::new(2, 1));
    let limits = gate.clone();
    let world = World::new(|layer| layer.body_max(100).gate(limits)).await;
    let large = world.client.place(&"tea".repeat(100), "", &[("idempotency-key", "k")]).await;
    assert_refused(&large, Code::InvalidArgument, "body_too_large", "-1");
    assert_eq!(world.shop.placed(), 0);
    let held = |key: &'static str| {
        let client = world.client.clone();
        tokio::spawn(async move { client.place("tea", "hold", &[("idempotency-key", key)]).await })
    };
    let first = held("a");
    world.shop.wait_for(1).await;
    let same_key = world.client.place("tea", "hold", &[("idempotency-key", "a")]).await;
    assert_refused(&same_key, Code::ResourceExhausted, "too_many_waiters", "1000");
    let second = held("b");
    world.shop.wait_for(2).await;
    let third = world.client.place("tea", "", &[("idempotency-key", "c")]).await;
    assert_refused(&third, Code::Unavailable, "overloaded", "1000");
    world.shop.go.add_permits(2);
    for held in [first, second] {
        held.await.unwrap().unwrap();
    }
    assert_eq!(world.shop.placed(), 2);
}

#[tokio::test]
async fn a_dry_run_answers_an_empty_message_and_says_what_would_happen() {
    let world = World::plain().await;
    let asked = [("idempotency-key", "k"), ("idempotency-dry-run", "true")];
    let would = world.client.place("tea", "", &asked).await;
    let said = metadata(&would);
    assert_eq!(
        (&said["idempotency-effect"], &said["idempotency-dry-run"]),
        (&"would_execute".parse().unwrap(), &"true".parse().unwrap())
    );
    assert_eq!(said["idempotency-reason"], "it would run, as attempt 1");
    assert_eq!((would.unwrap().into_inner().number, world.shop.placed()), (0, 0));
    world.client.place("tea", "", &[("idempotency-key", "k")]).await.unwrap();
    let would = metadata(&world.client.place("tea", "", &asked).await);
    assert_eq!(would["idempotency-effect"], "noop");
    let refused = world.client.place("coffee", "", &asked).await;
    assert_refused(&refused, Code::FailedPrecondition, "key_reused", "-1");
    assert_eq!(world.shop.placed(), 1);
    // A service that understands dry runs is asked itself.
    let world = World::new(|layer| layer.dry_run(DryRun::PassOn)).await;
    assert_eq!(world.client.place("tea", "", &asked).await.unwrap().into_inner().number, 1);
}

#[tokio::test]
async fn only_the_methods_that_are_named_are_guarded() {
    let world = World::new(|layer| layer.require_key().paths([PLACE])).await;
    let refused = world.client.place("tea", "", &[]).await;
    assert_refused(&refused, Code::InvalidArgument, "key_required", "-1");
    assert_eq!(world.shop.placed(), 0);
    for count in 1..=2 {
        // It passes through, as often as it is called.
        world.client.place_at(PLACE_AGAIN, "tea", "", &[("idempotency-key", "k")]).await.unwrap();
        assert_eq!(world.shop.placed(), count);
    }
}

/// A stream of messages that never ends: what a client does who waits for an answer first.
struct Endless(Option<Bytes>);

impl futures_core::Stream for Endless {
    type Item = Result<Frame<Bytes>, std::convert::Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0
            .take()
            .map_or(std::task::Poll::Pending, |bytes| std::task::Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_requests_that_never_ends_is_given_up_and_nothing_runs() {
    let directory = tempfile::tempdir().unwrap();
    let shop = Shop::new(directory.path());
    let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
    let mut service = OncelyLayer::new(oncely).stall(Duration::from_secs(5)).layer(shop.clone());
    let body = StreamBody::new(Endless(Some(Bytes::from_static(b"\0\0\0\0\0")))).boxed();
    let request =
        Request::post(PLACE).header("content-type", "application/grpc").header("idempotency-key", "k");
    let (head, body) = service.call(request.body(body).unwrap()).await.unwrap().into_parts();
    assert_eq!((head.status.as_u16(), &head.headers["grpc-status"]), (200, &"3".parse().unwrap()));
    assert_eq!(head.headers["idempotency-code"], "body_unusable");
    assert!(body.collect().await.unwrap().to_bytes().is_empty());
    assert_eq!(shop.placed(), 0);
}

/// What is said to a client of this content type.
async fn refused_as(kind: &'static str) -> (u16, HeaderMap, Bytes) {
    let directory = tempfile::tempdir().unwrap();
    let oncely = Oncely::new(oncely_store::open("memory:").await.unwrap());
    let mut service = OncelyLayer::new(oncely).require_key().layer(Shop::new(directory.path()));
    let request = Request::post(PLACE).header("content-type", kind).body(Full::<Bytes>::default()).unwrap();
    let (head, body) = service.call(request).await.unwrap().into_parts();
    (head.status.as_u16(), head.headers, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn a_refusal_speaks_as_the_client_does() {
    for (kind, expected) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("Application/gRPC; charset=utf-8", "application/grpc"),
        ("application/grpc-web+proto", "application/grpc-web"),
        ("application/grpc-web-text", "application/grpc-web-text"),
    ] {
        let (status, headers, body) = refused_as(kind).await;
        assert_eq!((status, headers["content-type"].to_str().unwrap()), (200, expected), "{kind}");
        assert_eq!((&headers["grpc-status"], body.len()), (&"3".parse().unwrap(), 0), "{kind}");
    }
    for kind in ["application/json", "application/grpcx", "application/grpc-other", "text/application/grpc"] {
        let (status, headers, _) = refused_as(kind).await;
        assert_eq!((status, headers.contains_key("grpc-status")), (400, false), "{kind}");
    }
}
