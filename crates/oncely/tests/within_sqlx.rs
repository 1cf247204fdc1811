//! One transaction with your own data through sqlx, on a real PostgreSQL server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use oncely::within::{self, Begun};
use oncely::{Answer, Call, Oncely, outcome};
use oncely_store::{MemoryStore, SqlxWithin};
use oncely_testkit::servers::Postgres as Server;
use serde_json::json;
use sqlx_core::connection::Connection;
use sqlx_core::query::query;
use sqlx_core::row::Row;
use sqlx_postgres::{PgConnection, Postgres};

fn call(key: &str, payload: u32) -> Call {
    let oncely = Oncely::new(Arc::new(MemoryStore::new()));
    oncely.tool("create_order").scope("shop").key(key).payload(&json!(payload)).into_call().unwrap()
}

/// A database with the ledger and a table of the caller's own.
async fn shop() -> (String, Oncely) {
    let url = Server::shared().unwrap().fresh_database().unwrap();
    let ledger = Oncely::new(oncely_store::open(&url).await.unwrap());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    query::<Postgres>("CREATE TABLE orders (key text)").execute(&mut connection).await.unwrap();
    (url, ledger)
}

async fn orders(connection: &mut PgConnection, key: &str) -> i64 {
    let row = query::<Postgres>("SELECT count(*) FROM orders WHERE key = $1").bind(key).fetch_one(connection);
    row.await.unwrap().get(0)
}

/// One call in a transaction: the answer, or `None` where it ran.
async fn order(connection: &mut PgConnection, key: &str, payload: u32) -> Option<Answer> {
    let mut transaction = connection.begin().await.unwrap();
    let mut ledger = SqlxWithin::new(&mut transaction, "oncely");
    match within::begin(&mut ledger, &call(key, payload)).await.unwrap() {
        Begun::Answered(answer) => Some(answer),
        Begun::Run(pending) => {
            let insert = query::<Postgres>("INSERT INTO orders VALUES ($1)").bind(key);
            insert.execute(ledger.connection()).await.unwrap();
            pending.complete(&mut ledger, outcome::created(&json!({ "order": key }))).await.unwrap();
            transaction.commit().await.unwrap();
            None
        }
    }
}

#[tokio::test]
async fn an_order_and_its_record_commit_together_and_every_door_knows_it() {
    let (url, engine) = shop().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    assert!(order(&mut connection, "a", 1).await.is_none());
    let Some(Answer::Replayed(replay)) = order(&mut connection, "a", 1).await else {
        panic!("it was not replayed")
    };
    assert_eq!(replay.result(), Some(&br#"{"order":"a"}"#[..]));
    assert!(matches!(order(&mut connection, "a", 2).await, Some(Answer::Conflict { .. })));
    assert_eq!(orders(&mut connection, "a").await, 1);
    let answer = engine.run(&call("a", 1), |_| async { panic!("it ran again") }).await.unwrap();
    assert!(matches!(answer, Answer::Replayed(_)));
    let query = oncely_core::LogQuery { limit: 10, ..Default::default() };
    let events = engine.store().log(query).await.unwrap().items;
    let told: Vec<&str> = events.iter().map(|e| e.event.kind.as_str()).collect();
    assert_eq!(told, ["began", "succeeded"]);
    // And what another door began is known here.
    let oncely::Begun::Run(attempt) = engine.begin(&call("b", 1)).await.unwrap() else { panic!("it is new") };
    assert!(matches!(order(&mut connection, "b", 1).await, Some(Answer::InProgress(_))));
    assert!(attempt.complete(outcome::created(&1)).await.is_none());
    assert!(matches!(order(&mut connection, "b", 1).await, Some(Answer::Replayed(_))));
    assert_eq!(orders(&mut connection, "b").await, 0);
}

#[tokio::test]
async fn what_is_rolled_back_leaves_nothing_and_nothing_stays_in_the_session() {
    let (url, engine) = shop().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for completed in [false, true] {
        let mut transaction = connection.begin().await.unwrap();
        let mut ledger = SqlxWithin::new(&mut transaction, "oncely");
        let Begun::Run(pending) = within::begin(&mut ledger, &call("a", 1)).await.unwrap() else {
            panic!("something is there")
        };
        if completed {
            pending.complete(&mut ledger, outcome::created(&1)).await.unwrap();
        }
        transaction.rollback().await.unwrap();
        assert!(engine.store().scan(Default::default(), 0, 1).await.unwrap().items.is_empty());
    }
    assert!(order(&mut connection, "a", 1).await.is_none());
    let named = query::<Postgres>(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%oncely%record%'",
    );
    let named: i64 = named.persistent(false).fetch_one(&mut connection).await.unwrap().get(0);
    assert_eq!(named, 0, "a statement of ours was left prepared");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_transaction_waits_for_the_first_and_then_replays_or_runs() {
    let (url, _) = shop().await;
    let mut clients =
        (PgConnection::connect(&url).await.unwrap(), PgConnection::connect(&url).await.unwrap());
    for first_commits in [false, true] {
        let key = format!("first-commits-{first_commits}");
        let mut first = clients.0.begin().await.unwrap();
        let mut ledger = SqlxWithin::new(&mut first, "oncely");
        let Begun::Run(pending) = within::begin(&mut ledger, &call(&key, 1)).await.unwrap() else {
            panic!("it is new")
        };
        let insert = query::<Postgres>("INSERT INTO orders VALUES ($1)").bind(&key);
        insert.execute(ledger.connection()).await.unwrap();
        pending.complete(&mut ledger, outcome::created(&1)).await.unwrap();
        let second = order(&mut clients.1, &key, 1);
        let mut second = std::pin::pin!(second);
        tokio::select! {
            answer = &mut second => panic!("the second did not wait for the first: {answer:?}"),
            () = waits(&url) => {}
        }
        match first_commits {
            true => first.commit().await.unwrap(),
            false => first.rollback().await.unwrap(),
        }
        match second.await {
            Some(Answer::Replayed(_)) => assert!(first_commits),
            None => assert!(!first_commits, "it ran beside the first"),
            other => panic!("{other:?}"),
        }
        assert_eq!(orders(&mut clients.0, &key).await, 1);
    }
}

/// Returns when somebody waits for another's transaction.
async fn waits(url: &str) {
    let database = url.rsplit('/').next().unwrap();
    let ask = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND wait_event_type = 'Lock'"
    );
    while Server::shared().unwrap().psql(&ask).unwrap().trim() == "0" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_the_server_refuses_says_that_nothing_was_written() {
    let (url, _) = shop().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let mut ledger = SqlxWithin::new(&mut transaction, "elsewhere");
    let error = within::begin(&mut ledger, &call("a", 1)).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("nothing was written") && said.contains("elsewhere"), "{said}");
}
