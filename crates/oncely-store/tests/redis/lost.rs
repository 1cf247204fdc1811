//! Servers, replicas, connections and memory that are gone: what is told, and what is there afterwards.

use std::sync::Arc;

use oncely_core::{
    Change, Created, Event, EventKind, Failure, LogQuery, Settled, State, Store, StoreErrorKind, Wrote,
};
use oncely_testkit::servers::{Redis, Tap};

use crate::common::{LONG, begin, complete, draft, finish, id, running};
use crate::{fresh, open, refused, until};

/// A handle for what replicas have to confirm, however busy the machine is.
async fn patient(primary: &Redis) -> Arc<dyn Store> {
    open(&format!("{}?wait_timeout=60s", primary.url())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_has_written_nothing() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    finish(&store, "before").await;
    server.kill().unwrap();
    // What is sent before it is known may have been written, for all that can be known.
    until("the loss is noticed", async || store.health().link.down_for().is_some()).await;
    let error = store.create(id("during"), draft("during", running(), LONG), vec![]).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No), "{error}");
    let error = store.load(id("before")).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No), "{error}");
    server.start_again().unwrap();
    until("the ledger heals", async || store.load(id("before")).await.is_ok_and(|s| s.is_some())).await;
    assert!(store.load(id("during")).await.unwrap().is_none());
    finish(&store, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_may_have_been_written_and_is_found_by_its_token() {
    let server = Redis::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let store = open(&format!("{}?connections=1", server.url_through(tap.port()))).await;
    finish(&store, "before").await;
    tap.cut_after_answered(0);
    let error = store.create(id("lost"), draft("lost", running(), LONG), vec![]).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{error}");
    tap.pass();
    let mut found = None;
    until("the ledger heals", async || {
        found = store.create(id("lost"), draft("lost", running(), LONG), vec![]).await.ok();
        found.is_some()
    })
    .await;
    // The write had come through: whoever asks again meets its own token, and is never told that it has won.
    match found {
        Some(Created::Exists(there)) => assert_eq!(there.record.body.token.0, [9; 16]),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_given_up_in_time() {
    let server = Redis::start().unwrap();
    let store = open(&format!("{}?timeout=2s&connections=1", server.url())).await;
    finish(&store, "before").await;
    server.pause();
    let error = store.create(id("slow"), draft("slow", running(), LONG), vec![]).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{error}");
    assert!(error.message.contains("no answer within 2000 ms"), "{error}");
    server.resume();
    until("the ledger heals", async || store.load(id("before")).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_no_replica_confirms_is_not_won() {
    let primary = Redis::start().unwrap();
    let replica = primary.replica().unwrap();
    // One replica is waited for without being asked, since there is one.
    finish(&patient(&primary).await, "confirmed").await;
    let store = open(&format!("{}?wait_timeout=2s", primary.url())).await;
    replica.kill().unwrap();
    let error = store.create(id("alone"), draft("alone", running(), LONG), vec![]).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{error}");
    assert!(error.message.contains("0 of 1 replicas confirmed it within 2000 ms"), "{error}");
    // It is there, and nobody may take it for theirs; what needs no write is still answered.
    let found = store.create(id("alone"), draft("alone", running(), LONG), vec![]).await.unwrap();
    assert!(matches!(found, Created::Exists(_)), "{found:?}");
    assert!(store.load(id("confirmed")).await.unwrap().is_some());
    replica.start_again().unwrap();
    let mut tries = 0;
    until("a replica confirms again", async || {
        // A new key each time: one that was not confirmed is there, and to find it proves nothing.
        tries += 1;
        let key = format!("again-{tries}");
        matches!(store.create(id(&key), draft(&key, running(), LONG), vec![]).await, Ok(Created::New(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_claims_and_still_replays() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    let kept = finish(&store, "kept").await;
    let open_one = begin(&store, "open").await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = store.create(id("new"), draft("new", running(), LONG), vec![]).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Full, Wrote::No), "{error}");
    assert!(error.message.contains("maxmemory"), "{error}");
    match store.create(id("kept"), draft("kept", running(), LONG), vec![]).await.unwrap() {
        Created::Exists(there) => assert_eq!(there.record, kept.record),
        other => panic!("{other:?}"),
    }
    assert!(store.load(id("new")).await.unwrap().is_none(), "a refused claim was written");
    let log = store.log(LogQuery { limit: 100, ..Default::default() }).await.unwrap();
    assert_eq!(log.items.len(), 3, "a refused claim left events: {log:?}");
    // What runs already can still be recorded, where the server knows how to tell the two apart.
    complete(&store, "open", open_one.record.version, LONG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_load_has_kept_all_that_it_acknowledged() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut won = Vec::new();
                for round in 0..10_000 {
                    let key = format!("{writer}-{round}");
                    match store.create(id(&key), draft(&key, running(), LONG), vec![]).await {
                        Ok(_) => won.push(key),
                        Err(error) => {
                            let said = error.message.contains("nothing was written");
                            assert_eq!(said, error.wrote == Wrote::No, "{error}");
                            break;
                        }
                    }
                }
                won
            })
        })
        .collect();
    until("some are written", async || store.census().await.is_ok_and(|c| c[0].1 > 600)).await;
    server.kill().unwrap();
    let mut won = Vec::new();
    for writer in writers {
        won.extend(writer.await.unwrap());
    }
    server.start_again().unwrap();
    until("the ledger heals", async || store.now().await.is_ok()).await;
    assert!(won.len() >= 500, "{}", won.len());
    for key in won {
        assert!(store.load(id(&key)).await.unwrap().is_some(), "{key} was acknowledged and is gone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_empty_is_refused() {
    let server = Redis::start().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?shards=4&prefix={prefix}", server.url())).await;
    finish(&store, "known").await;
    server.cli(&["FLUSHALL"]).unwrap();
    // The key is forgotten: to take it for a new one would run its effect again.
    let error = store.create(id("known"), draft("known", running(), LONG), vec![]).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Corrupt, Wrote::No), "{error}");
    assert!(error.message.contains("does not belong to this ledger"), "{error}");
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    let mut seen = None;
    until("it is noticed", async || {
        seen = store.load(id("known")).await.err();
        seen.as_ref().is_some_and(|error| error.kind == StoreErrorKind::Corrupt)
    })
    .await;
    let error = seen.unwrap();
    assert!(error.wrote == Wrote::No && error.message.contains("has lost its head"), "{error}");
    // Nor is a listing told of one record: it is the whole ledger.
    let error = store.scan(Default::default(), 0, 10).await.unwrap_err();
    assert!(error.message.contains("has lost its head"), "{error}");
    // A ledger that has lost only its first head is not made anew either.
    server.cli(&["SET", &format!("{{{prefix}:2}}:head"), "oncely 1 4 ab making"]).unwrap();
    let error = refused(&format!("{}?shards=4&prefix={prefix}", server.url())).await;
    assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_over_a_new_connection_to_an_emptied_server_is_told_of_the_ledger_and_not_of_its_record() {
    let server = Redis::start().unwrap();
    let store = open(&format!("{}?connections=1", server.url())).await;
    finish(&store, "known").await;
    server.cli(&["FLUSHALL"]).unwrap();
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    let mut said = String::new();
    until("it is noticed", async || {
        let error = store.create(id("known"), draft("known", running(), LONG), vec![]).await.unwrap_err();
        let is_noticed = error.kind == StoreErrorKind::Corrupt;
        assert!(!is_noticed || error.wrote == Wrote::No, "{error}");
        said = error.message;
        is_noticed && said.contains("has lost its head")
    })
    .await;
    assert!(!said.contains("cannot be read"), "{said}");
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "0", "something was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_a_server_has_forgotten_are_taught_again() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    for round in 0..5 {
        server.cli(&["SCRIPT", "FLUSH"]).unwrap();
        let finished = (0..20).map(|i| {
            let store = store.clone();
            tokio::spawn(async move { finish(&store, &format!("{round}-{i}")).await })
        });
        for finished in finished.collect::<Vec<_>>() {
            finished.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_handed_in_is_sent_before_the_ledger_is_closed() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    for i in 0..200 {
        let key = format!("k{i}");
        drop(store.create(id(&key), draft(&key, running(), LONG), vec![]));
    }
    drop(store);
    let again = open(&server.url()).await;
    assert_eq!(again.census().await.unwrap()[0].1, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_that_waits_is_refused_without_a_write() {
    let server = Redis::start().unwrap();
    let store = open(&format!("{}?queue=2000&connections=1&timeout=120s", server.url())).await;
    server.pause();
    let waiting: Vec<_> = (0..6_000)
        .map(|i| {
            let (store, key) = (store.clone(), format!("k{i}"));
            tokio::spawn(async move { store.create(id(&key), draft(&key, running(), LONG), vec![]).await })
        })
        .collect();
    // One more than can wait tells that the rest has been queued or refused.
    until("somebody is refused", async || waiting.iter().any(|w| w.is_finished())).await;
    server.resume();
    let (mut refused, mut written) = (0, 0);
    for answer in waiting {
        match answer.await.unwrap() {
            Ok(_) => written += 1,
            Err(error) => {
                assert_eq!((error.kind, error.wrote), (StoreErrorKind::Overloaded, Wrote::No), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && written > 0, "{refused} refused, {written} written");
    assert_eq!(store.census().await.unwrap()[0].1, written);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_refuses_a_ledger_of_which_a_shard_was_emptied() {
    let server = Redis::start().unwrap();
    let address = format!("{}?shards=4&prefix={}", server.url(), fresh());
    drop(open(&address).await);
    open(&address).await;
    let prefix = address.rsplit('=').next().unwrap();
    server.cli(&["DEL", &format!("{{{prefix}:2}}:head")]).unwrap();
    let error = refused(&address).await;
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Corrupt, Wrote::No), "{error}");
    assert!(error.message.contains("shard 2"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_came_later_is_waited_for_once_it_was_seen() {
    let primary = Redis::start().unwrap();
    let store = open(&format!("{}?wait_timeout=2s&connections=1", primary.url())).await;
    finish(&store, "alone").await;
    let replica = primary.replica().unwrap();
    primary.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    until("a new connection is made", async || store.now().await.is_ok()).await;
    replica.kill().unwrap();
    let error = store.create(id("k"), draft("k", running(), LONG), vec![]).await.unwrap_err();
    assert_eq!(error.wrote, Wrote::Maybe, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_no_replica_confirmed_is_not_acknowledged_by_a_look_at_it() {
    let primary = Redis::start().unwrap();
    let replica = primary.replica().unwrap();
    let begun = begin(&patient(&primary).await, "k").await;
    let store = open(&format!("{}?wait=1&wait_timeout=2s", primary.url())).await;
    replica.kill().unwrap();
    let change = Change::Put(Box::new(draft("k", crate::common::succeeded("r"), LONG)));
    let error = store.replace(id("k"), begun.record.version, change, vec![]).await.unwrap_err();
    assert_eq!(error.wrote, Wrote::Maybe, "{error}");
    let error = store.load(id("k")).await.unwrap_err();
    assert!(error.message.contains("0 of 1 replicas confirmed"), "{error}");
    // Others are told what is there: it is true.
    let other = open(&format!("{}?wait=1&wait_timeout=2s", primary.url())).await;
    assert!(other.load(id("k")).await.unwrap().unwrap().record.body.state.has_ended());
    replica.start_again().unwrap();
    until("it is confirmed", async || store.load(id("k")).await.is_ok()).await;
    assert_eq!(replica.cli(&["DBSIZE"]).unwrap(), primary.cli(&["DBSIZE"]).unwrap());
}

/// One gateway's end is not confirmed, and another one goes on from it: the next attempt starts with that end or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_after_an_end_that_no_replica_confirmed_is_confirmed_with_it() {
    for is_lost in [true, false] {
        let primary = Redis::start().unwrap();
        let replica = primary.replica().unwrap();
        let begun = begin(&patient(&primary).await, "k").await.record;
        let address = format!("{}?wait=1&wait_timeout=2s", primary.url());
        let (one, other) = (open(&address).await, open(&address).await);
        replica.kill().unwrap();
        let write = async |store: &Arc<dyn Store>, from, state, attempt, kind| {
            let change = Change::Put(Box::new(draft("k", state, LONG)));
            store.replace(id("k"), from, change, vec![Event::new(id("k"), attempt, kind)]).await
        };
        let rejected =
            State::Rejected { failure: Failure::new("NO", "it did not happen"), settled: Settled::Attempt };
        let ended = write(&one, begun.version, rejected, 1, EventKind::Rejected).await.unwrap_err();
        assert_eq!(ended.wrote, Wrote::Maybe, "{ended}");
        let there = other.load(id("k")).await.unwrap().unwrap().record;
        assert!(matches!(there.body.state, State::Rejected { .. }), "{there:?}");
        let next = write(&other, there.version, running(), 2, EventKind::Began).await.unwrap_err();
        assert_eq!(next.wrote, Wrote::Maybe, "an effect would start that a failover forgets: {next}");
        if is_lost {
            primary.kill().unwrap();
            replica.start_again().unwrap();
        } else {
            replica.start_again().unwrap();
            until("it is confirmed", async || other.load(id("k")).await.is_ok()).await;
            primary.kill().unwrap();
        }
        replica.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
        let after = open(&format!("{}?wait=0", replica.url())).await;
        let there = after.load(id("k")).await.unwrap().unwrap().record;
        let query = LogQuery { intent: Some(id("k")), limit: 10, ..LogQuery::default() };
        let log: Vec<_> =
            after.log(query).await.unwrap().items.iter().map(|e| (e.event.attempt, e.event.kind)).collect();
        if is_lost {
            // It runs as far as anybody knows, never free; and its owner, who tries again, can still say how it ended.
            assert_eq!((there.version, log), (begun.version, vec![(1, EventKind::Began)]));
            complete(&after, "k", begun.version, LONG).await;
        } else {
            assert!(there.version > begun.version, "{there:?}");
            assert_eq!(log, [(1, EventKind::Began), (1, EventKind::Rejected), (2, EventKind::Began)]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_before_the_server_was_started_has_no_certain_age() {
    let server = Redis::start().unwrap();
    let store = open(&server.url()).await;
    let before = finish(&store, "before").await.record.changed_at;
    assert!(store.steady_since() <= before);
    // The server counts its age in whole seconds.
    until("two seconds pass", async || store.now().await.unwrap().since(before) > 2_000).await;
    server.restart().unwrap();
    until("the ledger heals", async || store.now().await.is_ok()).await;
    assert!(store.steady_since() > before, "{:?} {before:?}", store.steady_since());
}
