//! What a person sees on a real pseudo-terminal, and what a hostile line does: nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use common::{Home, MUTATING, told};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Runs the program on a terminal, with what a person types; its exit code and the screen.
fn on_terminal(home: &Home, words: &[&str], typed: &str) -> (i32, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let end = || Stdio::from(OpenOptions::new().read(true).write(true).open(&name).unwrap());
    let mut command = home.command(words);
    let mut child = command.env("NO_COLOR", "1").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    // Our copies of the far end, so that the screen ends when the child does.
    drop(command);
    let mut screen = File::from(master);
    screen.write_all(typed.as_bytes()).unwrap();
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    // A terminal whose far end is closed answers with an error instead of an end.
    while let Ok(count @ 1..) = screen.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..count]);
    }
    (child.wait().unwrap().code().unwrap_or(-1), String::from_utf8_lossy(&seen).replace('\r', ""))
}

#[test]
fn a_person_reads_text_and_is_asked_before_something_is_destroyed() {
    let home = Home::new();
    let (code, screen) = on_terminal(&home, MUTATING[0].0, "");
    assert_eq!((code, screen.as_str()), (0, "amount: 9999\ncustomer: cust_1\nid: 1\norders: created\n"));
    let (code, screen) = on_terminal(&home, MUTATING[0].0, "");
    assert!(code == 0 && screen.contains("orders: noop: replayed: attempt 1 ran"), "{screen}");
    for no in ["no\n", "\n", "y\n"] {
        let (code, screen) = on_terminal(&home, &["cancel-order", "--id", "1"], no);
        assert!(code == 4 && screen.contains("was not confirmed; nothing ran"), "{screen}");
        assert_eq!(home.count(MUTATING[0].1), 1);
    }
    let (code, screen) = on_terminal(&home, &["cancel-order", "--id", "1"], "yes\n");
    assert!(code == 0 && screen.contains("orders: deleted"), "{screen}");
    assert_eq!(home.count(MUTATING[0].1), 0);
    let (code, screen) = on_terminal(&home, &["create-order", "--amount", "x"], "");
    assert!(code == 2 && screen.contains("invalid value 'x'") && screen.contains("is required"), "{screen}");
    let (_, screen) = on_terminal(&home, &["list-orders", "--json"], "");
    assert!(screen.starts_with('{'), "{screen}");
}

#[test]
fn nothing_that_is_stored_reaches_the_terminal_as_a_command() {
    let home = Home::new();
    home.run(&["create-order", "--customer", "\x1b]0;owned\x07\nid=2", "--amount", "1"]);
    let (code, screen) = on_terminal(&home, &["list-orders"], "");
    assert_eq!(code, 0);
    assert!(!screen.contains('\x1b') && !screen.contains('\x07'), "{screen:?}");
    assert_eq!(screen.lines().count(), 1, "{screen:?}");
}

#[test]
fn a_hostile_line_is_refused_and_runs_nothing() {
    let home = Home::new();
    let long = "x".repeat(100_000);
    for (name, value) in [
        ("--idempotency-key", OsStr::from_bytes(b"\xff\xfe")),
        ("--idempotency-key", OsStr::new(&long)),
        ("--idempotency-key", OsStr::new("a\nb")),
        ("--customer", OsStr::from_bytes(b"\xff")),
        ("--amount", OsStr::new("99999999999999999999999")),
        ("--amount", OsStr::new("NaN")),
    ] {
        let mut command = home.command(&["create-order"]);
        for (default, given) in [("--customer", "c"), ("--amount", "1")] {
            if name != default {
                command.args([default, given]);
            }
        }
        let told = told(command.arg(name).arg(value).output().unwrap());
        assert_eq!((told.exit, told.effect()), (2, "noop"), "{name}: {told:?}");
    }
    assert_eq!(home.directory.path().read_dir().unwrap().count(), 0, "no ledger, no database");
    let no_text = OsStr::from_bytes(b"\xff");
    for (name, value) in [
        ("ORDERS_SESSION", OsStr::new(&long)),
        ("ORDERS_SESSION", no_text),
        ("ORDERS_STORE", no_text),
        ("HOME", no_text),
    ] {
        let told = told(home.command(MUTATING[0].0).env(name, value).output().unwrap());
        assert_eq!(told.exit, 2, "{name}: {told:?}");
        assert!(told.envelope["error"]["message"].as_str().unwrap().contains(name), "{told:?}");
    }
    assert!(!home.database().exists());
    // A file name that is no text is a file name all the same.
    let mut command = home.command(MUTATING[0].0);
    let output = command.arg("--db").arg(OsStr::from_bytes(b"\xff.db")).output().unwrap();
    assert_eq!(told(output).effect(), "created");
}
