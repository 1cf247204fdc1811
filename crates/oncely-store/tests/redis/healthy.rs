//! How the way to the servers is told; and that who has written nothing does not wait for replicas.

use std::time::Duration;

use oncely_core::Created;
use oncely_testkit::servers::{Redis, RedisCluster};

use crate::common::{LONG, begin, draft, finish, id, running, succeeded};
use crate::{address_of, fresh, open, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_told_until_it_is_back() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    finish(&store, "k").await;
    let health = store.health();
    assert_eq!((health.link.as_str(), health.reconnects), ("connected", 0), "{health:?}");
    assert!(health.connected > 0 && health.queue_max == 16_384, "{health:?}");
    server.kill().unwrap();
    until("the loss is noticed", async || store.health().link.as_str() == "reconnecting").await;
    assert!(store.load(id("k")).await.is_err());
    let health = store.health();
    assert!(health.link.down_for().is_some() && health.connected == 0, "{health:?}");
    server.start_again().unwrap();
    until("the ledger heals", async || store.load(id("k")).await.is_ok()).await;
    let health = store.health();
    assert_eq!(health.link.as_str(), "connected", "{health:?}");
    assert!(health.reconnects > 0, "{health:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_back_and_unfit_is_told_as_refused_with_the_reason() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    finish(&store, "k").await;
    server.cli(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    until("it is refused", async || store.load(id("k")).await.is_err_and(|e| e.message.contains("everysec")))
        .await;
    let health = store.health();
    assert_eq!(health.link.as_str(), "refused", "{health:?}");
    assert!(format!("{health:?}").contains("CONFIG SET appendfsync always"), "{health:?}");
    server.cli(&["CONFIG", "SET", "appendfsync", "always"]).unwrap();
    until("the ledger heals", async || store.load(id("k")).await.is_ok()).await;
    assert_eq!(store.health().link.as_str(), "connected");
}

/// Servers and balancers close what is idle. Nobody is to be woken for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_idle_connections_is_not_told_as_lost() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    finish(&store, "k").await;
    server.cli(&["CONFIG", "SET", "timeout", "1"]).unwrap();
    until("the connection is closed", async || {
        let health = store.health();
        assert_eq!(health.link.as_str(), "connected", "{health:?}");
        health.connected == 0
    })
    .await;
    // Not while the next call is under way, too.
    server.cli(&["CONFIG", "SET", "timeout", "0"]).unwrap();
    finish(&store, "again").await;
    assert_eq!(store.health().link.as_str(), "connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_was_replaced_is_not_missed() {
    let cluster = RedisCluster::start(3, 3).unwrap();
    let store = open(&format!("{}?wait=1&wait_timeout=60s&prefix={}", address_of(&cluster), fresh())).await;
    for n in 0..30 {
        finish(&store, &format!("k{n}")).await;
    }
    cluster.kill_primary(0).unwrap();
    until("the loss is told", async || {
        let _ = store.census().await;
        store.health().link.down_for().is_some()
    })
    .await;
    until("its replica has taken over", async || {
        store.census().await.is_ok() && store.health().link.as_str() == "connected"
    })
    .await;
}

/// The replicas may take an hour: whoever waited for them would not be answered here.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_does_not_wait_for_replicas_that_are_gone() {
    let primary = Redis::start().unwrap();
    let replica = primary.replica().unwrap();
    let address = format!("{}?wait=1&wait_timeout=3600s&connections=1", primary.url());
    let store = open(&address).await;
    finish(&store, "known").await;
    replica.kill().unwrap();
    let duplicates = async {
        for _ in 0..50 {
            let found = store.create(id("known"), draft("known", running(), LONG), vec![]).await.unwrap();
            assert!(matches!(found, Created::Exists(_)), "{found:?}");
        }
        let change = oncely_core::Change::Remove;
        let stale = store.replace(id("known"), oncely_core::Version(1), change, vec![]).await.unwrap();
        assert!(matches!(stale, oncely_core::Replaced::Stale(Some(_))), "{stale:?}");
    };
    tokio::time::timeout(Duration::from_secs(120), duplicates).await.expect("they waited for a replica");
}

/// A claim that nobody confirms holds one connection; the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_for_replicas_holds_up_no_duplicate() {
    let primary = Redis::start().unwrap();
    let replica = primary.replica().unwrap();
    let store = open(&format!("{}?wait=1&wait_timeout=3600s&connections=2", primary.url())).await;
    finish(&store, "known").await;
    replica.kill().unwrap();
    let claimed = {
        let store = store.clone();
        tokio::spawn(async move { store.create(id("new"), draft("new", running(), LONG), vec![]).await })
    };
    // It is there before it is confirmed.
    until("the claim is written", async || primary.cli(&["DBSIZE"]).unwrap().parse::<u32>().unwrap() > 5)
        .await;
    let duplicates = async {
        for _ in 0..20 {
            let found = store.create(id("known"), draft("known", running(), LONG), vec![]).await.unwrap();
            assert!(matches!(found, Created::Exists(_)), "{found:?}");
        }
    };
    tokio::time::timeout(Duration::from_secs(120), duplicates).await.expect("they waited for a replica");
    assert!(!claimed.is_finished(), "a claim that no replica has was acknowledged");
    replica.start_again().unwrap();
    assert!(matches!(claimed.await.unwrap().unwrap(), Created::New(_)), "confirmed, once there is a replica");
}

/// What was told stays true: the end was lost with its server, and its record is running, not free.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_told_and_then_lost_leaves_a_key_that_is_not_free() {
    let primary = Redis::start().unwrap();
    let replica = primary.replica().unwrap();
    let begun = begin(&open(&format!("{}?wait=1&wait_timeout=60s", primary.url())).await, "k").await;
    let writer = open(&format!("{}?wait=1&wait_timeout=2s", primary.url())).await;
    // Cut off, with what it has in its memory: what it confirms need not be on its disk.
    replica.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let change = oncely_core::Change::Put(Box::new(draft("k", succeeded("r"), LONG)));
    let unconfirmed = writer.replace(id("k"), begun.record.version, change, vec![]).await.unwrap_err();
    assert_eq!(unconfirmed.wrote, oncely_core::Wrote::Maybe, "{unconfirmed}");
    // A duplicate elsewhere is told what happened, without waiting for anybody.
    let other = open(&format!("{}?wait=1&wait_timeout=3600s", primary.url())).await;
    let told = other.create(id("k"), draft("k", running(), LONG), vec![]).await.unwrap();
    assert!(matches!(&told, Created::Exists(there) if there.record.body.state.has_ended()), "{told:?}");
    // The primary is gone for good, with the end; the replica has taken over with what it had.
    primary.kill().unwrap();
    let after = open(&format!("{}?wait=0", replica.url())).await;
    let there = after.create(id("k"), draft("k", running(), LONG), vec![]).await.unwrap();
    match there {
        // Its owner is asked for, and its lease waited for: then it is in doubt, and never runs by itself.
        Created::Exists(there) => assert_eq!(there.record, begun.record),
        other => panic!("the key is free: {other:?}"),
    }
}
