//! What callers are told where nothing runs: dry runs, results that were too large to keep, calls that were cancelled in
//! time, and ids that are in use.

use serde_json::{Value, json};

use crate::world::{Home, code, text};

#[test]
fn a_dry_run_says_that_a_call_would_be_a_conflict_in_progress_or_unknown_and_runs_nothing() {
    let home = Home::new();
    let mut client = home.ready();
    client.call("pay", json!({ "amount": 1, "idempotency_key": "k" }));
    client.call("fail", json!({ "text": "boom" }));
    let running =
        client.begin("tools/call", json!({ "name": "pay", "arguments": { "amount": 7, "until": "go" } }));
    home.until_reached("go");
    let before = (home.effects(), home.states(), home.seen().len());
    for (tool, arguments, expected, says) in [
        ("pay", json!({ "amount": 2, "idempotency_key": "k" }), "KEY_REUSED", "other arguments"),
        ("pay", json!({ "amount": 7, "until": "go" }), "IN_PROGRESS", "still running"),
        ("fail", json!({ "text": "boom" }), "OUTCOME_UNKNOWN", "may have happened"),
    ] {
        let mut arguments = arguments;
        arguments["dry_run"] = true.into();
        let told = client.call(tool, arguments);
        assert_eq!((told["isError"].as_bool(), code(&told)), (Some(true), expected), "{told}");
        let words = text(&told, 0);
        assert!(
            words.starts_with("Dry run: a call now would be answered: ") && words.contains(says),
            "{words}"
        );
        assert_eq!(told["_meta"]["dev.oncely/envelope"]["meta"]["dry_run"], true, "{told}");
    }
    assert_eq!((home.effects(), home.states(), home.seen().len()), before);
    home.raise("go");
    assert_eq!(text(&client.answer_to(&running).0["result"], 0), "paid 7, effect 3");
    drop(client);
    assert_eq!(home.effects(), ["pay 1", "fail", "pay 7"]);
}

/// More than is kept of a result.
const TOO_MUCH: usize = oncely_core::limits::RESULT_BYTES_MAX + 1;

#[test]
fn a_result_that_is_too_large_to_keep_is_passed_on_whole_and_its_retry_is_told_that_it_is_done() {
    let home = Home::new();
    let mut client = home.ready();
    let arguments = json!({ "amount": 1, "bytes": TOO_MUCH });
    let first = client.call("pay", arguments.clone());
    assert_eq!(text(&first, 0).len(), "paid 1, effect 1".len() + TOO_MUCH);
    assert_ne!(first["isError"], true);
    let again = client.call("pay", arguments);
    assert_ne!(again["isError"], true, "{again}");
    for part in ["Already done: attempt 1", "nothing ran now", "no longer kept", "idempotency_key"] {
        assert!(text(&again, 0).contains(part), "{part}: {again}");
    }
    assert_eq!(again["_meta"]["dev.oncely/envelope"]["effect"], "noop");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn where_results_follow_a_schema_one_that_was_too_large_to_keep_is_no_broken_result() {
    let home = Home::new();
    let mut client = home.ready();
    let first = client.call("structured", json!({ "bytes": TOO_MUCH }));
    assert_eq!(first["structuredContent"], json!({ "paid": 1 }));
    let again = client.call("structured", json!({ "bytes": TOO_MUCH }));
    // A client checks the data of every result that is no error, and there is none to check.
    assert_eq!((again["isError"].as_bool(), again.get("structuredContent")), (Some(true), None), "{again}");
    assert!(text(&again, 0).contains("Already done"), "{again}");
    drop(client);
    assert_eq!(home.effects(), ["structured"]);
}

#[test]
fn a_call_that_was_cancelled_before_it_was_sent_is_rejected_and_never_reaches_the_server() {
    let home = Home::new();
    let mut client = home.ready();
    // The server refuses the first attempt, but not at once; a second one waits for its end and would then run.
    let arguments = json!({ "code": -32602, "until": "go" });
    let call = json!({ "name": "rpc_error", "arguments": arguments });
    let first = client.begin("tools/call", call.clone());
    home.until_reached("go");
    let second = client.begin("tools/call", call.clone());
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": second } }),
    );
    home.raise("go");
    assert_eq!(client.answer_to(&first).0["error"]["code"], -32602);
    let id = home.oncely(&["ls"])[0]["id"].as_str().unwrap().to_owned();
    let shown = || home.oncely(&["show", &id, "--json"])[0].clone();
    home.until(|| shown().to_string().contains("CANCELLED"));
    assert_eq!(shown()["state"], "rejected", "{}", shown());
    assert_eq!(home.effects(), ["rpc_error"], "the second one did not reach the server");
    // It is certain that nothing happened, so a third one runs.
    let (answer, before) = {
        let third = client.begin("tools/call", call);
        client.answer_to(&third)
    };
    assert_eq!(answer["error"]["code"], -32602);
    assert_eq!(before, Vec::<Value>::new(), "a request that was cancelled is not answered");
    drop(client);
    assert_eq!(home.effects(), ["rpc_error", "rpc_error"]);
}

fn under_one_id(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": "same", "method": method, "params": params })
}

#[test]
fn an_id_of_a_write_under_way_is_refused_for_writes_and_lists_and_reads_pass_under_any() {
    let home = Home::new();
    let mut client = home.ready();
    let pay = json!({ "name": "pay", "arguments": { "amount": 1, "until": "go" } });
    client.send(&under_one_id("tools/call", &pay));
    home.until_reached("go");
    for (method, params) in
        [("tools/call", json!({ "name": "fail", "arguments": {} })), ("tools/list", json!({}))]
    {
        client.send(&under_one_id(method, &params));
        let refused = client.receive();
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("same"), &json!(-32600)), "{method}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("nothing ran"), "{refused}");
    }
    // What is not ours to answer is not ours to refuse.
    client.send(&under_one_id("ping", &json!({})));
    assert_eq!(client.receive()["result"], json!({}));
    home.raise("go");
    assert_eq!(text(&client.receive()["result"], 0), "paid 1, effect 1");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn an_id_of_a_read_under_way_is_not_known_to_us_and_both_are_answered_under_it() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nkind = \"read\"\n");
    let mut client = home.ready();
    let read = json!({ "name": "pay", "arguments": { "amount": 1, "until": "go" } });
    client.send(&under_one_id("tools/call", &read));
    home.until_reached("go");
    client.send(&under_one_id("tools/call", &json!({ "name": "keyed", "arguments": { "n": 2 } })));
    let written = client.receive();
    assert_eq!((&written["id"], text(&written["result"], 0)), (&json!("same"), r#"done {"n": 2}"#));
    home.raise("go");
    let read = client.receive();
    assert_eq!(read["id"], "same");
    assert!(text(&read["result"], 0).starts_with("paid 1"), "{read}");
    drop(client);
    assert_eq!(home.effects(), ["pay 1", r#"keyed {"n": 2}"#]);
}
