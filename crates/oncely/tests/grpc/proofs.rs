//! What an answer of gRPC proves, and what a retry of the call gets.

use oncely::tower::{Dialect, Rules};
use oncely::{Effect, Policy};
use oncely_core::IntentId;
use oncely_core::machine::Verdict;
use tonic::Code;

use crate::World;
use crate::shop::{assert_refused, metadata};

/// What is done about a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// It gets the first answer.
    Replayed,
    /// It runs again.
    Runs,
    /// It is told that nobody knows.
    Unknown,
}

/// Places an order that ends with this status, and places it again.
async fn check(world: &World, code: i32, expected: Retry) {
    let (key, act) = (format!("order-{code}"), code.to_string());
    let key = [("idempotency-key", key.as_str())];
    let before = world.shop.placed();
    let first = world.client.place("tea", &act, &key).await;
    assert_eq!(first.as_ref().map_or_else(|status| status.code(), |_| Code::Ok), Code::from_i32(code));
    let outcome = match expected {
        Retry::Replayed => "succeeded",
        Retry::Runs => "rejected",
        Retry::Unknown => "unknown",
    };
    assert_eq!(metadata(&first)["idempotency-outcome"], outcome, "{code}");
    let retry = world.client.place("tea", &act, &key).await;
    let replayed = metadata(&retry).contains_key("idempotent-replayed");
    assert_eq!(replayed, expected == Retry::Replayed, "{code}: {retry:?}");
    match expected {
        Retry::Unknown => {
            assert_refused(&retry, Code::Unknown, "outcome_unknown", "-1");
            let told = retry.unwrap_err();
            let name = format!("{:?}", Code::from_i32(code)).to_uppercase();
            assert!(told.message().replace('_', "").contains(&name), "{told:?}");
            assert!(told.message().contains("Nothing ran now"), "{told:?}");
        }
        _ => assert_eq!(retry.map_or_else(|status| status.code(), |_| Code::Ok), Code::from_i32(code)),
    }
    assert_eq!(world.shop.placed() - before, if expected == Retry::Runs { 2 } else { 1 }, "{code}");
}

#[tokio::test]
async fn a_status_proves_success_a_rejection_or_nothing() {
    let world = World::plain().await;
    check(&world, 0, Retry::Replayed).await;
    for code in [3, 5, 7, 9, 12, 16] {
        check(&world, code, Retry::Runs).await;
    }
    for code in [1, 2, 4, 6, 8, 10, 11, 13, 14, 15] {
        check(&world, code, Retry::Unknown).await;
    }
}

/// tonic tells of an answer that is too long when the service has acted, as if the service had refused.
#[tokio::test]
async fn an_answer_that_is_too_long_to_be_sent_was_an_order_all_the_same() {
    let world = World::plain().await;
    let sent = [("idempotency-key", "k"), ("x-answer-max", "1024")];
    let first = world.client.place("tea", "large", &sent).await;
    let first = first.unwrap_err();
    assert_eq!(first.code(), Code::OutOfRange, "{first:?}");
    for _ in 0..2 {
        let retry = world.client.place("tea", "large", &sent).await;
        assert_refused(&retry, Code::Unknown, "outcome_unknown", "-1");
    }
    assert_eq!(world.shop.placed(), 1);
}

#[tokio::test]
async fn a_crowd_of_equal_calls_is_one_order_and_one_answer() {
    let world = World::plain().await;
    let place = || {
        let client = world.client.clone();
        tokio::spawn(async move { client.place("tea", "hold", &[("idempotency-key", "k")]).await })
    };
    let crowd: Vec<_> = (0..100).map(|_| place()).collect();
    world.shop.go.add_permits(1);
    for one in crowd {
        assert_eq!(one.await.unwrap().unwrap().into_inner().number, 1);
    }
    assert_eq!(world.shop.placed(), 1);
}

#[tokio::test]
async fn a_route_can_say_otherwise_by_the_http_status_that_a_status_counts_as() {
    let rules = Rules {
        rejected_on: vec![409..=409, 429..=429],
        unknown_on: vec![404..=404],
        final_on: vec![403..=403],
        ..Rules::default()
    };
    let world = World::new(|layer| layer.rules(rules)).await;
    for (code, expected) in [
        (6, Retry::Runs),
        (8, Retry::Runs),
        (10, Retry::Runs),
        (5, Retry::Unknown),
        (14, Retry::Unknown),
        (3, Retry::Runs),
    ] {
        check(&world, code, expected).await;
    }
    let key = [("idempotency-key", "k")];
    for replayed in [false, true] {
        let denied = world.client.place("tea", "7", &key).await;
        assert_eq!(metadata(&denied).contains_key("idempotent-replayed"), replayed);
        assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
    }
}

#[tokio::test]
async fn the_dialect_that_replays_errors_replays_these_too() {
    let world = World::new(|layer| layer.dialect(Dialect::Ietf)).await;
    for replayed in [false, true] {
        let denied = world.client.place("tea", "3", &[("idempotency-key", "k")]).await;
        assert_eq!(metadata(&denied).contains_key("idempotent-replayed"), replayed);
    }
    assert_eq!(world.shop.placed(), 1);
    check(&world, 14, Retry::Unknown).await;
}

#[tokio::test]
async fn a_service_can_say_with_its_status_that_nothing_was_executed() {
    let world = World::plain().await;
    for count in 1..=2 {
        let key = [("idempotency-key", "k")];
        let refused = world.client.place("tea", "not-executed", &key).await;
        assert_eq!(metadata(&refused)["idempotency-outcome"], "rejected");
        assert_eq!((refused.unwrap_err().code(), world.shop.placed()), (Code::Unavailable, count));
    }
}

#[tokio::test]
async fn a_rejection_whose_retries_are_used_up_is_replayed_with_all_that_it_said() {
    let world = World::new(|layer| layer.policy(Policy { max_retries: 0, ..Policy::default() })).await;
    for replayed in [false, true] {
        let missing = world.client.place("tea", "5", &[("idempotency-key", "k")]).await;
        let said = metadata(&missing);
        assert_eq!(said.contains_key("idempotent-replayed"), replayed);
        assert_eq!(
            (&said["x-reason"], &said["idempotency-retries-left"]),
            (&"because".parse().unwrap(), &"0".parse().unwrap())
        );
        // It spoke of the moment.
        assert_eq!(said.contains_key("grpc-retry-pushback-ms"), !replayed);
        let missing = missing.unwrap_err();
        assert_eq!((missing.code(), missing.message()), (Code::NotFound, "für später: 100 %"));
        assert_eq!(missing.details(), b"\x01details\xff");
        assert_eq!(
            missing.metadata().get_bin("x-trace-bin").unwrap().to_bytes().unwrap().as_ref(),
            b"\x00\xff"
        );
    }
    assert_eq!(world.shop.placed(), 1);
}

#[tokio::test]
async fn a_page_of_something_in_between_proves_no_success() {
    let world = World::plain().await;
    for (page, retry) in
        [("200", Retry::Unknown), ("302", Retry::Unknown), ("503", Retry::Unknown), ("404", Retry::Runs)]
    {
        let before = world.shop.placed();
        let sent = [("idempotency-key", page), ("x-page", page)];
        world.client.place("tea", "", &sent).await.unwrap_err();
        let again = world.client.place("tea", "", &sent).await;
        if retry == Retry::Unknown {
            assert_refused(&again, Code::Unknown, "outcome_unknown", "-1");
        }
        assert_eq!(world.shop.placed() - before, if retry == Retry::Runs { 2 } else { 1 }, "{page}");
    }
}

#[tokio::test]
async fn what_happened_and_cannot_be_shown_is_said_to_exist_already() {
    let world = World::new(|layer| layer).await;
    // Too long to be kept: it streams to the first caller.
    let first = world.client.place("tea", "large", &[("idempotency-key", "large")]).await;
    assert_eq!(first.unwrap().into_inner().wrapping.len(), 2 << 20);
    let again = world.client.place("tea", "large", &[("idempotency-key", "large")]).await;
    let said = metadata(&again);
    assert_eq!(
        (&said["idempotent-replayed"], &said["idempotency-effect"]),
        (&"true".parse().unwrap(), &"noop".parse().unwrap())
    );
    assert_eq!(said["grpc-retry-pushback-ms"], "-1");
    let again = again.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    assert!(again.message().contains("not kept") && again.message().contains("nothing ran now"), "{again:?}");

    // Settled by a person, with a result that is no message.
    world.client.place("tea", "13", &[("idempotency-key", "lost")]).await.unwrap_err();
    let unknown = world.client.place("tea", "13", &[("idempotency-key", "lost")]).await;
    assert_refused(&unknown, Code::Unknown, "outcome_unknown", "-1");
    let id = metadata(&unknown)["idempotency-record"].to_str().unwrap().to_owned();
    let record = world.oncely.store().load(IntentId::parse(&id).unwrap()).await.unwrap().unwrap().record;
    let result = Some(b"{\"order\":2}"[..].into());
    let verdict = Verdict::Succeeded { effect: Effect::Created, result };
    world.oncely.resolve(&record, "me", verdict).await.unwrap();
    let settled = world.client.place("tea", "13", &[("idempotency-key", "lost")]).await.unwrap_err();
    assert_eq!(settled.code(), Code::AlreadyExists);
    assert!(settled.message().contains("no gRPC message"), "{settled:?}");
    assert_eq!(world.shop.placed(), 2);
}
