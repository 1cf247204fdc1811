//! Through PgBouncer in transaction mode, where each transaction may have another session.

use std::sync::Arc;

use oncely_core::{Created, Store};
use oncely_testkit::servers::{PgBouncer, Postgres, Tap};

use crate::common::id;
use crate::conformance::pooler;
use crate::{claim, database, open, server, until, with};

async fn claim_many(store: &Arc<oncely_store::PostgresStore>, prefix: &str) {
    let mut callers = Vec::new();
    for number in 0..100 {
        let (store, key) = (Arc::clone(store), format!("{prefix}{number}"));
        callers.push(tokio::spawn(async move { claim(&*store, &key).await.unwrap() }));
    }
    for caller in callers {
        assert!(matches!(caller.await.unwrap(), Created::New(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_for_statements_are_given_up_where_sessions_are_handed_out() {
    let fresh = server().fresh_database().unwrap();
    let pooled = pooler().url(database(&fresh));
    // Forced to use names, several handles meet sessions that know none of them, or know them already.
    let stores = [
        open(&with(&pooled, "prepared=always&pool=4")).await,
        open(&with(&pooled, "prepared=always&pool=4")).await,
        open(&pooled).await,
    ];
    for round in 0..5 {
        for (number, store) in stores.iter().enumerate() {
            claim_many(store, &format!("r{round}-s{number}-")).await;
        }
    }
    let count = "SELECT count(*) FROM oncely.record";
    assert_eq!(server().psql_in(database(&fresh), count).unwrap().trim(), "1500");
}

#[tokio::test]
async fn a_pooler_is_noticed_and_no_name_is_left_behind_in_its_sessions() {
    let fresh = server().fresh_database().unwrap();
    let store = open(&pooler().url(database(&fresh))).await;
    for number in 0..20 {
        claim(&*store, &format!("k{number}")).await.unwrap();
    }
    drop(store);
    // A session that was used before: had a statement been prepared there, this name would be taken.
    let (client, connection) =
        tokio_postgres::connect(&pooler().url(database(&fresh)), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let named = client.simple_query("SELECT count(*) FROM pg_prepared_statements").await.unwrap();
    let count = named.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    assert_eq!(count.as_deref(), Some("0"));
}

#[tokio::test]
async fn a_direct_connection_prepares_its_statements() {
    let address = server().fresh_database().unwrap();
    let store = open(&with(&address, "pool=1")).await;
    for number in 0..5 {
        claim(&*store, &format!("k{number}")).await.unwrap();
        store.load(id(&format!("k{number}"))).await.unwrap();
    }
    // Seen from outside: the last thing that the session did was to run a statement by its name.
    let calls = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%oncely%record%' \
                 AND application_name = 'oncely'";
    assert_eq!(server().psql_in(database(&address), calls).unwrap().trim(), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_hears_nothing_is_not_believed_and_a_direct_one_is() {
    let fresh = server().fresh_database().unwrap();
    let pooled = pooler().url(database(&fresh));
    let direct = open(&with(&pooled, &format!("listen={fresh}"))).await;
    let Created::New(made) = claim(&*direct, "k").await.unwrap() else { panic!("it was there") };
    direct.watch(id("k"), made.record.version).await.unwrap();
    until("the direct listener hears", async || direct.health().hears).await;
    let deaf = open(&pooled).await;
    deaf.watch(id("k"), made.record.version).await.unwrap();
    // More than the time that it waits for its own word.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert!(!deaf.health().hears);
}

/// Gives the names that one ledger uses in a session the meaning that another's have there; how many.
async fn swap_names(client: &tokio_postgres::Client, from: &str, to: &str) -> usize {
    let asked = format!(
        "BEGIN; SELECT ours.name, array_to_string(theirs.parameter_types, ','), theirs.statement
         FROM pg_prepared_statements ours JOIN pg_prepared_statements theirs
           ON array_length(ours.parameter_types, 1) = array_length(theirs.parameter_types, 1)
         WHERE ours.statement LIKE '%\"{from}\".record%' AND theirs.statement LIKE '%\"{to}\".record%'"
    );
    let mut swaps = Vec::new();
    for message in client.simple_query(&asked).await.unwrap() {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
            let (name, types, statement) = (row.get(0).unwrap(), row.get(1).unwrap(), row.get(2).unwrap());
            swaps.push(format!("DEALLOCATE {name}; PREPARE {name} ({types}) AS {statement}"));
        }
    }
    for swap in &swaps {
        client.batch_execute(swap).await.unwrap();
    }
    client.batch_execute("COMMIT").await.unwrap();
    swaps.len()
}

#[tokio::test]
async fn a_name_that_means_the_statement_of_another_ledger_does_nothing_there() {
    let fresh = server().fresh_database().unwrap();
    let pooled = pooler().url(database(&fresh));
    let (ours, theirs) = (
        open(&with(&pooled, "schema=ours&prepared=always&pool=1")).await,
        open(&with(&pooled, "schema=theirs&prepared=always&pool=1")).await,
    );
    for number in 0..3 {
        for store in [&ours, &theirs] {
            claim(&**store, &format!("k{number}")).await.unwrap();
            store.load(id(&format!("k{number}"))).await.unwrap();
        }
    }
    let client = crate::connect(&pooled).await;
    assert!(swap_names(&client, "ours", "theirs").await >= 2, "one that writes, and one that reads");
    assert!(matches!(claim(&*ours, "new").await.unwrap(), Created::New(_)));
    let there = |schema: &str| {
        let sql = format!("SELECT count(*) FROM {schema}.record WHERE key = 'new'");
        server().psql_in(database(&fresh), &sql).unwrap().trim().to_owned()
    };
    assert_eq!((there("ours").as_str(), there("theirs").as_str()), ("1", "0"));
    assert!(ours.load(id("new")).await.unwrap().is_some());
}

/// The pooler's server is another one from now on; its clients notice nothing.
async fn lead_to(way: &Tap, server: &Postgres) {
    way.point_at(([127, 0, 0, 1], server.port()).into());
    way.cut_once();
    until("the pooler has let go", async || way.connections() == 0).await;
}

#[tokio::test]
async fn another_server_behind_it_is_judged_before_it_is_believed() {
    let old = Postgres::start().unwrap();
    let way = Tap::to_port(old.port()).unwrap();
    let pooler = PgBouncer::through(&old, way.port()).unwrap();
    let store = open(&with(&pooler.url("postgres"), "pool=1&wait=1")).await;
    let Created::New(before) = claim(&*store, "before").await.unwrap() else { panic!("it was there") };
    let new = old.standby_async().unwrap();
    new.promote().unwrap();
    lead_to(&way, &new).await;
    until("the new one is used", async || claim(&*store, "after").await.is_ok()).await;
    // Between the two lie two clocks: how long ago the first key was sent somewhere is not known.
    assert!(before.record.sent_at < store.steady_since(), "the change was not noticed");
    assert!(store.load(id("before")).await.unwrap().is_some());
    // Nobody has fenced the old one, and the way leads there again: it is past.
    lead_to(&way, &old).await;
    let mut refused = String::new();
    until("the old one is refused", async || {
        let error = claim(&*store, "stale").await.expect_err("acknowledged by a server that is past");
        refused = error.message;
        refused.contains("has been replaced by another one")
    })
    .await;
    lead_to(&way, &new).await;
    until("it heals", async || claim(&*store, "healed").await.is_ok()).await;
}
