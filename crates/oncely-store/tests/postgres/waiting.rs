//! Waiters learn of what other handles do: by message, and by looking where there are none.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::{Change, Created, Store, Version};
use oncely_store::{PostgresOptions, PostgresStore};

use crate::common::{LONG, draft, id, succeeded};
use crate::{claim, database, open, server, until};

async fn begun(store: &PostgresStore, key: &str) -> Version {
    match claim(store, key).await.unwrap() {
        Created::New(stored) => stored.record.version,
        Created::Exists(_) => panic!("{key} was there"),
    }
}

async fn end(store: &PostgresStore, key: &str, from: Version) {
    let change = Change::Put(Box::new(draft(key, succeeded(key), LONG)));
    store.replace(id(key), from, change, Vec::new()).await.unwrap();
}

/// Watches as a waiter does, until the record has ended.
async fn await_end(store: Arc<PostgresStore>, key: String, seen: Version) {
    loop {
        store.watch(id(&key), seen).await.unwrap();
        if store.load(id(&key)).await.unwrap().is_none_or(|stored| stored.record.version != seen) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_told_by_other_machines_and_only_when_somebody_waits() {
    let address = server().fresh_database().unwrap();
    let (waits, writes) = (open(&address).await, open(&address).await);
    let first = begun(&writes, "first").await;
    let waiting = tokio::spawn(await_end(Arc::clone(&waits), "first".into(), first));
    until("the listener hears", async || waits.health().hears).await;
    end(&writes, "first", first).await;
    waiting.await.unwrap();
    // Who waits has said so where writers look.
    let second = begun(&writes, "second").await;
    let waits_for =
        "SELECT count(*) FROM oncely.waiting JOIN oncely.record USING (head) WHERE key = 'second'";
    let known = || server().psql_in(database(&address), waits_for).unwrap().trim().to_owned();
    assert_eq!(known(), "0");
    let waiting = tokio::spawn(await_end(Arc::clone(&waits), "second".into(), second));
    until("it is known that somebody waits", async || known() == "1").await;
    end(&writes, "second", second).await;
    waiting.await.unwrap();
}

/// So seldom that looking cannot be what wakes.
const NEVER: Duration = Duration::from_secs(24 * 3_600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_wakes_who_waits_on_another_machine() {
    let address = server().fresh_database().unwrap();
    let mut options = PostgresOptions::parse(&address).unwrap();
    options.look_every = NEVER;
    let waits = Arc::new(PostgresStore::open(options).await.unwrap());
    let writes = open(&address).await;
    for key in ["end", "removal"] {
        let seen = begun(&writes, key).await;
        let waiting = tokio::spawn(await_end(Arc::clone(&waits), key.into(), seen));
        let known = format!(
            "SELECT count(*) FROM oncely.waiting JOIN oncely.record USING (head) WHERE key = '{key}'"
        );
        let known = || server().psql_in(database(&address), &known).unwrap().trim() == "1";
        until("it listens, and has said that it waits", async || waits.health().hears && known()).await;
        match key {
            "end" => end(&writes, key, seen).await,
            _ => drop(writes.replace(id(key), seen, Change::Remove, Vec::new()).await.unwrap()),
        }
        let told = tokio::time::timeout(Duration::from_secs(180), waiting).await;
        told.expect("nobody told of it").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_ended_heals_and_waiters_are_looked_after_meanwhile() {
    let address = server().fresh_database().unwrap();
    let (waits, writes) = (open(&address).await, open(&address).await);
    let first = begun(&writes, "first").await;
    waits.watch(id("first"), first).await.unwrap();
    until("the listener hears", async || waits.health().hears).await;
    let kill = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}' AND query LIKE 'LISTEN%'",
        database(&address)
    );
    assert_eq!(server().psql(&kill).unwrap().trim(), "1");
    let waiting = tokio::spawn(await_end(Arc::clone(&waits), "first".into(), first));
    end(&writes, "first", first).await;
    waiting.await.unwrap();
    until("the listener hears again", async || {
        server().psql(&kill.replace("count(pg_terminate_backend(pid))", "count(*)")).unwrap().trim() == "1"
            && waits.health().hears
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_are_looked_after_together() {
    let address = server().fresh_database().unwrap();
    let (waits, writes) = (open(&address).await, open(&address).await);
    let mut waiting = Vec::new();
    let mut seen = Vec::new();
    for number in 0..10 {
        let key = format!("k{number}");
        let version = begun(&writes, &key).await;
        for _ in 0..100 {
            waiting.push(tokio::spawn(await_end(Arc::clone(&waits), key.clone(), version)));
        }
        seen.push((key, version));
    }
    for (key, version) in seen {
        end(&writes, &key, version).await;
    }
    for waiter in waiting {
        waiter.await.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_ledger_leaves_no_connection_behind() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    let version = begun(&store, "k").await;
    store.watch(id("k"), version).await.unwrap();
    drop(store);
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    until("all are closed", async || server().psql_in(database(&address), count).unwrap().trim() == "0")
        .await;
}
