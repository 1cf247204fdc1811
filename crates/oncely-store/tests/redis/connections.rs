//! Few connections for few callers.

use oncely_testkit::servers::Redis;

use crate::common::finish;
use crate::open;

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
