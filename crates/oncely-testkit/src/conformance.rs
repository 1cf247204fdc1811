//! One suite for every ledger: each case is one promise of the store contract, by name.
//!
//! A backend author writes one line, [`conformance_suite!`](crate::conformance_suite), with a closure that makes an
//! empty [`Ledger`]. Every case gets a fresh one. A ledger that outlives its handle says how to open it again
//! ([`Ledger::durable`]); the cases then also use a second handle at the same time, and look for what was
//! acknowledged after the first is gone.

mod fields;
mod logs;
mod moving;
mod reading;
mod sample;
mod scanning;
mod upkeep;
mod writes;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::{Store, StoreError};

/// How long a case may take before the ledger is said to hang.
const DEADLINE: Duration = Duration::from_secs(120);

/// Whether a promise is kept; if not, what was seen.
pub type Verdict = Result<(), Broken>;

/// What a case found broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Self {
        Self(format!(
            "the ledger answered with an error: {error} ({:?}, wrote: {:?})",
            error.kind, error.wrote
        ))
    }
}

/// Ends a case with what was seen, unless the promise holds.
macro_rules! hold {
    ($kept:expr, $($seen:tt)+) => {
        if !$kept {
            return Err($crate::conformance::Broken(format!($($seen)+)));
        }
    };
}
pub(crate) use hold;

/// A future that opens a handle on a ledger.
pub type Opening = Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send>>;

/// An empty ledger to test.
pub struct Ledger {
    store: Arc<dyn Store>,
    open: Option<Box<dyn Fn() -> Opening + Send + Sync>>,
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl Ledger {
    /// A ledger that ends with its only handle.
    pub fn volatile(store: impl Store) -> Self {
        Self { store: Arc::new(store), open: None, kept: Vec::new() }
    }

    /// A ledger that outlives its handle. `open` opens one more handle on the same ledger: while the first is still
    /// in use, and after it is gone.
    pub fn durable<F>(store: impl Store, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Arc<dyn Store>> + Send + 'static,
    {
        let open = move || -> Opening { Box::pin(open()) };
        Self { store: Arc::new(store), open: Some(Box::new(open)), kept: Vec::new() }
    }

    /// A ledger that is wrapped or shared already; `open` as for [`durable`](Self::durable).
    pub fn shared<F>(store: Arc<dyn Store>, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Arc<dyn Store>> + Send + 'static,
    {
        let open = move || -> Opening { Box::pin(open()) };
        Self { store, open: Some(Box::new(open)), kept: Vec::new() }
    }

    /// Keeps something (a temporary folder, a server) until the case has ended.
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self.kept.push(Box::new(guard));
        self
    }

    /// The first handle.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Another handle on the same ledger, where it has such; else the first again.
    pub async fn other(&self) -> Arc<dyn Store> {
        match &self.open {
            Some(open) => open().await,
            None => Arc::clone(&self.store),
        }
    }

    /// Gives up the first handle and opens the ledger again. `None`: this ledger ends with its handle.
    pub async fn reopened(self) -> Option<Self> {
        let Self { store, open, kept } = self;
        let open = open?;
        drop(store);
        let store = open().await;
        Some(Self { store, open: Some(open), kept })
    }
}

/// One promise and how it is tried.
pub struct Case {
    /// The promise, as a sentence.
    pub name: &'static str,
    run: fn(Ledger) -> Pin<Box<dyn Future<Output = Verdict> + Send>>,
}

/// The table of cases. `conformance_suite!` lists the names again, and tests that both lists are equal.
macro_rules! cases {
    ($($module:ident { $($name:ident),+ $(,)? })+) => {
        /// Every promise, in the order in which a new ledger is best made to keep them.
        pub const CASES: &[Case] = &[
            $($(Case { name: stringify!($name), run: |ledger| Box::pin($module::$name(ledger)) },)+)+
        ];
    };
}

cases! {
    writes {
        a_new_record_is_stored_as_written,
        a_second_create_returns_what_is_there,
        of_many_concurrent_creates_one_wins,
        a_replace_from_the_current_version_is_done,
        a_replace_from_another_version_changes_nothing,
        a_replace_of_nothing_is_stale,
        of_many_concurrent_replaces_one_wins,
        a_removed_record_is_gone,
        a_version_never_restarts,
        a_replace_is_requested_when_it_is_called,
        a_dropped_call_leaves_no_lock,
    }
    logs {
        events_are_written_with_their_record_and_in_order,
        events_of_a_lost_race_are_not_written,
        every_event_reads_back_as_written,
        the_log_pages_without_gaps,
        the_newest_events_come_in_ascending_order,
        notes_need_no_record,
    }
    fields {
        every_field_reads_back_as_written,
        no_result_is_taken_for_another,
        odd_names_are_kept_apart,
        stamps_are_taken_at_the_write_and_kept_ones_stay,
    }
    reading {
        nothing_is_read_where_nothing_is,
        time_never_runs_backwards,
        a_watch_returns_after_a_change_by_another_handle,
        a_watch_returns_at_once_when_the_version_is_old,
        a_watch_ends_by_itself,
        a_peek_is_never_older_than_what_was_acknowledged,
        a_peek_shows_only_ended_records,
    }
    scanning {
        a_scan_finds_what_the_filter_accepts,
        a_scan_pages_without_gaps,
        a_scan_is_oldest_first,
        the_census_counts_what_is_open,
    }
    upkeep {
        a_purge_follows_the_machine,
        running_and_in_doubt_records_never_expire,
        a_purge_is_bounded,
        a_purged_version_never_restarts,
        counters_add_up,
        this_process_is_alive_and_no_other_is_taken_for_it,
        what_was_acknowledged_survives_a_reopen,
        time_goes_on_after_a_reopen,
    }
    moving {
        a_closing_ledger_lets_attempts_end_and_none_begin,
        a_closed_ledger_is_read_and_never_written,
        of_many_turns_of_the_gate_one_wins,
        no_claim_slips_past_a_gate_that_closes,
        what_is_imported_keeps_its_times_and_order,
        an_imported_record_lives_on_like_any_other,
        only_the_move_that_fills_a_ledger_may_import,
        the_gate_survives_a_reopen,
    }
}

/// Tries one promise on one ledger; says what was seen if it is broken.
pub fn verdict<F>(name: &str, make: impl FnOnce() -> F) -> Verdict
where
    F: Future<Output = Ledger>,
{
    let broken = |what: String| Broken(what);
    let case = CASES
        .iter()
        .find(|case| case.name == name)
        .ok_or_else(|| broken(format!("the suite has no case {name:?}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| broken(format!("no runtime to test in: {e}")))?;
    runtime.block_on(async {
        let ledger = make().await;
        tokio::time::timeout(DEADLINE, (case.run)(ledger))
            .await
            .unwrap_or_else(|_| Err(broken(format!("no answer within {} s", DEADLINE.as_secs()))))
    })
}

/// Tries one promise on one ledger, and panics with what was seen if it is broken.
#[track_caller]
pub fn check<F>(name: &str, make: impl FnOnce() -> F)
where
    F: Future<Output = Ledger>,
{
    if let Err(seen) = verdict(name, make) {
        panic!("the ledger does not keep the promise {name:?}: {seen}");
    }
}

/// Makes one `#[test]` of every promise. The argument is a closure that returns a future of an empty
/// [`Ledger`](crate::conformance::Ledger). Use it in a module of its own, one for each kind of ledger.
#[macro_export]
macro_rules! conformance_suite {
    ($make:expr) => {
        $crate::conformance_suite! { @tests $make;
            a_new_record_is_stored_as_written
            a_second_create_returns_what_is_there
            of_many_concurrent_creates_one_wins
            a_replace_from_the_current_version_is_done
            a_replace_from_another_version_changes_nothing
            a_replace_of_nothing_is_stale
            of_many_concurrent_replaces_one_wins
            a_removed_record_is_gone
            a_version_never_restarts
            a_replace_is_requested_when_it_is_called
            a_dropped_call_leaves_no_lock
            events_are_written_with_their_record_and_in_order
            events_of_a_lost_race_are_not_written
            every_event_reads_back_as_written
            the_log_pages_without_gaps
            the_newest_events_come_in_ascending_order
            notes_need_no_record
            every_field_reads_back_as_written
            no_result_is_taken_for_another
            odd_names_are_kept_apart
            stamps_are_taken_at_the_write_and_kept_ones_stay
            nothing_is_read_where_nothing_is
            time_never_runs_backwards
            a_watch_returns_after_a_change_by_another_handle
            a_watch_returns_at_once_when_the_version_is_old
            a_watch_ends_by_itself
            a_peek_is_never_older_than_what_was_acknowledged
            a_peek_shows_only_ended_records
            a_scan_finds_what_the_filter_accepts
            a_scan_pages_without_gaps
            a_scan_is_oldest_first
            the_census_counts_what_is_open
            a_purge_follows_the_machine
            running_and_in_doubt_records_never_expire
            a_purge_is_bounded
            a_purged_version_never_restarts
            counters_add_up
            this_process_is_alive_and_no_other_is_taken_for_it
            what_was_acknowledged_survives_a_reopen
            time_goes_on_after_a_reopen
            a_closing_ledger_lets_attempts_end_and_none_begin
            a_closed_ledger_is_read_and_never_written
            of_many_turns_of_the_gate_one_wins
            no_claim_slips_past_a_gate_that_closes
            what_is_imported_keeps_its_times_and_order
            an_imported_record_lives_on_like_any_other
            only_the_move_that_fills_a_ledger_may_import
            the_gate_survives_a_reopen
        }
    };
    (@tests $make:expr; $($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::check(stringify!($name), $make);
            }
        )+

        #[test]
        fn every_promise_of_the_suite_is_tested_here() {
            let here = [$(stringify!($name)),+];
            let all: Vec<&str> = $crate::conformance::CASES.iter().map(|case| case.name).collect();
            assert_eq!(here.as_slice(), all.as_slice());
        }
    };
}
