//! A real `kill -9` between the effect and its record: the effect is there, the record says running, the process is
//! gone. A retry still finds that it happened. And kills at random moments, and a ledger that fails after the effect.
//!
//! Nothing in the program helps: the test holds the program's database until the attempt is on record, then holds the
//! ledger, lets the effect happen, and kills before its end can be recorded.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead, BufReader};
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

/// Kills a command between its effect and its record: the count has become `after`.
fn kill_in_between(home: &Home, words: &[&str], key: &str, count: &str, after: i64) {
    let foresee = || home.run(&[words, &["--dry-run", "--idempotency-key", key]].concat());
    let database = hold(&home.database());
    let mut child = home.start(words, key);
    wait_until("the attempt is on record", || foresee().exit == 15);
    let ledger = hold(&home.ledger());
    drop(database);
    wait_until("the effect has happened", || home.count(count) == after);
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
    assert!(!child.wait().unwrap().success());
    drop(ledger);
    let doubt = foresee();
    let reason = doubt.envelope["reason"].as_str().unwrap_or_default();
    let asks = reason.contains("about an attempt in doubt");
    assert!(asks || doubt.envelope["meta"]["attempt"] == 2, "the kill came in between: {doubt:?}");
}

#[test]
fn a_retry_after_a_kill_between_effect_and_record_is_a_noop() {
    for (words, count) in MUTATING {
        let home = Home::new();
        home.warm_up();
        kill_in_between(&home, words, "k", count, 1);
        for _ in 0..2 {
            let retry = home.keyed(words, "k");
            assert_eq!((retry.exit, retry.effect()), (0, "noop"), "{words:?}: {retry:?}");
            assert!(retry.envelope["data"].is_object(), "the answer is found: {retry:?}");
        }
        assert_eq!(home.count(count), 1, "{words:?}");
    }
}

#[test]
fn a_retry_does_not_undo_what_somebody_else_has_done_since() {
    let home = Home::new();
    home.warm_up();
    let deploy = |release: &'static str| ["deploy", "--service", "web", "--release", release];
    let count = "SELECT coalesce(sum(times), 0) FROM deployments";
    kill_in_between(&home, &deploy("v2"), "two", count, 1);
    assert_eq!(home.keyed(&deploy("v3"), "three").effect(), "updated");
    let retry = home.keyed(&deploy("v2"), "two");
    assert_eq!((retry.exit, retry.effect()), (0, "noop"), "{retry:?}");
    assert_eq!(
        home.count("SELECT count(*) FROM deployments WHERE release = 'v3'"),
        1,
        "it is not rolled back"
    );
    assert_eq!(home.count(count), 2);
}

#[test]
fn kills_at_random_moments_neither_double_an_effect_nor_lose_one() {
    let seed = std::env::var("ONCELY_SEED").ok().and_then(|text| text.parse().ok());
    let mut state: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1);
    println!("ONCELY_SEED={state}");
    let home = Home::new();
    home.warm_up();
    let mut killed = 0;
    for round in 0..40 {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (name, key) = (format!("n{round}"), format!("k{round}"));
        let (words, count): (&[&str], _) = match round % 3 {
            0 => (&["create-order", "--amount", "1", "--customer"], "orders WHERE customer"),
            1 => (&["send-email", "--to", "a@b", "--subject"], "emails WHERE subject"),
            _ => (&["increment-counter", "--name"], "increments WHERE name"),
        };
        let words = [words, &[name.as_str()]].concat();
        let mut child = home.start(&words, &key);
        std::thread::sleep(Duration::from_micros(state % 25_000));
        kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
        killed += i32::from(!child.wait().unwrap().success());
        let retry = home.keyed(&words, &key);
        assert_eq!(retry.exit, 0, "round {round}: {retry:?}");
        assert_eq!(home.keyed(&words, &key).effect(), "noop");
        assert_eq!(home.count(&format!("SELECT count(*) FROM {count} = '{name}'")), 1, "round {round}");
    }
    assert!(killed > 0, "no kill came in time");
}

#[test]
fn a_ledger_that_fails_after_the_effect_does_not_take_the_answer_away() {
    let home = Home::new();
    home.warm_up();
    let (words, count) = MUTATING[0];
    let database = hold(&home.database());
    let mut child = home.start(words, "k");
    let foresee = || home.run(&[words, &["--dry-run", "--idempotency-key", "k"]].concat());
    wait_until("the attempt is on record", || foresee().exit == 15);
    let ledger = hold(&home.ledger());
    drop(database);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&answer["ok"], &answer["effect"]), (&true.into(), &"created".into()), "{answer}");
    assert!(answer["warnings"][0].as_str().unwrap().contains("could not be recorded"), "{answer}");
    // It goes on trying, and gets through.
    drop(ledger);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let retry = home.keyed(words, "k");
    assert_eq!((retry.exit, retry.effect(), &retry.envelope["data"]), (0, "noop", &answer["data"]));
    assert_eq!(retry.envelope["meta"]["replayed"], true, "{retry:?}");
    assert_eq!(home.count(count), 1);
}

#[test]
fn a_signal_before_the_effect_leaves_nothing_behind_and_a_retry_acts() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let home = Home::new();
        home.warm_up();
        let (words, count) = MUTATING[0];
        let database = hold(&home.database());
        let mut child = home.start(words, "k");
        let foresee = || home.run(&[words, &["--dry-run", "--idempotency-key", "k"]].concat()).exit;
        wait_until("the attempt is on record", || foresee() == 15);
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        drop(database);
        assert_eq!(home.count(count), 0);
        let retry = home.keyed(words, "k");
        assert_eq!((retry.exit, retry.effect()), (0, "created"), "{signal}: {retry:?}");
        assert_eq!((home.keyed(words, "k").effect(), home.count(count)), ("noop", 1));
    }
}
