//! Power cuts on a loop-mounted disk: what was acknowledged is there afterwards; and a ledger that syncs too little,
//! which the same harness must catch.
#![allow(clippy::print_stdout, reason = "seeds and figures")]

use oncely_campaign::Checked;
use oncely_campaign::cuts::{Plan, Report, Way, run};
use oncely_campaign::programs::{Privilege, Programs, privileged};

const SEED: u64 = 20_260_102;

fn cut(cuts: u64, way: Way, seed: u64) -> Checked<Option<Report>> {
    if privileged("power cuts", &["mkfs.ext4", "mount", "umount", "python3"])? == Privilege::Skipped {
        return Ok(None);
    }
    let directory = tempfile::tempdir()?;
    let report = run(&Programs::find()?, directory.path(), Plan { cuts, seed, way })?;
    println!(
        "seed {seed}: {} cuts ({} while opening), {} claims and {} ends acknowledged, {} lost",
        report.cuts, report.cuts_while_opening, report.claims, report.ends, report.lost
    );
    Ok(Some(report))
}

#[test]
fn no_power_cut_loses_what_was_acknowledged() {
    let Some(report) = cut(100, Way::Oncely, SEED).unwrap() else { return };
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert_eq!(report.cuts, 100);
    assert!(report.claims > 100 && report.ends > 50, "hardly anything was written: {report:?}");
}

#[test]
fn a_ledger_that_does_not_sync_each_commit_is_caught() {
    // A machine that had much else to do may not have written anything in the moments that count.
    for seed in SEED..SEED + 3 {
        let Some(report) = cut(10, Way::Normal, seed).unwrap() else { return };
        if report.lost > 0 {
            return;
        }
    }
    panic!("the harness is blind");
}
