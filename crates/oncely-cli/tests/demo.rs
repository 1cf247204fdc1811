//! The demo tells the truth: by the service's own book, one side charges twice and the other never does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use serde_json::Value;

const ONCELY: &str = env!("CARGO_BIN_EXE_oncely");

fn demo(arguments: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(ONCELY)
        .arg("demo")
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
    assert!(left.is_empty(), "something is left behind: {left:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn with_oncely_every_order_is_charged_once_whatever_the_service_loses() {
    for seed in ["1", "7", "20"] {
        let told: Value = serde_json::from_str(&demo(&["--json", "--orders", "40", "--seed", seed])).unwrap();
        assert!(told["without"]["double_charges"].as_u64().unwrap() > 0, "seed {seed}: {told}");
        assert_eq!(told["with"]["double_charges"], 0, "seed {seed}: {told}");
        assert_eq!(told["with"]["charges"], 40, "seed {seed}: {told}");
    }
}

#[test]
fn it_is_told_in_words_too() {
    let told = demo(&["--fast"]);
    for part in ["WITHOUT ONCELY", "WITH ONCELY", "12 charges for 12 orders, 0 of them twice"] {
        assert!(told.contains(part), "{part} in {told}");
    }
}
