//! Keys that are not the ledger's, or were tampered with.

use oncely_core::{LogQuery, StoreErrorKind};
use oncely_testkit::servers::Redis;

use crate::common::{LONG, draft, finish, id, running};
use crate::{fresh, open, refused};

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_that_belongs_to_somebody_else_is_refused() {
    let server = Redis::shared().unwrap();
    for (value, kind) in [
        ("their counter", StoreErrorKind::Foreign),
        ("oncely 9 64 ab ready", StoreErrorKind::TooNew),
        ("oncely 1 0 ab ready", StoreErrorKind::Foreign),
    ] {
        let prefix = fresh();
        server.cli(&["SET", &format!("{{{prefix}:0}}:head"), value]).unwrap();
        let error = refused(&format!("{}?prefix={prefix}", server.url())).await;
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_prefixes_are_two_ledgers() {
    let server = Redis::shared().unwrap();
    let one = open(&format!("{}?prefix={}", server.url(), fresh())).await;
    let other = open(&format!("{}?prefix={}", server.url(), fresh())).await;
    finish(&one, "same").await;
    assert!(other.load(id("same")).await.unwrap().is_none());
    finish(&other, "same").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_filed_under_another_ones_key_is_never_shown() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    finish(&store, "mine").await;
    let key = |of: &str| [format!("{{{prefix}:0}}:r:").as_bytes(), &id(of).0].concat();
    copy(server, &key("mine"), &key("yours"));
    for error in [
        store.load(id("yours")).await.unwrap_err(),
        store.create(id("yours"), draft("yours", running(), LONG), vec![]).await.unwrap_err(),
    ] {
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
        assert!(error.message.contains("another intent"), "{error}");
    }
    assert!(store.load(id("mine")).await.unwrap().is_some());
}

/// Copies a key whose name is not a text.
fn copy(server: &Redis, from: &[u8], to: &[u8]) {
    let script = "return redis.call('COPY', KEYS[1], KEYS[2], 'REPLACE')";
    raw(server, &[b"EVAL", script.as_bytes(), b"2", from, to]);
}

pub(crate) fn raw(server: &Redis, parts: &[&[u8]]) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let mut command = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        command.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        command.extend_from_slice(part);
        command.extend_from_slice(b"\r\n");
    }
    stream.write_all(&command).unwrap();
    let mut reply = [0; 1];
    stream.read_exact(&mut reply).unwrap();
    assert_ne!(reply[0], b'-', "the server refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_an_error_and_no_claim() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    let key = [format!("{{{prefix}:0}}:r:").as_bytes(), &id("broken").0].concat();
    for value in
        [&b""[..], b"x", b"1-1\n\n", b"1-1\n\n\x01\xff\xff\xff\xff", b"1-1\nx\n\x01", b"9-9\n1-1\n\x02"]
    {
        raw(server, &[b"SET", &key, value]);
        let error = store.load(id("broken")).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
        let error = store.create(id("broken"), draft("broken", running(), LONG), vec![]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_without_a_record_are_tolerated_and_tidied() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    let retention = crate::common::NOTHING_KEPT;
    let begun = crate::common::begin(&store, "gone").await;
    crate::common::complete(&store, "gone", begun.record.version, retention).await;
    // As if the server had dropped it after its time.
    raw(server, &[b"DEL", &[format!("{{{prefix}:0}}:r:").as_bytes(), &id("gone").0].concat()]);
    assert!(store.scan(Default::default(), 0, 10).await.unwrap().items.is_empty());
    store.purge(10).await.unwrap();
    assert_eq!(store.census().await.unwrap().iter().map(|(_, n)| n).sum::<u64>(), 0);
    finish(&store, "gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_records_carry_a_time_to_live_beyond_their_retention_and_open_ones_none() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    let begun = crate::common::begin(&store, "k").await;
    let ttl = || {
        let script = format!("return redis.call('PTTL', redis.call('KEYS', '{{{prefix}:0}}:r:*')[1])");
        server.cli(&["EVAL", &script, "0"]).unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(ttl(), -1);
    crate::common::complete(&store, "k", begun.record.version, LONG).await;
    assert!(ttl() > LONG.remember_for_ms as i64, "{}", ttl());
}

/// An answer that is lost on a connection that stalls is asked for again on another one, and what comes after it, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_to_the_counters_and_arrives_late_is_not_added_again() {
    let server = Redis::shared().unwrap();
    let keys = [format!("{}:count", fresh()), format!("{}:counted", fresh())];
    let script = include_str!("../../src/redis/scripts/tally.lua");
    let add = |number: &str| {
        let line = ["EVAL", script, "2", &keys[0], &keys[1], number, "3600000", "charge", "5"];
        server.cli(&line).unwrap()
    };
    assert_eq!(["1", "2", "1", "2", "9", "10", "9"].map(add), ["1", "1", "0", "0", "1", "1", "0"]);
    assert_eq!(server.cli(&["HGET", &keys[0], "charge"]).unwrap(), "20");
}

/// The server cuts the log in pieces of a hundred entries: a bound is kept within two of them.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_each_shard_has_a_bound_and_keeps_the_newest() {
    let server = Redis::shared().unwrap();
    for shards in [1, 2] {
        let prefix = fresh();
        let store =
            open(&format!("{}?prefix={prefix}&shards={shards}&audit={}", server.url(), 100 * shards)).await;
        for number in 0..500 {
            finish(&store, &format!("k{number}")).await;
        }
        for shard in 0..shards {
            let length = server.cli(&["XLEN", &format!("{{{prefix}:{shard}}}:log")]).unwrap();
            let length: usize = length.trim().parse().unwrap();
            assert!((100..=300).contains(&length), "shard {shard} of {shards} keeps {length} entries");
        }
        let query = LogQuery { intent: Some(id("k499")), limit: 10, ..LogQuery::default() };
        assert_eq!(store.log(query).await.unwrap().items.len(), 2, "the newest are kept");
    }
}
