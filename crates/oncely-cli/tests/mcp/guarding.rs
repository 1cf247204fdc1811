//! Tools that write: keys, outcomes, replays, and what a model is told.

use serde_json::{Value, json};

use crate::world::{Client, Home, ONCELY, code, modern_meta, script, text};

#[test]
fn an_equal_call_gets_the_first_result_and_is_told_how_to_run_it_anew() {
    let home = Home::new();
    let mut client = home.ready();
    let first = client.call("pay", json!({ "amount": 5 }));
    assert_eq!(
        first,
        json!({ "content": [{ "type": "text", "text": "paid 5, effect 1" }], "_meta": { "server/own": 1 } })
    );
    let again = client.call("pay", json!({ "amount": 5.0 }));
    assert_eq!(again["content"][0], first["content"][0]);
    assert!(
        text(&again, 1).contains("nothing ran now") && text(&again, 1).contains("idempotency_key"),
        "{again}"
    );
    let replayed = &again["_meta"]["dev.oncely/replayed"];
    assert_eq!(replayed["attempt"], 1);
    assert!(
        replayed["key"].as_str().unwrap().starts_with("derived ") && replayed["at"].is_u64(),
        "{replayed}"
    );
    assert_eq!(again["_meta"]["server/own"], 1);
    let other = client.call("pay", json!({ "amount": 6 }));
    assert_eq!(text(&other, 0), "paid 6, effect 2");
    drop(client);
    assert_eq!(home.effects(), ["pay 5", "pay 6"]);
}

#[test]
fn a_fresh_process_for_every_call_still_makes_one_effect() {
    let home = Home::new();
    for _ in 0..3 {
        let mut client = home.ready();
        client.call("pay", json!({ "amount": 5 }));
    }
    assert_eq!(home.effects(), ["pay 5"]);
}

#[test]
fn processes_side_by_side_make_one_effect() {
    let home = Home::new();
    let mut clients: Vec<_> = (0..4).map(|_| home.ready()).collect();
    let params = json!({ "name": "pay", "arguments": { "amount": 9, "until": "go" } });
    let ids: Vec<Value> =
        clients.iter_mut().map(|client| client.begin("tools/call", params.clone())).collect();
    home.until_reached("go");
    home.raise("go");
    for (client, id) in clients.iter_mut().zip(&ids) {
        let (answer, _) = client.answer_to(id);
        assert_eq!(text(&answer["result"], 0), "paid 9, effect 1");
    }
    drop(clients);
    assert_eq!(home.effects(), ["pay 9"]);
}

#[test]
fn every_spelling_of_a_key_names_the_intent() {
    let home = Home::new();
    let mut client = home.ready();
    let spellings = ["dev.oncely/idempotency-key", "idempotencyKey", "idempotency-key", "idempotency_key"];
    for (at, spelling) in spellings.iter().enumerate() {
        for place in ["_meta", "params", "arguments"] {
            if place == "arguments" && *spelling != "idempotency_key" {
                continue;
            }
            let key = format!("k-{at}-{place}");
            let mut params = json!({ "name": "pay", "arguments": { "amount": at } });
            match place {
                "params" => params[*spelling] = json!(key),
                place => params[place][*spelling] = json!(key),
            }
            let before = home.effects().len();
            let first = client.request("tools/call", params.clone())["result"].clone();
            let again = client.request("tools/call", params.clone())["result"].clone();
            assert_eq!(first["content"][0], again["content"][0]);
            assert_eq!(again["_meta"]["dev.oncely/replayed"]["key"], key);
            assert_eq!(home.effects().len(), before + 1, "{place} {spelling}");
        }
    }
    drop(client);
    assert!(home.effects().iter().all(|effect| !effect.contains("k-")), "our argument is taken out");
}

#[test]
fn a_key_that_is_used_for_other_arguments_is_a_conflict_and_nothing_runs() {
    let home = Home::new();
    let mut client = home.ready();
    client.call("pay", json!({ "amount": 1, "idempotency_key": "k" }));
    let other = client.call("pay", json!({ "amount": 2, "idempotency_key": "k" }));
    assert_eq!((other["isError"].as_bool(), code(&other)), (Some(true), "KEY_REUSED"));
    assert!(text(&other, 0).contains("Nothing ran") && !other.to_string().contains("paid"), "{other}");
    let bad = client.call("pay", json!({ "amount": 1, "idempotency_key": "a b" }));
    assert_eq!(code(&bad), "BAD_ARGUMENTS");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn an_argument_of_the_tools_own_is_the_key_and_is_forwarded() {
    let home = Home::new();
    let mut client = home.ready();
    for _ in 0..2 {
        client.call("keyed", json!({ "idempotency_key": "k1", "dry_run": false }));
    }
    drop(client);
    assert_eq!(home.effects(), [r#"keyed {"dry_run": false, "idempotency_key": "k1"}"#]);
    assert_eq!(home.oncely(&["ls"])[0]["key"], "k1");
}

#[test]
fn an_argument_that_a_schema_names_in_a_part_of_it_is_the_tools_own_too() {
    let home = Home::new();
    let mut client = home.ready();
    for _ in 0..2 {
        client.call("composed", json!({ "idempotency_key": "k1", "amount": 1 }));
    }
    drop(client);
    assert_eq!(home.effects(), [r#"composed {"amount": 1, "idempotency_key": "k1"}"#]);
}

#[test]
fn an_error_of_the_tool_is_an_unknown_outcome_and_never_runs_again() {
    let home = Home::new();
    let mut client = home.ready();
    let first = client.call("fail", json!({ "text": "connection reset" }));
    assert_eq!(text(&first, 0), "connection reset");
    assert!(
        text(&first, 1).contains("Outcome unknown") && !text(&first, 1).contains("Nothing ran now"),
        "{first}"
    );
    let again = client.call("fail", json!({ "text": "connection reset" }));
    assert_eq!((again["isError"].as_bool(), code(&again)), (Some(true), "OUTCOME_UNKNOWN"));
    assert!(
        text(&again, 0).contains("Nothing ran now") && text(&again, 0).contains("oncely resolve"),
        "{again}"
    );
    drop(client);
    assert_eq!(home.effects(), ["fail"]);
    assert_eq!(home.states(), [("fail".into(), "in_doubt".into())]);
}

#[test]
fn a_person_can_settle_an_unknown_outcome_and_the_retry_goes_on() {
    let home = Home::new();
    let mut client = home.ready();
    client.call("fail", json!({}));
    let id = home.oncely(&["ls"])[0]["id"].as_str().unwrap().to_owned();
    home.oncely(&["resolve", &id, "--rejected", "--yes", "--json"]);
    client.call("fail", json!({}));
    assert_eq!(home.effects(), ["fail", "fail"]);
    // And the other way: it happened, and this is what it said.
    home.write("said.txt", "refund re_1 was made");
    home.oncely(&["resolve", &id, "--succeeded", "--result", "said.txt", "--yes", "--json"]);
    let replayed = client.call("fail", json!({}));
    assert_eq!(text(&replayed, 0), "refund re_1 was made");
    drop(client);
    assert_eq!(home.effects().len(), 2);
}

#[test]
fn what_is_certain_not_to_have_happened_may_run_again() {
    let home = Home::new();
    let mut client = home.ready();
    for _ in 0..2 {
        let result = client.call("pay", json!({ "until": "x" }));
        assert_eq!(text(&result, 0), "Input validation error: 'amount' is a required property");
        assert!(result["content"].get(1).is_none(), "the server's own words say it all: {result}");
    }
    for _ in 0..2 {
        let answer = client.request(
            "tools/call",
            json!({ "name": "rpc_error", "arguments": { "code": -32602, "text": "bad" } }),
        );
        assert_eq!(answer["error"], json!({ "code": -32602, "message": "bad" }));
    }
    drop(client);
    assert_eq!(home.effects(), ["rpc_error", "rpc_error"]);
    assert_eq!(home.states(), [("pay".into(), "rejected".into()), ("rpc_error".into(), "rejected".into())]);
}

#[test]
fn any_other_protocol_error_is_unknown_and_says_so() {
    let home = Home::new();
    let mut client = home.ready();
    let params = json!({ "name": "rpc_error", "arguments": { "code": 0, "text": "Request cancelled" } });
    let answer = client.request("tools/call", params.clone());
    let error = &answer["error"];
    assert_eq!(error["code"], 0);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("Request cancelled\nOutcome unknown: "), "{message}");
    let envelope = &error["data"]["dev.oncely/envelope"];
    assert_eq!(envelope["error"]["code"], "OUTCOME_UNKNOWN");
    assert_eq!(envelope["error"]["retryable"], false);
    let again = client.request("tools/call", params);
    assert_eq!(code(&again["result"]), "OUTCOME_UNKNOWN");
    drop(client);
    assert_eq!(home.effects(), ["rpc_error"]);
}

#[test]
fn a_replay_stays_valid_against_the_output_schema() {
    let home = Home::new();
    let mut client = home.ready();
    let first = client.call("structured", json!({}));
    let again = client.call("structured", json!({}));
    assert_eq!(again["structuredContent"], first["structuredContent"]);
    assert_eq!(again["structuredContent"], json!({ "paid": 1 }));
    drop(client);
    assert_eq!(home.effects().len(), 1);
}

#[test]
fn a_server_that_asks_for_input_leaves_no_record_and_its_answer_is_another_call() {
    let home = Home::new();
    let mut client = home.client();
    for key in [json!({}), json!({ "idempotency_key": "order-1" })] {
        let mut params = json!({ "name": "ask", "arguments": { "amount": 1 }, "_meta": modern_meta() });
        if let Some(key) = key.get("idempotency_key") {
            params["_meta"]["dev.oncely/idempotency-key"] = key.clone();
        }
        let before = home.effects().len();
        let asked = client.request("tools/call", params.clone())["result"].clone();
        assert_eq!((asked["resultType"].as_str(), asked.get("_meta")), (Some("input_required"), None));
        assert_eq!(home.oncely(&["ls"]).len(), usize::from(before > 0), "a question is no outcome");
        // Asked again, it asks again: nothing is replayed.
        let asked = client.request("tools/call", params.clone())["result"].clone();
        assert_eq!(asked["resultType"], "input_required");
        params["inputResponses"] = json!({ "sure": { "action": "accept", "content": {} } });
        params["requestState"] = asked["requestState"].clone();
        let first = client.request("tools/call", params.clone())["result"].clone();
        let again = client.request("tools/call", params.clone())["result"].clone();
        assert_eq!((text(&first, 0), text(&again, 0)), ("confirmed", "confirmed"));
        assert_eq!(home.effects().len(), before + 1);
        params["inputResponses"] = json!({ "sure": { "action": "decline" } });
        let other = client.request("tools/call", params.clone())["result"].clone();
        for input in ["inputResponses", "requestState"] {
            params.as_object_mut().unwrap().remove(input);
        }
        let over = client.request("tools/call", params)["result"].clone();
        if key.get("idempotency_key").is_some() {
            assert_eq!((code(&other), code(&over)), ("KEY_REUSED", "KEY_REUSED"));
        } else {
            // An agent that lost the answer starts over, and is not asked a second time.
            assert_eq!((text(&other, 0), text(&over, 0)), ("confirmed", "confirmed"));
        }
    }
    drop(client);
    assert_eq!(home.effects().len(), 2);
}

#[test]
fn progress_of_the_server_reaches_the_client_under_its_own_token() {
    let home = Home::new();
    let mut client = home.ready();
    for token in [json!(12345678901234567890u64), json!("tok")] {
        let params =
            json!({ "name": "progress", "arguments": { "t": token }, "_meta": { "progressToken": token } });
        let id = client.begin("tools/call", params);
        let (_, before) = client.answer_to(&id);
        assert_eq!(before.len(), 1);
        assert_eq!(
            before[0]["params"],
            json!({ "progressToken": token, "progress": 0.5, "server/own": true })
        );
    }
}

#[test]
fn a_waiting_duplicate_hears_of_progress_and_then_gets_the_result() {
    let home = Home::new();
    let mut first = home.ready();
    let mut second = home.ready();
    let call = json!({ "name": "pay", "arguments": { "amount": 2, "until": "go" }, "_meta": { "progressToken": "p" } });
    let id = first.begin("tools/call", call.clone());
    home.until_reached("go");
    let waiting = second.begin("tools/call", call);
    let progress = second.receive();
    assert_eq!(
        (progress["method"].as_str(), progress["params"]["progressToken"].as_str()),
        (Some("notifications/progress"), Some("p"))
    );
    home.raise("go");
    first.answer_to(&id);
    let (answer, _) = second.answer_to(&waiting);
    assert!(answer["result"]["_meta"]["dev.oncely/replayed"].is_object());
    drop((first, second));
    assert_eq!(home.effects(), ["pay 2"]);
}

#[test]
fn a_duplicate_that_has_waited_long_enough_is_told_to_call_again_with_the_same_key() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nwait_for = \"1ms\"\n");
    let mut client = home.ready();
    let arguments = json!({ "amount": 2, "until": "go" });
    let id = client.begin("tools/call", json!({ "name": "pay", "arguments": arguments }));
    home.until_reached("go");
    let refused = client.call("pay", arguments.clone());
    let envelope = &refused["_meta"]["dev.oncely/envelope"];
    assert_eq!((code(&refused), &refused["isError"]), ("IN_PROGRESS", &json!(true)));
    // What runs may happen yet, so this is no failure that a program may simply repeat.
    assert_eq!(envelope["error"]["retryable"], false, "{envelope}");
    assert!(envelope["error"]["retry_after_ms"].is_u64(), "{envelope}");
    let told = text(&refused, 0);
    assert!(told.contains("Nothing ran now") && told.contains("do not change the idempotency_key"), "{told}");
    home.raise("go");
    client.answer_to(&id);
    let again = client.call("pay", arguments);
    assert!(again["_meta"]["dev.oncely/replayed"].is_object(), "{again}");
    drop(client);
    assert_eq!(home.effects(), ["pay 2"]);
}

#[test]
fn an_equal_call_without_a_key_is_meant_anew_after_a_while_and_one_with_a_key_never() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nrepeat_after = \"50ms\"\n");
    let mut client = home.ready();
    for arguments in [json!({ "amount": 6 }), json!({ "amount": 7, "idempotency_key": "k" })] {
        client.call("pay", arguments);
    }
    assert_eq!(home.effects(), ["pay 6", "pay 7"]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while home.effects().len() < 3 {
        assert!(std::time::Instant::now() < deadline, "it is never meant anew");
        client.call("pay", json!({ "amount": 6 }));
        client.call("pay", json!({ "amount": 7, "idempotency_key": "k" }));
    }
    assert_eq!(home.effects(), ["pay 6", "pay 7", "pay 6"]);
}

#[test]
fn a_dry_run_says_what_would_happen_and_runs_nothing() {
    let home = Home::new();
    let mut client = home.ready();
    let dry = client.call("pay", json!({ "amount": 4, "dry_run": true }));
    let envelope = |result: &Value| result["_meta"]["dev.oncely/envelope"].clone();
    assert_eq!(
        (envelope(&dry)["effect"].as_str(), envelope(&dry)["ok"].as_bool()),
        (Some("would_execute"), Some(true))
    );
    assert!(text(&dry, 0).contains("Nothing ran"));
    assert!(home.effects().is_empty() && home.states().is_empty());
    client.call("pay", json!({ "amount": 4, "dry_run": false }));
    let dry = client.call("pay", json!({ "amount": 4, "dry_run": true }));
    assert_eq!(envelope(&dry)["effect"], "noop");
    drop(client);
    assert_eq!(home.effects(), ["pay 4"]);
}

#[test]
fn calls_of_different_servers_are_different_intents() {
    let home = Home::new();
    let script = crate::world::script();
    let script = script.to_str().unwrap();
    for arguments in [vec![script, "--db", "a"], vec![script, "--db", "b"]] {
        let mut client = home.client_of(&["mcp", "--"], &arguments);
        client.initialize();
        client.call("pay", json!({ "amount": 5 }));
    }
    assert_eq!(home.effects().len(), 2);
    for arguments in [vec![script, "--db", "a"], vec![script, "--db", "b"]] {
        let mut client = home.client_of(&["mcp", "--name", "pay", "--"], &arguments);
        client.initialize();
        client.call("pay", json!({ "amount": 5 }));
    }
    assert_eq!(home.effects().len(), 3, "a name that a person gave is believed");
    assert!(home.oncely(&["ls"]).iter().any(|record| record["tool"] == "mcp:pay/pay"));
}

#[test]
fn servers_that_differ_only_in_their_environment_are_told_to_take_names() {
    let home = Home::new();
    let start = |arguments: &[&str], variable: &str| {
        let mut command = home.command(ONCELY);
        command.args(["mcp"]).args(arguments).args(["--", "python3"]).arg(script()).env(variable, "s3cret");
        Client::start(command)
    };
    let mut nameless = start(&[], "STRIPE_SECRET_KEY");
    let said = nameless.error_line();
    assert!(said.contains("STRIPE_SECRET_KEY") && said.contains("--name"), "{said}");
    assert!(!said.contains("s3cret"));
    for mut quiet in [start(&["--name", "live"], "STRIPE_SECRET_KEY"), start(&[], "LANG")] {
        assert_eq!(quiet.error_line(), "scripted server started");
    }
}
