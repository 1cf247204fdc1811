//! One transaction with your own data through sqlx, in a real file: what is committed together, what is left of what was given
//! up, and what a `kill -9` between any two steps leaves behind.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and tells its child by a variable"
)]

use std::future::{Future, poll_fn};
use std::iter::successors;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::task::Poll;

use oncely::within::{self, Begun};
use oncely::{Answer, Call, Oncely, outcome};
use oncely_core::{LogQuery, Store, StoreErrorKind, Wrote};
use oncely_sqlx_sqlite::SqlxSqliteTransaction;
use oncely_store::{MemoryStore, SqliteOptions, SqliteStore};
use serde_json::json;
use sqlx_core::connection::{ConnectOptions, Connection};
use sqlx_core::query::query;
use sqlx_core::row::Row;
use sqlx_sqlite::{Sqlite, SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use tempfile::TempDir;

fn call(key: &str, payload: u32) -> Call {
    let oncely = Oncely::new(Arc::new(MemoryStore::new()));
    oncely.tool("create_order").key(key).payload(&json!(payload)).into_call().unwrap()
}

/// A ledger with a table of the caller's own in its file.
struct Shop {
    path: PathBuf,
    ledger: Arc<SqliteStore>,
    _directory: TempDir,
}

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

async fn insert(tx: &mut SqlxSqliteTransaction<'_>, key: &str) {
    let insert = query::<Sqlite>("INSERT INTO orders (key) VALUES (?1)").bind(key.to_owned());
    insert.execute(tx.connection()).await.unwrap();
}

async fn orders(connection: &mut SqliteConnection, key: &str) -> i64 {
    let count = query::<Sqlite>("SELECT count(*) FROM orders WHERE key = ?1").bind(key.to_owned());
    count.fetch_one(connection).await.unwrap().get(0)
}

/// One call in a transaction: the answer, or `None` where it ran. `reached` is told of every step.
async fn order(
    ledger: &SqliteStore,
    connection: &mut SqliteConnection,
    call: &Call,
    key: &str,
    reached: impl Fn(&str),
) -> Option<Answer> {
    reached("before");
    let mut tx = SqlxSqliteTransaction::begin(ledger, connection).await.unwrap();
    match within::begin(&mut tx, call).await.unwrap() {
        Begun::Answered(answer) => Some(answer),
        Begun::Run(pending) => {
            reached("after begin");
            insert(&mut tx, key).await;
            reached("after the order");
            pending.complete(&mut tx, outcome::created(&json!({ "order": key }))).await.unwrap();
            reached("after complete");
            tx.commit().await.unwrap();
            reached("after commit");
            None
        }
    }
}

impl Shop {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("shop.db");
        let ledger = Arc::new(SqliteStore::open(SqliteOptions::new(&path)).unwrap());
        let mut connection = connect(&path).await;
        query::<Sqlite>("CREATE TABLE orders (key TEXT)").execute(&mut connection).await.unwrap();
        Self { path, ledger, _directory: directory }
    }

    async fn order(&self, connection: &mut SqliteConnection, key: &str, payload: u32) -> Option<Answer> {
        order(&self.ledger, connection, &call(key, payload), key, |_| {}).await
    }

    async fn forget_all(&self) {
        let engine = Oncely::new(self.ledger.clone());
        for stored in self.ledger.scan(Default::default(), 0, 100).await.unwrap().items {
            engine.forget(&stored.record, "a test").await.unwrap();
        }
    }

    async fn records(&self) -> usize {
        self.ledger.scan(Default::default(), 0, 100).await.unwrap().items.len()
    }
}

#[tokio::test]
async fn an_order_and_its_record_commit_together_and_every_door_knows_it() {
    let shop = Shop::new().await;
    let mut connection = connect(&shop.path).await;
    assert!(shop.order(&mut connection, "a", 1).await.is_none());
    let Some(Answer::Replayed(replay)) = shop.order(&mut connection, "a", 1).await else {
        panic!("it was not replayed")
    };
    assert_eq!(replay.result(), Some(&br#"{"order":"a"}"#[..]));
    assert!(matches!(shop.order(&mut connection, "a", 2).await, Some(Answer::Conflict { .. })));
    assert_eq!(orders(&mut connection, "a").await, 1);
    let engine = Oncely::new(shop.ledger.clone());
    let answer = engine.run(&call("a", 1), |_| async { panic!("it ran again") }).await.unwrap();
    assert!(matches!(answer, Answer::Replayed(_)));
    let events = shop.ledger.log(LogQuery { limit: 10, ..Default::default() }).await.unwrap().items;
    let told: Vec<&str> = events.iter().map(|e| e.event.kind.as_str()).collect();
    assert_eq!(told, ["began", "succeeded"]);
    // And what another door began is known here.
    let oncely::Begun::Run(attempt) = engine.begin(&call("b", 1)).await.unwrap() else { panic!("it is new") };
    assert!(matches!(shop.order(&mut connection, "b", 1).await, Some(Answer::InProgress(_))));
    assert!(attempt.complete(outcome::created(&1)).await.is_none());
    assert!(matches!(shop.order(&mut connection, "b", 1).await, Some(Answer::Replayed(_))));
    assert_eq!(orders(&mut connection, "b").await, 0);
}

#[tokio::test]
async fn what_is_given_up_leaves_nothing_and_the_connection_as_it_was() {
    let shop = Shop::new().await;
    let mut connection = connect(&shop.path).await;
    for end in ["drop", "rollback", "commit"] {
        let mut tx = SqlxSqliteTransaction::begin(&shop.ledger, &mut connection).await.unwrap();
        let Begun::Run(pending) = within::begin(&mut tx, &call("a", 1)).await.unwrap() else {
            panic!("{end}: something is there")
        };
        insert(&mut tx, "a").await;
        match end {
            "drop" => drop((tx, pending)),
            "rollback" => {
                pending.complete(&mut tx, outcome::created(&1)).await.unwrap();
                tx.rollback().await.unwrap();
            }
            // Without its end the record would say running, and nobody would know how it went.
            _ => assert!(tx.commit().await.unwrap_err().message.contains("not completed")),
        }
        assert_eq!(orders(&mut connection, "a").await, 0, "{end}");
        assert_eq!(shop.records().await, 0, "{end}");
        // sqlx counts on: one more `begin` is a transaction, not a savepoint in one that it believes in.
        let own = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        own.commit().await.unwrap();
    }
    assert!(shop.order(&mut connection, "a", 1).await.is_none());
}

#[tokio::test]
async fn a_savepoint_takes_back_what_was_done_in_it_also_where_it_is_only_dropped() {
    let shop = Shop::new().await;
    let mut connection = connect(&shop.path).await;
    // A drop is not waited for: many times, so that the next step would come before it at least once.
    for round in 0..300 {
        let key = format!("round-{round}");
        let mut tx = SqlxSqliteTransaction::begin(&shop.ledger, &mut connection).await.unwrap();
        let Begun::Run(pending) = within::begin(&mut tx, &call(&key, 1)).await.unwrap() else {
            panic!("it is new")
        };
        insert(&mut tx, &key).await;
        pending.complete(&mut tx, outcome::created(&1)).await.unwrap();
        let mut savepoint = tx.connection().begin().await.unwrap();
        let lost = query::<Sqlite>("INSERT INTO orders (key) VALUES ('lost')");
        lost.execute(&mut *savepoint).await.unwrap();
        match round % 2 {
            0 => drop(savepoint),
            _ => savepoint.rollback().await.unwrap(),
        }
        tx.commit().await.unwrap();
        assert_eq!(orders(&mut connection, &key).await, 1);
        assert_eq!(orders(&mut connection, "lost").await, 0, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_transactions_with_one_key_one_runs_and_the_others_replay() {
    let shop = Arc::new(Shop::new().await);
    let one = |shop: Arc<Shop>| async move {
        let mut connection = connect(&shop.path).await;
        match shop.order(&mut connection, "one", 1).await {
            None => 1,
            Some(Answer::Replayed(_)) => 0,
            Some(other) => panic!("{other:?}"),
        }
    };
    let all: Vec<_> = (0..8).map(|_| tokio::spawn(one(shop.clone()))).collect();
    let mut ran = 0;
    for one in all {
        ran += one.await.unwrap();
    }
    assert_eq!((ran, orders(&mut connect(&shop.path).await, "one").await), (1, 1));
}

#[tokio::test]
async fn a_caller_that_goes_away_at_any_moment_leaves_both_or_neither() {
    let shop = Shop::new().await;
    let mut connection = connect(&shop.path).await;
    // Every moment at first, and from then on fewer: how often it is asked in vain depends on how quick other threads are.
    let moments = (0..200).chain(successors(Some(200_usize), |polls| Some(polls + polls / 16)));
    for polls in moments {
        let key = format!("gone-after-{polls}");
        let call = call(&key, 1);
        let finished = {
            let mut work = Box::pin(order(&shop.ledger, &mut connection, &call, &key, |_| {}));
            let mut done = false;
            for _ in 0..polls {
                let polled = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
                if polled.is_ready() {
                    done = true;
                    break;
                }
                // Whatever it waits for, on a thread of sqlx's or of the ledger's, gets its time.
                tokio::task::yield_now().await;
            }
            done
        };
        let there = orders(&mut connection, &key).await;
        let filter = oncely_core::Filter { key: Some(key.clone()), ..Default::default() };
        let records = shop.ledger.scan(filter, 0, 10).await.unwrap().items.len();
        assert_eq!(there, i64::try_from(records).unwrap(), "given up after {polls} polls");
        // A retry runs, or replays; and neither the connection nor the turn at writing is lost.
        let retried = shop.order(&mut connection, &key, 1).await;
        assert_eq!(retried.is_none(), there == 0, "given up after {polls} polls: {retried:?}");
        assert_eq!(orders(&mut connection, &key).await, 1);
        if finished {
            return;
        }
    }
}

#[tokio::test]
async fn a_connection_that_does_not_suit_is_refused_and_nothing_begins() {
    let shop = Shop::new().await;
    let elsewhere = shop.path.with_file_name("elsewhere.db");
    let file = |path: &Path| SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let refused = async |connection: &mut SqliteConnection| {
        SqlxSqliteTransaction::begin(&shop.ledger, connection).await.err().unwrap()
    };
    let mut other = file(&elsewhere).connect().await.unwrap();
    assert!(refused(&mut other).await.message.contains("another file"));
    let mut hasty = file(&shop.path).synchronous(SqliteSynchronous::Normal).connect().await.unwrap();
    let error = refused(&mut hasty).await;
    assert!(error.kind == StoreErrorKind::Unsuitable && error.message.contains("FULL"), "{error}");
    let mut connection = connect(&shop.path).await;
    let attach = query::<Sqlite>("ATTACH ?1 AS other").bind(elsewhere.to_str().unwrap().to_owned());
    attach.execute(&mut connection).await.unwrap();
    assert!(refused(&mut connection).await.message.contains("attached"));
    query::<Sqlite>("DETACH other").execute(&mut connection).await.unwrap();
    let mut busy = connection.begin().await.unwrap();
    assert!(refused(&mut busy).await.message.contains("in a transaction already"));
    drop(busy);
    assert!(shop.order(&mut connection, "a", 1).await.is_none());
}

/// Whatever ends the transaction behind our back, the caller's next statement is not committed alone: its record would be missing,
/// and a retry would do it again.
#[tokio::test]
async fn nothing_is_committed_without_its_record_once_the_transaction_has_ended_by_itself() {
    let shop = Shop::new().await;
    let mut connection = connect(&shop.path).await;
    for (key, how) in [("sqlite", "OR ROLLBACK"), ("sqlx", "a savepoint that cannot be")] {
        for end in ["commit", "rollback", "drop"] {
            let mut tx = SqlxSqliteTransaction::begin(&shop.ledger, &mut connection).await.unwrap();
            let Begun::Run(pending) = within::begin(&mut tx, &call(key, 1)).await.unwrap() else {
                panic!("{how}: something is there")
            };
            match key {
                "sqlite" => {
                    query::<Sqlite>("CREATE TABLE once (n INTEGER PRIMARY KEY)")
                        .execute(tx.connection())
                        .await
                        .unwrap();
                    let twice = "INSERT OR ROLLBACK INTO once VALUES (1), (1)";
                    query::<Sqlite>(twice).execute(tx.connection()).await.unwrap_err();
                }
                _ => assert!(tx.connection().begin_with("BEGIN IMMEDIATE").await.is_err()),
            }
            let alone = query::<Sqlite>("INSERT INTO orders (key) VALUES (?1)").bind(key);
            alone.execute(tx.connection()).await.unwrap_err();
            let ended = pending.complete(&mut tx, outcome::created(&1)).await.unwrap_err();
            assert!(ended.to_string().contains("has ended or failed already"), "{how}: {ended}");
            match end {
                "commit" => assert!(tx.commit().await.is_err(), "{how}"),
                "rollback" => tx.rollback().await.unwrap(),
                _ => drop(tx),
            }
            assert_eq!((orders(&mut connection, key).await, shop.records().await), (0, 0), "{how}, {end}");
            // And the connection is as good as before, also for the caller's own statements.
            assert!(shop.order(&mut connection, &format!("{key}-{end}"), 1).await.is_none(), "{how}, {end}");
            query::<Sqlite>("DELETE FROM orders").execute(&mut connection).await.unwrap();
            let mut other = connect(&shop.path).await;
            assert_eq!(
                orders(&mut other, &format!("{key}-{end}")).await,
                0,
                "{how}, {end}: it was not committed"
            );
            shop.forget_all().await;
        }
    }
}

/// A savepoint outside of a transaction begins one. What is done in that is not what was begun with the ledger.
#[tokio::test]
async fn what_a_savepoint_began_after_sqlite_had_ended_the_transaction_is_not_committed_in_its_place() {
    let shop = Shop::new().await;
    let mut connection = connect(&shop.path).await;
    query::<Sqlite>("CREATE TABLE once (n INTEGER PRIMARY KEY)").execute(&mut connection).await.unwrap();
    let mut tx = SqlxSqliteTransaction::begin(&shop.ledger, &mut connection).await.unwrap();
    let Begun::Run(pending) = within::begin(&mut tx, &call("a", 1)).await.unwrap() else {
        panic!("it is new")
    };
    pending.complete(&mut tx, outcome::created(&1)).await.unwrap();
    let twice = "INSERT OR ROLLBACK INTO once VALUES (1), (1)";
    query::<Sqlite>(twice).execute(tx.connection()).await.unwrap_err();
    tx.connection().begin().await.unwrap().rollback().await.unwrap();
    insert(&mut tx, "a").await;
    assert_eq!(tx.commit().await.unwrap_err().wrote, Wrote::No);
    assert_eq!((orders(&mut connection, "a").await, shop.records().await), (0, 0));
    assert!(shop.order(&mut connection, "a", 1).await.is_none(), "the connection is as good as before");
    assert_eq!(orders(&mut connect(&shop.path).await, "a").await, 1);
}

const POINTS: [&str; 5] = ["before", "after begin", "after the order", "after complete", "after commit"];
/// Set for the child: the file, the key and where it is to be killed.
const CHILD: &str = "ONCELY_KILLED_AT";

/// Not a test by itself: what the child does.
#[tokio::test]
async fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let [path, key, point] = told.split('|').collect::<Vec<_>>().try_into().unwrap();
    let ledger = SqliteStore::open(SqliteOptions::new(path)).unwrap();
    let mut connection = connect(Path::new(path)).await;
    let die = |here: &str| {
        if here == point {
            // No destructor runs, nothing is flushed.
            let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
            std::process::abort();
        }
    };
    order(&ledger, &mut connection, &call(key, 1), key, die).await;
}

#[tokio::test]
async fn a_kill_between_any_two_steps_leaves_both_or_neither_and_a_retry_makes_one_order() {
    let shop = Shop::new().await;
    let mut connection = connect(&shop.path).await;
    for point in POINTS {
        let key = point.replace(' ', "-");
        let child = |point: &str| {
            let told = format!("{}|{key}|{point}", shop.path.display());
            let program = std::env::current_exe().unwrap();
            Command::new(program).args(["--exact", "child"]).env(CHILD, told).output().unwrap().status
        };
        assert!(!child(point).success(), "{point}");
        let there = orders(&mut connection, &key).await;
        let filter = oncely_core::Filter { key: Some(key.clone()), ..Default::default() };
        let records = shop.ledger.scan(filter, 0, 10).await.unwrap().items.len();
        assert_eq!(there, i64::try_from(records).unwrap(), "{point}");
        assert_eq!(there, i64::from(point == "after commit"), "{point}");
        assert!(child("never").success(), "{point}");
        assert_eq!(orders(&mut connection, &key).await, 1, "{point}");
    }
}
