//! Our own example: built on `oncely-clap`, it has to earn a 3.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::{ONCELY, Place};

/// The folder in which `orders` is, brought up to date by cargo.
fn built() -> PathBuf {
    let folder = Path::new(ONCELY).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "-p", "orders", "--target-dir"])
        .arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "orders cannot be built");
    folder.to_owned()
}

#[test]
fn the_example_orders_earns_3() {
    // The key is durable before the effect, both flags come with every mutating command, and every answer has an effect:
    // all of it from the framework, which is what a 3 asks for. Nothing is told to the score but the command.
    let place = Place::new();
    let tools = [built()];
    let report = place.report_with(
        &[
            "cli",
            "--allow-effects",
            "--min",
            "3",
            // On a machine that was busier when the usual duration was taken, most of a few would come too late.
            "--kills",
            "40",
            "--count",
            "orders list-orders --json=false | wc -l",
            "--",
            "orders",
            "create-order",
            "--customer",
            "ann",
            "--amount",
            "100",
        ],
        &tools,
    );
    let rows = [
        "dry_run",
        "repeat",
        "effect",
        "replay_told",
        "key",
        "mismatch",
        "at_once",
        "killed",
        "every_command",
    ];
    report.expect(3, &rows.map(|row| (row, "holds")));
    let commands = report.evidence("every_command");
    for command in ["create-order", "send-email", "increment-counter", "deploy"] {
        assert!(commands.contains(command), "{commands}");
    }
}
