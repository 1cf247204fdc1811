//! One transaction with your own data, on real databases: what is committed together, what blocks, and what is left alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use oncely::within::{self, Begun};
use oncely::{Answer, Call, Oncely, outcome};
use oncely_core::{Gate, Millis, Move, Outcome, Store, StoreErrorKind};
use oncely_store::{MemoryStore, PostgresWithin, SqliteOptions, SqliteStore};
use oncely_testkit::servers::Postgres;
use rusqlite::Connection;
use serde_json::json;
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

impl Shop {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("shop.db");
        let ledger = Arc::new(SqliteStore::open(SqliteOptions::new(&path)).unwrap());
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE orders (key TEXT)").unwrap();
        Self { path, ledger, _directory: directory }
    }

    fn orders(&self, key: &str) -> i64 {
        let connection = Connection::open(&self.path).unwrap();
        connection.query_row("SELECT count(*) FROM orders WHERE key = ?1", [key], |r| r.get(0)).unwrap()
    }

    /// One call in a transaction: the answer, or `None` where it ran.
    async fn order(&self, key: &str, payload: u32) -> Option<Answer> {
        let mut connection = Connection::open(&self.path).unwrap();
        let mut tx = self.ledger.transaction(&mut connection).unwrap();
        match within::begin(&mut tx, &call(key, payload)).await.unwrap() {
            Begun::Answered(answer) => Some(answer),
            Begun::Run(pending) => {
                tx.execute("INSERT INTO orders (key) VALUES (?1)", [key]).unwrap();
                pending.complete(&mut tx, outcome::created(&json!({ "order": key }))).await.unwrap();
                tx.commit().unwrap();
                None
            }
        }
    }
}

#[tokio::test]
async fn an_order_and_its_record_commit_together_and_a_duplicate_is_answered() {
    let shop = Shop::new();
    assert!(shop.order("a", 1).await.is_none());
    let Some(Answer::Replayed(replay)) = shop.order("a", 1).await else { panic!("it was not replayed") };
    assert_eq!(replay.result(), Some(&br#"{"order":"a"}"#[..]));
    assert!(matches!(shop.order("a", 2).await, Some(Answer::Conflict { .. })));
    assert_eq!(shop.orders("a"), 1);
    // Every other door on the same ledger knows it, too.
    let engine = Oncely::new(shop.ledger.clone());
    let answer = engine.run(&call("a", 1), |_| async { panic!("it ran again") }).await.unwrap();
    assert!(matches!(answer, Answer::Replayed(_)));
    let events =
        shop.ledger.log(oncely_core::LogQuery { limit: 10, ..Default::default() }).await.unwrap().items;
    let told: Vec<&str> = events.iter().map(|e| e.event.kind.as_str()).collect();
    assert_eq!(told, ["began", "succeeded"]);
}

#[tokio::test]
async fn what_is_rolled_back_leaves_nothing() {
    let shop = Shop::new();
    let mut connection = Connection::open(&shop.path).unwrap();
    for end in ["drop", "rollback", "commit"] {
        let mut tx = shop.ledger.transaction(&mut connection).unwrap();
        let Begun::Run(pending) = within::begin(&mut tx, &call("a", 1)).await.unwrap() else {
            panic!("{end}: something is there")
        };
        tx.execute("INSERT INTO orders (key) VALUES ('a')", []).unwrap();
        match end {
            "drop" => drop((tx, pending)),
            "rollback" => {
                pending.complete(&mut tx, outcome::created(&1)).await.unwrap();
                tx.rollback();
            }
            // Without its end the record would say running, and nobody would know how it went.
            _ => assert!(tx.commit().unwrap_err().message.contains("not completed")),
        }
        assert_eq!(shop.orders("a"), 0, "{end}");
        assert!(shop.ledger.scan(Default::default(), 0, 1).await.unwrap().items.is_empty(), "{end}");
    }
    assert!(shop.order("a", 1).await.is_none());
}

#[test]
fn of_many_transactions_with_one_key_one_runs_and_the_others_replay() {
    let shop = Shop::new();
    let ran: usize = std::thread::scope(|scope| {
        let order = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            match runtime.block_on(shop.order("one", 1)) {
                None => 1,
                Some(Answer::Replayed(_)) => 0,
                Some(other) => panic!("{other:?}"),
            }
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(order)).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!((ran, shop.orders("one")), (1, 1));
}

#[tokio::test]
async fn an_attempt_that_runs_elsewhere_is_in_progress_and_one_that_was_rejected_may_run() {
    let shop = Shop::new();
    let engine = Oncely::new(shop.ledger.clone());
    let oncely::Begun::Run(attempt) = engine.begin(&call("a", 1)).await.unwrap() else { panic!("it is new") };
    assert!(matches!(shop.order("a", 1).await, Some(Answer::InProgress(_))));
    assert!(attempt.complete(Outcome::rejected("NO", "no")).await.is_none());
    assert!(shop.order("a", 1).await.is_none());
    assert_eq!(shop.orders("a"), 1);
    engine.run(&call("b", 1), |_| async { Outcome::unknown("?") }).await.unwrap();
    assert!(matches!(shop.order("b", 1).await, Some(Answer::Unknown(_))));
    assert_eq!(shop.orders("b"), 0);
}

/// What another handle keeps in memory of a succeeded record must not outlive a transaction that changes it.
#[tokio::test]
async fn no_cache_is_fooled_by_a_transaction_that_means_a_key_anew() {
    let shop = Shop::new();
    let other = SqliteStore::open(SqliteOptions::new(&shop.path)).unwrap();
    let once = |payload: u32| {
        let mut call = call("unused", payload);
        call.key = None;
        call.policy = oncely::Policy { repeat_after_ms: 0, ..Default::default() }.into();
        call
    };
    let mut connection = Connection::open(&shop.path).unwrap();
    let mut intent = None;
    for generation in 1..=3 {
        let mut tx = shop.ledger.transaction(&mut connection).unwrap();
        let Begun::Run(pending) = within::begin(&mut tx, &once(1)).await.unwrap() else {
            panic!("it is meant anew")
        };
        let of = pending.info().intent();
        pending.complete(&mut tx, outcome::created(&generation)).await.unwrap();
        tx.commit().unwrap();
        for store in [&*shop.ledger, &other] {
            let loaded = store.load(of).await.unwrap().unwrap().record;
            assert_eq!(loaded.body.generation, generation);
            if let Some(peeked) = store.peek(&of) {
                assert_eq!(peeked.record.body.generation, generation, "a cache shows the past");
            }
        }
        intent = Some(of);
    }
    assert!(other.peek(&intent.unwrap()).is_some(), "the cache was never used");
}

#[tokio::test]
async fn a_ledger_that_has_moved_begins_nothing_in_a_transaction_either() {
    let shop = Shop::new();
    assert!(shop.order("old", 1).await.is_none());
    let of = Move { id: [1; 16], run: 1, other: "elsewhere:".into(), shift_ms: 0, steady_since: Millis(0) };
    shop.ledger.turn_gate(Gate::Open, Gate::Closed(of)).await.unwrap();
    let mut connection = Connection::open(&shop.path).unwrap();
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    let error = within::begin(&mut tx, &call("new", 1)).await.unwrap_err();
    assert!(error.to_string().contains("elsewhere:"), "{error}");
    drop(tx);
    // What it remembers is still told; to count that, it would have to write.
    assert_eq!(shop.orders("old"), 1);
}

#[tokio::test]
async fn a_connection_to_another_file_or_in_a_transaction_is_refused() {
    let shop = Shop::new();
    let mut stranger = Connection::open_in_memory().unwrap();
    assert_eq!(shop.ledger.transaction(&mut stranger).err().unwrap().kind, StoreErrorKind::BadAddress);
    let mut busy = Connection::open(&shop.path).unwrap();
    busy.execute_batch("BEGIN").unwrap();
    assert_eq!(shop.ledger.transaction(&mut busy).err().unwrap().kind, StoreErrorKind::BadAddress);
    assert!(shop.order("a", 1).await.is_none(), "a refusal kept the turn");
}

#[tokio::test]
async fn what_a_savepoint_took_back_is_not_remembered() {
    let shop = Shop::new();
    let mut connection = Connection::open(&shop.path).unwrap();
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    tx.execute_batch("SAVEPOINT a").unwrap();
    let Begun::Run(pending) = within::begin(&mut tx, &call("a", 1)).await.unwrap() else {
        panic!("it is new")
    };
    let intent = pending.info().intent();
    pending.complete(&mut tx, outcome::created(&1)).await.unwrap();
    tx.execute_batch("ROLLBACK TO a").unwrap();
    tx.commit().unwrap();
    assert!(shop.ledger.peek(&intent).is_none() && shop.ledger.load(intent).await.unwrap().is_none());
    assert!(shop.order("a", 1).await.is_none(), "it was said to have happened");
}

#[tokio::test]
async fn a_transaction_that_would_not_keep_its_promise_is_refused() {
    let shop = Shop::new();
    let refused = |connection: &mut Connection| shop.ledger.transaction(connection).err().map(|e| e.kind);
    let mut attached = Connection::open(&shop.path).unwrap();
    attached.execute_batch("ATTACH ':memory:' AS other").unwrap();
    assert_eq!(refused(&mut attached), Some(StoreErrorKind::Unsuitable));
    let mut hasty = Connection::open(&shop.path).unwrap();
    hasty.execute_batch("PRAGMA synchronous = NORMAL").unwrap();
    assert_eq!(refused(&mut hasty), Some(StoreErrorKind::Unsuitable));
    // What macOS needs beside is no matter of taste, and is set.
    let mut plain = Connection::open(&shop.path).unwrap();
    drop(shop.ledger.transaction(&mut plain).unwrap());
    let fully: i64 = plain.query_row("PRAGMA fullfsync", [], |row| row.get(0)).unwrap();
    assert_eq!(fully, 1);
    // Ended behind our back: nothing more is written, one statement at a time.
    let mut connection = Connection::open(&shop.path).unwrap();
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    tx.execute_batch("ROLLBACK").unwrap();
    assert!(within::begin(&mut tx, &call("a", 1)).await.is_err());
    assert!(tx.commit().is_err());
    assert!(shop.ledger.scan(Default::default(), 0, 1).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn what_is_written_in_a_transaction_is_sealed_as_everywhere() {
    use oncely_store::sealed::{Keys, Sealed};
    let shop = Shop::new();
    let keys = Keys::parse(&format!("k {}", "0b".repeat(32))).unwrap();
    let sealed = Sealed::new(shop.ledger.clone(), keys);
    let mut connection = Connection::open(&shop.path).unwrap();
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    {
        let mut closed = sealed.within(&mut tx);
        let Begun::Run(pending) = within::begin(&mut closed, &call("a", 1)).await.unwrap() else {
            panic!("new")
        };
        pending.complete(&mut closed, outcome::created(&"s3cret")).await.unwrap();
    }
    tx.commit().unwrap();
    let stored =
        [std::fs::read(&shop.path).unwrap(), std::fs::read(shop.path.with_extension("db-wal")).unwrap()];
    assert!(!stored.concat().windows(6).any(|w| w == b"s3cret"), "it was stored in plain");
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    assert!(within::begin(&mut tx, &call("a", 1)).await.is_err(), "sealed bytes were told for a result");
    let replay = within::begin(&mut sealed.within(&mut tx), &call("a", 1)).await.unwrap();
    let Begun::Answered(Answer::Replayed(replay)) = replay else { panic!("it is there") };
    assert_eq!(replay.result(), Some(&br#""s3cret""#[..]));
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn in_postgres_a_second_transaction_waits_for_the_first_and_then_replays_or_runs() {
    let url = Postgres::shared().unwrap().fresh_database().unwrap();
    let ledger = oncely_store::open(&url).await.unwrap();
    let mut clients = (connect(&url).await, connect(&url).await);
    clients.0.batch_execute("CREATE TABLE orders (key text)").await.unwrap();
    for first_commits in [false, true] {
        let key = format!("first-commits-{first_commits}");
        let first = clients.0.transaction().await.unwrap();
        let mut within_first = PostgresWithin::new(&first, "oncely");
        let Begun::Run(pending) = within::begin(&mut within_first, &call(&key, 1)).await.unwrap() else {
            panic!("it is new")
        };
        first.execute("INSERT INTO orders VALUES ($1)", &[&key]).await.unwrap();
        pending.complete(&mut within_first, outcome::created(&json!(1))).await.unwrap();
        let second = clients.1.transaction().await.unwrap();
        let mut within_second = PostgresWithin::new(&second, "oncely");
        let asked = call(&key, 1);
        let begun = {
            let mut begun = std::pin::pin!(within::begin(&mut within_second, &asked));
            let waits = tokio::time::timeout(std::time::Duration::from_millis(300), &mut begun).await;
            assert!(waits.is_err(), "the second did not wait for the first");
            match first_commits {
                true => first.commit().await.unwrap(),
                false => first.rollback().await.unwrap(),
            }
            begun.await.unwrap()
        };
        match begun {
            Begun::Answered(Answer::Replayed(_)) => assert!(first_commits),
            Begun::Run(pending) => {
                assert!(!first_commits, "it ran beside the first");
                second.execute("INSERT INTO orders VALUES ($1)", &[&key]).await.unwrap();
                pending.complete(&mut within_second, outcome::created(&json!(2))).await.unwrap();
            }
            Begun::Answered(other) => panic!("{other:?}"),
        }
        second.commit().await.unwrap();
        let count = clients.0.query_one("SELECT count(*) FROM orders WHERE key = $1", &[&key]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), 1);
        let engine = Oncely::new(ledger.clone());
        let answer = engine.run(&call(&key, 1), |_| async { panic!("it ran again") }).await.unwrap();
        assert!(matches!(answer, Answer::Replayed(_)));
        assert!(matches!(
            engine.begin(&call(&key, 2)).await.unwrap(),
            oncely::Begun::Answered(Answer::Conflict { .. })
        ));
    }
}

/// The example kills itself with `kill -9` at every point between begin and commit.
fn killed_at_every_point(address: &str) {
    let example =
        Path::new(&std::env::current_exe().unwrap()).parent().unwrap().join("../examples/one_transaction");
    assert!(example.exists(), "build it first: cargo build -p oncely --examples");
    let output = Command::new(example).arg(address).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for (point, there) in [
        ("before", 0),
        ("after begin", 0),
        ("after the order", 0),
        ("after complete", 0),
        ("after commit", 1),
    ] {
        let line = format!("killed {point}: {there} orders, {there} records\n  retried: 1 orders\n");
        assert!(said.contains(&line), "{line} is missing:\n{said}");
    }
}

#[test]
fn in_sqlite_a_kill_at_any_point_leaves_neither_or_both() {
    let directory = TempDir::new().unwrap();
    killed_at_every_point(&format!("sqlite:{}", directory.path().join("orders.db").display()));
}

#[test]
fn in_postgres_a_kill_at_any_point_leaves_neither_or_both() {
    killed_at_every_point(&Postgres::shared().unwrap().fresh_database().unwrap());
}

#[test]
fn in_postgres_through_sqlx_a_kill_at_any_point_leaves_neither_or_both() {
    let url = Postgres::shared().unwrap().fresh_database().unwrap();
    killed_at_every_point(&format!("sqlx:{url}"));
}
