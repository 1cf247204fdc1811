//! Every example runs and says what it should.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

/// Runs an example that cargo built beside this test.
#[track_caller]
fn check(name: &str, expected: &str) {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let output = Command::new(path.join("examples").join(name)).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}");
}

#[test]
fn a_charge_is_made_once() {
    check("charge", "charged 99.99\ncharged before: nothing ran\nrefused: order-42 was another charge\n");
}

#[test]
fn a_session_needs_no_keys_and_a_lost_answer_is_settled_by_looking() {
    check(
        "session",
        "call 1: ran, outcome unknown\ncall 2: it had happened, nothing ran\ncall 3: it had happened, nothing ran\n\
         mails sent: 1\n",
    );
}

#[test]
fn an_attempt_can_be_begun_renewed_and_completed() {
    check("attempt", "attempt 1 may run\nrecorded: true\nin doubt: attempt 1\n");
}

#[test]
#[cfg(feature = "tower")]
fn an_axum_service_is_safe_to_retry() {
    check("axum_orders", "tea: 201\ntea: 201, replayed\ncoffee: 409\norders made: 1\n");
}

#[test]
#[cfg(feature = "tower")]
fn a_service_on_hyper_alone_is_safe_to_retry() {
    check("hyper_orders", "tea: 201\ntea: 201, replayed\ncoffee: 409\norders made: 1\n");
}

#[test]
#[cfg(feature = "tower")]
fn a_tonic_service_is_safe_to_retry() {
    check("tonic_orders", "tea: order 1\ntea: order 1, replayed\ncoffee: key_reused\norders made: 1\n");
}

#[test]
fn every_example_is_run_by_a_test() {
    let examples = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).unwrap();
    // The one that is killed on the way has its tests beside those of what it shows.
    let tests = concat!(include_str!("examples.rs"), include_str!("within.rs"));
    let listed = include_str!("../../../examples/README.md");
    for example in examples {
        let path = example.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "README.md" {
            continue;
        }
        assert!(listed.contains(&format!("]({name}")), "{name} is not in the list of the examples");
        // A package of its own has tests of its own.
        if !path.join("Cargo.toml").exists() {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            assert!(tests.contains(&format!("{stem}\"")), "{name} has no test");
        }
    }
}
