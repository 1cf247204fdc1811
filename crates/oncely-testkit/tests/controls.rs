//! Negative controls: ledgers with one fault each, which the suite must catch by the promise that they break.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use oncely_core::{
    Change, Counter, Created, Draft, Event, Filter, Gate, Import, IntentId, Liveness, Millis, Move,
    Namespace, Owner, Page, PurgeReport, Record, Replaced, Retention, Stamp, State, StateName, Store,
    StoreError, StoreFuture, Stored, ToolName, Version,
};
use oncely_testkit::conformance::{CASES, Ledger, verdict};
use oncely_testkit::reference::Reference;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    RestartsVersions,
    IgnoresTheVersion,
    LosesEvents,
    LogsLosers,
    PeeksAtThePast,
    ForgetsEmptyResults,
    WaitsForThePoll,
    RestampsTheEnd,
    ClockRunsBack,
    PurgesDoubts,
    PurgesWithoutEnd,
    MixesTenants,
    NeverNotices,
    TakesAnybodyForAlive,
    CountsTwice,
    ClaimsPastTheGate,
    StampsWhatIsBrought,
}

struct Faulty {
    inner: Reference,
    fault: Fault,
    /// What versions are counted from, for each record.
    base: Mutex<HashMap<IntentId, u64>>,
    /// What a cache would hold that nobody tells of changes.
    cache: Mutex<HashMap<IntentId, Stored>>,
    questions: AtomicU64,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        Self {
            inner: Reference::new(),
            fault,
            base: Mutex::default(),
            cache: Mutex::default(),
            questions: AtomicU64::new(0),
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn base_of(&self, intent: &IntentId) -> u64 {
        self.base.lock().unwrap().get(intent).copied().unwrap_or(0)
    }

    fn shown(&self, stored: Stored) -> Stored {
        let mut record = Record::clone(&stored.record);
        record.version = Version(record.version.0 - self.base_of(&record.intent));
        Stored { record: record.into(), now: stored.now }
    }

    fn spoiled(&self, mut draft: Draft) -> Draft {
        if self.has(Fault::RestampsTheEnd) {
            draft.changed = Stamp::OnWrite;
        }
        if let State::Succeeded { result, .. } = &mut draft.body.state
            && self.has(Fault::ForgetsEmptyResults)
            && result.as_ref().is_some_and(|r| r.is_empty())
        {
            *result = None;
        }
        draft
    }

    async fn replace_now(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> Result<Replaced, StoreError> {
        let expected = Version(expected.0 + self.base_of(&intent));
        let change = match change {
            Change::Put(draft) => Change::Put(Box::new(self.spoiled(*draft))),
            Change::Remove => Change::Remove,
        };
        let events = if self.has(Fault::LosesEvents) { Vec::new() } else { events };
        let answer = self.inner.replace(intent, expected, change.clone(), events.clone()).await?;
        Ok(match answer {
            Replaced::Stale(Some(current)) if self.has(Fault::IgnoresTheVersion) => {
                self.inner.replace(intent, current.record.version, change, events).await?
            }
            Replaced::Done(stored) => Replaced::Done(stored.map(|s| self.shown(s))),
            Replaced::Stale(stored) => Replaced::Stale(stored.map(|s| self.shown(s))),
        })
    }
}

impl Store for Faulty {
    fn describe(&self) -> String {
        format!("faulty:{:?}", self.fault)
    }

    fn peek(&self, intent: &IntentId) -> Option<Stored> {
        if self.has(Fault::PeeksAtThePast)
            && let Some(old) = self.cache.lock().unwrap().get(intent)
        {
            return Some(old.clone());
        }
        self.inner.peek(intent).map(|s| self.shown(s))
    }

    fn create(&self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        Box::pin(async move {
            let gate = self.inner.gate().await?;
            if self.has(Fault::ClaimsPastTheGate) && gate != Gate::Open {
                self.inner.turn_gate(gate.clone(), Gate::Open).await?;
                let created = self.inner.create(intent, draft, events).await;
                self.inner.turn_gate(Gate::Open, gate).await?;
                return created;
            }
            match self.inner.create(intent, self.spoiled(draft), events.clone()).await? {
                Created::New(stored) => {
                    if self.has(Fault::RestartsVersions) {
                        self.base.lock().unwrap().insert(intent, stored.record.version.0 - 1);
                    }
                    Ok(Created::New(self.shown(stored)))
                }
                Created::Exists(stored) => {
                    if self.has(Fault::LogsLosers) {
                        self.inner.note(events).await?;
                    }
                    Ok(Created::Exists(self.shown(stored)))
                }
            }
        })
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        Box::pin(async move {
            let found = self.inner.load(intent).await?.map(|s| self.shown(s));
            if let Some(stored) = found.as_ref().filter(|s| s.record.body.state.has_ended()) {
                self.cache.lock().unwrap().insert(intent, stored.clone());
            }
            Ok(found)
        })
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        let mut request = Box::pin(async move { self.replace_now(intent, expected, change, events).await });
        if self.has(Fault::WaitsForThePoll) {
            return request;
        }
        // The reference is never pending: one poll does it all.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match request.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => Box::pin(std::future::ready(answer)),
            std::task::Poll::Pending => request,
        }
    }

    fn watch(&self, intent: IntentId, seen: Version) -> StoreFuture<'_, ()> {
        if self.has(Fault::NeverNotices) {
            return Box::pin(std::future::pending());
        }
        self.inner.watch(intent, Version(seen.0 + self.base_of(&intent)))
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        if self.has(Fault::TakesAnybodyForAlive) { Liveness::Alive } else { self.inner.liveness(owner) }
    }

    fn now(&self) -> StoreFuture<'_, Millis> {
        let back = self.questions.fetch_add(u64::from(self.has(Fault::ClockRunsBack)), Ordering::SeqCst);
        Box::pin(async move { Ok(Millis(self.inner.now().await?.0 - back * 10)) })
    }

    fn scan(&self, mut filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>> {
        if self.has(Fault::MixesTenants) {
            filter.namespace = None;
        }
        Box::pin(async move {
            let page = self.inner.scan(filter, from, limit).await?;
            let items = page.items.into_iter().map(|s| self.shown(s)).collect();
            Ok(Page::of(items, page.next, page.now))
        })
    }

    fn purge(&self, limit: usize) -> StoreFuture<'_, PurgeReport> {
        let limit = if self.has(Fault::PurgesWithoutEnd) { usize::MAX } else { limit };
        Box::pin(async move {
            if self.has(Fault::PurgesDoubts) {
                let filter = Filter { state: Some(StateName::InDoubt), ..Filter::default() };
                for item in self.inner.scan(filter, 0, 1_000).await?.items {
                    let record = &item.record;
                    if record.body.retention == (Retention { replay_for_ms: 0, remember_for_ms: 0 }) {
                        self.inner.replace(record.intent, record.version, Change::Remove, Vec::new()).await?;
                    }
                }
            }
            self.inner.purge(limit).await
        })
    }

    fn tally(&self, namespace: &Namespace, tool: &ToolName, increments: &[(Counter, u64)]) {
        self.inner.tally(namespace, tool, increments);
        if self.has(Fault::CountsTwice) {
            self.inner.tally(namespace, tool, increments);
        }
    }

    fn import(&self, under: Move, mut import: Import) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let now = self.inner.now().await?;
            if self.has(Fault::StampsWhatIsBrought) {
                import.events.iter_mut().for_each(|logged| logged.at = now);
            }
            self.inner.import(under, import).await
        })
    }

    oncely_core::hand_on!(inner: expects note owner steady_since log tallies census flush health gate turn_gate);
}

fn broken_by(fault: Fault) -> Vec<&'static str> {
    let broken = |name| verdict(name, || async move { Ledger::volatile(Faulty::new(fault)) }).is_err();
    CASES.iter().map(|case| case.name).filter(|name| broken(name)).collect()
}

#[test]
fn the_wrapper_without_a_fault_keeps_every_promise() {
    assert_eq!(broken_by(Fault::None), Vec::<&str>::new());
}

#[test]
fn every_fault_is_caught_by_the_promise_that_it_breaks() {
    for (fault, promise) in [
        (Fault::RestartsVersions, "a_version_never_restarts"),
        (Fault::RestartsVersions, "a_purged_version_never_restarts"),
        (Fault::IgnoresTheVersion, "a_replace_from_another_version_changes_nothing"),
        (Fault::IgnoresTheVersion, "of_many_concurrent_replaces_one_wins"),
        (Fault::LosesEvents, "events_are_written_with_their_record_and_in_order"),
        (Fault::LogsLosers, "events_of_a_lost_race_are_not_written"),
        (Fault::PeeksAtThePast, "a_peek_is_never_older_than_what_was_acknowledged"),
        (Fault::ForgetsEmptyResults, "no_result_is_taken_for_another"),
        (Fault::WaitsForThePoll, "a_replace_is_requested_when_it_is_called"),
        (Fault::RestampsTheEnd, "stamps_are_taken_at_the_write_and_kept_ones_stay"),
        (Fault::ClockRunsBack, "time_never_runs_backwards"),
        (Fault::PurgesDoubts, "running_and_in_doubt_records_never_expire"),
        (Fault::PurgesWithoutEnd, "a_purge_is_bounded"),
        (Fault::MixesTenants, "a_scan_finds_what_the_filter_accepts"),
        (Fault::NeverNotices, "a_watch_returns_after_a_change_by_another_handle"),
        (Fault::TakesAnybodyForAlive, "this_process_is_alive_and_no_other_is_taken_for_it"),
        (Fault::CountsTwice, "counters_add_up"),
        (Fault::ClaimsPastTheGate, "a_closing_ledger_lets_attempts_end_and_none_begin"),
        (Fault::ClaimsPastTheGate, "a_closed_ledger_is_read_and_never_written"),
        (Fault::ClaimsPastTheGate, "no_claim_slips_past_a_gate_that_closes"),
        (Fault::StampsWhatIsBrought, "what_is_imported_keeps_its_times_and_order"),
    ] {
        let seen = verdict(promise, || async move { Ledger::volatile(Faulty::new(fault)) });
        assert!(seen.is_err(), "{fault:?} is not caught by {promise:?}");
    }
}
