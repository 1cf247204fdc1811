//! ls, show, log and stats.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncely::outcome;
use serde_json::{Value, json};

use crate::ledger::{Ledger, begin, call, fill};
use crate::terminal::on_terminal;

#[tokio::test]
async fn ls_prints_one_json_object_per_record_and_filters() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let [paid, refused, doubted] = fill(&oncely).await;
    let attempt = begin(&oncely, "slow", "k4").await;

    let all = ledger.lines(&["ls"]);
    assert_eq!(all.len(), 4);
    assert_eq!(all[0]["id"], json!(paid));
    assert_eq!(all[0]["state"], "succeeded");
    assert_eq!(all[0]["effect"], "created");
    assert_eq!(all[0]["key"], "k1");
    assert_eq!(all[0]["key_origin"], "explicit");
    assert_eq!(all[0]["scope"], "task-7");
    assert_eq!(all[0]["namespace"], "default");
    assert_eq!((&all[0]["attempts"], &all[0]["generation"]), (&json!(1), &json!(1)));
    assert!(all[0]["created_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(all[1]["error"]["code"], "BAD_ADDRESS");
    assert_eq!(all[2]["doubt"], json!({ "cause": "reported", "message": "the line went dead" }));
    assert_eq!(all[3]["owner"]["pid"], json!(std::process::id()));
    assert_eq!(all[3]["owner"]["alive"], true);

    let ids = |arguments: &[&str]| -> Vec<String> {
        ledger.lines(arguments).iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&["ls", "--state", "in_doubt"]), std::slice::from_ref(&doubted));
    assert_eq!(ids(&["ls", "--state", "running"]), [attempt.info().intent().to_string()]);
    assert_eq!(ids(&["ls", "--tool", "mail:*"]), [refused]);
    assert_eq!(ids(&["ls", "--scope", "task-7", "--key", "k3"]), [doubted]);
    assert_eq!(ids(&["ls", "--limit", "1"]), [paid]);
    assert_eq!(ids(&["ls", "--older-than", "1d"]).len(), 0);
    assert_eq!(ids(&["ls", "--newer-than", "1d", "--all"]).len(), 4);
    assert_eq!(ids(&["ls", "--namespace", "other"]).len(), 0);
    assert_eq!(ids(&["ls", "--namespace", "other", "--all-namespaces"]).len(), 4);
}

/// The gateway's records are in a namespace for each tenant, and people look without knowing of that.
#[tokio::test]
async fn what_is_in_other_namespaces_is_not_passed_over_in_silence() {
    let ledger = Ledger::new();
    for tenant in ["default/anonymous", "default/auth:1"] {
        let lost = ["run", "--namespace", tenant, "--key", "k", "--", "sh", "-c", "exit 1"];
        assert_eq!(ledger.run(&lost).code, 1);
    }
    ledger.run(&["run", "--namespace", "default/auth:1", "--key", "done", "--", "true"]);
    let doubts = ledger.run(&["ls", "--state", "in_doubt"]);
    assert_eq!((doubts.stdout.as_str(), doubts.code), ("", 0));
    assert_eq!(doubts.stderr, "2 in other namespaces: add --all-namespaces\n");
    assert_eq!(ledger.lines(&["ls", "--state", "in_doubt", "--all-namespaces"]).len(), 2);
    let one = ledger.run(&["ls", "--namespace", "default/auth:1", "--state", "in_doubt"]);
    assert_eq!(
        (one.stdout.lines().count(), one.stderr.as_str()),
        (1, "1 in other namespaces: add --all-namespaces\n")
    );
    let none = ledger.run(&["ls", "--namespace", "default/auth:1", "--key", "done"]);
    assert_eq!((none.stdout.lines().count(), none.stderr.as_str()), (1, ""));
    let everything = ledger.run(&["ls", "--all-namespaces"]);
    assert_eq!((everything.stdout.lines().count(), everything.stderr.as_str()), (3, ""));

    let stats = ledger.json(&["stats"]);
    assert_eq!((&stats["totals"]["in_doubt"], &stats["totals"]["calls"]), (&json!(0), &json!(0)));
    assert_eq!(stats["other_namespaces"], json!({ "calls": 3, "in_doubt": 2 }));
    let all = ledger.json(&["stats", "--all-namespaces"]);
    assert_eq!((&all["totals"]["in_doubt"], &all["other_namespaces"]), (&json!(2), &Value::Null));
    let (_, screen) = on_terminal(&ledger, &["stats"], "", &[("NO_COLOR", "1")]);
    assert!(screen.contains("3 calls in other namespaces, 2 in doubt: add --all-namespaces"), "{screen}");
}

#[test]
fn bad_filters_are_refused_before_the_ledger_is_touched() {
    let ledger = Ledger::new();
    for bad in [&["ls", "--state", "lost"][..], &["ls", "--older-than", "5"], &["ls", "--limit", "-1"]] {
        let answered = ledger.run(bad);
        assert_eq!(answered.code, 2, "{bad:?}");
        assert!(!answered.stderr.contains("panicked"));
    }
    assert!(!ledger.path("ledger.db").exists());
}

#[tokio::test]
async fn a_record_whose_owner_was_killed_is_in_doubt_before_anybody_calls_again() {
    let ledger = Ledger::new();
    ledger.run(&["run", "--key", "k", "--", "sh", "-c", "kill -9 $PPID"]);
    let lost = ledger.lines(&["ls", "--state", "in_doubt"]);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0]["recorded_state"], "running");
    assert_eq!(lost[0]["owner"]["alive"], false);
    assert_eq!(lost[0]["doubt"]["cause"], "owner_lost");
    assert_eq!(ledger.lines(&["ls", "--state", "running"]).len(), 0);
    assert_eq!(ledger.json(&["stats"])["totals"]["in_doubt"], 1);
}

#[tokio::test]
async fn show_finds_by_id_prefix_and_key_and_says_how_to_settle() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let [paid, refused, doubted] = fill(&oncely).await;

    let shown = ledger.json(&["show", &paid]);
    assert_eq!(shown["result"], json!({ "bytes": 17, "json": { "charge": "ch_1" } }));
    assert_eq!(shown["tries"][0]["outcome"], "succeeded");
    let kinds: Vec<_> =
        shown["events"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["began", "succeeded"]);
    assert_eq!(shown["settle"], json!([]));

    assert_eq!(ledger.json(&["show", &refused[..12].to_uppercase()])["id"], json!(refused));
    let doubt = ledger.json(&["show", "--key", "k3", "--scope", "task-7", "--tool", "pa*"]);
    assert_eq!(doubt["id"], json!(doubted));
    let settle = doubt["settle"][1].as_str().unwrap();
    assert!(settle.starts_with(&format!("oncely resolve {doubted} --rejected --store ")), "{settle}");
}

#[tokio::test]
async fn show_gives_the_streams_of_a_command() {
    let ledger = Ledger::new();
    let ran = ledger.run(&["run", "--key", "k", "--", "sh", "-c", r"echo out; echo err >&2; printf '\377'"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let shown = ledger.json(&["show", "--key", "k"]);
    assert_eq!(shown["result"]["exit_code"], 0);
    assert_eq!(shown["result"]["stderr"], "err\n");
    assert_eq!(shown["result"]["stdout_base64"], "b3V0Cv8=");
}

#[tokio::test]
async fn a_wrong_id_is_told_apart_from_a_missing_and_an_ambiguous_one() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    call(&oncely, "pay", "same", outcome::created(&1)).await;
    call(&oncely, "refund", "same", outcome::created(&1)).await;

    for wrong in ["", "12345", "not-hex", "ünïcode", &"a".repeat(65)] {
        assert_eq!(ledger.error(&["show", wrong], 2)["error"]["code"], "BAD_ARGUMENTS", "{wrong}");
    }
    assert_eq!(ledger.error(&["show", "abcdef"], 4)["error"]["code"], "NO_RECORD");
    assert_eq!(ledger.error(&["show", &"0".repeat(64)], 4)["error"]["code"], "NO_RECORD");
    let ambiguous = ledger.error(&["show", "--key", "same"], 2);
    assert_eq!(ambiguous["error"]["code"], "AMBIGUOUS_ID");
    assert_eq!(ambiguous["meta"]["candidates"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_id_that_starts_two_records_is_ambiguous() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    // Two keys whose ids share their first six digits; found once by trying, pinned by the identity scheme.
    let (a, b) = colliding_keys();
    let first = call(&oncely, "t", &a, outcome::created(&1)).await;
    let second = call(&oncely, "t", &b, outcome::created(&1)).await;
    assert_eq!(first[..6], second[..6]);
    let refused = ledger.error(&["resolve", &first[..6], "--rejected", "--yes"], 2);
    assert_eq!(refused["error"]["code"], "AMBIGUOUS_ID");
    assert_eq!(ledger.json(&["show", &second[..16]])["id"], json!(second));
}

/// Tries keys until two of one tool and scope have ids with the same first six digits: some six thousand tries.
fn colliding_keys() -> (String, String) {
    let mut seen = std::collections::HashMap::new();
    for number in 0.. {
        let key = format!("k{number}");
        let name = oncely_core::IntentName {
            namespace: oncely_core::Namespace::default(),
            scope: oncely_core::Scope::parse("task-7").unwrap(),
            tool: oncely_core::ToolName::parse("t").unwrap(),
            key: oncely_core::Key::explicit(&key).unwrap(),
        };
        if let Some(other) = seen.insert(name.intent_id().to_string()[..6].to_owned(), key.clone()) {
            return (other, key);
        }
    }
    unreachable!("six digits cannot tell all keys apart")
}

#[tokio::test]
async fn log_prints_the_newest_events_in_order() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    let [paid, ..] = fill(&oncely).await;
    let events = ledger.lines(&["log"]);
    let kinds: Vec<_> = events.iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["began", "succeeded", "began", "rejected", "began", "in_doubt"]);
    assert_eq!(events[0]["tool"], "pay");
    assert_eq!(events[3]["note"], "BAD_ADDRESS: no such mailbox");
    let newest = ledger.lines(&["log", "--limit", "2"]);
    let places = |events: &[Value]| -> Vec<Value> { events.iter().map(|e| e["seq"].clone()).collect() };
    assert_eq!(places(&newest), places(&events[4..]));
    assert_eq!(ledger.lines(&["log", "--id", &paid[..8]]).len(), 2);
    assert_eq!(ledger.lines(&["log", "--since", "1h"]).len(), 6);
    assert_eq!(ledger.lines(&["log", "--since", "0s"]).len(), 0);
}

#[tokio::test]
async fn a_followed_log_prints_what_is_added_and_ends_with_ctrl_c() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    call(&oncely, "pay", "k1", outcome::created(&1)).await;
    let mut child = ledger.command(&["log", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!((next()["event"].clone(), next()["event"].clone()), (json!("began"), json!("succeeded")));
    call(&oncely, "pay", "k2", outcome::created(&1)).await;
    let new = next();
    assert_eq!((&new["event"], &new["key"]), (&json!("began"), &json!("k2")));
    assert_eq!(next()["event"], "succeeded");
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_followed_log_that_is_interrupted_after_its_first_line_ends_well() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    call(&oncely, "pay", "k1", outcome::created(&1)).await;
    let mut child = ledger.command(&["log", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{line}");
}

#[tokio::test]
async fn a_followed_log_ends_when_its_reader_leaves() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    call(&oncely, "pay", "k1", outcome::created(&1)).await;
    let mut child = ledger.command(&["log", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
    // Nothing more is written to the ledger: only the closed pipe can end it.
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_listing_stops_quietly_when_its_reader_leaves() {
    let ledger = Ledger::new();
    let oncely = ledger.open().await;
    for number in 0..400 {
        call(&oncely, "pay", &format!("k{number}"), outcome::created(&1)).await;
    }
    let mut child =
        ledger.command(&["ls", "--all"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[tokio::test]
async fn stats_count_and_price_what_was_prevented() {
    let ledger = Ledger::new();
    std::fs::write(
        ledger.path("oncely.toml"),
        "[tool.pay]\ncost = { amount = 0.1, unit = \"USD\" }\n[tool.\"mail:*\"]\ncost = { amount = 1, unit = \"emails\" }\n",
    )
    .unwrap();
    let oncely = ledger.open().await;
    fill(&oncely).await;
    for _ in 0..3 {
        call(&oncely, "pay", "k1", outcome::created(&1)).await;
    }
    oncely.store().flush().await.unwrap();
    let stats = ledger.json(&["stats"]);
    assert_eq!(stats["totals"]["calls"], 6);
    assert_eq!(stats["totals"]["executions"], 3);
    assert_eq!(stats["totals"]["duplicates_prevented"], 3);
    assert_eq!(stats["totals"]["in_doubt"], 1);
    let saved = json!([{ "amount": 0.0, "unit": "emails" }, { "amount": 0.3, "unit": "USD" }]);
    let mut found = stats["cost_saved"].as_array().unwrap().clone();
    found.sort_by_key(|entry| entry["unit"] == "USD");
    assert_eq!(json!(found), saved);
    assert_eq!(stats["tools"].as_array().unwrap().len(), 2);
    assert_eq!(stats["tools"][1]["tool"], "pay");
    assert_eq!(ledger.json(&["stats", "--by", "total"])["tools"], json!([]));
    assert_eq!(ledger.json(&["stats", "--namespace", "other"])["totals"]["calls"], 0);
}
