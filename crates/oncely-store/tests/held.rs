//! A ledger that another process holds for too long: opening says so, closing does not wait for ever.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{LONG, begin, draft, finish, id, open, refused, running};
use oncely_core::{
    AttemptToken, Counter, Created, Namespace, Store, StoreErrorKind, StoreFuture, ToolName, Wrote,
};
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

/// Claims a key, by a name of its own.
fn claim<'a>(store: &'a Arc<dyn Store>, key: &str) -> StoreFuture<'a, Created> {
    let mut draft = draft(key, running(), LONG);
    draft.body.token = AttemptToken([7; 16]);
    store.create(id(key), draft, Vec::new())
}

#[tokio::test]
async fn what_has_ended_is_told_while_many_wait_for_a_ledger_that_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let ended = finish(&open(&path), "ended").await;
    // Opened anew, so that nothing is remembered.
    let store = open(&path);
    begin(&store, "another").await;
    let held = hold(&path);
    let claims: Vec<_> = (0..20).map(|number| claim(&store, &format!("new-{number}"))).collect();
    // Also those who ask while the writer may be thought to get on, which it has done a moment ago.
    for _ in 0..20 {
        assert!(matches!(claim(&store, "ended").await.unwrap(), Created::Exists(_)));
    }
    drop(held);
    for claim in claims {
        assert!(matches!(claim.await.unwrap(), Created::New(_)));
    }
    let there = store.load(id("ended")).await.unwrap().unwrap();
    assert_eq!(there.record.version, ended.record.version, "nothing was written over it");
}

#[tokio::test]
async fn a_claim_that_waits_in_a_crowd_and_is_written_late_is_won() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let store = open(&path);
    begin(&store, "another").await;
    let held = hold(&path);
    let mut claims: Vec<_> = (0..20).map(|number| claim(&store, &format!("new-{number}"))).collect();
    // They look for their records while the ledger is held, and find none.
    for claim in claims.iter_mut().take(2) {
        assert!(tokio::time::timeout(Duration::from_millis(300), claim).await.is_err(), "the ledger is held");
    }
    drop(held);
    for claim in claims {
        assert!(matches!(claim.await.unwrap(), Created::New(_)));
    }
}
