//! One record that cannot be read stops neither a purge nor a listing.

use oncely_core::{Change, Event, EventKind, Filter, LogQuery, StateName, StoreErrorKind, Version, Wrote};
use oncely_testkit::servers::Redis;

use crate::common::unreadable::{DAMAGED, STATE_AT, fill, judge, list, purge, refuse_whoever_wants_it, told};
use crate::common::{LONG, draft, id, running};
use crate::foreign::raw;
use crate::{fresh, open};

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_stops_no_other() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    fill(&store).await;
    // The first byte after the version and the trail says how the rest is packed.
    let damage = r"
local value = redis.call('GET', KEYS[1])
local line = string.find(value, '\n', 1, true)
redis.call('SETRANGE', KEYS[1], string.find(value, '\n', line + 1, true), '\9')
return 1";
    for key in DAMAGED {
        let record = [format!("{{{prefix}:0}}:r:").as_bytes(), &id(key).0].concat();
        raw(server, &[b"EVAL", damage.as_bytes(), b"1", &record]);
    }
    judge(&store, StateName::Succeeded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_one_stays_counted_as_rejected_and_one_without_a_version_is_told_of() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    let (record, due) = (
        [format!("{{{prefix}:0}}:r:").as_bytes(), &id("k").0].concat(),
        format!("{{{prefix}:0}}:due").into_bytes(),
    );
    crate::common::finish(&store, "k").await;
    raw(server, &[b"SET", &record, b"garbage"]);
    // Where rejected records are filed, at the first moment of all.
    raw(server, &[b"ZADD", &due, b"4503599627370500", &id("k").0]);
    let report = store.purge(10).await.unwrap();
    assert_eq!((report.unreadable, report.records_removed), (1, 0));
    assert_eq!(store.purge(10).await.unwrap().unreadable, 0);
    let page = store.scan(Default::default(), 0, 10).await.unwrap();
    assert_eq!(page.unreadable.len(), 1);
    assert_eq!(page.unreadable[0].version, None);
    assert_eq!(page.unreadable[0].state, oncely_core::StateName::Rejected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_only_a_newer_version_knows_stops_no_other() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    fill(&store).await;
    let damage = r"
local token = string.find(redis.call('GET', KEYS[1]), string.rep('\9', 16), 1, true) - 1
local known = string.byte(redis.call('GETRANGE', KEYS[1], token + ARGV[1], token + ARGV[1]))
if known ~= 1 and known ~= 2 then return redis.error_reply('it is no state') end
redis.call('SETRANGE', KEYS[1], token + ARGV[1], '\5')
return 1";
    for (key, at) in DAMAGED.into_iter().zip(STATE_AT) {
        let record = [format!("{{{prefix}:0}}:r:").as_bytes(), &id(key).0].concat();
        raw(server, &[b"EVAL", damage.as_bytes(), b"1", &record, at.to_string().as_bytes()]);
    }
    judge(&store, StateName::Succeeded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_stops_no_other_and_is_left_alone() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    fill(&store).await;
    let put = "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'f', 'v')";
    let is_there = "return redis.call('HGET', KEYS[1], 'f') == 'v' or redis.error_reply('it is gone')";
    let records = DAMAGED.map(|key| [format!("{{{prefix}:0}}:r:").as_bytes(), &id(key).0].concat());
    for record in &records {
        raw(server, &[b"EVAL", put.as_bytes(), b"1", record]);
    }
    refuse_whoever_wants_it(&store).await;
    let changed = store.replace(id(DAMAGED[1]), Version(1), Change::Remove, Vec::new()).await.unwrap_err();
    assert_eq!((changed.kind, changed.wrote), (StoreErrorKind::Corrupt, Wrote::No), "{changed}");
    let purged = purge(&store).await;
    assert_eq!((purged.records_removed, purged.unreadable), (3, 1), "{purged:?}");
    for limit in [1, 100] {
        let (keys, unreadable) = list(&store, Filter::default(), limit).await;
        let ids: Vec<_> = unreadable.iter().map(|found| (found.intent, found.version)).collect();
        assert_eq!((keys, ids), (vec!["kept".to_owned()], DAMAGED.map(|key| (id(key), None)).to_vec()));
    }
    assert_eq!(told(&store, DAMAGED[1]).await, [EventKind::Began]);
    // What is said of it is written, though there is no record to remember where.
    store.note(vec![Event::new(id(DAMAGED[1]), 1, EventKind::Superseded)]).await.unwrap();
    assert_eq!(told(&store, DAMAGED[1]).await, [EventKind::Began, EventKind::Superseded]);
    for record in &records {
        raw(server, &[b"EVAL", is_there.as_bytes(), b"1", record]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_refused_leaves_nothing_and_those_beside_it_are_whole() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}&connections=1", server.url())).await;
    let record = [format!("{{{prefix}:0}}:r:").as_bytes(), &id("taken").0].concat();
    raw(server, &[b"HSET", &record, b"f", b"v"]);
    let claim = |key: &'static str| {
        let store = store.clone();
        let events = vec![Event::new(id(key), 1, EventKind::Began)];
        tokio::spawn(async move { store.create(id(key), draft(key, running(), LONG), events).await })
    };
    let error = claim("taken").await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Corrupt, Wrote::No), "{error}");
    let log = async || store.log(LogQuery { limit: 100, ..LogQuery::default() }).await.unwrap().items;
    assert!(log().await.is_empty(), "nothing was written, says the answer: {:?}", log().await);
    assert_eq!(server.cli(&["EXISTS", &format!("{{{prefix}:0}}:log")]).unwrap(), "0");
    // Many at once are one call of the script.
    const OTHERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let claims: Vec<_> =
        OTHERS[..4].iter().chain(&["taken"]).chain(&OTHERS[4..]).map(|key| claim(key)).collect();
    let mut refused = 0;
    for claim in claims {
        refused += usize::from(claim.await.unwrap().is_err());
    }
    assert_eq!((refused, log().await.len()), (1, OTHERS.len()));
    for key in OTHERS {
        assert_eq!(told(&store, key).await, [EventKind::Began], "{key}");
    }
    assert_eq!(store.census().await.unwrap()[0].1, OTHERS.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_id_among_the_entries_is_passed_over() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    fill(&store).await;
    // In front of all others, and more of them than are read at once.
    for entries in ["order", "due"] {
        let key = format!("{{{prefix}:0}}:{entries}");
        for number in 0..200 {
            server.cli(&["ZADD", &key, &(number + 2).to_string(), &format!("x{number}")]).unwrap();
        }
    }
    let (keys, unreadable) = list(&store, Filter::default(), 100).await;
    assert_eq!((keys.len(), unreadable), (6, Vec::new()));
    // By steps of which one alone does not get past them.
    let (mut removed, mut steps) = (0, 0);
    loop {
        let step = store.purge(32).await.unwrap();
        removed += step.records_removed;
        steps += 1;
        assert!(steps <= 20, "the purge does not end");
        if !step.more {
            break;
        }
    }
    assert_eq!(removed, 4, "after {steps} steps");
}
