//! A cluster that is rearranged under the ledger.

use std::time::Duration;

use oncely_core::{Change, Created, Replaced, StoreErrorKind, Wrote};
use oncely_testkit::servers::RedisCluster;

use crate::common::{LONG, begin, complete, draft, finish, forget, id, running};
use crate::{address_of, fresh, open, refused, until};

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_the_wrong_kind_is_refused_with_the_right_one() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let error = refused(&cluster.urls()[0]).await;
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::BadAddress, Wrote::No), "{error}");
    assert!(error.message.contains("redis+cluster://"), "{error}");
    let single = oncely_testkit::servers::Redis::shared().unwrap();
    let error = refused(&single.url().replace("redis://", "redis+cluster://")).await;
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::BadAddress, Wrote::No), "{error}");
    assert!(error.message.contains("redis://"), "{error}");
    slots_that_move_are_followed(&cluster).await;
}

/// All slots of one primary go to another while calls go on.
async fn slots_that_move_are_followed(cluster: &RedisCluster) {
    let store = open(&format!("{}?prefix={}", address_of(cluster), fresh())).await;
    for i in 0..40 {
        finish(&store, &format!("before-{i}")).await;
    }
    let ids: Vec<String> = (0..3).map(|i| cluster.node(i).cli(&["CLUSTER", "MYID"]).unwrap()).collect();
    let entry = format!("127.0.0.1:{}", cluster.node(0).port());
    let (from, to) = (ids[0].clone(), ids[1].clone());
    let moving = tokio::task::spawn_blocking(move || {
        std::process::Command::new("redis-cli")
            .args(["--cluster", "reshard", &entry, "--cluster-from", &from, "--cluster-to", &to])
            .args(["--cluster-slots", "4000", "--cluster-yes"])
            .output()
            .unwrap()
    });
    let mut during = 0;
    while !moving.is_finished() {
        let key = format!("during-{during}");
        // A shard that is on its way is busy for a moment, and says so without a write.
        match store.create(id(&key), draft(&key, running(), LONG), vec![]).await {
            Ok(_) => during += 1,
            Err(error) => assert_eq!(error.wrote, Wrote::No, "{error}"),
        }
    }
    let moved = moving.await.unwrap();
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stdout));
    assert!(during > 0);
    for i in 0..40 {
        let key = format!("before-{i}");
        assert!(store.load(id(&key)).await.unwrap().is_some(), "{key}");
    }
    for i in 0..during {
        let key = format!("during-{i}");
        assert!(store.load(id(&key)).await.unwrap().is_some(), "{key}");
    }
    let census = store.census().await.unwrap();
    assert_eq!((census[0].1, census[1].1), (during, 40), "{census:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_replicas_confirmed_outlives_a_primary() {
    let cluster = RedisCluster::start(3, 3).unwrap();
    let store = open(&format!("{}?wait=1&wait_timeout=60s&prefix={}", address_of(&cluster), fresh())).await;
    let mut won = Vec::new();
    for i in 0..60 {
        let key = format!("before-{i}");
        finish(&store, &key).await;
        won.push(key);
    }
    cluster.kill_primary(0).unwrap();
    let mut made = 0;
    until("the cluster takes over", async || {
        let key = format!("after-{made}");
        made += 1;
        // A shard whose primary was its replica has nobody left to confirm: that is not waited for.
        let create = store.create(id(&key), draft(&key, running(), LONG), vec![]);
        match tokio::time::timeout(Duration::from_secs(1), create).await {
            Ok(Ok(_)) => won.push(key),
            _ => return false,
        }
        // All shards answer.
        store.census().await.is_ok()
    })
    .await;
    for key in won {
        assert!(store.load(id(&key)).await.unwrap().is_some(), "{key} was acknowledged and is gone");
    }
}

/// A slot whose hand-over has begun, and of which nothing has moved yet.
#[tokio::test(flavor = "multi_thread")]
async fn ends_and_heartbeats_go_on_while_their_slot_is_about_to_move() {
    let cluster = RedisCluster::start(3, 0).unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?shards=1&prefix={prefix}", address_of(&cluster))).await;
    finish(&store, "before").await;
    let (beats, ends) = (begin(&store, "beats").await, begin(&store, "ends").await);
    let slot = cluster.node(0).cli(&["CLUSTER", "KEYSLOT", &format!("{{{prefix}:0}}:head")]).unwrap();
    let holds = |i: &usize| cluster.node(*i).cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).unwrap() != "0";
    let from = (0..3).find(holds).unwrap();
    let to = (from + 1) % 3;
    let id_of = |i: usize| cluster.node(i).cli(&["CLUSTER", "MYID"]).unwrap();
    cluster.node(to).cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]).unwrap();
    cluster.node(from).cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]).unwrap();
    let beat = Change::Put(Box::new(draft("beats", running(), LONG)));
    let beaten = store.replace(id("beats"), beats.record.version, beat, vec![]).await.unwrap();
    assert!(matches!(beaten, Replaced::Done(Some(_))), "{beaten:?}");
    let ended = complete(&store, "ends", ends.record.version, LONG).await;
    // A claim names a key that is not there yet, and so does a removal: they wait for the slot, and write nothing.
    let error = store.create(id("new"), draft("new", running(), LONG), vec![]).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No), "{error}");
    assert!(error.message.contains("slot is being moved to another server; try again"), "{error}");
    // Handed in at once, they go together. What is there is told all the same.
    let both: Vec<_> = (0..60)
        .map(|n| if n % 2 == 0 { "before".to_owned() } else { format!("new-{n}") })
        .map(|key| store.create(id(&key), draft(&key, running(), LONG), vec![]))
        .collect();
    for (n, created) in both.into_iter().enumerate() {
        let created = created.await;
        assert_eq!(matches!(created, Ok(Created::Exists(_))), n % 2 == 0, "{n}: {created:?}");
    }
    for i in [from, to] {
        cluster.node(i).cli(&["CLUSTER", "SETSLOT", &slot, "STABLE"]).unwrap();
    }
    forget(&store, "ends", ended.record.version).await;
    finish(&store, "new").await;
}
