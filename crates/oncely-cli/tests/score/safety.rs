//! What a measurement must not do: act without leave, leave anything running, hang, or believe nonsense.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use crate::place::{ONCELY, Place, shop};

/// Whether somebody sleeps for so many seconds.
fn is_running(seconds: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line == format!("sleep\0{seconds}\0").as_bytes()
    })
}

/// Whether nobody does any more; one that was just killed may take a moment.
fn is_gone(seconds: &str) -> bool {
    let patience = Instant::now() + Duration::from_secs(60);
    while is_running(seconds) && Instant::now() < patience {
        std::thread::yield_now();
    }
    !is_running(seconds)
}

#[test]
fn without_leave_nothing_is_called_and_nothing_counts() {
    let place = Place::new();
    for name in ["zero.sh", "liar.sh", "preview.sh", "careful.sh", "naive.sh"] {
        let shop = shop(name);
        let report = place.report(&[
            "cli",
            "--count",
            "echo x >> orders",
            "--",
            &shop,
            "create-order",
            "--amount",
            "1",
        ]);
        assert_eq!(report.score(), 0, "{name}: what was not seen counts for nothing");
        // Without a dry run there is no 2, without a key no 3, whatever a call would show.
        let possible =
            [("zero.sh", 1), ("naive.sh", 1), ("preview.sh", 2), ("liar.sh", 3), ("careful.sh", 3)];
        assert!(possible.contains(&(name, report.at_most())), "{name}: {}", report.at_most());
    }
    assert_eq!(place.orders(), 0, "neither a shop nor the count was run");
}

#[test]
fn a_manifest_that_does_not_begin_by_saying_that_it_prints_is_not_asked_for() {
    let place = Place::new();
    let shop = shop("almost.sh");
    place.report(&["cli", "--tool-words", "3", "--", "env", "FAULT=manifest", &shop, "create-order"]);
    assert_eq!(place.orders(), 0, "`manifest` was run");
}

#[test]
fn a_tool_that_might_not_know_help_need_not_be_asked() {
    let place = Place::new();
    let eager = shop("eager.sh");
    let report = place.report(&["cli", "--no-help", "--", &eager, "create-order"]);
    assert_eq!((report.score(), place.orders()), (0, 0), "nothing was run at all");
    let options = [
        "cli",
        "--no-help",
        "--allow-effects",
        "--count",
        "wc -l < orders",
        "--key-flag",
        "--idempotency-key",
    ];
    let careful = shop("careful.sh");
    let command = ["--dry-run-flag", "--dry-run", "--", &careful, "create-order", "--amount", "100"];
    let report = place.report(&[&options[..], &command[..]].concat());
    report.expect(2, &[("mismatch", "holds"), ("every_command", "not_measured")]);
}

#[test]
fn children_that_were_there_before_are_left_alone() {
    let place = Place::new();
    let script =
        format!("sleep 98764 >/dev/null 2>&1 & exec {ONCELY} score cli -- {} create-order", shop("zero.sh"));
    place.sh(&script, &[]);
    let sleeper = std::fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == b"sleep\098764\0")
    });
    let pid = sleeper.expect("a process that was none of ours was ended").file_name().into_string().unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid.parse().unwrap()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
}

#[test]
fn leave_without_a_count_is_refused_and_nothing_runs() {
    let place = Place::new();
    let output = place.run(&["score", "cli", "--allow-effects", "--", &shop("eager.sh"), "create-order"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing ran"));
    assert_eq!(place.orders(), 0);
}

#[test]
fn a_tool_that_acts_on_a_request_for_help_is_called_no_further() {
    let place = Place::new();
    let report = place.shop("eager.sh", &[]);
    assert_eq!(report.score(), 0);
    assert!(
        report.0["notes"][1].as_str().unwrap().contains("asking for help changed something"),
        "{report:#?}"
    );
    assert_eq!(report.status("repeat"), "not_measured");
}

#[test]
fn a_count_that_is_no_count_gives_no_score() {
    for (count, said) in [
        ("echo many", "printed no number"),
        ("exit 7", "printed no number"),
        ("echo x >> orders; wc -l < orders", "moves by itself"),
        ("sleep 60", "printed no number"),
    ] {
        let place = Place::new();
        let careful = shop("careful.sh");
        let arguments = [
            "score",
            "cli",
            "--allow-effects",
            "--timeout",
            "1s",
            "--count",
            count,
            "--",
            &careful,
            "create-order",
        ];
        let output = place.run(&arguments);
        assert_eq!(output.status.code(), Some(4), "{count}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(said), "{count}: {output:?}");
        assert!(!place.path("key-").exists() && place.orders() <= 2);
    }
}

#[test]
fn a_count_that_does_not_see_the_effect_proves_nothing() {
    let place = Place::new();
    let careful = shop("careful.sh");
    let report = place.report(&[
        "cli",
        "--allow-effects",
        "--count",
        "echo 5",
        "--",
        &careful,
        "create-order",
        "--amount",
        "1",
    ]);
    assert_eq!((report.score(), report.status("dry_run")), (0, "not_measured"));
    assert!(report.evidence("repeat").contains("changed nothing that --count sees"));
}

#[test]
fn what_runs_too_long_is_ended_with_all_that_it_started() {
    let place = Place::new();
    let seconds = "98761";
    let lingering = shop("lingering.sh");
    let report = place.report(&[
        "cli",
        "--allow-effects",
        "--timeout",
        "1s",
        "--count",
        "wc -l < orders",
        "--",
        &lingering,
        "create-order",
        "--amount",
        seconds,
    ]);
    assert!(report.evidence("repeat").contains("its time was up"), "{report:#?}");
    assert!(is_gone(seconds), "something was left running");
}

#[test]
fn an_interrupted_measurement_leaves_nothing_running() {
    let place = Place::new();
    let seconds = "98762";
    let lingering = shop("lingering.sh");
    let arguments = [
        "score",
        "cli",
        "--allow-effects",
        "--count",
        "wc -l < orders",
        "--",
        &lingering,
        "create-order",
        "--amount",
        seconds,
    ];
    let mut child = place.command(&arguments, &[]).process_group(0).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(180);
    while !is_running(seconds) && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(is_running(seconds), "the shop did not start");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGTERM)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(is_gone(seconds), "something was left running");
}

#[test]
fn a_tool_that_talks_without_end_cannot_fill_a_report_or_move_a_cursor() {
    let place = Place::new();
    let loud = shop("loud.sh");
    let arguments = [
        "score",
        "cli",
        "--format",
        "table",
        "--allow-effects",
        "--count",
        "wc -l < orders",
        "--",
        &loud,
        "create-order",
        "--amount",
        "1",
    ];
    let mut child = place.command(&arguments, &[]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(text.len() < 20_000 && !text.contains('\x1b'), "{text}");
    assert!(text.contains("exit 3"), "{text}");
}

#[test]
fn bad_arguments_are_refused_before_anything_runs() {
    let place = Place::new();
    let eager = shop("eager.sh");
    for arguments in [
        vec!["cli"],
        vec!["cli", "--min", "4", "--", &eager],
        vec!["cli", "--format", "xml", "--", &eager],
        vec!["cli", "--timeout", "0s", "--", &eager],
        vec!["cli", "--kills", "101", "--", &eager],
        vec!["cli", "--other", "shop 'open", "--", &eager],
        vec!["http", "--request", "missing.http"],
        vec!["http", "--request", "orders", "--url", "http://127.0.0.1:1"],
        vec!["mcp", "--call", "x {}", "--", &eager],
        vec!["mcp", "--allow-effects", "--call", "x {}", "--", &eager],
        vec!["mcp", "--allow-effects", "--sandbox", "no-such", "--call", "x {}", "--", &eager],
        vec!["mcp", "--allow-effects", "--sandbox", ".", "--call", "x [1]", "--", &eager],
    ] {
        let output = place.run(&[&["score"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    assert_eq!(place.orders(), 0);
    let output = place.run(&["score", "cli", "--", "/no/such/tool"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}
