//! A ledger whose maker was killed half-way: many who come next at once all find a ledger that works.

use std::process::{Command, Stdio};

use oncely_campaign::Checked;
use oncely_campaign::ledger::Runner;
use oncely_campaign::programs::{Privilege, Programs, installed};

const COMERS: usize = 8;

/// Kills the maker at its n-th call and lets many come; says whether the kill took place.
fn make_and_kill(programs: &Programs, call: &str, nth: u32) -> Checked<bool> {
    let directory = tempfile::tempdir()?;
    let runner = Runner::oncely(programs, &directory.path().join("ledger.db"));
    let maker = runner.run("maker", &["true"]);
    let trace = directory.path().join("trace");
    let killed = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&trace)
        .args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:signal=SIGKILL:when={nth}")])
        .arg(maker.get_program())
        .args(maker.get_args())
        .stdin(Stdio::null())
        .output()?;
    let mut comers = Vec::new();
    for comer in 0..COMERS {
        comers.push(runner.run(&format!("comer-{comer}"), &["true"]).spawn()?);
    }
    for comer in comers {
        let output = comer.wait_with_output()?;
        assert!(output.status.success(), "the maker was killed at {call} {nth}: {output:?}");
    }
    Ok(!killed.status.success())
}

#[test]
fn many_find_a_ledger_that_works_wherever_its_maker_was_killed() {
    if installed("kills while a ledger is made", &["strace"]).unwrap() == Privilege::Skipped {
        return;
    }
    let programs = Programs::find().unwrap();
    let mut kills = 0;
    for (call, most) in [("fsync", 7), ("fdatasync", 7), ("pwrite64", 8), ("unlink", 1), ("ftruncate", 1)] {
        kills += (1..=most).filter(|nth| make_and_kill(&programs, call, *nth).unwrap()).count();
    }
    assert!(kills >= 12, "only {kills} makers were killed");
}
