//! A cluster that is rearranged under the ledger.

use oncely_core::{StoreErrorKind, Wrote};
use oncely_testkit::servers::RedisCluster;

use crate::common::{LONG, draft, finish, id, running};
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
        match store.create(id(&key), draft(&key, running(), LONG), vec![]).await {
            Ok(_) => won.push(key),
            Err(_) => return false,
        }
        // All shards answer.
        store.census().await.is_ok()
    })
    .await;
    for key in won {
        assert!(store.load(id(&key)).await.unwrap().is_some(), "{key} was acknowledged and is gone");
    }
}
