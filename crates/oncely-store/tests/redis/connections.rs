//! Few connections for few callers; and what waits for one when there is none.

use std::time::Duration;

use oncely_core::{StoreErrorKind, Wrote};
use oncely_testkit::servers::{Redis, Tap};

use crate::common::{LONG, begin, complete, draft, finish, id, running};
use crate::{open, until};

/// Connections that have sent at least one command, besides the one that asks.
fn clients(server: &Redis) -> usize {
    server.cli(&["CLIENT", "LIST"]).unwrap().lines().filter(|line| !line.contains("cmd=client")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_caller_at_a_time_uses_one_connection() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    for n in 0..40 {
        finish(&store, &format!("k{n}")).await;
    }
    assert_eq!((clients(&server), store.health().connected), (1, 1));
    // Once there are many, the last one that was busy is the next one, too.
    let callers = (0..200).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { finish(&store, &format!("many-{n}")).await })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

/// The server takes no more connections. Whoever asks is answered over the one that there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_cannot_be_made_fails_no_call_while_there_is_another() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    finish(&store, "first").await;
    // This connection sets it, and goes.
    server.cli(&["CONFIG", "SET", "maxclients", "1"]).unwrap();
    let callers = (0..300).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..3 {
                finish(&store, &format!("{n}-{round}")).await;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!(store.health().connected, 1, "the server took more: the test shows nothing");
}

/// Nothing of it was sent: whoever is told "perhaps" has to look first, and may not find out.
#[tokio::test(flavor = "multi_thread")]
async fn all_that_waits_for_a_server_that_is_gone_is_refused_together() {
    let server = Redis::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let store = open(&format!("{}?timeout=5s&connections=1", server.url_through(tap.port()))).await;
    finish(&store, "before").await;
    tap.cut();
    until("the loss is noticed", async || store.health().link.down_for().is_some()).await;
    // More than fit into several pipelines.
    let claims: Vec<_> = (0..2_000)
        .map(|n| {
            let (store, key) = (store.clone(), format!("{n}-{}", "x".repeat(240)));
            tokio::spawn(async move { store.create(id(&key), draft(&key, running(), LONG), vec![]).await })
        })
        .collect();
    let all = async {
        for claim in claims {
            let error = claim.await.unwrap().unwrap_err();
            assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No), "{error}");
        }
    };
    // Twice the time for a connection, and a pause between two tries.
    tokio::time::timeout(Duration::from_secs(12), all).await.expect("some were left waiting");
    tap.pass();
    until("the ledger heals", async || store.load(id("before")).await.is_ok_and(|s| s.is_some())).await;
    let begun = begin(&store, "after").await;
    complete(&store, "after", begun.record.version, LONG).await;
}
