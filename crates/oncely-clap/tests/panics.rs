//! A panic where nothing is changed: an envelope, and an exit code of its own; where a panic aborts, an envelope still.
//! Alone in its process, because whether a handler is acting is known per process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use clap::Parser;
use oncely_clap::{Failure, Query, Runner, Surroundings};
use serde_json::Value;

#[derive(Debug, Parser, oncely_clap::Commands)]
#[command(name = "fragile")]
#[oncely(safe)]
struct Fragile {}

impl Query<Self> for Fragile {
    type Data = u32;

    fn run(&self, _app: &Self) -> Result<u32, Failure> {
        panic!("it broke")
    }
}

#[derive(Default)]
struct Nowhere {
    out: RefCell<String>,
}

impl Surroundings for Nowhere {
    fn variable(&self, _name: &str) -> Option<std::ffi::OsString> {
        None
    }

    fn is_watched(&self) -> bool {
        false
    }

    fn can_ask(&self) -> bool {
        false
    }

    fn ask(&self, _question: &str) -> Option<String> {
        None
    }

    fn print(&self, text: &str) -> std::io::Result<()> {
        self.out.borrow_mut().push_str(text);
        Ok(())
    }

    fn say(&self, _line: &str) {}
}

#[test]
fn a_panic_outside_of_an_attempt_is_an_envelope() {
    let here = Nowhere::default();
    assert_eq!(Runner::<Fragile>::new().run_in(&["fragile"], &here), Some(70));
    let envelope: Value = serde_json::from_str(&here.out.borrow()).unwrap();
    assert_eq!(envelope["error"]["code"], "PANICKED");
    assert_eq!(envelope["effect"], "noop");
    assert!(envelope["error"]["message"].as_str().unwrap().contains("it broke"));
}

/// Built by itself, for a whole program is built to unwind or to abort; without optimisation, which takes half the time.
#[test]
fn a_program_that_aborts_on_panic_still_prints_an_envelope() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/aborting");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--example", "fragile", "--manifest-path", manifest])
        .args(["--target-dir", folder, "--config", "profile.dev.panic='abort'"])
        .args(["--config", "profile.dev.package.'*'.opt-level=0", "--config", "profile.dev.debug=false"])
        .status()
        .unwrap();
    assert!(built.success());
    let output = Command::new(format!("{folder}/debug/examples/fragile")).output().unwrap();
    assert_eq!(output.status.signal(), Some(6), "SIGABRT");
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["error"]["code"], "PANICKED");
    assert_eq!(envelope["effect"], "noop");
    assert!(String::from_utf8_lossy(&output.stderr).contains("it broke"), "and the usual words");
}
