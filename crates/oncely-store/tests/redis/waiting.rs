//! Waiting for a change: listened for while somebody waits, and listened for again after the connection broke.

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
