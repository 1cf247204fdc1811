//! Many callers share a statement and its commit, and still each gets its own answer.

use std::sync::Arc;

use oncely_core::{
    Change, Created, Event, EventKind, LogQuery, Replaced, Store, StoreErrorKind, Version, Wrote,
};
use oncely_testkit::servers::{Postgres, Tap};
use tokio::task::JoinSet;

use crate::common::{LONG, draft, id, running, succeeded};
use crate::{claim, database, open, server, with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_come_together_share_a_commit() {
    let address = server().fresh_database().unwrap();
    let store = open(&with(&address, "pool=1")).await;
    let mut callers = Vec::new();
    for number in 0..200 {
        let store = Arc::clone(&store);
        callers.push(tokio::spawn(async move { claim(&*store, &format!("k{number}")).await.unwrap() }));
    }
    for caller in callers {
        assert!(matches!(caller.await.unwrap(), Created::New(_)));
    }
    let ask = |sql: &str| server().psql_in(database(&address), sql).unwrap().trim().parse::<u64>().unwrap();
    assert_eq!(ask("SELECT count(*) FROM oncely.record"), 200);
    let commits = ask("SELECT count(*) FROM oncely.audit");
    assert!(commits < 100, "200 claims took {commits} commits");
    // Ends are shared as well, and each finds its own record.
    let mut callers = Vec::new();
    for number in 0..200 {
        let store = Arc::clone(&store);
        callers.push(tokio::spawn(async move {
            let key = format!("k{number}");
            let seen = store.load(id(&key)).await.unwrap().unwrap().record;
            let change = Change::Put(Box::new(draft(&key, succeeded(&key), LONG)));
            let events = vec![Event::new(id(&key), 1, EventKind::Succeeded)];
            store.replace(id(&key), seen.version, change, events).await.unwrap()
        }));
    }
    for (number, caller) in callers.into_iter().enumerate() {
        let Replaced::Done(Some(done)) = caller.await.unwrap() else { panic!("an end was not taken") };
        assert_eq!(done.record.body.state, succeeded(&format!("k{number}")));
    }
    assert!(ask("SELECT count(*) FROM oncely.audit") < 200);
    assert_eq!(ask("SELECT count(*) FROM oncely.record WHERE state = 2 AND due > 1"), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_equal_claims_in_one_statement_one_wins_and_the_others_see_it() {
    let store = open(&with(&server().fresh_database().unwrap(), "pool=1")).await;
    let mut callers = Vec::new();
    for number in 0..120 {
        let store = Arc::clone(&store);
        callers.push(tokio::spawn(async move { claim(&*store, &format!("k{}", number % 4)).await.unwrap() }));
    }
    let mut won = 0;
    for caller in callers {
        won += usize::from(matches!(caller.await.unwrap(), Created::New(_)));
    }
    assert_eq!(won, 4);
}

#[tokio::test]
async fn a_duplicate_writes_nothing_at_all() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    claim(&*store, "once").await.unwrap();
    let ask = |sql: &str| server().psql_in(database(&address), sql).unwrap();
    let sequence = "SELECT last_value FROM oncely.commit_seq";
    let before = ask(sequence);
    for _ in 0..20 {
        assert!(matches!(claim(&*store, "once").await.unwrap(), Created::Exists(_)));
    }
    assert_eq!(ask(sequence), before, "a duplicate took a number from the sequence");
    assert_eq!(ask("SELECT count(*) FROM oncely.audit").trim(), "1");
}

/// Only a guess, which others make wrong without a word; a look puts it right.
#[tokio::test]
async fn what_this_process_has_met_is_expected_until_it_is_found_to_be_gone() {
    let address = server().fresh_database().unwrap();
    let (store, other) = (open(&address).await, open(&address).await);
    assert!(!store.expects(&id("k")));
    let Created::New(begun) = claim(&*store, "k").await.unwrap() else { panic!("it was there") };
    assert!(store.expects(&id("k")) && !store.expects(&id("another")));
    assert!(!other.expects(&id("k")), "it has not met it");
    assert!(matches!(claim(&*other, "k").await.unwrap(), Created::Exists(_)));
    assert!(other.expects(&id("k")));
    other.replace(id("k"), begun.record.version, Change::Remove, Vec::new()).await.unwrap();
    assert!(!other.expects(&id("k")));
    assert!(store.expects(&id("k")), "nobody has told it");
    assert!(store.load(id("k")).await.unwrap().is_none());
    assert!(!store.expects(&id("k")));
    assert!(matches!(claim(&*store, "k").await.unwrap(), Created::New(_)));
}

/// Counted on the way to the server, with statements under a name and without.
#[tokio::test]
async fn to_begin_to_end_and_to_be_a_duplicate_take_one_round_trip_each() {
    for prepared in ["always", "never"] {
        let address = server().fresh_database().unwrap();
        let tap = Tap::to_port(server().port()).unwrap();
        let through = server().url_through(tap.port(), database(&address));
        let store = open(&with(&through, &format!("pool=1&prepared={prepared}"))).await;
        let mut turns = [usize::MAX; 4];
        // Statements are made known to the server with their first use, and something else may go on aside: the least counts.
        for number in 0..10 {
            let key = &*format!("k{number}");
            let mut count = vec![tap.turns()];
            let Created::New(begun) = claim(&*store, key).await.unwrap() else { panic!("{key} was there") };
            count.push(tap.turns());
            let change = Change::Put(Box::new(draft(key, succeeded(key), LONG)));
            let events = vec![Event::new(id(key), 1, EventKind::Succeeded)];
            store.replace(id(key), begun.record.version, change, events).await.unwrap();
            count.push(tap.turns());
            assert!(matches!(claim(&*store, key).await.unwrap(), Created::Exists(_)));
            count.push(tap.turns());
            // As a duplicate of what was met here is asked for.
            assert!(store.load(id(key)).await.unwrap().is_some());
            count.push(tap.turns());
            for (least, two) in turns.iter_mut().zip(count.windows(2)) {
                *least = (*least).min(two[1] - two[0]);
            }
        }
        assert_eq!(turns, [1, 1, 1, 1], "prepared={prepared}: begin, end, duplicate, a look");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_record_harms_nobody_else() {
    let address = server().fresh_database().unwrap();
    let store = open(&with(&address, "pool=1")).await;
    for key in ["whole", "damaged"] {
        claim(&*store, key).await.unwrap();
    }
    let damage = "UPDATE oncely.record SET body = '\\x00' WHERE key = 'damaged'";
    server().psql_in(database(&address), damage).unwrap();
    let mut callers = Vec::new();
    for number in 0..60 {
        let store = Arc::clone(&store);
        let key = ["damaged".to_owned(), "whole".to_owned(), format!("new{number}")][number % 3].clone();
        callers.push(tokio::spawn(async move { (key.clone(), claim(&*store, &key).await) }));
    }
    for caller in callers {
        let (key, claimed) = caller.await.unwrap();
        match (key.as_str(), claimed) {
            ("damaged", Err(error)) => {
                assert_eq!((error.kind, error.wrote), (StoreErrorKind::Corrupt, Wrote::No), "{error}");
            }
            ("whole", Ok(Created::Exists(_))) | (_, Ok(Created::New(_))) => {}
            (key, other) => panic!("{key}: {other:?}"),
        }
    }
    let error = store.load(id("damaged")).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
    assert!(error.message.contains("do not delete it"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_for_one_is_written_for_the_others() {
    let address = server().fresh_database().unwrap();
    let store = open(&with(&address, "pool=1")).await;
    let rule = "ALTER TABLE oncely.record ADD CONSTRAINT no CHECK (key <> 'refused')";
    server().psql_in(database(&address), rule).unwrap();
    let mut callers = Vec::new();
    for number in 0..40 {
        let store = Arc::clone(&store);
        let key = if number == 20 { "refused".to_owned() } else { format!("k{number}") };
        callers.push(tokio::spawn(async move { (key.clone(), claim(&*store, &key).await) }));
    }
    for caller in callers {
        match caller.await.unwrap() {
            (key, Err(error)) => {
                assert_eq!((key.as_str(), error.wrote), ("refused", Wrote::No), "{error}");
            }
            (key, Ok(made)) => assert!(matches!(made, Created::New(_)) && key != "refused"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_are_in_each_others_way_are_tried_again() {
    let address = server().fresh_database().unwrap();
    // With this isolation the server refuses much of what runs side by side (40001).
    let strict =
        format!("ALTER DATABASE {} SET default_transaction_isolation = serializable", database(&address));
    server().psql(&strict).unwrap();
    let stores = [open(&address).await, open(&address).await];
    let mut callers = Vec::new();
    for number in 0..96 {
        let store = Arc::clone(&stores[number % 2]);
        callers.push(tokio::spawn(async move { claim(&*store, &format!("k{}", number / 2)).await.unwrap() }));
    }
    let mut won = 0;
    for caller in callers {
        won += usize::from(matches!(caller.await.unwrap(), Created::New(_)));
    }
    assert_eq!(won, 48);
}

/// Nothing is answered while the server is stopped, so that what comes in can only wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_may_wait_are_refused_and_nothing_of_them_is_written() {
    const QUEUE: usize = 4;
    const CALLS: usize = 40;
    let server = Postgres::start().unwrap();
    let store = open(&with(&server.url("postgres"), &format!("pool=1&queue={QUEUE}&wait=60"))).await;
    claim(&*store, "before").await.unwrap();
    server.pause();
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let store = Arc::clone(&store);
        calls.spawn(async move { (number, claim(&*store, &format!("k{number}")).await) });
    }
    let (mut refused, mut ended) = (Vec::new(), 0);
    // One statement is under way with what waited when it was sent, and as much may wait behind it.
    while refused.len() < CALLS - 2 * QUEUE {
        let (number, claimed) = calls.join_next().await.unwrap().unwrap();
        let error = claimed.unwrap_err();
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::Overloaded, Wrote::No), "{error}");
        refused.push(number);
    }
    server.resume();
    let mut written = 1;
    while let Some(call) = calls.join_next().await {
        match call.unwrap() {
            (_, Ok(_)) => written += 1,
            (number, Err(error)) if error.kind == StoreErrorKind::Overloaded => refused.push(number),
            // On a machine that was too busy to let the server go on in time: sent, and not answered.
            (_, Err(error)) => {
                assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{error}");
                ended += 1;
            }
        }
    }
    for number in refused {
        assert!(store.load(id(&format!("k{number}"))).await.unwrap().is_none(), "k{number} was written");
    }
    let there: usize = server.psql("SELECT count(*) FROM oncely.record").unwrap().trim().parse().unwrap();
    assert!((written..=written + ended).contains(&there), "{written} written, {there} there");
}

#[tokio::test]
async fn too_many_events_are_refused() {
    let store = open(&server().fresh_database().unwrap()).await;
    let many = vec![Event::new(id("k"), 1, EventKind::Began); 129];
    let error = store.create(id("k"), draft("k", running(), LONG), many.clone()).await.unwrap_err();
    assert!(error.message.contains("at most 128"), "{error}");
    assert_eq!(store.note(many).await.unwrap_err().wrote, Wrote::No);
    assert!(store.load(id("k")).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ends_in_one_statement_those_that_were_taken_are_logged_and_told_to_who_waits() {
    let address = server().fresh_database().unwrap();
    let store = open(&with(&address, "pool=1")).await;
    let mut versions = Vec::new();
    for number in 0..40 {
        let Created::New(made) = claim(&*store, &format!("k{number}")).await.unwrap() else {
            panic!("there")
        };
        versions.push(made.record.version);
    }
    let ask = |sql: &str| server().psql_in(database(&address), sql).unwrap().trim().to_owned();
    // Somebody waits for three of them. The end of one comes too late.
    ask(
        "INSERT INTO oncely.waiting SELECT head, 9000000000000000 FROM oncely.record WHERE key IN ('k10', 'k20', 'k30')",
    );
    versions[20] = Version(versions[20].0 + 1_000_000);
    let ends: Vec<_> = versions
        .iter()
        .enumerate()
        .map(|(number, version)| {
            let key = format!("k{number}");
            let change = Change::Put(Box::new(draft(&key, succeeded(&key), LONG)));
            store.replace(id(&key), *version, change, vec![Event::new(id(&key), 1, EventKind::Succeeded)])
        })
        .collect();
    for (number, end) in ends.into_iter().enumerate() {
        let taken = matches!(end.await.unwrap(), Replaced::Done(Some(_)));
        assert_eq!(taken, number != 20, "k{number}");
    }
    store.flush().await.unwrap();
    // Whoever has been told is not told again.
    let waited_for = "SELECT string_agg(key, ' ') FROM oncely.waiting JOIN oncely.record USING (head)";
    assert_eq!(ask(waited_for), "k20");
    for number in 0..40 {
        let query = LogQuery { intent: Some(id(&format!("k{number}"))), limit: 10, ..LogQuery::default() };
        let logged = store.log(query).await.unwrap().items;
        let kinds: Vec<_> = logged.iter().map(|logged| logged.event.kind).collect();
        let expected: &[EventKind] =
            if number == 20 { &[EventKind::Began] } else { &[EventKind::Began, EventKind::Succeeded] };
        assert_eq!(kinds, expected, "k{number}");
    }
}
