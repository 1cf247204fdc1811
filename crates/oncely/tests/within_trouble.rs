//! One transaction with your own data where the transaction is an unusual one, or does not end as it should: savepoints,
//! stricter isolation, another search path, read only, a commit whose answer is lost, an end that was forgotten.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use oncely::within::{self, Begun};
use oncely::{Answer, Call, Error, Oncely, Outcome, Policy, outcome};
use oncely_core::{Counter, Store, StoreError, StoreErrorKind, WhenUnknown, Wrote};
use oncely_store::{MemoryStore, PostgresWithin, SqliteOptions, SqliteStore};
use oncely_testkit::servers::{Postgres, Tap};
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use tempfile::TempDir;
use tokio_postgres::{Client, IsolationLevel, Transaction};

fn call(key: &str) -> Call {
    let oncely = Oncely::new(Arc::new(MemoryStore::new()));
    oncely.tool("create_order").key(key).payload(&json!(1)).into_call().unwrap()
}

fn store_error(error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        other => panic!("{other}"),
    }
}

/// A ledger with tables of the caller's own in its file.
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
        let shop = Self { path, ledger, _directory: directory };
        shop.connect().execute_batch("CREATE TABLE orders (key TEXT)").unwrap();
        shop
    }

    fn connect(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    fn orders(&self) -> i64 {
        self.connect().query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap()
    }

    async fn records(&self) -> usize {
        self.ledger.scan(Default::default(), 0, 10).await.unwrap().items.len()
    }
}

const INSERT: &str = "INSERT INTO orders (key) VALUES ('a')";

#[tokio::test]
async fn a_beginning_that_a_savepoint_took_back_keeps_nobody_from_committing() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    tx.execute_batch("SAVEPOINT s").unwrap();
    assert!(matches!(within::begin(&mut tx, &call("a")).await.unwrap(), Begun::Run(_)));
    tx.execute_batch("ROLLBACK TO s").unwrap();
    tx.execute(INSERT, []).unwrap();
    tx.commit().unwrap();
    assert_eq!((shop.orders(), shop.records().await), (1, 0));
}

#[tokio::test]
async fn nothing_is_committed_without_its_record_once_sqlite_has_ended_the_transaction() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    connection.execute_batch("CREATE TABLE once (n INTEGER PRIMARY KEY)").unwrap();
    for ends in ["INSERT OR ROLLBACK INTO once VALUES (1), (1)", "COMMIT"] {
        let mut tx = shop.ledger.transaction(&mut connection).unwrap();
        let Begun::Run(pending) = within::begin(&mut tx, &call("a")).await.unwrap() else {
            panic!("it is new")
        };
        tx.execute_batch(ends).unwrap_err();
        // A retry would do it again.
        tx.execute(INSERT, []).unwrap_err();
        pending.complete(&mut tx, outcome::created(&1)).await.unwrap_err();
        assert_eq!(tx.commit().unwrap_err().wrote, Wrote::No);
        assert_eq!((shop.orders(), shop.records().await), (0, 0), "{ends}");
    }
    // Afterwards it is the caller's own again.
    connection.execute(INSERT, []).unwrap();
    assert_eq!(shop.orders(), 1);
}

#[tokio::test]
async fn what_a_savepoint_began_after_sqlite_had_ended_the_transaction_is_not_committed_in_its_place() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    connection.execute_batch("CREATE TABLE once (n INTEGER PRIMARY KEY)").unwrap();
    for ends in ["INSERT OR ROLLBACK INTO once VALUES (1), (1)", "COMMIT"] {
        let mut tx = shop.ledger.transaction(&mut connection).unwrap();
        let Begun::Run(pending) = within::begin(&mut tx, &call("a")).await.unwrap() else {
            panic!("it is new")
        };
        pending.complete(&mut tx, outcome::created(&1)).await.unwrap();
        tx.execute_batch(ends).unwrap_err();
        // Outside of a transaction it begins one, and going back to it leaves that open.
        tx.execute_batch("SAVEPOINT s; ROLLBACK TO s").unwrap();
        tx.execute(INSERT, []).unwrap();
        assert!(within::begin(&mut tx, &call("b")).await.is_err(), "{ends}");
        assert_eq!(tx.commit().unwrap_err().wrote, Wrote::No);
        assert_eq!((shop.orders(), shop.records().await), (0, 0), "{ends}");
    }
    connection.execute(INSERT, []).unwrap();
    assert_eq!(shop.orders(), 1);
}

#[tokio::test]
async fn the_name_of_a_tool_that_a_savepoint_took_back_is_written_again() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    tx.execute_batch("SAVEPOINT s").unwrap();
    assert!(matches!(within::begin(&mut tx, &call("a")).await.unwrap(), Begun::Run(_)));
    tx.execute_batch("ROLLBACK TO s").unwrap();
    let Begun::Run(pending) = within::begin(&mut tx, &call("b")).await.unwrap() else { panic!("it is new") };
    pending.complete(&mut tx, outcome::created(&1)).await.unwrap();
    tx.commit().unwrap();
    let page = shop.ledger.scan(Default::default(), 0, 10).await.unwrap();
    let names: Vec<&str> = page.items.iter().map(|stored| stored.record.body.name.tool.as_str()).collect();
    assert_eq!((names.as_slice(), page.unreadable.len()), (&[call("b").tool.as_str()][..], 0));
}

#[tokio::test]
async fn an_end_that_a_savepoint_took_back_is_not_committed_as_running() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    let Begun::Run(pending) = within::begin(&mut tx, &call("a")).await.unwrap() else { panic!("it is new") };
    tx.execute(INSERT, []).unwrap();
    tx.execute_batch("SAVEPOINT s").unwrap();
    pending.complete(&mut tx, outcome::created(&1)).await.unwrap();
    tx.execute_batch("ROLLBACK TO s").unwrap();
    let error = tx.commit().unwrap_err();
    assert!(error.message.contains("not completed") && error.wrote == Wrote::No, "{error}");
    assert_eq!((shop.orders(), shop.records().await), (0, 0));
}

#[tokio::test]
async fn a_constraint_that_fails_at_the_commit_leaves_nothing_and_says_so() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    connection
        .execute_batch(
            "PRAGMA foreign_keys = on; CREATE TABLE customer (id INTEGER PRIMARY KEY);
             CREATE TABLE bill (of INTEGER REFERENCES customer (id) DEFERRABLE INITIALLY DEFERRED);",
        )
        .unwrap();
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    let Begun::Run(pending) = within::begin(&mut tx, &call("a")).await.unwrap() else { panic!("it is new") };
    tx.execute("INSERT INTO bill VALUES (7)", []).unwrap();
    pending.complete(&mut tx, outcome::created(&1)).await.unwrap();
    let error = tx.commit().unwrap_err();
    assert_eq!(error.wrote, Wrote::No, "{error}");
    assert_eq!(shop.records().await, 0);
    let mut tx = shop.ledger.transaction(&mut connection).unwrap();
    assert!(matches!(within::begin(&mut tx, &call("a")).await.unwrap(), Begun::Run(_)));
}

#[tokio::test]
async fn a_connection_that_only_reads_begins_nothing() {
    let shop = Shop::new();
    let reading = Connection::open_with_flags(&shop.path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let asked_to = shop.connect();
    asked_to.execute_batch("PRAGMA query_only = on").unwrap();
    for mut connection in [reading, asked_to] {
        let error = match shop.ledger.transaction(&mut connection) {
            Ok(mut tx) => within::begin(&mut tx, &call("a")).await.map_err(store_error).unwrap_err(),
            Err(error) => error,
        };
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::ReadOnly, Wrote::No), "{error}");
    }
    assert_eq!(shop.records().await, 0);
    let mut writing = shop.connect();
    drop(shop.ledger.transaction(&mut writing).unwrap());
}

#[tokio::test]
async fn a_probe_is_not_asked_and_what_is_counted_is_for_the_caller_to_hand_in() {
    let shop = Shop::new();
    let engine = Oncely::new(shop.ledger.clone());
    engine.run(&call("a"), |_| async { Outcome::unknown("?") }).await.unwrap();
    let mut checked = call("a");
    checked.policy = Policy { when_unknown: WhenUnknown::Check, ..Default::default() }.into();
    let before = engine.store().tallies().await.unwrap();
    let mut connection = shop.connect();
    for (call, how) in [(checked, Counter::Unknowns), (call("b"), Counter::Executions)] {
        let mut tx = shop.ledger.transaction(&mut connection).unwrap();
        let begun = within::begin(&mut tx, &call).await.unwrap();
        assert!(
            how != Counter::Unknowns || matches!(begun, Begun::Answered(Answer::Unknown(_))),
            "{begun:?}"
        );
        assert_eq!(begun.increments(), [(Counter::Calls, 1), (how, 1)]);
    }
    assert_eq!(engine.store().tallies().await.unwrap(), before);
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A database with the ledger and a table of the caller's own.
async fn market() -> (String, Oncely, Client) {
    let url = Postgres::shared().unwrap().fresh_database().unwrap();
    let ledger = Oncely::new(oncely_store::open(&url).await.unwrap());
    let client = connect(&url).await;
    client.batch_execute("CREATE TABLE orders (key text)").await.unwrap();
    (url, ledger, client)
}

async fn count(client: &Client, table: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
}

/// Work and end of a call in a transaction that is committed elsewhere; the answer, or `None` where it ran.
async fn order(transaction: &Transaction<'_>, key: &str) -> Result<Option<Answer>, StoreError> {
    let mut ledger = PostgresWithin::new(transaction, "oncely");
    match within::begin(&mut ledger, &call(key)).await.map_err(store_error)? {
        Begun::Answered(answer) => Ok(Some(answer)),
        Begun::Run(pending) => {
            transaction.execute("INSERT INTO public.orders VALUES ($1)", &[&key]).await.unwrap();
            pending.complete(&mut ledger, outcome::created(&1)).await.map(|()| None)
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_stricter_isolation_a_duplicate_fails_and_nothing_is_written() {
    let (_, engine, mut client) = market().await;
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let key = format!("{level:?}");
        let strict = client.build_transaction().isolation_level(level).start().await.unwrap();
        strict.query_one("SELECT count(*) FROM orders", &[]).await.unwrap();
        // Somebody else succeeds with the key after this one has decided what it sees.
        engine.run(&call(&key), |_| async { outcome::created(&1) }).await.unwrap();
        let error = order(&strict, &key).await.unwrap_err();
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::Overloaded, Wrote::No), "{error}");
        strict.rollback().await.unwrap();
        let again = client.build_transaction().isolation_level(level).start().await.unwrap();
        assert!(matches!(order(&again, &key).await.unwrap(), Some(Answer::Replayed(_))));
        assert!(order(&again, &format!("{key}-new")).await.unwrap().is_none());
        again.commit().await.unwrap();
    }
    assert_eq!((count(&client, "orders").await, count(&client, "oncely.record").await), (2, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_search_path_and_other_settings_make_no_difference() {
    let (_, _, mut client) = market().await;
    client
        .batch_execute(
            "CREATE SCHEMA theirs; CREATE TABLE theirs.record (head int); CREATE TABLE theirs.audit (seq int);
             CREATE SEQUENCE theirs.commit_seq",
        )
        .await
        .unwrap();
    for (key, settings) in [
        ("empty", "search_path = ''"),
        ("theirs", "search_path = theirs"),
        ("dates", "datestyle = 'German, DMY'"),
        ("bytes", "bytea_output = 'escape'"),
        ("zone", "timezone = 'Pacific/Kiritimati'"),
    ] {
        for expected_new in [true, false] {
            let transaction = client.transaction().await.unwrap();
            transaction.batch_execute(&format!("SET LOCAL {settings}")).await.unwrap();
            let answered = order(&transaction, key).await.unwrap();
            assert_eq!(answered.is_none(), expected_new, "{settings}: {answered:?}");
            transaction.commit().await.unwrap();
        }
    }
    assert_eq!((count(&client, "orders").await, count(&client, "oncely.record").await), (5, 5));
    assert_eq!(count(&client, "theirs.record").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_only_reads_replays_and_begins_nothing() {
    let (_, engine, mut client) = market().await;
    engine.run(&call("old"), |_| async { outcome::created(&1) }).await.unwrap();
    let reading = client.build_transaction().read_only(true).start().await.unwrap();
    assert!(matches!(order(&reading, "old").await.unwrap(), Some(Answer::Replayed(_))));
    let error = order(&reading, "new").await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::ReadOnly, Wrote::No), "{error}");
    // The server takes nothing more in a transaction in which something failed, and says so here, too.
    let error = order(&reading, "old").await.unwrap_err();
    assert!(error.message.contains("nothing was written") && error.wrote == Wrote::No, "{error}");
    reading.rollback().await.unwrap();
    assert_eq!(count(&client, "oncely.record").await, 1);
}

/// The ledger cannot refuse a commit of PostgreSQL's: the order is there, and what is told of it is that nobody knows.
#[tokio::test(flavor = "multi_thread")]
async fn in_postgres_an_attempt_that_is_committed_without_its_end_is_in_doubt_and_never_runs_again() {
    for by in ["nobody", "a savepoint"] {
        let (_, engine, mut client) = market().await;
        let transaction = client.transaction().await.unwrap();
        let mut ledger = PostgresWithin::new(&transaction, "oncely");
        let Begun::Run(pending) = within::begin(&mut ledger, &call("a")).await.unwrap() else {
            panic!("it is new")
        };
        transaction.execute("INSERT INTO orders VALUES ('a')", &[]).await.unwrap();
        if by == "a savepoint" {
            transaction.batch_execute("SAVEPOINT s").await.unwrap();
            pending.complete(&mut ledger, outcome::created(&1)).await.unwrap();
            transaction.batch_execute("ROLLBACK TO s").await.unwrap();
        }
        transaction.commit().await.unwrap();
        let answer = engine.run(&call("a"), |_| async { panic!("it ran again") }).await.unwrap();
        assert!(matches!(answer, Answer::Unknown(_)), "{by}: {answer:?}");
        let transaction = client.transaction().await.unwrap();
        assert!(matches!(order(&transaction, "a").await.unwrap(), Some(Answer::Unknown(_))), "{by}");
        transaction.commit().await.unwrap();
        assert_eq!(count(&client, "orders").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_postgres_what_a_savepoint_took_back_whole_never_happened() {
    let (_, _, mut client) = market().await;
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("SAVEPOINT s").await.unwrap();
    assert!(order(&transaction, "a").await.unwrap().is_none());
    transaction.batch_execute("ROLLBACK TO s").await.unwrap();
    assert!(order(&transaction, "a").await.unwrap().is_none(), "in the same transaction it may run");
    transaction.commit().await.unwrap();
    assert_eq!((count(&client, "orders").await, count(&client, "oncely.record").await), (1, 1));
}

/// Whoever does not hear whether the commit took place calls again, and gets the truth: no outcome is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_commit_whose_answer_is_lost_the_next_call_knows() {
    let (url, _, mut client) = market().await;
    let (before, database) = url.rsplit_once('/').unwrap();
    let (scheme, port) = before.rsplit_once(':').unwrap();
    let tap = Tap::to_port(port.parse().unwrap()).unwrap();
    let through = format!("{scheme}:{}/{database}", tap.port());
    for arrives in [true, false] {
        let key = format!("arrives-{arrives}");
        let mut cut_off = connect(&through).await;
        let transaction = cut_off.transaction().await.unwrap();
        assert!(order(&transaction, &key).await.unwrap().is_none());
        if arrives {
            tap.cut_after_answered(0);
            assert!(transaction.commit().await.is_err());
        } else {
            tap.black_hole();
            let mut commit = std::pin::pin!(transaction.commit());
            assert!(poll_once(&mut commit).await.is_none(), "nobody can have answered");
            tap.cut();
            assert!(commit.await.is_err());
            tap.pass();
        }
        // Where the server has not noticed yet, this waits for it at the key.
        let next = client.transaction().await.unwrap();
        let answer = order(&next, &key).await.unwrap();
        match (&answer, arrives) {
            (Some(Answer::Replayed(_)), true) | (None, false) => {}
            other => panic!("{other:?}"),
        }
        next.commit().await.unwrap();
        let of_key = format!("orders WHERE key = '{key}'");
        assert_eq!(count(&client, &of_key).await, 1);
    }
}

/// Lets a future have one turn.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
