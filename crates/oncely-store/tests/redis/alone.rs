//! One caller alone, who soon sends by itself: whatever happens then is told and healed as ever.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use oncely_core::{Created, Store, StoreErrorKind, Wrote};
use oncely_testkit::servers::{Redis, Tap};

use crate::common::{LONG, draft, finish, id, running, succeeded};
use crate::{fresh, open, until};

/// One call after the other, often enough that the caller is known to be alone.
async fn be_alone(store: &Arc<dyn Store>, name: &str) {
    for i in 0..10 {
        finish(store, &format!("{name}-{i}")).await;
    }
}

async fn claim(store: &Arc<dyn Store>, key: &str) -> Result<Created, oncely_core::StoreError> {
    store.create(id(key), draft(key, running(), LONG), vec![]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_caller_whose_answer_is_lost_is_told_that_it_may_be_written() {
    let server = Redis::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let store = open(&format!("{}?connections=1", server.url_through(tap.port()))).await;
    for round in 0..3 {
        be_alone(&store, &format!("before-{round}")).await;
        let lost = format!("lost-{round}");
        tap.cut_after_answered(0);
        let error = claim(&store, &lost).await.unwrap_err();
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{error}");
        tap.pass();
        let mut found = None;
        until("the ledger heals", async || {
            found = claim(&store, &lost).await.ok();
            found.is_some()
        })
        .await;
        assert!(matches!(found, Some(Created::Exists(_))), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_caller_of_a_server_that_hangs_is_told_in_time() {
    let server = Redis::start().unwrap();
    let store = open(&format!("{}?timeout=300ms&connections=1", server.url())).await;
    for round in 0..3 {
        until("the caller is alone", async || {
            let mut all = true;
            for i in 0..10 {
                all &= store.load(id(&format!("{round}-{i}"))).await.is_ok();
                // Who thinks between two calls finds the connection laid down, and not still being read.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            all
        })
        .await;
        server.pause();
        let error = claim(&store, &format!("slow-{round}")).await.unwrap_err();
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{error}");
        assert!(error.message.contains("no answer within 300 ms"), "{error}");
        server.resume();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_caller_of_a_server_that_was_killed_has_written_nothing() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    be_alone(&store, "before").await;
    server.kill().unwrap();
    let error = claim(&store, "during").await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No), "{error}");
    server.start_again().unwrap();
    until("the ledger heals", async || store.load(id("before-0")).await.is_ok_and(|s| s.is_some())).await;
    assert!(store.load(id("during")).await.unwrap().is_none());
    be_alone(&store, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lone_caller_gives_up_is_never_another_ones_answer() {
    let server = Redis::shared().unwrap();
    let store = open(&format!("{}?connections=1&prefix={}", server.url(), fresh())).await;
    be_alone(&store, "known").await;
    for round in 0..40 {
        be_alone(&store, &format!("between-{round}")).await;
        let key = format!("given-up-{round}");
        let mut given_up = Box::pin(store.create(id(&key), draft(&key, succeeded("r"), LONG), vec![]));
        let polled = given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(given_up);
        let known = format!("known-{}", round % 10);
        let loaded = store.load(id(&known)).await.unwrap().unwrap();
        assert_eq!(loaded.record.body.name.key.as_str(), known);
        // What was handed in is carried out, whoever waits for it.
        store.flush().await.unwrap();
        let there = store.load(id(&key)).await.unwrap();
        assert!(there.is_some(), "{key}: {polled:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_after_a_lone_one_and_a_lone_one_after_many_are_all_answered() {
    let server = Redis::shared().unwrap();
    for settings in ["connections=1", "connections=8", "connections=2&shards=3"] {
        let store = open(&format!("{}?{settings}&prefix={}", server.url(), fresh())).await;
        for round in 0..5 {
            be_alone(&store, &format!("alone-{round}")).await;
            // The first of them sends by itself, and the others meet it under way.
            let callers: Vec<_> = (0..100)
                .map(|caller| {
                    let store = store.clone();
                    tokio::spawn(async move { finish(&store, &format!("many-{round}-{caller}")).await })
                })
                .collect();
            for caller in callers {
                caller.await.unwrap();
            }
        }
        let mut found = 0;
        let mut from = Some(0);
        while let Some(at) = from {
            let page = store.scan(Default::default(), at, 100).await.unwrap();
            found += page.items.len();
            from = page.next;
        }
        assert_eq!(found, 5 * (10 + 100), "{settings}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_caller_with_a_large_result_is_answered_like_any_other() {
    let server = Redis::shared().unwrap();
    let store = open(&format!("{}?connections=1&prefix={}", server.url(), fresh())).await;
    for (round, bytes) in [1, 10_000, 20_000, 700_000, 1].into_iter().enumerate() {
        be_alone(&store, &format!("{round}")).await;
        let key = format!("large-{round}");
        let result = "x".repeat(bytes);
        let made = store.create(id(&key), draft(&key, succeeded(&result), LONG), vec![]).await.unwrap();
        assert!(matches!(made, Created::New(_)), "{made:?}");
        assert_eq!(store.load(id(&key)).await.unwrap().unwrap().record.body.state, succeeded(&result));
    }
}
