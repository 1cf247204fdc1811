//! MCP servers that tell the truth about their tools, in both eras, and servers that do not.

use crate::place::{Place, Report, shop};

const CALLS: [&str; 6] =
    ["--call", "show {}", "--call", "put {\"text\": \"{n}\"}", "--call", "add {\"text\": \"{n}\"}"];

fn measured(mode: &str) -> Report {
    let place = Place::new();
    std::fs::create_dir(place.path("sandbox")).unwrap();
    let server = shop("server.py");
    let options = ["mcp", "--allow-effects", "--sandbox", "sandbox"];
    place.report(&[&options[..], &CALLS[..], &["--", "python3", &server, mode]].concat())
}

#[test]
fn an_honest_server_earns_3_in_both_eras_and_in_pages() {
    for mode in ["honest", "modern", "paged"] {
        let rows =
            ["annotated", "read_only", "idempotent", "key", "keyed", "description"].map(|row| (row, "holds"));
        let report = measured(mode);
        report.expect(3, &rows);
        let era = if mode == "modern" { "needs no initialize" } else { "begins with initialize" };
        assert!(report.0["notes"][0].as_str().unwrap().contains(era), "{mode}");
    }
}

#[test]
fn each_fault_costs_what_it_breaks() {
    for (mode, score, row, status) in [
        // No tool says anything: a client has to guess.
        ("bare", 0, "annotated", "fails"),
        // One tool says nothing: not every tool says what a 1 needs.
        ("half", 0, "annotated", "partly"),
        // What was said was seen to be false, which is worse than silence.
        ("lying", 0, "idempotent", "fails"),
        ("peeping", 0, "read_only", "fails"),
        ("forgetful", 0, "keyed", "fails"),
        // True as far as it goes; a 2 needs a key where a repeat does harm.
        ("keyless", 1, "key", "fails"),
        // True as well; but a model that follows the description takes a new key for a retry.
        ("minting", 1, "description", "fails"),
    ] {
        measured(mode).expect(score, &[(row, status)]);
    }
}

#[test]
fn without_leave_no_tool_is_called_and_promises_count_for_1_at_most() {
    let place = Place::new();
    let server = shop("server.py");
    let report = place.report(&["mcp", "--sandbox", ".", "--", "python3", &server, "honest"]);
    assert_eq!(
        (report.score(), report.at_most()),
        (1, 3),
        "annotations are there; nothing shows that they are true"
    );
    assert!(!place.path("notes").exists());
    report.expect(1, &[("annotated", "holds"), ("idempotent", "not_measured"), ("key", "holds")]);
}

#[test]
fn effects_outside_of_the_sandbox_are_counted() {
    let place = Place::new();
    std::fs::create_dir(place.path("sandbox")).unwrap();
    let server = shop("server.py");
    let options = ["mcp", "--allow-effects", "--count", "cat notes 2>/dev/null | wc -l"];
    let command = ["--call", "add {\"text\": \"x\"}", "--", "python3", &server, "forgetful"];
    let report = place.report(&[&options[..], &command[..]].concat());
    report.expect(0, &[("keyed", "fails")]);
    assert!(report.evidence("keyed").contains("count 1"), "{}", report.evidence("keyed"));
}

#[test]
fn a_server_that_cannot_be_used_gives_no_score() {
    let place = Place::new();
    let server = shop("server.py");
    for (mode, timeout, said) in [
        ("dying", "30s", "no configuration was found"),
        ("empty", "30s", "nothing to measure"),
        ("mute", "1s", "did not answer `initialize` within 1 s"),
    ] {
        let output = place.run(&["score", "mcp", "--timeout", timeout, "--", "python3", &server, mode]);
        assert_eq!(output.status.code(), Some(4), "{mode}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(said), "{mode}: {output:?}");
    }
    let options = ["score", "mcp", "--allow-effects", "--sandbox", ".", "--call", "no-such {}", "--"];
    let output = place.run(&[&options[..], &["python3", &server, "honest"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("it has show, put, add"), "{output:?}");
}
