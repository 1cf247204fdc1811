//! Attempts that may still be at work: nobody's "it has not happened" counts until they have ended.

use std::process::Output;

use serde_json::{Value, json};

use crate::world::{Client, Home, ONCELY, code, text};

/// A check that says each time that it has not happened.
const NOT_YET: &str = "check = \"exit 1\"\nwhen_unknown = \"check\"\n";

/// What becomes of a person's word that the only call did not happen.
fn reject(home: &Home) -> Output {
    let id = home.oncely(&["ls"])[0]["id"].as_str().unwrap().to_owned();
    home.command(ONCELY).args(["resolve", &id, "--rejected", "--yes"]).output().unwrap()
}

fn assert_refused(rejected: &Output) {
    let said = String::from_utf8_lossy(&rejected.stderr);
    assert!(!rejected.status.success() && said.contains("still running as pid"), "{said}");
}

/// Cancels a call that has acted and goes on; returns what was asked for.
fn begin_and_cancel(home: &Home, client: &mut Client) -> Value {
    let slow = json!({ "name": "pay", "arguments": { "amount": 7, "until": "go" } });
    let id = client.begin("tools/call", slow.clone());
    home.until_reached("go");
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }),
    );
    slow
}

#[test]
fn a_call_that_was_cancelled_and_is_not_answered_is_not_run_again_while_its_server_lives() {
    let home = Home::new();
    home.write("oncely.toml", &format!("[tool.pay]\nforward_cancel = true\n{NOT_YET}"));
    let mut client = home.ready();
    let slow = begin_and_cancel(&home, &mut client);
    home.until(|| home.states() == [("pay".into(), "in_doubt".into())]);
    let answer = client.request("tools/call", slow.clone());
    assert_eq!(code(&answer["result"]), "OUTCOME_UNKNOWN", "{answer}");
    assert!(text(&answer["result"], 0).contains("Nothing ran now"), "{answer}");
    assert_refused(&reject(&home));
    assert_eq!(home.effects(), ["pay 7"]);
    // It ends after all, and that is the truth.
    home.raise("go");
    home.until(|| home.states() == [("pay".into(), "succeeded".into())]);
    assert_eq!(text(&client.request("tools/call", slow)["result"], 0), "paid 7, effect 1");
    drop(client);
    assert_eq!(home.effects(), ["pay 7"]);
}

#[test]
fn a_call_whose_server_crashed_is_not_run_again_while_what_it_started_lives() {
    let home = Home::new();
    home.write("oncely.toml", &format!("[tool.die]\n{NOT_YET}"));
    let mut client = home.ready();
    assert_eq!(code(&client.call("die", json!({ "leaving": "end" }))), "OUTCOME_UNKNOWN");
    client.child.wait().unwrap();
    let mut next = home.ready();
    let again = next.call("die", json!({ "leaving": "end" }));
    assert_eq!(code(&again), "OUTCOME_UNKNOWN", "{again}");
    assert_eq!(home.effects(), ["die"]);
    assert_refused(&reject(&home));
    drop(next);
    // Once that has ended, nothing can happen any more.
    home.raise("end");
    home.until(|| reject(&home).status.success());
    assert_eq!(home.states(), [("die".into(), "rejected".into())]);
}

#[test]
fn a_call_that_was_answered_because_it_was_cancelled_is_not_run_again_while_its_server_lives() {
    for answer in ["error", "is_error"] {
        let home = Home::new();
        let policy = format!("[tool.pay]\nforward_cancel = true\nis_error = \"rejected\"\n{NOT_YET}");
        home.write("oncely.toml", &policy);
        home.write("hasty", answer);
        let mut client = home.ready();
        let slow = begin_and_cancel(&home, &mut client);
        home.until(|| home.states() != [("pay".into(), "running".into())]);
        let again = client.request("tools/call", slow);
        assert_eq!(code(&again["result"]), "OUTCOME_UNKNOWN", "{answer}: {again}");
        assert_refused(&reject(&home));
        assert_eq!(home.effects(), ["pay 7"], "{answer}");
        home.raise("go");
        drop(client);
    }
}
