//! What a short run does not do: counted system calls, so that a start stays as cheap as it is.

use std::path::Path;
use std::process::{Command, Output};

use oncely_campaign::Checked;
use oncely_campaign::programs::{Privilege, Programs, installed};

/// The calls that wait for a disk, and those that start a thread or a process.
const COUNTED: &str = "trace=fsync,fdatasync,sync_file_range,syncfs,clone,clone3,fork,vfork";

/// What a run did.
struct Seen {
    output: Output,
    syncs: usize,
    threads: usize,
    processes: usize,
}

fn traced(oncely: &Path, directory: &Path, line: &[&str]) -> Checked<Seen> {
    let trace = directory.join("trace");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-e", COUNTED, "-o"])
        .arg(&trace)
        .arg(oncely)
        .args(line)
        .current_dir(directory)
        .env("ONCELY_STORE", directory.join("ledger.db"))
        .output()?;
    let trace = std::fs::read_to_string(&trace)?;
    // A call that another thread interrupts is told twice; its name is followed by a bracket only once. One that failed
    // did nothing.
    let calls = || trace.lines().filter(|line| !line.contains(" = -1 "));
    let count = |wanted: &dyn Fn(&str) -> bool| calls().filter(|line| wanted(line)).count();
    let starts = |line: &str| line.contains("clone(") || line.contains("clone3(") || line.contains("fork(");
    Ok(Seen {
        output,
        syncs: count(&|line| line.contains("sync(") || line.contains("syncfs(") || line.contains("range(")),
        threads: count(&|line| starts(line) && line.contains("CLONE_THREAD")),
        processes: count(&|line| starts(line) && !line.contains("CLONE_THREAD")),
    })
}

#[test]
fn a_run_starts_its_command_and_no_thread_and_syncs_no_more_than_it_must() {
    if installed("counted system calls", &["strace"]).unwrap() == Privilege::Skipped {
        return;
    }
    let (programs, directory) = (Programs::find().unwrap(), tempfile::tempdir().unwrap());
    let run =
        |key: &str| traced(&programs.oncely, directory.path(), &["run", "--key", key, "--", "true"]).unwrap();
    assert!(run("makes-the-ledger").output.status.success());
    // One attempt in 64, by chance, tidies up when it is over, and gets a thread for that: not all of these do.
    let fresh = ["a", "b", "c", "d"].map(&run);
    assert!(fresh.iter().all(|seen| seen.output.status.success()));
    let Some(fresh) = fresh.into_iter().min_by_key(|seen| (seen.threads, seen.syncs)) else { return };
    let replay = run("a");
    assert!(replay.output.status.success());
    assert!(String::from_utf8_lossy(&replay.output.stderr).contains("replayed"));
    assert_eq!((fresh.threads, fresh.processes), (0, 1));
    // The claim, before the command starts, and its end; the first commit of a process syncs the directory, too.
    assert!((2..=3).contains(&fresh.syncs), "{} syncs", fresh.syncs);
    // What it counts, after it has answered, and the directory.
    assert!((1..=2).contains(&replay.syncs), "{} syncs", replay.syncs);
    assert_eq!((replay.threads, replay.processes), (0, 0));
    // What the replay counted is there all the same.
    let stats = traced(&programs.oncely, directory.path(), &["stats", "--json"]).unwrap().output;
    let stats = String::from_utf8(stats.stdout).unwrap();
    assert!(stats.contains("\"duplicates_prevented\":1,"), "{stats}");
}

#[test]
fn to_say_its_version_the_program_starts_nothing_and_touches_no_ledger() {
    if installed("counted system calls", &["strace"]).unwrap() == Privilege::Skipped {
        return;
    }
    let (programs, directory) = (Programs::find().unwrap(), tempfile::tempdir().unwrap());
    let said = traced(&programs.oncely, directory.path(), &["--version"]).unwrap();
    assert_eq!(said.output.stdout, format!("oncely {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    assert_eq!((said.threads, said.processes, said.syncs), (0, 0, 0));
    assert!(!directory.path().join("ledger.db").exists());
}
