//! Moves on PostgreSQL: a transaction that was left open serves nobody, and no statement is larger than others may be.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::limits::RESULT_BYTES_MAX;
use oncely_core::{
    Created, Draft, Filter, Gate, Import, Millis, Move, Record, Stamp, Store, StoreErrorKind, Version,
    Within, Wrote,
};
use oncely_store::postgres::limits::BATCH_BYTES_MAX;
use oncely_store::{PostgresOptions, PostgresStore, PostgresWithin};
use oncely_testkit::servers::Tap;

use crate::common::{LONG, draft, id, succeeded};
use crate::{claim, connect, database, open, server, somebody_waits, until, with};

fn a_move() -> Move {
    Move { id: [7; 16], run: 1, other: "elsewhere:".into(), shift_ms: 0, steady_since: Millis(0) }
}

/// What falls silent in the middle of its transaction.
#[derive(Debug, Clone, Copy)]
enum Silent {
    /// The network, before the transaction is begun at the other end.
    Begin,
    /// The server, in the middle of what a move brings,
    Import,
    /// or in the middle of a turn of the gate.
    Turn,
}

/// A ledger with one connection, through a tap, that does not await an answer for long.
async fn impatient(address: &str, tap: &Tap) -> PostgresStore {
    let through = server().url_through(tap.port(), database(address));
    let mut options = PostgresOptions::parse(&with(&through, "pool=1&wait=60")).unwrap();
    options.answer_within = Duration::from_secs(2);
    PostgresStore::open(options).await.unwrap()
}

/// Works on the gate until the other end has been silent for too long; then it speaks again.
async fn fall_silent(store: &PostgresStore, tap: &Tap, address: &str, silent: Silent) {
    let mut other = connect(address).await;
    let holds = other.transaction().await.unwrap();
    match silent {
        Silent::Begin => tap.black_hole(),
        // Whoever looks at the gate waits for this.
        Silent::Import | Silent::Turn => holds.batch_execute("LOCK TABLE oncely.gate").await.unwrap(),
    }
    let error = match silent {
        Silent::Begin | Silent::Import => store.import(a_move(), Import::default()).await.unwrap_err(),
        Silent::Turn => store.turn_gate(Gate::Open, Gate::Open).await.unwrap_err(),
    };
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{silent:?}: {error}");
    holds.rollback().await.unwrap();
    tap.pass();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_fell_silent_within_a_transaction_acknowledges_nothing_for_others() {
    for silent in [Silent::Begin, Silent::Import, Silent::Turn] {
        let address = server().fresh_database().unwrap();
        let tap = Tap::to_port(server().port()).unwrap();
        let store = impatient(&address, &tap).await;
        claim(&store, "before").await.unwrap();
        fall_silent(&store, &tap, &address, silent).await;
        // A busy machine may take longer to answer than is awaited here: then it is asked again.
        until("it takes claims again", async || {
            matches!(claim(&store, "after").await, Ok(Created::New(_) | Created::Exists(_)))
        })
        .await;
        let reconnects = store.health().reconnects;
        drop(store);
        let found = open(&address).await.load(id("after")).await.unwrap();
        assert!(found.is_some(), "{silent:?}: a claim was acknowledged and is not there");
        assert_eq!(reconnects, 1, "{silent:?}: the connection was used again");
    }
}

/// Records with results as large as they may be.
fn large(count: usize) -> Vec<Arc<Record>> {
    let result = "x".repeat(RESULT_BYTES_MAX);
    let record = |n: usize| {
        let key = format!("large-{n}");
        let body = draft(&key, succeeded(&result), LONG).body;
        let at = Millis(1_000 + n as u64);
        Arc::new(Record {
            intent: id(&key),
            version: Version(1),
            created_at: at,
            sent_at: at,
            changed_at: at,
            body,
        })
    };
    (0..count).map(record).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_move_brings_and_reads_is_bounded_by_its_bytes() {
    const COUNT: usize = 24;
    // What is full, one more that was begun, and what goes around them.
    const MOST: usize = BATCH_BYTES_MAX + 2 * RESULT_BYTES_MAX;
    let address = server().fresh_database().unwrap();
    let tap = Tap::to_port(server().port()).unwrap();
    let store = open(&with(&server().url_through(tap.port(), database(&address)), "pool=1")).await;
    store.turn_gate(Gate::Open, Gate::Filling(a_move())).await.unwrap();
    let records = large(COUNT);
    for what in ["brought", "brought again"] {
        store.import(a_move(), Import { records: records.clone(), ..Import::default() }).await.unwrap();
        let (sent, answered) = (tap.largest_request(), tap.largest_answer());
        assert!(sent > RESULT_BYTES_MAX && sent < MOST, "{what}: {sent} bytes in one statement");
        assert!(answered < MOST, "{what}: {answered} bytes in one answer");
    }
    // All of them, in their order, in pages that end where they have become large.
    let (mut found, mut from, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(place) = from {
        let page = store.scan(Filter::default(), place, 128).await.unwrap();
        let answered = tap.largest_answer();
        assert!(answered < MOST, "{answered} bytes in one answer");
        found.extend(page.items.into_iter().map(|stored| stored.record.intent));
        (from, pages) = (page.next, pages + 1);
    }
    assert_eq!(found, records.iter().map(|record| record.intent).collect::<Vec<_>>());
    assert!(pages <= COUNT / 4 + 1, "{pages} pages");
    // A purge reads what it drops, too.
    store.turn_gate(Gate::Filling(a_move()), Gate::Open).await.unwrap();
    let (mut dropped, mut more) = (0, true);
    while more {
        let report = store.purge(128).await.unwrap();
        let answered = tap.largest_answer();
        assert!(answered < MOST, "{answered} bytes in one answer of a purge");
        (dropped, more) = (dropped + report.records_removed, report.more);
    }
    assert_eq!(dropped, COUNT as u64);
}

/// As if the connection of a first try had been lost while the server was at it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_brought_twice_at_a_time_is_there_once() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    store.turn_gate(Gate::Open, Gate::Filling(a_move())).await.unwrap();
    let mut records = large(3);
    // Not one behind the other, too.
    records.push(Arc::clone(&records[0]));
    let (mut first, looks) = (connect(&address).await, connect(&address).await);
    let transaction = first.transaction().await.unwrap();
    transaction.batch_execute("SET LOCAL oncely.run = '1'").await.unwrap();
    let mut within = PostgresWithin::new(&transaction, "oncely");
    let draft = Draft {
        created: Stamp::Kept(records[1].created_at),
        sent: Stamp::Kept(records[1].sent_at),
        changed: Stamp::Kept(records[1].changed_at),
        body: records[1].body.clone(),
    };
    within.create(records[1].intent, draft, Vec::new()).await.unwrap();
    let brings = Arc::clone(&store);
    let import = Import { records, ..Import::default() };
    let again = import.clone();
    let second = tokio::spawn(async move { brings.import(a_move(), again).await });
    until("it waits", async || somebody_waits(&looks).await || second.is_finished()).await;
    transaction.commit().await.unwrap();
    match second.await.unwrap() {
        Ok(()) => {}
        // Where the commit came too late.
        Err(error) => {
            assert_eq!((error.kind, error.wrote), (StoreErrorKind::Overloaded, Wrote::No), "{error}");
            store.import(a_move(), import).await.unwrap();
        }
    }
    let made = server().psql_in(database(&address), "SELECT count(*) FROM oncely.record").unwrap();
    assert_eq!(made.trim(), "3");
}

#[tokio::test]
async fn a_page_reads_no_more_rows_than_it_shows() {
    let address = server().fresh_database().unwrap();
    let tap = Tap::to_port(server().port()).unwrap();
    let store = open(&with(&server().url_through(tap.port(), database(&address)), "pool=1")).await;
    store.turn_gate(Gate::Open, Gate::Filling(a_move())).await.unwrap();
    let records = large(3);
    store.import(a_move(), Import { records, ..Import::default() }).await.unwrap();
    tap.largest_answer();
    let page = store.scan(Filter::default(), 0, 1).await.unwrap();
    assert_eq!((page.items.len(), page.next.is_some()), (1, true));
    let answered = tap.largest_answer();
    assert!(answered < 2 * RESULT_BYTES_MAX + RESULT_BYTES_MAX / 2, "{answered} bytes for one record");
}
