//! Moving a ledger by the library: clocks that differ, moves that meet, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncely::transfer::{Progress, Stage, Transfer, TransferError};
use oncely::{Answer, Begun, Oncely, Policy, outcome};
use oncely_core::{
    Filter, Gate, LogQuery, Millis, Move, Outcome, PurgeReport, Store, StoreFuture, WhenUnknown,
};
use oncely_store::MemoryStore;

/// A ledger whose clock is turned by hand.
fn at(start: u64) -> (Arc<dyn Store>, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(start));
    let hand = Arc::clone(&clock);
    (Arc::new(MemoryStore::with_clock(move || Millis(clock.load(Ordering::SeqCst)))), hand)
}

async fn ended(oncely: &Oncely, key: &str, outcome: Outcome) {
    let call = oncely.tool("pay").key(key).payload(&1);
    assert!(matches!(call.run(|_| async { outcome }).await.unwrap(), Answer::Executed(_)));
}

#[tokio::test]
async fn a_record_is_as_old_there_as_it_was_here() {
    let hour = 3_600_000;
    for (here, there) in [(1_000_000_000, 5), (5, 1_000_000_000), (7, 7)] {
        let ((old, old_clock), (new, new_clock)) = (at(here), at(there));
        ended(&Oncely::new(old.clone()), "k", outcome::created(&1)).await;
        old_clock.fetch_add(hour, Ordering::SeqCst);
        new_clock.fetch_add(2 * hour, Ordering::SeqCst);
        Transfer::new(old, new.clone()).run(Duration::ZERO, |_| {}).await.unwrap();
        let stored = &new.scan(Filter::default(), 0, 1).await.unwrap().items[0];
        assert_eq!(stored.now.since(stored.record.changed_at), hour, "clocks at {here} and {there}");
        // Remembered for 35 days from its end, by whichever clock.
        new_clock.fetch_add(35 * 24 * hour - hour - 1, Ordering::SeqCst);
        let call = Oncely::new(new.clone());
        let replayed = call.tool("pay").key("k").payload(&1).begin().await.unwrap();
        assert!(matches!(replayed, Begun::Answered(Answer::Replayed(_))), "it was forgotten too early");
        new_clock.fetch_add(1, Ordering::SeqCst);
        let again = call.tool("pay").key("k").payload(&1).begin().await.unwrap();
        assert!(matches!(again, Begun::Run(_)), "it is remembered for too long");
    }
}

/// What the downstream remembers is counted from the first use of its key, and a clock with a gap cannot tell when that
/// was: a move must not make it look certain.
#[tokio::test]
async fn a_doubt_from_before_a_gap_of_the_clock_is_not_retried_after_a_move() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.db");
    let old = oncely_store::open(path.to_str().unwrap()).await.unwrap();
    let policy = Policy {
        when_unknown: WhenUnknown::Retry,
        forwards_key_for_ms: Some(3_600_000),
        ..Policy::default()
    };
    let doubt = |oncely: Oncely, policy: Policy| async move {
        let call = oncely.tool("pay").key("k").payload(&1).policy(policy);
        call.run(|_| async { Outcome::unknown("?") }).await.unwrap()
    };
    doubt(Oncely::new(old.clone()), policy.clone()).await;
    // As after a boot: the anchor of the clock lies after the record.
    let later = old.now().await.unwrap().0 + 1_000;
    drop(old);
    let sqlite = rusqlite::Connection::open(&path).unwrap();
    sqlite.execute("UPDATE anchor SET boot = zeroblob(16), ledger_ms = ?1", [later as i64]).unwrap();
    drop(sqlite);
    let old = oncely_store::open(path.to_str().unwrap()).await.unwrap();
    assert!(old.steady_since().0 >= later);
    let new: Arc<dyn Store> = Arc::new(MemoryStore::new());
    Transfer::new(old, new.clone()).run(Duration::ZERO, |_| {}).await.unwrap();
    let answer = doubt(Oncely::new(new), policy).await;
    assert!(matches!(answer, Answer::Unknown(_)), "{answer:?}");
}

/// Somebody changes the new ledger behind our back, after that was brought.
#[tokio::test]
async fn what_arrived_and_is_not_what_was_sent_is_found_and_the_new_ledger_stays_shut() {
    let twin = "INSERT INTO record SELECT NULL, randomblob(16), tail, version, state, due, changed_at, tool, scope, 'k9', \
                trail, body, result FROM record WHERE key = 'k1'";
    for (after, tampering, said) in [
        (Stage::Events, "UPDATE record SET result = x'32' WHERE key = 'k1'", "arrived changed"),
        (Stage::Events, "UPDATE record SET changed_at = changed_at + 1 WHERE key = 'k1'", "arrived changed"),
        (Stage::Events, twin, "3 records were sent and 4 are there"),
        (Stage::Events, "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)", "shorter"),
        (Stage::Events, "UPDATE audit SET at = at + 1", "the log differs"),
        (Stage::Comparing, "UPDATE tally SET count = count + 1", "is too high"),
        (Stage::Comparing, "UPDATE tally SET count = count - 1", "is too low"),
        (Stage::Comparing, "DELETE FROM tally", "did not arrive"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new.db");
        let new = oncely_store::open(path.to_str().unwrap()).await.unwrap();
        let old: Arc<dyn Store> = Arc::new(MemoryStore::new());
        for n in 0..3 {
            ended(&Oncely::new(old.clone()), &format!("k{n}"), outcome::created(&n)).await;
        }
        let tamper = |progress: &Progress| {
            if progress.stage == after {
                let changed = rusqlite::Connection::open(&path).unwrap().execute(tampering, []).unwrap();
                assert!(changed > 0, "{tampering}");
            }
        };
        let moved = Transfer::new(old.clone(), new.clone()).run(Duration::ZERO, tamper).await;
        let error = moved.expect_err(tampering);
        assert!(
            matches!(&error, TransferError::Differs(what) if what.contains(said)),
            "{tampering}: {error}"
        );
        assert!(matches!(old.gate().await.unwrap(), Gate::Closed(_)), "{tampering}");
        assert!(matches!(new.gate().await.unwrap(), Gate::Filling(_)), "{tampering}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_programs_that_work_on_one_move_bring_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let path = directory.path().join(name).display().to_string();
        async move { oncely_store::open(&path).await.unwrap() }
    };
    let old = open("old.db").await;
    for n in 0..300 {
        ended(&Oncely::new(old.clone()), &format!("k{n}"), outcome::created(&n)).await;
    }
    let mut at_work = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let transfer = Transfer::new(open("old.db").await, open("new.db").await);
        at_work.spawn(async move { transfer.run(Duration::ZERO, |_| {}).await });
    }
    let mut done = 0;
    while let Some(ended) = at_work.join_next().await {
        match ended.unwrap() {
            Ok(_) | Err(TransferError::Finished { .. }) => done += 1,
            Err(error @ (TransferError::Store(_) | TransferError::Elsewhere(_))) => {
                assert!(error.to_string().contains("move"), "{error}");
            }
            // It came when another was well on its way, and has changed nothing.
            Err(TransferError::NotEmpty(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let new = open("new.db").await;
    if done == 0 {
        Transfer::new(old, new.clone()).run(Duration::ZERO, |_| {}).await.unwrap();
    }
    assert_eq!(new.gate().await.unwrap(), Gate::Open);
    assert_eq!(new.scan(Filter::default(), 0, 1_000).await.unwrap().items.len(), 300);
    let events = new.log(LogQuery { limit: 1_000, ..LogQuery::default() }).await.unwrap().items.len();
    assert_eq!(events, 600, "events were brought twice, or lost");
}

#[tokio::test]
async fn a_ledger_in_another_move_is_left_alone() {
    let of = |id| Move { id: [id; 16], run: 1, other: "third:".into(), shift_ms: 0, steady_since: Millis(0) };
    for (left, filled) in [
        (Gate::Closed(of(1)), Gate::Open),
        (Gate::Closed(of(1)), Gate::Filling(of(2))),
        (Gate::Filling(of(1)), Gate::Open),
        (Gate::Open, Gate::Filling(of(1))),
        (Gate::Open, Gate::Closed(of(1))),
    ] {
        let ((old, _), (new, _)) = (at(1), at(1));
        old.turn_gate(Gate::Open, left.clone()).await.unwrap();
        new.turn_gate(Gate::Open, filled.clone()).await.unwrap();
        let transfer = Transfer::new(old.clone(), new.clone());
        let error = transfer.run(Duration::ZERO, |_| {}).await.unwrap_err();
        assert!(matches!(&error, TransferError::Elsewhere(said) if said.contains("third:")), "{error}");
        assert!(transfer.give_up().await.is_err(), "{left:?} and {filled:?}");
        let stand = (old.gate().await.unwrap(), new.gate().await.unwrap());
        assert_eq!(stand, (left, filled));
    }
}

#[tokio::test]
async fn giving_up_a_move_never_opens_a_ledger_that_has_moved_elsewhere() {
    let open = || Arc::new(MemoryStore::new()) as Arc<dyn Store>;
    let (a, b, c) = (open(), open(), open());
    ended(&Oncely::new(a.clone()), "k", outcome::created(&1)).await;
    let into = Move { id: [7; 16], run: 1, other: "memory:".into(), shift_ms: 0, steady_since: Millis(0) };
    a.turn_gate(Gate::Open, Gate::Closed(into.clone())).await.unwrap();
    b.turn_gate(Gate::Open, Gate::Filling(into)).await.unwrap();
    Transfer::new(a.clone(), b.clone()).give_up().await.unwrap();
    assert_eq!(a.gate().await.unwrap(), Gate::Open);
    Transfer::new(a.clone(), c).run(Duration::ZERO, |_| {}).await.unwrap();
    assert!(Transfer::new(a.clone(), b).give_up().await.is_err(), "the same words again opened it");
    assert!(matches!(a.gate().await.unwrap(), Gate::Closed(_)));
}

#[tokio::test]
async fn a_ledger_is_not_closed_for_one_that_is_no_longer_filled() {
    let ((old, _), (new, _)) = (at(1), at(1));
    let of = Move { id: [7; 16], run: 5, other: "memory:".into(), shift_ms: 0, steady_since: Millis(0) };
    // As left by two programs of which one has ended what the other took up.
    old.turn_gate(Gate::Open, Gate::Closing(of)).await.unwrap();
    let transfer = Transfer::new(old.clone(), new.clone());
    assert!(transfer.run(Duration::ZERO, |_| {}).await.is_err());
    assert!(matches!(old.gate().await.unwrap(), Gate::Closing(_)));
    transfer.give_up().await.unwrap();
    assert_eq!((old.gate().await.unwrap(), new.gate().await.unwrap()), (Gate::Open, Gate::Open));
}

#[tokio::test]
async fn a_ledger_that_has_moved_does_not_tell_that_nothing_happened() {
    let ((old, _), (new, _)) = (at(1), at(1));
    let policy = Policy { max_retries: 0, ..Policy::default() };
    let engine = Oncely::new(old.clone());
    let refused = |engine: Oncely, policy: Policy| async move {
        engine
            .tool("pay")
            .key("k")
            .payload(&1)
            .policy(policy)
            .run(|_| async { Outcome::rejected("NO", "no") })
            .await
    };
    refused(engine.clone(), policy.clone()).await.unwrap();
    assert!(matches!(refused(engine.clone(), policy.clone()).await.unwrap(), Answer::Refused(_)));
    Transfer::new(old, new.clone()).run(Duration::ZERO, |_| {}).await.unwrap();
    assert!(refused(engine, policy.clone()).await.is_err(), "where it went, the key may have run since");
    assert!(matches!(refused(Oncely::new(new), policy).await.unwrap(), Answer::Refused(_)));
}

/// A program was killed when it had marked the one end, and before it noticed that it had marked the other.
#[tokio::test]
async fn a_ledger_that_was_to_be_moved_to_itself_is_free_again() {
    let mark = |other: &str| {
        let other = other.to_owned();
        Gate::Filling(Move { id: [7; 16], run: 5, other, shift_ms: 0, steady_since: Millis(0) })
    };
    for give_up in [false, true] {
        let end = |transfer: Transfer| async move {
            match give_up {
                false => transfer.run(Duration::ZERO, |_| {}).await.unwrap_err(),
                true => transfer.give_up().await.unwrap_err(),
            }
        };
        // Two names of one ledger.
        let (one, _) = at(1);
        let gate = mark(&one.describe());
        one.turn_gate(Gate::Open, gate.clone()).await.unwrap();
        let error = end(Transfer::new(one.clone(), one.clone())).await;
        assert!(matches!(error, TransferError::Same(_)), "{error}");
        assert_eq!(one.gate().await.unwrap(), Gate::Open);
        ended(&Oncely::new(one), "k", outcome::created(&1)).await;

        // A copy of a ledger that bears the same mark is another one.
        let (one, other) = (at(1).0, at(1).0);
        for store in [&one, &other] {
            store.turn_gate(Gate::Open, gate.clone()).await.unwrap();
        }
        let error = end(Transfer::new(one.clone(), other.clone())).await;
        assert!(matches!(error, TransferError::Elsewhere(_)), "{error}");
        assert_eq!((one.gate().await.unwrap(), other.gate().await.unwrap()), (gate.clone(), gate.clone()));

        // One that is being filled from a third, or that holds a part of it, is not opened.
        for (gate, part) in [(mark("third:"), false), (gate, true)] {
            let (one, _) = at(1);
            if part {
                ended(&Oncely::new(one.clone()), "k", outcome::created(&1)).await;
            }
            one.turn_gate(Gate::Open, gate.clone()).await.unwrap();
            let error = end(Transfer::new(one.clone(), one.clone())).await;
            assert!(matches!(error, TransferError::Elsewhere(_)), "{error}");
            assert_eq!(one.gate().await.unwrap(), gate);
        }
    }
}

/// A ledger whose purge has only stale entries to put in order in its first step, which counts as nothing.
struct Stale {
    store: Arc<dyn Store>,
    purges: AtomicU64,
}

impl Store for Stale {
    fn purge(&self, _: usize) -> StoreFuture<'_, PurgeReport> {
        let purges = self.purges.fetch_add(1, Ordering::SeqCst);
        let (records_removed, more) = (u64::from(purges == 1), purges < 2);
        Box::pin(async move { Ok(PurgeReport { records_removed, more, ..PurgeReport::default() }) })
    }

    oncely_core::hand_on!(store: describe peek expects create load replace note watch liveness owner now steady_since scan log tally
        tallies census flush health gate turn_gate import);
}

#[tokio::test]
async fn what_is_due_goes_before_a_move_however_little_a_step_of_the_purge_counts() {
    let old = Arc::new(Stale { store: at(1).0, purges: AtomicU64::new(0) });
    let oncely = Oncely::new(old.clone());
    ended(&oncely, "k", outcome::created(&1)).await;
    // A call purges now and then.
    assert_eq!(oncely.drain(Duration::from_secs(60)).await, 0);
    old.purges.store(0, Ordering::SeqCst);
    let report = Transfer::new(old.clone(), at(1).0).run(Duration::ZERO, |_| {}).await.unwrap();
    assert_eq!((report.records, old.purges.load(Ordering::SeqCst)), (1, 3));
}

/// A program of before the gate has the file open and does not look at it.
#[tokio::test]
async fn the_file_of_a_closed_ledger_refuses_what_an_older_program_would_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.db");
    let old = oncely_store::open(path.to_str().unwrap()).await.unwrap();
    ended(&Oncely::new(old.clone()), "k", outcome::created(&1)).await;
    let older = rusqlite::Connection::open(&path).unwrap();
    older.execute("UPDATE record SET due = due", []).unwrap();
    Transfer::new(old.clone(), at(1).0).run(Duration::ZERO, |_| {}).await.unwrap();
    let copy = "INSERT INTO record SELECT id + 1, randomblob(16), tail, version, state, due, changed_at, tool, scope, \
                key, trail, body, result FROM record";
    for write in [copy, "UPDATE record SET state = 1", "DELETE FROM record"] {
        let error = older.execute(write, []).unwrap_err();
        assert!(error.to_string().contains("has moved"), "{write}: {error}");
    }
}
