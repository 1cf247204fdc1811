//! Several servers in the address: a new ledger is not begun on whichever of them happens to answer, and another ledger is not
//! taken for the one that was opened.

use oncely_core::{Created, Store, StoreErrorKind, Wrote};
use oncely_store::postgres::{Migrated, PostgresOptions, migrate, migration_sql};
use oncely_testkit::servers::{Postgres, Tap};

use crate::{claim, database, open, refusal, server, until};

fn both(one: &Postgres, other: &Postgres) -> String {
    let (one, other) = (one.port(), other.port());
    format!("postgres://postgres@127.0.0.1:{one},127.0.0.1:{other}/postgres?durability=best-effort")
}

fn has_ledger(server: &Postgres) -> bool {
    server.psql("SELECT to_regnamespace('oncely') IS NOT NULL").unwrap().trim() == "t"
}

#[tokio::test]
async fn a_new_ledger_is_made_by_hand_and_then_used_by_all() {
    let primary = Postgres::start().unwrap();
    let standby = primary.standby_async().unwrap();
    let address = both(&standby, &primary);
    let error = refusal(&address).await;
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Foreign, Wrote::No), "{error}");
    for words in ["oncely store migrate", "nothing was written", "on the primary that answered"] {
        assert!(error.message.contains(words), "{error}");
    }
    assert!(!has_ledger(&primary), "it was made all the same");
    let options = PostgresOptions::parse(&address).unwrap();
    assert_eq!(migrate(&options).await.unwrap(), Migrated { from: 0, to: 5 });
    assert!(matches!(claim(&*open(&address).await, "k").await.unwrap(), Created::New(_)));
}

#[tokio::test]
async fn it_is_not_made_while_one_of_the_servers_has_one_or_may_have_one() {
    let (old, new) = (Postgres::start().unwrap(), Postgres::start().unwrap());
    claim(&*open(&old.url("postgres")).await, "k").await.unwrap();
    let options = PostgresOptions::parse(&both(&old, &new)).unwrap();
    // The one that has it takes no writes, so that the other one is found.
    old.set("default_transaction_read_only", "on").unwrap();
    let error = migrate(&options).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Foreign, Wrote::No), "{error}");
    assert!(error.message.contains(&format!("127.0.0.1 port {} has one", old.port())), "{error}");
    old.kill().unwrap();
    let error = migrate(&options).await.unwrap_err();
    assert!(error.message.contains(&format!("127.0.0.1 port {} may have one", old.port())), "{error}");
    assert_eq!(refusal(&both(&old, &new)).await.kind, StoreErrorKind::Foreign);
    assert!(!has_ledger(&new), "it was made all the same");
}

#[tokio::test]
async fn another_ledger_in_its_place_is_not_taken_for_the_one_that_was_opened() {
    let address = server().fresh_database().unwrap();
    let name = database(&address);
    let store = open(&address).await;
    claim(&*store, "k").await.unwrap();
    server().psql_in(name, "DROP SCHEMA oncely CASCADE").unwrap();
    server().psql_in(name, &migration_sql("oncely")).unwrap();
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
    );
    server().psql(&end).unwrap();
    until("it is noticed", async || match claim(&*store, "k").await {
        Ok(there) => panic!("the key was new again: {there:?}"),
        Err(error) => error.message.contains("is another one than the one that was opened"),
    })
    .await;
    let made = "SELECT count(*) FROM oncely.record";
    assert_eq!(server().psql_in(name, made).unwrap().trim(), "0");
}

#[tokio::test]
async fn a_name_that_leads_to_another_ledger_for_a_while_does_no_harm() {
    let (ours, theirs) = (Postgres::start().unwrap(), Postgres::start().unwrap());
    drop(open(&theirs.url("postgres")).await);
    // That it was promoted, and ours never, says nothing of ours.
    let promoted = theirs.standby_async().unwrap();
    promoted.promote().unwrap();
    let name = Tap::to_port(ours.port()).unwrap();
    let store = open(&ours.url_through(name.port(), "postgres")).await;
    claim(&*store, "before").await.unwrap();
    // Somebody waits, so that there is also a connection that listens.
    let (waiting, id) = (store.clone(), crate::common::id("before"));
    let seen = store.load(id).await.unwrap().unwrap().record.version;
    let waiting = tokio::spawn(async move { waiting.watch(id, seen).await });
    let listens = |server: &Postgres| {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
        server.psql(sql).unwrap().trim() != "0"
    };
    until("it listens", async || listens(&ours)).await;
    name.point_at(([127, 0, 0, 1], promoted.port()).into());
    name.cut_once();
    until("it listens there", async || listens(&promoted)).await;
    until("it is noticed", async || match claim(&*store, "elsewhere").await {
        Ok(made) => panic!("claimed in another ledger: {made:?}"),
        Err(error) => error.message.contains("is another one than the one that was opened"),
    })
    .await;
    name.point_at(([127, 0, 0, 1], ours.port()).into());
    until("it heals", async || claim(&*store, "after").await.is_ok()).await;
    waiting.abort();
}
