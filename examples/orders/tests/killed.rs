//! A real `kill -9` between the effect and its record: the effect is there, the record says running, the process is
//! gone. A retry still finds that it happened.
//!
//! Nothing in the program helps: the test holds the program's database until the attempt is on record, then holds the
//! ledger, lets the effect happen, and kills before its end can be recorded.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Home, MUTATING};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rusqlite::Connection;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Holds the one place that writes to a SQLite file; others wait.
fn hold(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_retry_after_a_kill_between_effect_and_record_is_a_noop() {
    for (words, count) in MUTATING {
        let home = Home::new();
        home.warm_up();
        let foresee = || home.run(&[words, &["--dry-run", "--idempotency-key", "k"]].concat());

        let database = hold(&home.database());
        let mut child = home.start(words, "k");
        wait_until("the attempt is on record", || foresee().exit == 15);
        let ledger = hold(&home.ledger());
        drop(database);
        wait_until("the effect has happened", || home.count(count) == 1);
        kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
        assert!(!child.wait().unwrap().success());
        drop(ledger);

        let doubt = foresee();
        let reason = doubt.envelope["reason"].as_str().unwrap_or_default();
        let in_doubt = reason.contains("about an attempt in doubt") || reason.contains("(attempt 2)");
        assert!(in_doubt || doubt.envelope["meta"]["attempt"] == 2, "the kill came in between: {doubt:?}");

        for _ in 0..2 {
            let retry = home.keyed(words, "k");
            assert_eq!((retry.exit, retry.effect()), (0, "noop"), "{words:?}: {retry:?}");
            assert!(retry.envelope["data"].is_object(), "the answer is found: {retry:?}");
        }
        assert_eq!(home.count(count), 1, "{words:?}");
    }
}
