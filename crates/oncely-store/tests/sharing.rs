//! Several handles on one SQLite ledger, and what is found when it is opened again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{LONG, NOTHING_KEPT, begin, complete, draft, finish, forget, id, open, running};
use oncely_core::{
    Change, Counter, Created, Event, EventKind, Filter, LogQuery, Namespace, Replaced, StateName, ToolName,
};

#[tokio::test]
async fn what_was_written_is_there_when_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let written = finish(&open(&path), "k").await.record;
    let store = open(&path);
    let read = store.load(id("k")).await.unwrap().unwrap();
    assert_eq!(read.record, written);
    assert!(read.now >= written.changed_at);
}

#[tokio::test]
async fn a_record_forgotten_through_one_handle_is_not_peeked_through_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let (here, there) = (open(&path), open(&path));
    let done = finish(&here, "k").await;
    assert_eq!(here.peek(&id("k")).unwrap().record, done.record, "known to the one that wrote it");
    assert!(there.peek(&id("k")).is_none(), "not yet to the other");
    there.load(id("k")).await.unwrap().unwrap();
    assert!(there.peek(&id("k")).is_some(), "known once it was read");
    forget(&there, "k", done.record.version).await;
    assert!(here.peek(&id("k")).is_none());
    assert!(there.peek(&id("k")).is_none());
    assert!(here.load(id("k")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_purge_through_one_handle_is_seen_through_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let (here, there) = (open(&path), open(&path));
    let begun = begin(&here, "k").await;
    complete(&here, "k", begun.record.version, NOTHING_KEPT).await;
    assert!(here.peek(&id("k")).is_some());
    assert_eq!(there.purge(10).await.unwrap().records_removed, 1);
    assert!(here.peek(&id("k")).is_none());
}

#[tokio::test]
async fn a_watch_is_woken_by_another_handle() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let (here, there) = (open(&path), open(&path));
    // By its bound alone a watch would last 100 ms. On a busy machine one may be late, or the commit; that all are is no chance.
    for n in 0..200 {
        let key = format!("k{n}");
        let seen = begin(&here, &key).await.record.version;
        let began = Instant::now();
        let watch = here.watch(id(&key), seen);
        complete(&there, &key, seen, LONG).await;
        watch.await.unwrap();
        let took = began.elapsed();
        assert!(here.load(id(&key)).await.unwrap().unwrap().record.version > seen);
        if n >= 10 && took < Duration::from_millis(80) {
            return;
        }
    }
    panic!("none of 200 was woken before its time was up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_callers_share_commits_and_none_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let handles = [open(&path), open(&path)];
    let callers: Vec<_> = (0..64)
        .map(|caller| {
            let store = Arc::clone(&handles[caller % 2]);
            tokio::spawn(async move {
                for n in 0..10 {
                    finish(&store, &format!("k{caller}-{n}")).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    drop(handles);
    let store = open(&path);
    assert_eq!(store.census().await.unwrap()[1], (StateName::Succeeded, 640));
    let newest = LogQuery { newest: true, limit: 1, ..LogQuery::default() };
    let batches = store.log(newest).await.unwrap().items[0].seq >> 16;
    assert!(batches < 1280, "1280 writes took {batches} commits");
    let mut seen = HashSet::new();
    let mut query = LogQuery { limit: 100, ..LogQuery::default() };
    loop {
        let page = store.log(query.clone()).await.unwrap();
        assert!(page.items.iter().all(|event| event.seq > query.after && seen.insert(event.seq)));
        match page.next {
            Some(next) => query.after = next,
            None => break,
        }
    }
    assert_eq!(seen.len(), 1280);
}

#[tokio::test]
async fn a_version_goes_on_after_removal_purge_and_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let mut last = 0;
    for _ in 0..3 {
        let store = open(&path);
        let begun = begin(&store, "k").await.record.version;
        let done = complete(&store, "k", begun, LONG).await.record.version;
        assert!(last < begun.0 && begun < done);
        forget(&store, "k", done).await;
        while store.purge(50).await.unwrap().more {}
        last = done.0;
    }
}

#[tokio::test]
async fn of_two_changes_from_one_version_in_one_commit_the_second_is_stale() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("ledger.db"));
    let seen = begin(&store, "k").await.record.version;
    let change = || Change::Put(Box::new(draft("k", running(), LONG)));
    // Handed in before either is awaited: they may share a commit, and are applied in this order.
    let first = store.replace(id("k"), seen, change(), Vec::new());
    let second = store.replace(id("k"), seen, Change::Remove, Vec::new());
    let Replaced::Done(Some(done)) = first.await.unwrap() else { panic!("the first is done") };
    let Replaced::Stale(Some(there)) = second.await.unwrap() else { panic!("the second is stale") };
    assert_eq!(there.record, done.record);
}

#[tokio::test]
async fn a_record_removed_and_made_again_in_one_commit_has_a_higher_version() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("ledger.db"));
    let seen = finish(&store, "k").await.record.version;
    let other = open(&directory.path().join("ledger.db"));
    let removed = store.replace(id("k"), seen, Change::Remove, Vec::new());
    let made = other.create(id("k"), draft("k", running(), LONG), Vec::new());
    assert!(matches!(removed.await.unwrap(), Replaced::Done(None)));
    match made.await.unwrap() {
        Created::New(new) => assert!(new.record.version > seen),
        Created::Exists(there) => assert_eq!(there.record.version, seen, "it came first"),
    }
}

#[tokio::test]
async fn the_log_of_one_record_tells_its_whole_story_even_when_it_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("ledger.db"));
    finish(&store, "other").await;
    let done = finish(&store, "k").await;
    store.note(vec![Event::new(id("k"), 1, EventKind::Superseded)]).await.unwrap();
    let kinds = async |query: LogQuery| -> Vec<EventKind> {
        store.log(query).await.unwrap().items.into_iter().map(|e| e.event.kind).collect()
    };
    let query = LogQuery { intent: Some(id("k")), limit: 10, ..LogQuery::default() };
    let story = [EventKind::Began, EventKind::Succeeded, EventKind::Superseded];
    assert_eq!(kinds(query.clone()).await, story);
    forget(&store, "k", done.record.version).await;
    begin(&store, "k").await;
    let whole = [&story[..], &[EventKind::Forgotten, EventKind::Began]].concat();
    assert_eq!(kinds(query.clone()).await, whole);
    assert_eq!(kinds(LogQuery { newest: true, limit: 2, ..query }).await, whole[3..]);
}

#[tokio::test]
async fn a_purge_removes_what_is_due_in_bounded_steps() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("ledger.db"));
    for n in 0..5 {
        let key = format!("k{n}");
        let begun = begin(&store, &key).await;
        complete(&store, &key, begun.record.version, NOTHING_KEPT).await;
    }
    begin(&store, "open").await;
    let first = store.purge(3).await.unwrap();
    assert_eq!((first.records_removed, first.more), (3, true));
    let second = store.purge(3).await.unwrap();
    assert_eq!((second.records_removed, second.more), (2, false));
    let left = store.scan(Filter::default(), 0, 10).await.unwrap();
    assert_eq!(left.items.len(), 1, "a running record never expires");
}

#[tokio::test]
async fn counters_survive_a_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let (namespace, tool) = (Namespace::default(), ToolName::parse("charge").unwrap());
    for _ in 0..2 {
        let store = open(&path);
        store.tally(&namespace, &tool, &[(Counter::Calls, 2), (Counter::Replays, 1)]);
        store.tally(&namespace, &tool, &[(Counter::Calls, 1)]);
    }
    let tallies = open(&path).tallies().await.unwrap();
    let counts: Vec<_> = tallies.iter().map(|t| (t.counter, t.count)).collect();
    assert_eq!(counts, [(Counter::Calls, 6), (Counter::Replays, 2)]);
}

#[tokio::test]
async fn what_was_handed_in_is_written_although_nobody_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let store = open(&path);
    let begun = begin(&store, "k").await;
    let change = Change::Put(Box::new(draft("k", common::succeeded("r"), LONG)));
    drop(store.replace(id("k"), begun.record.version, change, Vec::new()));
    drop(store);
    let read = open(&path).load(id("k")).await.unwrap().unwrap();
    assert_eq!(read.record.body.state.name(), StateName::Succeeded);
}

#[tokio::test]
async fn a_long_log_is_copied_and_started_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    for round in 0..20 {
        let store = open(&path);
        for n in 0..20 {
            finish(&store, &format!("k{round}-{n}")).await;
        }
    }
    // 800 commits of five pages or so would make 16 MB if the log were never started over.
    let log = std::fs::metadata(directory.path().join("ledger.db-wal")).unwrap().len();
    assert!(log < 4 << 20, "the log has {log} bytes");
    let ledger = std::fs::metadata(&path).unwrap().len();
    assert!(ledger > 50_000, "the ledger has {ledger} bytes");
    assert_eq!(open(&path).census().await.unwrap()[1], (StateName::Succeeded, 400));
}
