//! Waiting for a change: listened for while somebody waits, and listened for again after the connection broke.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::{Change, Store};
use oncely_store::redis::{RedisOptions, RedisStore};
use oncely_testkit::servers::Redis;

use crate::common::{LONG, begin, complete, id};
use crate::{open, until};

fn channels(server: &Redis) -> usize {
    server.cli(&["PUBSUB", "CHANNELS"]).unwrap().lines().filter(|line| !line.is_empty()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_listener_heals_and_no_waiter_is_left_behind() {
    let server = Redis::start().unwrap();
    let (waiting, writing) = (open(&server.url()).await, open(&server.url()).await);
    for round in 0..3 {
        let key = format!("k{round}");
        let begun = begin(&writing, &key).await;
        let (store, seen) = (waiting.clone(), begun.record.version);
        let (intent, key_of_it) = (id(&key), key.clone());
        let waiter = tokio::spawn(async move {
            loop {
                store.watch(intent, seen).await.unwrap();
                match store.load(intent).await.unwrap() {
                    Some(there) if there.record.version == seen => {}
                    changed => return (key_of_it, changed),
                }
            }
        });
        until("the channel is listened to", async || channels(&server) > 0).await;
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        until("it is listened to again", async || channels(&server) > 0).await;
        let ended = complete(&writing, &key, seen, LONG).await;
        let (_, found) = waiter.await.unwrap();
        assert_eq!(found.unwrap().record, ended.record);
    }
    until("nobody listens any more", async || channels(&server) == 0).await;
}

/// A user that may not listen to anything: nobody can tell it.
#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_told_looks_by_itself() {
    let server = Redis::start().unwrap();
    server.cli(&["ACL", "SETUSER", "deaf", "on", ">word", "~*", "resetchannels", "+@all"]).unwrap();
    let writing = open(&server.url()).await;
    let waiting = open(&server.url().replace("redis://", "redis://deaf:word@")).await;
    let seen = begin(&writing, "k").await.record.version;
    let waiter = tokio::spawn(async move {
        let mut looks = 0;
        while waiting.load(id("k")).await.unwrap().is_some_and(|there| there.record.version == seen) {
            waiting.watch(id("k"), seen).await.unwrap();
            looks += 1;
        }
        looks
    });
    // It has looked in vain and waits again: by now it is not the first look that finds the end.
    let calls = || server.cli(&["INFO", "commandstats"]).unwrap();
    until("it is refused", async || {
        calls().lines().any(|line| line.contains("subscribe") && !line.contains("rejected_calls=0"))
    })
    .await;
    complete(&writing, "k", seen, LONG).await;
    let looks =
        tokio::time::timeout(Duration::from_secs(180), waiter).await.expect("it never looked").unwrap();
    assert!(looks > 0, "it never waited");
    assert_eq!(channels(&server), 0, "it was told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_wakes_who_waits_on_another_machine() {
    let server = Redis::start().unwrap();
    let mut options = RedisOptions::parse(&server.url()).unwrap();
    // So seldom that looking cannot be what wakes.
    options.look_every = Duration::from_secs(24 * 3_600);
    let waiting: Arc<dyn Store> = Arc::new(RedisStore::open(options).await.unwrap());
    let writing = open(&server.url()).await;
    for key in ["end", "removal"] {
        let seen = begin(&writing, key).await.record.version;
        // The first look is taken before the channel is open, and is over soon.
        waiting.watch(id(key), seen).await.unwrap();
        until("the channel is listened to", async || channels(&server) > 0).await;
        let store = Arc::clone(&waiting);
        let waiter = tokio::spawn(async move {
            while store.load(id(key)).await.unwrap().is_some_and(|there| there.record.version == seen) {
                store.watch(id(key), seen).await.unwrap();
            }
        });
        match key {
            "end" => drop(complete(&writing, key, seen, LONG).await),
            _ => drop(writing.replace(id(key), seen, Change::Remove, Vec::new()).await.unwrap()),
        }
        tokio::time::timeout(Duration::from_secs(180), waiter).await.expect("nobody told of it").unwrap();
    }
}
