//! The check of histories finds no fault in a ledger without one, and finds the faults of those that have one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncely_core::{
    Change, Event, IntentId, Replaced, Store, StoreError, StoreErrorKind, StoreFuture, Stored, Version,
};
use oncely_testkit::histories::{Plan, record};
use oncely_testkit::reference::Reference;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Every seventh write is done, and its answer lost.
    LosesAnswers,
    /// Every seventh write says that it was not done, and was.
    Denies,
    /// Every seventh write is acknowledged, and not done.
    LosesWrites,
    /// Every seventh read shows what was there at the read before.
    ReadsThePast,
    /// A replace is done whatever the version.
    IgnoresTheVersion,
}

struct Faulty {
    inner: Reference,
    fault: Fault,
    count: AtomicU64,
    before: Mutex<HashMap<IntentId, Option<Stored>>>,
}

impl Faulty {
    fn with(fault: Fault) -> Arc<dyn Store> {
        Arc::new(Self { inner: Reference::new(), fault, count: AtomicU64::new(0), before: Mutex::default() })
    }

    fn strikes(&self, fault: Fault) -> bool {
        self.fault == fault && self.count.fetch_add(1, Ordering::Relaxed) % 7 == 6
    }
}

impl Store for Faulty {
    fn describe(&self) -> String {
        format!("faulty:{:?}", self.fault)
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        Box::pin(async move {
            let now = self.inner.load(intent).await?;
            // Others come in between, as they do over a network.
            tokio::task::yield_now().await;
            let before = self.before.lock().unwrap().insert(intent, now.clone());
            Ok(if self.strikes(Fault::ReadsThePast) { before.flatten() } else { now })
        })
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        Box::pin(async move {
            if self.strikes(Fault::LosesWrites)
                && let Some(there) = self.inner.load(intent).await?
                && let (Change::Put(draft), true) = (&change, there.record.version == expected)
            {
                let lost = draft.as_ref().clone().stamped(intent, Version(expected.0 + 1), there.now);
                return Ok(Replaced::Done(Some(Stored { record: Arc::new(lost), now: there.now })));
            }
            let answer = self.inner.replace(intent, expected, change.clone(), events.clone()).await?;
            let done = matches!(answer, Replaced::Done(_));
            if done && self.strikes(Fault::LosesAnswers) {
                return Err(StoreError::ambiguous(StoreErrorKind::Unavailable, "the answer is lost"));
            }
            if done && self.strikes(Fault::Denies) {
                return Err(StoreError::before(StoreErrorKind::Unavailable, "it says that it did not"));
            }
            match answer {
                Replaced::Stale(Some(there)) if self.fault == Fault::IgnoresTheVersion => {
                    self.inner.replace(intent, there.record.version, change, events).await
                }
                answer => Ok(answer),
            }
        })
    }

    oncely_core::hand_on!(inner: peek expects create note watch liveness owner now steady_since scan log purge tally tallies census
        flush health gate turn_gate import);
}

/// How many of ten histories cannot have happened.
fn impossible(fault: Fault) -> usize {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let found = (1..=10).filter(|seed| {
        let plan = Plan { seed: *seed, clients: 6, pause: Duration::from_micros(300), ..Plan::default() };
        let history = runtime.block_on(record(&[Faulty::with(fault)], plan));
        assert!(history.len() == 360 && history.writes() > 20, "{history:?}");
        assert_eq!(history.unanswered() > 0, fault == Fault::LosesAnswers);
        let verdict = history.check();
        println!("{fault:?}, seed {seed}: {verdict:?}");
        verdict.is_err()
    });
    found.count()
}

#[test]
fn a_ledger_that_keeps_its_promises_has_an_order_for_every_history() {
    assert_eq!(impossible(Fault::None), 0);
}

#[test]
fn a_lost_answer_is_no_fault() {
    assert_eq!(impossible(Fault::LosesAnswers), 0);
}

#[test]
fn a_write_that_was_denied_and_done_is_found() {
    assert!(impossible(Fault::Denies) > 5);
}

#[test]
fn a_write_that_was_acknowledged_and_lost_is_found() {
    assert!(impossible(Fault::LosesWrites) > 5);
}

#[test]
fn a_stale_read_is_found() {
    assert!(impossible(Fault::ReadsThePast) > 5);
}

#[test]
fn a_replace_that_ignores_the_version_is_found() {
    assert!(impossible(Fault::IgnoresTheVersion) > 5);
}
