//! Calls that are given up at any moment: the next caller never gets their answers.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use oncely_core::{Counter, Created, Namespace, Store, ToolName};
use oncely_testkit::servers::Redis;

use crate::common::{LONG, draft, finish, id, succeeded};
use crate::{fresh, open};

/// Polls a future so often, letting the server answer between, and then gives it up.
async fn give_up_after<T>(future: impl Future<Output = T>, polls: usize) {
    let mut future = pin!(future);
    for _ in 0..polls {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn give_up_all(store: &Arc<dyn Store>, key: &str, polls: usize) {
    let state = succeeded(key);
    give_up_after(store.create(id(key), draft(key, state, LONG), vec![]), polls).await;
    give_up_after(store.load(id(key)), polls).await;
    give_up_after(store.scan(Default::default(), 0, 3), polls).await;
    give_up_after(store.log(oncely_core::LogQuery { limit: 3, ..Default::default() }), polls).await;
    give_up_after(store.watch(id(key), oncely_core::Version(1)), polls).await;
    give_up_after(store.census(), polls).await;
    give_up_after(store.purge(3), polls).await;
    give_up_after(store.tallies(), polls).await;
    give_up_after(store.flush(), polls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_never_hands_its_answer_to_another() {
    let server = Redis::start().unwrap();
    let store = open(&format!("{}?connections=1&shards=4&prefix={}", server.url(), fresh())).await;
    for i in 0..50 {
        finish(&store, &format!("known-{i}")).await;
    }
    let quitters: Vec<_> = (0..4)
        .map(|quitter| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..60 {
                    give_up_all(&store, &format!("given-up-{quitter}-{round}"), round % 12).await;
                }
            })
        })
        .collect();
    let askers: Vec<_> = (0..4)
        .map(|asker| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..400 {
                    let key = format!("known-{}", (asker * 13 + round) % 50);
                    // A record carries its own name: an answer that belongs to another would be seen here.
                    let loaded = store.load(id(&key)).await.unwrap().unwrap();
                    assert_eq!(loaded.record.body.name.key.as_str(), key);
                    match store.create(id(&key), draft(&key, succeeded("x"), LONG), vec![]).await.unwrap() {
                        Created::Exists(there) => assert_eq!(there.record, loaded.record),
                        Created::New(_) => panic!("{key} was made anew"),
                    }
                    store.now().await.unwrap();
                }
            })
        })
        .collect();
    for task in quitters.into_iter().chain(askers) {
        task.await.unwrap();
    }
    store.flush().await.unwrap();
    let page = store.scan(Default::default(), 0, 1_000).await.unwrap();
    for stored in page.items {
        assert_eq!(id(stored.record.body.name.key.as_str()), stored.record.intent);
    }
}

/// Whoever waits for the counters may go away at any moment: what was sent by then is not added a second time.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_is_counted_once_whoever_gives_up_waiting_for_it() {
    let server = Redis::start().unwrap();
    let store = open(&format!("{}?prefix={}", server.url(), fresh())).await;
    let (namespace, tool) = (Namespace::default(), ToolName::parse("pay").unwrap());
    let mut counted = 0;
    for round in 0..300 {
        store.tally(&namespace, &tool, &[(Counter::Calls, 1)]);
        counted += 1;
        give_up_after(store.flush(), round % 12).await;
        if round % 3 == 0 {
            give_up_after(store.tallies(), round % 7).await;
        }
    }
    let told = store.tallies().await.unwrap();
    assert_eq!(told.iter().map(|tally| tally.count).sum::<u64>(), counted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_can_be_used_without_a_runtime() {
    let server = Redis::start().unwrap();
    let url = server.url();
    // No tokio on this thread: a future is polled by hand until it is ready.
    std::thread::spawn(move || {
        let store = block(oncely_store::open(&url)).unwrap();
        let begun = block(store.create(id("k"), draft("k", succeeded("r"), LONG), vec![])).unwrap();
        assert!(matches!(begun, Created::New(_)));
        assert!(block(store.load(id("k"))).unwrap().is_some());
        block(store.watch(id("k"), oncely_core::Version(1))).unwrap();
        assert_eq!(block(store.log(Default::default())).unwrap().items.len(), 0);
    })
    .join()
    .unwrap();
}

fn block<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        std::thread::yield_now();
    }
}
