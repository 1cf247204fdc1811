//! A server whose wall clock is set while the ledger is in use: no key is taken for new that is not.

use std::sync::Arc;

use oncely_core::limits::AUDIT_FOR_MS;
use oncely_core::{Created, LogQuery, Store, StoreErrorKind, Wrote};
use oncely_testkit::servers::Redis;

use crate::common::{LONG, begin, draft, finish, id, running};
use crate::{fresh, open};

/// More than the keys of ended records are kept for.
const TWO_MONTHS: i64 = 60 * 86_400;

fn server() -> Redis {
    Redis::builder().movable_clock().start().unwrap()
}

async fn claim(store: &Arc<dyn Store>, key: &str) -> Result<Created, oncely_core::StoreError> {
    store.create(id(key), draft(key, running(), LONG), vec![]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ended_while_the_clock_was_behind_is_known_when_it_is_set_right() {
    let server = server();
    let before = finish(&open(&server.url()).await, "before").await;
    server.move_clock(-TWO_MONTHS).unwrap();
    let behind = open(&server.url()).await;
    let now = behind.now().await.unwrap();
    assert!(now < before.record.changed_at, "the clock has not moved: the harness is blind");
    // The log is ahead of the clock, and stands still: nobody is refused for that.
    let ended = finish(&behind, "behind").await;
    assert!(ended.record.changed_at >= before.record.changed_at);
    server.move_clock(0).unwrap();
    let after = open(&server.url()).await;
    match claim(&after, "behind").await.unwrap() {
        Created::Exists(there) => assert_eq!(there.record, ended.record),
        Created::New(_) => panic!("the key is new again, long before its time"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_a_clock_that_was_set_back_the_age_of_what_was_sent_is_not_known() {
    let server = server();
    // A second connection, made under load, could tell the server's start by another whole second.
    let address = format!("{}?shards=4&connections=1&prefix={}", server.url(), fresh());
    let store = open(&address).await;
    let before = begin(&store, "before").await.record;
    assert!(store.steady_since() <= before.sent_at);
    server.move_clock(-7_200).unwrap();
    // Its time stands still; two hours later it would say that nothing has passed since.
    let now = store.load(id("before")).await.unwrap().unwrap().now;
    assert!(now >= before.sent_at && store.steady_since() > before.sent_at);
    for n in 0..20 {
        let during = begin(&store, &format!("during-{n}")).await.record;
        assert!(store.steady_since() > during.sent_at, "what is sent meanwhile is no better off");
    }
    // A program that starts now finds stamps that this clock has not told.
    let later = open(&address).await;
    let there = later.load(id("before")).await.unwrap().unwrap();
    assert!(there.now < there.record.sent_at, "the clock has not moved: the harness is blind");
    assert!(later.steady_since() > there.record.sent_at);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_leap_was_set_right_the_age_of_what_is_sent_is_not_known() {
    let server = server();
    let store = open(&server.url()).await;
    finish(&store, "before").await;
    server.move_clock(TWO_MONTHS).unwrap();
    // Stamped by whoever believes it.
    begin(&open(&server.url()).await, "ahead").await;
    server.move_clock(0).unwrap();
    // Stamps go on from there, and for two months nothing looks older than that.
    let sent = begin(&store, "after").await.record.sent_at;
    assert!(sent > store.now().await.unwrap(), "the log has not been ahead: the harness is blind");
    assert!(store.steady_since() > sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_a_leapt_clock_has_forgotten_is_not_won() {
    let server = server();
    let store = open(&server.url()).await;
    finish(&store, "known").await;
    server.move_clock(TWO_MONTHS).unwrap();
    let error = claim(&store, "known").await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{error}");
    assert!(error.message.contains("has leapt ahead by 51"), "{error}");
    assert!(error.message.contains("nothing was started"), "{error}");
    server.move_clock(0).unwrap();
    // The claim is there, and is disowned by its token: nobody else wins it meanwhile.
    assert!(matches!(claim(&store, "known").await.unwrap(), Created::Exists(_)));
    finish(&store, "new").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_by_a_clock_that_has_leapt_drops_no_events() {
    let server = server();
    // The server drops whole blocks of the log: here a block is one entry.
    server.cli(&["CONFIG", "SET", "stream-node-max-entries", "1"]).unwrap();
    let store = open(&server.url()).await;
    for n in 0..3 {
        finish(&store, &format!("k{n}")).await;
    }
    server.move_clock(TWO_MONTHS + (AUDIT_FOR_MS / 1_000) as i64).unwrap();
    let error = store.purge(100).await.unwrap_err();
    assert!(error.message.contains("has leapt ahead"), "{error}");
    server.move_clock(0).unwrap();
    let report = store.purge(100).await.unwrap();
    assert_eq!(report.events_removed, 0, "{report:?}");
    let log = store.log(LogQuery { limit: 100, ..LogQuery::default() }).await.unwrap().items;
    assert_eq!(log.len(), 6, "{log:?}");
    // By a clock that is believed they are dropped.
    server.move_clock(TWO_MONTHS + (AUDIT_FOR_MS / 1_000) as i64).unwrap();
    let report = open(&server.url()).await.purge(100).await.unwrap();
    assert_eq!(report.events_removed, 6, "{report:?}");
}
