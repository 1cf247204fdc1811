//! A ledger that another process holds, as one does that was stopped in the middle of a write: nothing runs on a guess,
//! nothing is lost, and nobody waits for ever.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oncely::core::State;
use oncely::{Answer, AttemptInfo, Error, Oncely, outcome, within};
use oncely_store::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tokio::sync::oneshot;

const LONG: Duration = Duration::from_secs(600);

struct Bench {
    oncely: Oncely,
    store: Arc<SqliteStore>,
    path: PathBuf,
    effects: Arc<AtomicU32>,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        let store = Arc::new(SqliteStore::open(SqliteOptions::new(&path)).unwrap());
        Self {
            oncely: Oncely::new(store.clone()),
            store,
            path,
            effects: Arc::default(),
            _directory: directory,
        }
    }

    /// Takes the turn at writing, as a process does that is then stopped.
    fn hold(&self) -> File {
        let mut lock = self.path.clone().into_os_string();
        lock.push("-lock");
        let file = File::open(lock).unwrap();
        file.lock().unwrap();
        file
    }

    async fn charge(&self) -> Result<Answer, Error> {
        let effects = self.effects.clone();
        self.oncely
            .tool("charge")
            .key("k")
            .run(move |_| async move {
                effects.fetch_add(1, Ordering::SeqCst);
                outcome::created("paid")
            })
            .await
    }

    fn count(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_answered_runs_nothing_and_leaves_the_key_usable() {
    let bench = Bench::new().await;
    let held = bench.hold();
    // The clock stands still but for waiting: it is not this test that waits for half a minute.
    let refused = bench.charge().await;
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
    assert_eq!(bench.count(), 0);
    tokio::time::resume();
    drop(held);
    // The claim may have been written by now; nothing was started for it, and it says so.
    let answer = bench.charge().await.unwrap();
    assert!(matches!(answer, Answer::Executed { .. }), "{answer:?}");
    assert_eq!(bench.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_started_nothing_is_no_doubt_inside_a_transaction_either() {
    let bench = Bench::new().await;
    let call = bench.oncely.tool("charge").key("k").into_call().unwrap();
    let held = bench.hold();
    assert!(matches!(bench.oncely.begin(&call).await, Err(Error::Store(_))));
    tokio::time::resume();
    drop(held);
    let mut connection = Connection::open(&bench.path).unwrap();
    let written = "SELECT count(*) FROM record";
    while connection.query_row(written, [], |row| row.get::<_, i64>(0)).unwrap() == 0 {
        std::thread::yield_now();
    }
    // This test has the only thread, and did not give it away since: nobody has taken the claim back yet.
    connection.execute_batch("CREATE TABLE paid (key TEXT)").unwrap();
    let mut tx = bench.store.transaction(&mut connection).unwrap();
    let within::Begun::Run(pending) = within::begin(&mut tx, &call).await.unwrap() else {
        panic!("nothing was started")
    };
    tx.execute("INSERT INTO paid VALUES ('k')", []).unwrap();
    pending.complete(&mut tx, outcome::created("paid")).await.unwrap();
    tx.commit().unwrap();
    // Whatever takes the claim back finds what has happened since.
    assert_eq!(bench.oncely.drain(LONG).await, 0);
    let answer = bench.charge().await.unwrap();
    assert!(matches!(answer, Answer::Replayed(_)), "{answer:?}");
    let paid: i64 = connection.query_row("SELECT count(*) FROM paid", [], |row| row.get(0)).unwrap();
    assert_eq!((paid, bench.count()), (1, 0));
}

#[tokio::test]
async fn a_drain_waits_for_an_end_that_is_still_being_recorded() {
    let bench = Bench::new().await;
    let (begun, has_begun) = oneshot::channel();
    let (end, may_end) = oneshot::channel::<()>();
    let oncely = bench.oncely.clone();
    let call = tokio::spawn(async move {
        let effect = move |info: AttemptInfo| async move {
            begun.send(info.intent()).unwrap();
            may_end.await.unwrap();
            outcome::created("paid")
        };
        oncely.tool("charge").key("k").run(effect).await
    });
    let intent = has_begun.await.unwrap();
    let held = bench.hold();
    end.send(()).unwrap();
    assert_eq!(bench.oncely.drain(Duration::from_millis(50)).await, 1, "the end is not recorded yet");
    drop(held);
    assert_eq!(bench.oncely.drain(LONG).await, 0);
    let record = bench.oncely.store().load(intent).await.unwrap().unwrap().record;
    assert!(matches!(record.body.state, State::Succeeded { .. }), "{:?}", record.body.state);
    call.await.unwrap().unwrap();
}
