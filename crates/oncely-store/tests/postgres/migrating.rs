//! How tables come to be, who may make them, and two versions of the program on one ledger.

use std::sync::Arc;

use oncely_core::{Change, Created, Event, EventKind, Gate, Millis, Move, Store, StoreErrorKind};
use oncely_store::postgres::{Migrated, PostgresOptions, migrate, migration_sql};

use crate::common::{LONG, draft, id, running, succeeded};
use crate::{claim, database, open, refusal, server, with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_open_a_new_ledger_at_once_make_it_once() {
    let address = Arc::new(server().fresh_database().unwrap());
    let mut opening = Vec::new();
    for _ in 0..8 {
        let address = Arc::clone(&address);
        opening.push(tokio::spawn(async move { open(&address).await }));
    }
    for (number, opened) in opening.into_iter().enumerate() {
        claim(&*opened.await.unwrap(), &format!("k{number}")).await.unwrap();
    }
    let options = PostgresOptions::parse(&address).unwrap();
    assert_eq!(migrate(&options).await.unwrap(), Migrated { from: 5, to: 5 });
}

#[tokio::test]
async fn a_ledger_that_is_too_new_is_refused_and_one_that_is_new_enough_is_not() {
    let address = server().fresh_database().unwrap();
    open(&address).await;
    let set = |sql: &str| server().psql_in(database(&address), sql).unwrap();
    set("UPDATE oncely.ledger SET version = 7, oldest = 1; ALTER TABLE oncely.record ADD COLUMN later text");
    claim(&*open(&address).await, "expanded").await.unwrap();
    set("UPDATE oncely.ledger SET oldest = 7");
    let error = refusal(&address).await;
    assert_eq!(error.kind, StoreErrorKind::TooNew);
    for words in ["version 7", "use a newer program", "nothing was written"] {
        assert!(error.message.contains(words), "{error}");
    }
    let options = PostgresOptions::parse(&address).unwrap();
    assert_eq!(migrate(&options).await.unwrap_err().kind, StoreErrorKind::TooNew);
}

#[tokio::test]
async fn a_role_that_may_not_make_tables_uses_those_that_were_made_for_it() {
    let address = server().fresh_database().unwrap();
    let name = database(&address);
    let role = format!("clerk_{name}");
    server().psql(&format!("CREATE ROLE {role} LOGIN")).unwrap();
    let clerk = address.replace("postgres@", &format!("{role}@"));
    let error = refusal(&clerk).await;
    assert_eq!(error.kind, StoreErrorKind::ReadOnly, "{error}");
    assert!(error.message.contains("oncely store migrate --print"), "{error}");
    server().psql_in(name, &migration_sql("oncely")).unwrap();
    let grant = format!(
        "GRANT USAGE ON SCHEMA oncely TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA oncely TO \
         {role}; GRANT USAGE ON ALL SEQUENCES IN SCHEMA oncely TO {role}"
    );
    server().psql_in(name, &grant).unwrap();
    claim(&*open(&clerk).await, "k").await.unwrap();
}

#[tokio::test]
async fn tables_of_another_program_are_left_alone() {
    let address = server().fresh_database().unwrap();
    let make = "CREATE SCHEMA shop; CREATE TABLE shop.record (total int); INSERT INTO shop.record VALUES (7)";
    server().psql_in(database(&address), make).unwrap();
    let error = refusal(&with(&address, "schema=shop")).await;
    assert_eq!(error.kind, StoreErrorKind::Foreign, "{error}");
    assert!(error.message.contains("name another with ?schema="), "{error}");
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'shop'";
    assert_eq!(server().psql_in(database(&address), tables).unwrap().trim(), "1");
}

#[tokio::test]
async fn a_plan_made_for_an_empty_ledger_does_not_read_all_of_a_full_one() {
    let address = server().fresh_database().unwrap();
    open(&address).await;
    let ask = |sql: &str| server().psql_in(database(&address), sql).unwrap();
    ask("VACUUM ANALYZE oncely.record");
    let plan = ask("EXPLAIN SELECT * FROM oncely.record WHERE head = '00000000-0000-0000-0000-000000000000'");
    assert!(plan.contains("record_pkey"), "{plan}");
}

/// A ledger of version 2, as it was printed then.
const OLD: &str = include_str!("../golden/postgres-2.sql");

#[tokio::test]
async fn a_ledger_that_is_closing_is_brought_up_to_date_and_then_takes_word_of_a_superseded_attempt() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    let Created::New(made) = claim(&*store, "k").await.unwrap() else { panic!("it was there") };
    let of = Move { id: [7; 16], run: 1, other: "elsewhere:".into(), shift_ms: 0, steady_since: Millis(0) };
    store.turn_gate(Gate::Open, Gate::Closing(of)).await.unwrap();
    // The gate as it was before.
    let function = OLD.split("CREATE FUNCTION").nth(1).unwrap().split("CREATE TRIGGER").next().unwrap();
    let back = format!("CREATE OR REPLACE FUNCTION{function}; UPDATE oncely.ledger SET version = 4");
    server().psql_in(database(&address), &back).unwrap();
    let superseded = || vec![Event::new(id("k"), 1, EventKind::Superseded)];
    let refused = store.note(superseded()).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Moved, "{refused}");
    let newer = open(&address).await;
    let options = PostgresOptions::parse(&address).unwrap();
    assert_eq!(migrate(&options).await.unwrap(), Migrated { from: 5, to: 5 });
    // Also by the program that was there before.
    for store in [&store, &newer] {
        store.note(superseded()).await.unwrap();
        assert_eq!(claim(&**store, "fresh").await.unwrap_err().kind, StoreErrorKind::Moved);
        let again = Change::Put(Box::new(draft("k", running(), LONG)));
        let begins = vec![Event::new(id("k"), 2, EventKind::Began)];
        let begun = store.replace(id("k"), made.record.version, again, begins).await;
        assert_eq!(begun.unwrap_err().kind, StoreErrorKind::Moved);
    }
    let end = Change::Put(Box::new(draft("k", succeeded("end"), LONG)));
    store.replace(id("k"), made.record.version, end, Vec::new()).await.unwrap();
    // Once it is open again, nobody is asked.
    let Gate::Closing(of) = newer.gate().await.unwrap() else { panic!("it is not closing") };
    newer.turn_gate(Gate::Closing(of), Gate::Open).await.unwrap();
    let enabled = "SELECT tgenabled FROM pg_trigger WHERE tgrelid = 'oncely.record'::regclass";
    assert_eq!(server().psql_in(database(&address), enabled).unwrap().trim(), "D");
    claim(&*store, "fresh").await.unwrap();
}
