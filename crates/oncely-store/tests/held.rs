//! A ledger that another process holds for too long: opening says so, closing does not wait for ever.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{LONG, begin, draft, finish, id, open, refused, running};
use oncely_core::{Counter, Created, Namespace, Store, StoreErrorKind, StoreFuture, ToolName, Wrote};
use oncely_store::{SqliteOptions, SqliteStore, WrittenBy};

/// Takes the turn at writing, as a process does that is then stopped.
fn hold(ledger: &Path) -> File {
    let mut lock = ledger.as_os_str().to_owned();
    lock.push("-lock");
    let file = File::options().create(true).truncate(false).write(true).open(lock).unwrap();
    file.lock().unwrap();
    file
}

#[test]
fn opening_a_ledger_whose_maker_was_stopped_is_refused_and_possible_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let held = hold(&path);
    let error = refused(&path);
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No));
    assert!(error.message.contains("another process has held it for too long"), "{}", error.message);
    drop(held);
    drop(open(&path));
}

#[tokio::test]
async fn closing_a_ledger_that_is_held_ends_and_what_was_told_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let store = open(&path);
    finish(&store, "k").await;
    let held = hold(&path);
    // A counter makes the end of the ledger want a turn.
    store.tally(&Namespace::default(), &ToolName::parse("charge").unwrap(), &[(Counter::Replays, 1)]);
    let (closed, is_closed) = channel();
    std::thread::spawn(move || {
        drop(store);
        closed.send(()).unwrap();
    });
    is_closed.recv_timeout(Duration::from_secs(300)).unwrap();
    drop(held);
    assert!(open(&path).load(id("k")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_caller_that_writes_by_itself_is_not_held_up_by_anothers_turn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let options = SqliteOptions { written_by: WrittenBy::Caller, ..SqliteOptions::new(&path) };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).unwrap());
    let held = hold(&path);
    let writes = tokio::spawn({
        let store = Arc::clone(&store);
        async move { finish(&store, "first").await }
    });
    // It runs until it waits. If it waited for the turn, this one thread would stand still for good.
    tokio::task::yield_now().await;
    assert!(!writes.is_finished(), "it wrote in another's turn");
    // Nothing is left to be counted, but what was handed in is not on disk yet.
    let mut flushed = store.flush();
    tokio::select! {
        biased;
        _ = &mut flushed => panic!("it was flushed in another's turn"),
        () = std::future::ready(()) => {}
    }
    drop(held);
    flushed.await.unwrap();
    writes.await.unwrap();
    finish(&store, "second").await;
    store.tally(&Namespace::default(), &ToolName::parse("charge").unwrap(), &[(Counter::Replays, 1)]);
    store.flush().await.unwrap();
    drop(store);
    let store = open(&path);
    for key in ["first", "second"] {
        assert!(store.load(id(key)).await.unwrap().is_some(), "{key}");
    }
    assert_eq!(store.tallies().await.unwrap().len(), 1);
}

fn claim<'a>(store: &'a Arc<dyn Store>, key: &str) -> StoreFuture<'a, Created> {
    store.create(id(key), draft(key, running(), LONG), Vec::new())
}

#[tokio::test]
async fn what_has_ended_is_told_while_many_wait_for_a_ledger_that_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    finish(&open(&path), "ended").await;
    // Opened anew, so that nothing is remembered.
    let store = open(&path);
    begin(&store, "another").await;
    let held = hold(&path);
    let claims: Vec<_> = ["a", "b", "c", "d", "e"].iter().map(|key| claim(&store, key)).collect();
    // For a moment after its last commit the writer may be thought to get on: those who ask then wait for it.
    let mut waiting = Vec::new();
    let there = loop {
        let mut asked = claim(&store, "ended");
        let now = tokio::select! {
            biased;
            there = &mut asked => Some(there.unwrap()),
            () = std::future::ready(()) => None,
        };
        if let Some(there) = now {
            break there;
        }
        waiting.push(asked);
        assert!(waiting.len() < 10_000, "it is never told while the ledger is held");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(matches!(there, Created::Exists(_)));
    drop(held);
    for claim in claims {
        assert!(matches!(claim.await.unwrap(), Created::New(_)));
    }
    for asked in waiting {
        assert!(matches!(asked.await.unwrap(), Created::Exists(_)), "whoever waited is told the same");
    }
}
