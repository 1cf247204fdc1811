//! What somebody's open transaction holds is waited for, for a bounded time, and holds up nobody else.

use std::sync::Arc;

use oncely_core::{
    Change, Created, Event, EventKind, Replaced, Store, StoreError, StoreErrorKind, Within, Wrote,
};
use oncely_store::{PostgresStore, PostgresWithin};

use crate::common::{LONG, draft, id, running, succeeded};
use crate::conformance::pooler;
use crate::{claim, connect, database, open, server, somebody_waits, until, with};

/// Says that nothing was written because somebody else holds the record.
fn is_held(error: &StoreError) -> bool {
    (error.kind, error.wrote) == (StoreErrorKind::Overloaded, Wrote::No)
        && error.message.contains("another transaction holds")
}

async fn a_held_key_holds_up_no_other(address: &str, direct: &str) {
    let store = open(&with(address, "pool=1")).await;
    let mut client = connect(direct).await;
    let transaction = client.transaction().await.unwrap();
    let mut within = PostgresWithin::new(&transaction, "oncely");
    let events = vec![Event::new(id("held"), 1, EventKind::Began)];
    let held = within.create(id("held"), draft("held", running(), LONG), events).await.unwrap();
    assert!(matches!(held, Created::New(_)));
    // All at once over the one connection, the held key among them. The transaction stays open all the while.
    let mut callers = Vec::new();
    for number in 0..60 {
        let (store, key) = (Arc::clone(&store), format!("k{number}"));
        let key = if number == 30 { "held".to_owned() } else { key };
        callers.push(tokio::spawn(async move { (key.clone(), claim(&*store, &key).await) }));
    }
    for caller in callers {
        match caller.await.unwrap() {
            (key, Ok(Created::New(_))) if key != "held" => {}
            (key, Err(error)) if key == "held" && is_held(&error) => {}
            (key, other) => panic!("{key}: {other:?}"),
        }
    }
    // Alone it waits longer, and not for ever either.
    let error = claim(&*store, "held").await.unwrap_err();
    assert!(is_held(&error), "{error}");
    assert!(matches!(claim(&*store, "afterwards").await.unwrap(), Created::New(_)));
    transaction.rollback().await.unwrap();
    assert!(matches!(claim(&*store, "held").await.unwrap(), Created::New(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_somebodys_open_transaction_holds_up_no_other_key() {
    let fresh = server().fresh_database().unwrap();
    a_held_key_holds_up_no_other(&fresh, &fresh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_pooler_it_does_not_either() {
    let fresh = server().fresh_database().unwrap();
    a_held_key_holds_up_no_other(&pooler().url(database(&fresh)), &fresh).await;
    // And no session is left with a setting of ours.
    let client = connect(&pooler().url(database(&fresh))).await;
    let shown = client.simple_query("SHOW lock_timeout").await.unwrap();
    let value = shown.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    assert_eq!(value.as_deref(), Some("0"));
}

/// Another machine's claim is committed while a statement for many waits for it: that one is refused as a whole, and nobody
/// who is in it hears of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_another_machine_claims_meanwhile_is_there_and_the_others_are_new() {
    let address = server().fresh_database().unwrap();
    let store = open(&with(&address, "pool=1")).await;
    let (mut client, looks) = (connect(&address).await, connect(&address).await);
    let transaction = client.transaction().await.unwrap();
    let mut within = PostgresWithin::new(&transaction, "oncely");
    within.create(id("theirs"), draft("theirs", running(), LONG), Vec::new()).await.unwrap();
    let mut callers = Vec::new();
    for number in 0..60 {
        let (store, key) = (Arc::clone(&store), format!("k{number}"));
        let key = if number == 30 { "theirs".to_owned() } else { key };
        callers.push(tokio::spawn(async move { (key.clone(), claim(&*store, &key).await) }));
    }
    // It is waited for once more and once more, and given up after a second.
    let are_answered = || callers.iter().all(tokio::task::JoinHandle::is_finished);
    until("it is waited for", async || somebody_waits(&looks).await || are_answered()).await;
    transaction.commit().await.unwrap();
    for caller in callers {
        match caller.await.unwrap() {
            (key, Ok(Created::New(_))) if key != "theirs" => {}
            (key, Ok(Created::Exists(_))) if key == "theirs" => {}
            // Where the commit came too late.
            (key, Err(error)) if key == "theirs" && is_held(&error) => {}
            (key, other) => panic!("{key}: {other:?}"),
        }
    }
    assert!(matches!(claim(&*store, "theirs").await.unwrap(), Created::Exists(_)));
    let made = server().psql_in(database(&address), "SELECT count(*) FROM oncely.record").unwrap();
    assert_eq!(made.trim(), "60");
}

/// Hands in the end of a record.
async fn end(store: &PostgresStore, key: &str) -> Result<Replaced, StoreError> {
    let seen = store.load(id(key)).await.unwrap().unwrap().record;
    let change = Change::Put(Box::new(draft(key, succeeded(key), LONG)));
    store.replace(id(key), seen.version, change, vec![Event::new(id(key), 1, EventKind::Succeeded)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_somebody_has_locked_holds_up_the_end_of_no_other() {
    let address = server().fresh_database().unwrap();
    let store = open(&with(&address, "pool=1")).await;
    let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    for key in &keys {
        claim(&*store, key).await.unwrap();
    }
    let mut client = connect(&address).await;
    let transaction = client.transaction().await.unwrap();
    let lock = "SELECT FROM oncely.record WHERE key IN ('k7', 'k8') FOR UPDATE";
    assert_eq!(transaction.query(lock, &[]).await.unwrap().len(), 2);
    let mut callers = Vec::new();
    for key in keys {
        let store = Arc::clone(&store);
        callers.push(tokio::spawn(async move { (key.clone(), end(&store, &key).await) }));
    }
    for caller in callers {
        match caller.await.unwrap() {
            (key, Ok(Replaced::Done(Some(_)))) if key != "k7" && key != "k8" => {}
            (key, Err(error)) if (key == "k7" || key == "k8") && is_held(&error) => {}
            (key, other) => panic!("{key}: {other:?}"),
        }
    }
    transaction.commit().await.unwrap();
    for key in ["k7", "k8"] {
        assert!(matches!(end(&store, key).await.unwrap(), Replaced::Done(Some(_))));
    }
    let count = "SELECT count(*) FROM oncely.record WHERE state = 2";
    assert_eq!(server().psql_in(database(&address), count).unwrap().trim(), "40");
}

#[tokio::test]
async fn a_purge_leaves_alone_what_is_held_and_drops_the_rest() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    for key in ["a", "b", "c"] {
        claim(&*store, key).await.unwrap();
        end(&store, key).await.unwrap();
    }
    // As if it were long ago.
    let age = "UPDATE oncely.record SET due = 2, created_at = 1, sent_at = 1, changed_at = 1";
    server().psql_in(database(&address), age).unwrap();
    let mut client = connect(&address).await;
    let transaction = client.transaction().await.unwrap();
    transaction.query("SELECT FROM oncely.record WHERE key = 'b' FOR UPDATE", &[]).await.unwrap();
    assert_eq!(store.purge(100).await.unwrap().records_removed, 2);
    // It is due still, but whoever goes on while there is more would go on for as long as it is held.
    let held = store.purge(1).await.unwrap();
    assert_eq!((held.records_removed, held.more), (0, false));
    transaction.commit().await.unwrap();
    assert_eq!(store.purge(100).await.unwrap().records_removed, 1);
}

/// Whether a free key is claimed while two held ones are still waited for.
async fn passes_by(store: &Arc<PostgresStore>, address: &str, round: usize) -> bool {
    let mut client = connect(address).await;
    let transaction = client.transaction().await.unwrap();
    let held = [format!("a{round}"), format!("b{round}")];
    for key in &held {
        let mut within = PostgresWithin::new(&transaction, "oncely");
        within.create(id(key), draft(key, running(), LONG), Vec::new()).await.unwrap();
    }
    let waiting: Vec<_> = held
        .into_iter()
        .map(|key| {
            let store = Arc::clone(store);
            tokio::spawn(async move { assert!(is_held(&claim(&*store, &key).await.unwrap_err())) })
        })
        .collect();
    let both = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'",
        database(address)
    );
    until("both wait, or have given up", async || {
        waiting.iter().any(|one| one.is_finished()) || server().psql(&both).unwrap().trim() == "2"
    })
    .await;
    assert!(matches!(claim(&**store, &format!("free{round}")).await.unwrap(), Created::New(_)));
    let passed = waiting.iter().all(|one| !one.is_finished());
    for one in waiting {
        one.await.unwrap();
    }
    transaction.rollback().await.unwrap();
    passed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_key_does_not_wait_until_held_ones_have_been_given_up() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    // A busy machine may be late; if the free key had to wait, it would be so every time.
    for round in 0..20 {
        if passes_by(&store, &address, round).await {
            return;
        }
    }
    panic!("it was claimed only after they had been given up, every time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_has_been_used_for_long_does_not_wait_for_ever_either() {
    let address = server().fresh_database().unwrap();
    let store = open(&with(&address, "pool=1")).await;
    // One after the other on one connection: the first few say in the statement how long they wait, later ones do not.
    for round in 0..4 {
        claim(&*store, &format!("k{round}")).await.unwrap();
        assert!(matches!(end(&store, &format!("k{round}")).await.unwrap(), Replaced::Done(Some(_))));
    }
    claim(&*store, "locked").await.unwrap();
    let mut client = connect(&address).await;
    let transaction = client.transaction().await.unwrap();
    let mut within = PostgresWithin::new(&transaction, "oncely");
    within.create(id("held"), draft("held", running(), LONG), Vec::new()).await.unwrap();
    transaction.query("SELECT FROM oncely.record WHERE key = 'locked' FOR UPDATE", &[]).await.unwrap();
    let error = claim(&*store, "held").await.unwrap_err();
    assert!(is_held(&error), "{error}");
    let error = end(&store, "locked").await.unwrap_err();
    assert!(is_held(&error), "{error}");
    transaction.rollback().await.unwrap();
    assert!(matches!(claim(&*store, "held").await.unwrap(), Created::New(_)));
    assert!(matches!(end(&store, "locked").await.unwrap(), Replaced::Done(Some(_))));
}

/// Everything that a ledger holds of records and their log.
fn contents(address: &str) -> String {
    let all =
        "SELECT 'record', r::text FROM oncely.record r UNION ALL SELECT 'audit', a::text FROM oncely.audit a
               UNION ALL SELECT 'forgotten', f::text FROM oncely.forgotten f ORDER BY 1, 2";
    server().psql_in(database(address), all).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_locked_is_neither_removed_nor_noted_and_whoever_asked_is_told() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    let mut versions = Vec::new();
    for key in ["removed", "noted"] {
        let Created::New(made) = claim(&*store, key).await.unwrap() else { panic!("it was there") };
        versions.push(made.record.version);
    }
    let remove = || {
        let events = vec![Event::new(id("removed"), 1, EventKind::Forgotten)];
        store.replace(id("removed"), versions[0], Change::Remove, events)
    };
    let note = || store.note(vec![Event::new(id("noted"), 1, EventKind::Superseded)]);
    let mut client = connect(&address).await;
    let transaction = client.transaction().await.unwrap();
    let locked = transaction.query("SELECT FROM oncely.record FOR UPDATE", &[]).await.unwrap();
    assert_eq!(locked.len(), 2);
    let before = contents(&address);
    // The transaction stays open until both have an answer.
    let (removed, noted) = tokio::join!(remove(), note());
    for error in [removed.unwrap_err(), noted.unwrap_err()] {
        assert!(is_held(&error), "{error}");
        assert!(error.message.contains("nothing was written"), "{error}");
    }
    assert_eq!(contents(&address), before);
    transaction.rollback().await.unwrap();
    assert_eq!(contents(&address), before);
    assert!(matches!(remove().await.unwrap(), Replaced::Done(None)));
    assert!(store.load(id("removed")).await.unwrap().is_none());
    let without = contents(&address);
    note().await.unwrap();
    assert_ne!(contents(&address), without);
}
