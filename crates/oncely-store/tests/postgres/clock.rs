//! A server whose clock is set while the ledger is in use, or that takes over with a clock of its own. Nothing looks old because
//! of it: no key is forgotten, no lease lapses, nothing is dropped.
//!
//! The server's own clock cannot be set for a test. But which function `clock_timestamp()` names is found by the search path:
//! in the databases of [`Clockwork`] it is one that adds what a table says.

use std::sync::Arc;

use oncely_core::{Change, Created, Event, EventKind, Replaced, Store, StoreErrorKind, Wrote};
use oncely_store::PostgresStore;
use oncely_testkit::servers::Postgres;
use tokio_postgres::Client;

use crate::common::{LONG, NOTHING_KEPT, draft, id, running, succeeded};
use crate::{claim, connect, database, open, server, until, with};

const HOUR_MS: u64 = 3_600_000;

/// A ledger in a database whose clock can be set, and a hand on it.
struct Clockwork {
    address: String,
    hand: Client,
}

impl Clockwork {
    async fn new() -> Self {
        let address = server().fresh_database().unwrap();
        let hand = connect(&address).await;
        let make = format!(
            "CREATE SCHEMA clockwork;
             CREATE TABLE clockwork.ahead (by interval NOT NULL);
             INSERT INTO clockwork.ahead VALUES ('0');
             CREATE FUNCTION clockwork.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS
               $$ SELECT pg_catalog.clock_timestamp() + by FROM clockwork.ahead $$;
             ALTER DATABASE {} SET search_path = clockwork, pg_catalog, public",
            database(&address)
        );
        hand.batch_execute(&make).await.unwrap();
        Self { address, hand }
    }

    async fn open(&self) -> Arc<PostgresStore> {
        open(&self.address).await
    }

    async fn set_ahead(&self, by: &str) {
        let sql = format!("UPDATE clockwork.ahead SET by = '{by}'");
        self.hand.batch_execute(&sql).await.unwrap();
    }
}

/// Makes a record that has succeeded.
async fn made(store: &PostgresStore, key: &str) {
    let made = store.create(id(key), draft(key, succeeded(key), LONG), Vec::new()).await.unwrap();
    assert!(matches!(made, Created::New(_)));
}

/// How old the record of a key looks.
async fn age_ms(store: &PostgresStore, key: &str) -> u64 {
    let stored = store.load(id(key)).await.unwrap().unwrap();
    stored.now.since(stored.record.changed_at)
}

#[tokio::test]
async fn a_clock_that_leaps_is_refused_and_not_taken_for_the_time() {
    let clockwork = Clockwork::new().await;
    let (store, other) = (clockwork.open().await, clockwork.open().await);
    made(&store, "k").await;
    clockwork.set_ahead("1 hour").await;
    for error in [
        store.load(id("k")).await.unwrap_err(),
        claim(&*store, "k").await.unwrap_err(),
        store.now().await.unwrap_err(),
        store.load(id("nothing")).await.unwrap_err(),
    ] {
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No), "{error}");
        assert!(error.message.contains("has leapt ahead by"), "{error}");
    }
    clockwork.set_ahead("0").await;
    made(&other, "fresh").await;
    for key in ["k", "fresh"] {
        assert!(age_ms(&store, key).await < HOUR_MS / 2, "{key} looks old");
    }
}

#[tokio::test]
async fn what_is_written_while_the_clock_leaps_stands() {
    let clockwork = Clockwork::new().await;
    let (store, other) = (clockwork.open().await, clockwork.open().await);
    let Created::New(before) = claim(&*store, "before").await.unwrap() else { panic!("it was there") };
    clockwork.set_ahead("1 hour").await;
    let Created::New(made) = claim(&*store, "meanwhile").await.unwrap() else { panic!("it was there") };
    assert!(made.record.changed_at.since(made.now) > HOUR_MS / 2, "stamped by the clock, not judged by it");
    let change = Change::Put(Box::new(draft("before", succeeded("done"), LONG)));
    let done = store.replace(id("before"), before.record.version, change, Vec::new()).await.unwrap();
    assert!(matches!(done, Replaced::Done(Some(_))), "{done:?}");
    store.note(vec![Event::new(id("before"), 1, EventKind::Superseded)]).await.unwrap();
    let removed = store.replace(id("meanwhile"), made.record.version, Change::Remove, Vec::new()).await;
    assert!(matches!(removed.unwrap(), Replaced::Done(None)));
    clockwork.set_ahead("0").await;
    let Created::New(after) = claim(&*other, "after").await.unwrap() else { panic!("it was there") };
    assert!(age_ms(&store, "after").await < HOUR_MS / 2, "a leap was taken for the time");
    let Created::New(own) = claim(&*store, "own").await.unwrap() else { panic!("it was there") };
    assert!(
        own.record.changed_at.since(after.record.changed_at) < HOUR_MS / 2,
        "it is stamped with the leap"
    );
}

#[tokio::test]
async fn a_batch_under_a_clock_that_leaps_writes_what_is_new_and_judges_nothing() {
    let clockwork = Clockwork::new().await;
    let store = clockwork.open().await;
    made(&store, "there").await;
    clockwork.set_ahead("1 hour").await;
    // Handed in together, they leave together.
    let keys: Vec<String> = (0..20).map(|n| format!("new-{n}")).chain(["there".to_owned()]).collect();
    let mut asked = Vec::new();
    for key in &keys {
        let (store, key) = (Arc::clone(&store), key.clone());
        asked.push(async move { (claim(&*store, &key).await, key) });
    }
    for answered in asked.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
        match answered.await.unwrap() {
            (Ok(Created::New(_)), key) => assert_ne!(key, "there"),
            (Err(error), key) => {
                assert_eq!((key.as_str(), error.wrote), ("there", Wrote::No), "{error}");
            }
            (Ok(Created::Exists(_)), key) => panic!("{key} was judged"),
        }
    }
}

#[tokio::test]
async fn a_clock_that_leaps_purges_nothing() {
    let clockwork = Clockwork::new().await;
    let store = clockwork.open().await;
    made(&store, "k").await;
    clockwork.set_ahead("400 days").await;
    let error = store.purge(100).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No), "{error}");
    clockwork.set_ahead("0").await;
    let left = store.load(id("k")).await.unwrap().unwrap();
    assert_eq!(left.record.body.state, succeeded("k"), "with its result");
    // What is due by a clock that is right goes.
    store.create(id("due"), draft("due", succeeded(""), NOTHING_KEPT), Vec::new()).await.unwrap();
    assert_eq!(store.purge(100).await.unwrap().records_removed, 1);
}

#[tokio::test]
async fn by_a_clock_that_was_set_back_what_others_write_is_not_old() {
    let clockwork = Clockwork::new().await;
    clockwork.set_ahead("1 hour").await;
    let store = clockwork.open().await;
    let Created::New(first) = claim(&*store, "first").await.unwrap() else { panic!("it was there") };
    assert!(store.steady_since() < first.record.sent_at);
    clockwork.set_ahead("0").await;
    let other = clockwork.open().await;
    let theirs = other.create(id("theirs"), draft("theirs", running(), LONG), Vec::new()).await.unwrap();
    assert!(matches!(theirs, Created::New(_)));
    assert!(age_ms(&store, "theirs").await < HOUR_MS / 2, "its lease would be over");
    let Created::Exists(there) = claim(&*store, "theirs").await.unwrap() else { panic!("it is gone") };
    assert!(there.now.since(there.record.changed_at) < HOUR_MS / 2);
    // Its own stamps do not run backwards, and how long ago the first one was is not known any more.
    let Created::New(second) = claim(&*store, "second").await.unwrap() else { panic!("it was there") };
    assert!(second.record.changed_at >= first.record.changed_at);
    assert!(store.steady_since() >= first.record.sent_at);
}

#[tokio::test]
async fn after_a_promotion_what_was_sent_before_is_not_trusted_to_be_remembered() {
    let primary = Postgres::start().unwrap();
    let standby = primary.standby().unwrap();
    drop(open(&primary.url("postgres")).await);
    let (first, second) = (primary.port(), standby.port());
    let address = format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres");
    let living = open(&with(&address, "durability=best-effort")).await;
    let Created::New(made) = claim(&*living, "before").await.unwrap() else { panic!("it was there") };
    assert!(living.steady_since() < made.record.sent_at, "until then one clock has stamped all");
    primary.kill().unwrap();
    standby.set("synchronous_standby_names", "").unwrap();
    standby.promote().unwrap();
    standby.psql("CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE postgres TO plain").unwrap();
    // Whoever comes later, with no special rights, knows it from the server alone.
    let plain = standby.url("postgres").replace("postgres://postgres@", "postgres://plain@");
    let fresh = open(&with(&plain, "schema=other")).await;
    assert!(fresh.steady_since() > made.record.sent_at);
    until("the other one takes writes", async || claim(&*living, "after").await.is_ok()).await;
    assert!(living.steady_since() > made.record.sent_at);
    until("it is not for ever", async || living.now().await.unwrap() > living.steady_since()).await;
}
