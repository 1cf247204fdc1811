//! A disk that is full or read-only, and files that are not a ledger: nothing runs, nothing is lost, and the message
//! says what is wrong.

use std::path::Path;

use oncely_campaign::Checked;
use oncely_campaign::bench::Bench;
use oncely_campaign::mounts::Mount;
use oncely_campaign::programs::{Privilege, privileged};

fn mounting_is_skipped() -> Checked<bool> {
    Ok(privileged("full and read-only disks", &["mount", "umount"])? == Privilege::Skipped)
}

/// Takes up space until only this much is free.
fn fill_up(mount: &Mount, leave_kib: u64) -> Checked<()> {
    let free = |point: &Path| -> Checked<u64> {
        let output = std::process::Command::new("df").args(["--output=avail", "-k"]).arg(point).output()?;
        let text = String::from_utf8(output.stdout)?;
        Ok(text.lines().nth(1).ok_or("df says nothing")?.trim().parse()?)
    };
    let kib = free(mount.point())?.saturating_sub(leave_kib);
    Ok(std::fs::write(mount.point().join("ballast"), vec![7u8; usize::try_from(kib << 10)?])?)
}

#[test]
fn below_the_floor_new_claims_are_refused_and_a_running_one_still_ends() {
    if mounting_is_skipped().unwrap() {
        return;
    }
    let bench = Bench::new(|d| format!("sqlite:{}/disk/ledger.db?min_free=1MiB", d.display())).unwrap();
    let mount = Mount::memory_disk(&bench.directory.path().join("disk"), "4m").unwrap();
    let first = bench.succeeds("first").unwrap();
    // It claims while there is room, and ends when there is none.
    let slow = bench.line("slow", 1500).spawn().unwrap();
    while !bench.runner.states().unwrap().contains_key("slow") {
        std::thread::yield_now();
    }
    fill_up(&mount, 500).unwrap();
    bench.refuses("second", "min_free").unwrap();
    let slow = slow.wait_with_output().unwrap();
    assert_eq!(slow.status.code(), Some(0), "{}", String::from_utf8_lossy(&slow.stderr));
    assert_eq!(bench.runner.states().unwrap()["slow"], "succeeded");
    assert_eq!(bench.succeeds("first").unwrap(), first, "a replay needs no space");
    std::fs::remove_file(mount.point().join("ballast")).unwrap();
    bench.succeeds("second").unwrap();
}

#[test]
fn a_disk_that_fills_up_loses_nothing_and_runs_nothing() {
    if mounting_is_skipped().unwrap() {
        return;
    }
    let bench = Bench::new(|d| format!("sqlite:{}/disk/ledger.db?min_free=0", d.display())).unwrap();
    let mount = Mount::memory_disk(&bench.directory.path().join("disk"), "2m").unwrap();
    let first = bench.succeeds("first").unwrap();
    fill_up(&mount, 64).unwrap();
    let mut kept = vec![("first".to_owned(), first)];
    let refused = (0..60).find_map(|n| {
        let key = format!("key-{n}");
        let output = bench.run(&key).unwrap();
        match output.status.code() {
            // The claim fitted; the end perhaps did not, and then it was said.
            Some(0) if output.stderr.is_empty() => kept.push((key, output.stdout)),
            Some(0) => assert!(String::from_utf8_lossy(&output.stderr).contains("could not be recorded")),
            code => return Some((key, code, String::from_utf8_lossy(&output.stderr).into_owned())),
        }
        None
    });
    let (key, code, said) = refused.expect("the disk never filled up");
    assert_eq!(code, Some(12), "{said}");
    assert!(said.contains("full"), "{said}");
    assert_eq!(bench.outside.count(&key).unwrap(), 0, "its claim could not be written and it ran");
    std::fs::remove_file(mount.point().join("ballast")).unwrap();
    for (key, stdout) in kept {
        assert_eq!(bench.succeeds(&key).unwrap(), stdout);
    }
    let (counts, states) = (bench.outside.counts().unwrap(), bench.runner.states().unwrap());
    for (key, count) in counts {
        assert_eq!(count, 1, "{key}");
        assert!(matches!(states[&key].as_str(), "succeeded" | "in_doubt"), "{key}: {}", states[&key]);
    }
}

#[test]
fn a_disk_that_becomes_read_only_is_named_and_nothing_runs() {
    if mounting_is_skipped().unwrap() {
        return;
    }
    let bench = Bench::new(|d| format!("sqlite:{}/disk/ledger.db?min_free=0", d.display())).unwrap();
    let mount = Mount::memory_disk(&bench.directory.path().join("disk"), "4m").unwrap();
    bench.succeeds("first").unwrap();
    mount.make_read_only().unwrap();
    bench.refuses("second", "Read-only file system").unwrap();
}

#[test]
fn what_is_not_a_ledger_of_ours_is_named_and_left_alone() {
    let bench = Bench::new(|d| format!("sqlite:{}/ledger.db?min_free=0", d.display())).unwrap();
    let file = bench.directory.path().join("ledger.db");
    std::fs::write(&file, "a letter to a friend, long enough to be no database at all".repeat(40)).unwrap();
    bench.refuses("text", "not a ledger").unwrap();
    std::fs::remove_file(&file).unwrap();

    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    bench.refuses("foreign", "another program").unwrap();
    let songs: i64 = other.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(songs, 1, "somebody else's file was changed");
}

#[test]
fn a_newer_ledger_is_named_and_left_alone() {
    let bench = Bench::new(|d| format!("sqlite:{}/ledger.db?min_free=0", d.display())).unwrap();
    let first = bench.succeeds("first").unwrap();
    let file = rusqlite::Connection::open(bench.directory.path().join("ledger.db")).unwrap();
    let version: i64 = file.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    file.pragma_update(None, "user_version", version + 1).unwrap();
    bench.refuses("second", "newer program").unwrap();
    file.pragma_update(None, "user_version", version).unwrap();
    assert_eq!(bench.succeeds("first").unwrap(), first);
}

#[test]
fn a_damaged_ledger_is_named_and_nothing_runs() {
    let bench = Bench::new(|d| format!("sqlite:{}/ledger.db?min_free=0", d.display())).unwrap();
    bench.succeeds("first").unwrap();
    let path = bench.directory.path().join("ledger.db");
    rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // The header stays, so that the file still looks like ours.
    bytes.iter_mut().skip(4_096).for_each(|byte| *byte = 0xa5);
    std::fs::write(&path, bytes).unwrap();
    bench.refuses("second", "damaged").unwrap();
}
