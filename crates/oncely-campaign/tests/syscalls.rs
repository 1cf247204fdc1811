//! A kill at every call that changes the ledger's files, and errors at every write and sync.
#![allow(clippy::print_stdout, reason = "figures")]

use oncely_campaign::Checked;
use oncely_campaign::outside::Outside;
use oncely_campaign::programs::{Privilege, Programs, installed};
use oncely_campaign::syscalls::{CHANGING, Fault, Ground, Report, Walk};

const WRITES: [&str; 3] = ["write", "pwrite64", "pwritev"];
const SYNCS: [&str; 2] = ["fsync", "fdatasync"];

fn walk(steps: impl FnOnce(&Walk<'_>, &mut Report) -> Checked<()>) -> Checked<Option<Report>> {
    if installed("faults at system calls", &["strace"])? == Privilege::Skipped {
        return Ok(None);
    }
    let (programs, directory) = (Programs::find()?, tempfile::tempdir()?);
    let outside = Outside::start(&programs, directory.path())?;
    let mut report = Report::default();
    steps(&Walk { programs: &programs, outside: &outside, directory: directory.path() }, &mut report)?;
    println!("{report:#?}");
    Ok(Some(report))
}

#[test]
fn a_kill_at_any_call_of_a_run_on_an_existing_ledger_keeps_the_promise() {
    let every =
        |walk: &Walk<'_>, report: &mut Report| walk.every(Ground::Existing, &CHANGING, Fault::Kill, report);
    let Some(report) = walk(every).unwrap() else { return };
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert!(report.masked.is_empty(), "the walk may have missed calls: {:?}", report.masked);
    assert!(report.faults >= 30, "only {} kills", report.faults);
    assert!(report.in_doubt > 0);
}

#[test]
fn a_kill_at_any_call_of_a_run_that_makes_the_ledger_keeps_the_promise() {
    let every =
        |walk: &Walk<'_>, report: &mut Report| walk.every(Ground::Fresh, &CHANGING, Fault::Kill, report);
    let Some(report) = walk(every).unwrap() else { return };
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert!(report.faults >= 50, "only {} kills", report.faults);
}

#[test]
fn an_error_at_any_write_or_sync_starts_nothing_on_a_guess_and_loses_nothing() {
    let every = |walk: &Walk<'_>, report: &mut Report| {
        walk.every(Ground::Existing, &SYNCS, Fault::Once("EIO"), report)?;
        walk.every(Ground::Existing, &WRITES, Fault::Once("EIO"), report)?;
        walk.every(Ground::Existing, &WRITES, Fault::Once("ENOSPC"), report)
    };
    let Some(report) = walk(every).unwrap() else { return };
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert!(report.refused > 0 && report.survived > 0, "{report:?}");
}

#[test]
fn a_disk_that_fails_for_good_after_the_effect_gives_the_result_with_a_warning() {
    // The first sync is the claim's, the second the end's.
    let fails = |walk: &Walk<'_>, report: &mut Report| {
        SYNCS.iter().try_for_each(|call| walk.one("-wal", call, 2, Fault::FromThenOn("EIO"), report))
    };
    let Some(report) = walk(fails).unwrap() else { return };
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert_eq!((report.faults, report.warned), (1, 1), "{report:?}");
}
