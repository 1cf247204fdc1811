//! Servers that hang while their machine goes on to take what is sent to them, as a frozen one does: they are waited for until
//! another one has taken over, and then never again.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::{Created, Store, Wrote};
use oncely_store::postgres::{PostgresOptions, PostgresStore};
use oncely_testkit::servers::{Postgres, Tap};

use crate::common::id;
use crate::{claim, open, until, with};

/// Opens a ledger that soon tells its callers that it has no answer. It has one connection, so that none is left when that waits.
async fn open_impatient(address: &str) -> Arc<PostgresStore> {
    let mut options = PostgresOptions::parse(&with(address, "pool=1")).unwrap();
    options.answer_within = Duration::from_secs(10);
    Arc::new(PostgresStore::open(options).await.unwrap())
}

/// Freezes a server under a claim; the caller is told that it may have been written.
async fn freeze(server: &Postgres, store: &PostgresStore) {
    claim(store, "before").await.unwrap();
    server.pause();
    let error = claim(store, "meanwhile").await.unwrap_err();
    assert_eq!(error.wrote, Wrote::Maybe, "{error}");
}

async fn heals(store: &PostgresStore) {
    until("it heals", async || {
        matches!(claim(store, "after").await, Ok(Created::New(_) | Created::Exists(_)))
    })
    .await;
}

/// The standby takes over, and waits for no other.
fn take_over(standby: &Postgres) {
    standby.set("synchronous_standby_names", "").unwrap();
    standby.promote().unwrap();
}

#[tokio::test]
async fn it_is_left_for_the_one_that_takes_over_and_never_written_to_again() {
    let primary = Postgres::start().unwrap();
    let standby = primary.standby().unwrap();
    drop(open(&primary.url("postgres")).await);
    let (first, second) = (primary.port(), standby.port());
    let address = format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres");
    let store = open_impatient(&with(&address, "durability=best-effort")).await;
    freeze(&primary, &store).await;
    take_over(&standby);
    heals(&store).await;
    assert!(store.load(id("before")).await.unwrap().is_some(), "what was acknowledged is there");
    // The old one comes to life, and still takes itself for the primary.
    primary.resume();
    for number in 0..20 {
        assert!(matches!(claim(&*store, &format!("later{number}")).await.unwrap(), Created::New(_)));
    }
    let there = "SELECT count(*) FROM oncely.record WHERE key = 'after' OR key LIKE 'later%'";
    assert_eq!((primary.psql(there).unwrap().trim(), standby.psql(there).unwrap().trim()), ("0", "21"));
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oncely' AND state = 'idle'";
    until("nobody is connected to it", async || primary.psql(ours).unwrap().trim() == "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_it_is_told_once_another_has_taken_over_and_what_it_still_does_is_no_acknowledgement() {
    let primary = Postgres::start().unwrap();
    drop(open(&primary.url("postgres")).await);
    let standby = primary.standby_async().unwrap();
    let (first, second) = (primary.port(), standby.port());
    let address = format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres");
    let mut options = PostgresOptions::parse(&with(&address, "durability=best-effort&pool=1")).unwrap();
    // However long it takes the other one here: it is not the time that ends the waiting.
    options.answer_within = Duration::from_secs(120);
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    // By now nothing but the claim itself is sent.
    for number in 0..3 {
        claim(&*store, &format!("before{number}")).await.unwrap();
    }
    primary.pause();
    let claiming = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { claim(&*store, "late").await })
    };
    standby.promote().unwrap();
    let error = claiming.await.unwrap().unwrap_err();
    assert_eq!(error.wrote, Wrote::Maybe, "{error}");
    assert!(error.message.contains("another server has taken over"), "{error}");
    primary.resume();
    let there = "SELECT count(*) FROM oncely.record WHERE key = 'late'";
    until("the old one writes it", async || primary.psql(there).unwrap().trim() == "1").await;
    assert!(matches!(claim(&*store, "late").await.unwrap(), Created::New(_)), "it is not on the new one");
}

#[tokio::test]
async fn it_is_left_as_well_where_one_name_leads_to_whoever_is_the_primary() {
    let primary = Postgres::start().unwrap();
    let standby = primary.standby().unwrap();
    let name = Tap::to_port(primary.port()).unwrap();
    let store = open_impatient(&primary.url_through(name.port(), "postgres")).await;
    freeze(&primary, &store).await;
    take_over(&standby);
    name.point_at(([127, 0, 0, 1], standby.port()).into());
    heals(&store).await;
    assert!(store.load(id("before")).await.unwrap().is_some(), "what was acknowledged is there");
}

#[tokio::test]
async fn where_nobody_takes_over_it_is_waited_for() {
    let server = Postgres::start().unwrap();
    let store = open_impatient(&server.url("postgres")).await;
    freeze(&server, &store).await;
    server.resume();
    heals(&store).await;
    assert_eq!(store.health().reconnects, 0);
}
