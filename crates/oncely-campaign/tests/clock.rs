//! The wall clock jumps while records exist: nothing expires, nothing runs again.
#![cfg(target_arch = "x86_64")]

use oncely_campaign::Checked;
use oncely_campaign::clock::{DAY, run_at};
use oncely_campaign::ledger::Runner;
use oncely_campaign::outside::Outside;
use oncely_campaign::programs::{Privilege, Programs, installed};
use rusqlite::Connection;

/// Runs a success at one wall clock and looks at it from others; between them, the machine is restarted or not.
fn a_replay_stays_a_replay(between: impl Fn(&Connection) -> Checked<()>) -> Checked<()> {
    if installed("jumps of the wall clock", &["python3"])? == Privilege::Skipped {
        return Ok(());
    }
    let (programs, directory) = (Programs::find()?, tempfile::tempdir()?);
    let outside = Outside::start(&programs, directory.path())?;
    let file = directory.path().join("ledger.db");
    let runner = Runner::oncely(&programs, &file);
    let (effect, socket) = (programs.effect.to_string_lossy(), outside.socket().to_string_lossy());
    let call = |key: &str, mode: &str| runner.run(key, &[&effect, &socket, key, mode]);
    let first = run_at(10 * DAY, &call("done", "succeeds"))?;
    assert!(first.status.success(), "{first:?}");
    assert!(days_ahead(&file)? >= 9, "the moved clock did not reach the ledger: the harness is blind");
    assert_eq!(call("doubt", "fails-after").output()?.status.code(), Some(1));
    for days in [40, -365, 4_000, 0] {
        between(&Connection::open(&file)?)?;
        let again = run_at(days * DAY, &call("done", "succeeds"))?;
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(again.status.success() && said.contains("nothing ran now"), "{days} days: {again:?}");
        assert!(again.stdout == first.stdout || said.contains("no result is kept"), "{days} days: {again:?}");
        let doubt = run_at(days * DAY, &call("doubt", "fails-after"))?;
        assert_eq!(doubt.status.code(), Some(16), "{days} days: {doubt:?}");
    }
    assert_eq!((outside.count("done")?, outside.count("doubt")?), (1, 1));
    Ok(())
}

/// How far the ledger's clock is ahead of the disk's.
fn days_ahead(file: &std::path::Path) -> Checked<i64> {
    let ledger_ms: i64 =
        Connection::open(file)?.query_row("SELECT ledger_ms FROM anchor", [], |row| row.get(0))?;
    let disk = std::fs::metadata(file)?.modified()?.duration_since(std::time::UNIX_EPOCH)?;
    Ok((ledger_ms / 1_000 - i64::try_from(disk.as_secs())?) / DAY)
}

#[test]
fn no_jump_of_the_wall_clock_runs_anything_again() {
    a_replay_stays_a_replay(|_| Ok(())).unwrap();
}

#[test]
fn a_wall_clock_that_jumps_across_a_restart_of_the_machine_runs_nothing_again() {
    // Another boot is what the ledger sees after a restart: it has to ask the wall clock how long the machine was off.
    let restart = |ledger: &Connection| {
        ledger.execute("UPDATE anchor SET boot = x'0123456789abcdef0123456789abcdef'", [])?;
        Ok(())
    };
    a_replay_stays_a_replay(restart).unwrap();
}
