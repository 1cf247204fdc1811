//! key, check, doctor, completions and man.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use oncely::outcome;
use serde_json::{Value, json};

use crate::ledger::{Ledger, call, fill};

#[tokio::test]
async fn key_prints_the_identity_that_a_call_then_has() {
    let ledger = Ledger::new();
    let printed = ledger.json(&[
        "key",
        "--tool",
        "pay",
        "--scope",
        "task-7",
        "--key",
        "k1",
        "--payload",
        r#"{"key":"k1"}"#,
    ]);
    assert!(!ledger.path("ledger.db").exists(), "a key needs no ledger");
    let oncely = ledger.open().await;
    let id = call(&oncely, "pay", "k1", outcome::created(&1)).await;
    assert_eq!(printed["id"], json!(id));
    let shown = ledger.json(&["show", &id]);
    assert_eq!(printed["fingerprint"], shown["fingerprint"]);
    assert_eq!(printed["downstream_key"], shown["downstream_key"]);
    assert_eq!(printed["key_origin"], "explicit");
}

#[test]
fn a_derived_key_follows_the_policy_and_not_the_spelling() {
    let ledger = Ledger::new();
    std::fs::write(
        ledger.path("oncely.toml"),
        "[tool.pay]\nkey = [\"to\"]\n[tool.strict]\nrequire_key = true\n",
    )
    .unwrap();
    std::fs::write(ledger.path("payload.json"), r#"{ "to" : "\u0061", "at": 2 }"#).unwrap();
    let a = ledger.json(&["key", "--tool", "pay", "--payload", r#"{"to":"a","at":1}"#]);
    let b = ledger.json(&["key", "--tool", "pay", "--payload", "@payload.json"]);
    assert_eq!(a, b);
    assert_eq!(a["key_origin"], "derived");
    let mut child = ledger
        .command(&["key", "--payload", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"{}").unwrap();
    let other: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((&other["id"], &other["key_origin"]), (&json!(null), &json!("derived")));

    for (arguments, code) in [
        (&["key", "--tool", "pay", "--payload", "{}"][..], "BAD_PAYLOAD"),
        (&["key", "--tool", "pay", "--payload", "not json"], "BAD_PAYLOAD"),
        (&["key", "--key", "", "--payload", "{}"], "BAD_NAME"),
        (&["key", "--tool", "strict", "--payload", "{}"], "KEY_REQUIRED"),
        (&["key", "--payload", "@missing"], "BAD_ARGUMENTS"),
    ] {
        assert_eq!(ledger.error(arguments, 2)["error"]["code"], code, "{arguments:?}");
    }
}

#[test]
fn check_tells_what_is_left_out_and_exits_for_a_build_to_see() {
    let ledger = Ledger::new();
    let missing = ledger.error(&["check"], 4);
    assert_eq!(missing["error"]["code"], "NO_POLICY_FILE");
    assert!(missing["error"]["message"].as_str().unwrap().contains("when_unknown"));

    let whole = "[tool.pay]\nidempotent = false\nmax_retries = 2\nwhen_unknown = \"halt\"\n[tool.look]\nkind = \"read\"\n";
    std::fs::write(ledger.path("oncely.toml"), whole).unwrap();
    let report = ledger.json(&["check"]);
    assert_eq!(report["ok"], true);
    assert_eq!(report["tools"][0]["max_retries"], 2);
    assert_eq!(report["tools"][1]["left_out"], json!([]), "a read owes nothing");

    std::fs::write(ledger.path("oncely.toml"), format!("{whole}[tool.mail]\nmax_retries = 1\n")).unwrap();
    let answered = ledger.run(&["check"]);
    assert_eq!(answered.code, 4);
    let report: Value = serde_json::from_str(&answered.stdout).unwrap();
    assert_eq!(report["incomplete"], 1);
    assert_eq!(report["tools"][2]["left_out"], json!(["idempotent", "when_unknown"]));
    assert_eq!(report["tools"][2]["line"], 7);

    std::fs::write(ledger.path("oncely.toml"), "[tool.pay]\nretries = 2\n").unwrap();
    let bad = ledger.error(&["check"], 2);
    assert!(bad["error"]["message"].as_str().unwrap().contains("oncely.toml:2:"), "{bad}");
}

#[tokio::test]
async fn doctor_examines_a_ledger_and_leaves_it_as_it_was() {
    let ledger = Ledger::new();
    let absent = ledger.json(&["doctor"]);
    assert_eq!(health(&absent, "open"), "warn");
    assert!(!ledger.path("ledger.db").exists(), "an examination makes nothing");

    let oncely = ledger.open().await;
    fill(&oncely).await;
    let before = (ledger.lines(&["ls"]).len(), ledger.lines(&["log"]).len());
    let report = ledger.json(&["doctor"]);
    assert_eq!(report["ok"], true);
    for check in ["policy", "ledger", "open", "permissions", "space", "write", "clock", "superseded"] {
        assert_eq!(health(&report, check), "ok", "{check}: {report}");
    }
    assert_eq!(health(&report, "in_doubt"), "warn");
    assert_eq!((ledger.lines(&["ls"]).len(), ledger.lines(&["log"]).len()), before);

    std::fs::set_permissions(ledger.path("ledger.db"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(health(&ledger.json(&["doctor"]), "permissions"), "warn");
}

#[test]
fn doctor_fails_for_a_file_that_is_no_ledger_and_for_a_bad_policy() {
    let ledger = Ledger::new();
    std::fs::write(ledger.path("ledger.db"), b"this is not a ledger, whatever its name says".repeat(50))
        .unwrap();
    let answered = ledger.run(&["doctor"]);
    assert_eq!(answered.code, 12, "{}", answered.stdout);
    assert_eq!(health(&serde_json::from_str(&answered.stdout).unwrap(), "open"), "fail");

    let ledger = Ledger::new();
    std::fs::write(ledger.path("oncely.toml"), "colour = 1\n").unwrap();
    let answered = ledger.run(&["doctor"]);
    assert_eq!(answered.code, 4);
    assert_eq!(health(&serde_json::from_str(&answered.stdout).unwrap(), "policy"), "fail");
}

fn health(report: &Value, check: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|entry| entry["check"] == check);
    found.map_or("absent", |entry| entry["health"].as_str().unwrap()).to_owned()
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let ledger = Ledger::new();
    for shell in ["bash", "zsh", "fish"] {
        let answered = ledger.run(&["completions", shell]);
        assert_eq!(answered.code, 0);
        assert!(answered.stdout.contains("resolve") && answered.stdout.contains("forget"), "{shell}");
    }
    assert_eq!(ledger.run(&["completions", "nosuch"]).code, 2);
    let page = ledger.run(&["man"]).stdout;
    assert!(page.contains(".TH oncely") && page.contains("forget"), "{page}");
    assert_eq!(ledger.run(&["man", "--out", "pages"]).code, 0);
    let pages = std::fs::read_dir(ledger.path("pages")).unwrap().count();
    assert!(pages >= 15, "{pages}");
    assert!(std::fs::read_to_string(ledger.path("pages/oncely-resolve.1")).unwrap().contains("succeeded"));
    std::fs::write(ledger.path("taken"), "").unwrap();
    assert_eq!(ledger.run(&["man", "--out", "taken"]).code, 2);
}

#[test]
fn an_argument_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let ledger = Ledger::new();
    let mut command = ledger.command(&["show"]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}
