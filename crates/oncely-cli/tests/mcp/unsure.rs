//! What is not known for certain: tools that the server does not list, answers that cannot be read, names that say little.

use serde_json::{Value, json};

use crate::world::{Client, Home, ONCELY, code, script, text};

#[test]
fn a_tool_that_the_server_does_not_list_is_guarded_whatever_its_name() {
    let home = Home::new();
    home.raise("nolist");
    let mut client = home.ready();
    for _ in 0..3 {
        assert_eq!(text(&client.call("get_paid", json!({ "n": 1 })), 0), r#"done {"n": 1}"#);
    }
    // Nothing is known of its arguments, so it gets the key, too, and that counts all the same.
    for _ in 0..2 {
        let result = client.call("keyed", json!({ "idempotency_key": "k" }));
        assert_eq!(text(&result, 0), r#"done {"idempotency_key": "k"}"#);
    }
    // One that may not know of dry runs must not act.
    let forecast = client.call("pay", json!({ "amount": 1, "dry_run": true }));
    assert_ne!(forecast["isError"], true, "{forecast}");
    drop(client);
    let done = [r#"get_paid {"n": 1}"#, r#"keyed {"idempotency_key": "k"}"#];
    assert_eq!(home.effects(), done);
    let asked = home.seen().iter().filter(|line| line.contains("tools/list")).count();
    assert_eq!(asked, 1, "a server that fails to list its tools is not asked again with every call");
}

/// What may be meant as a wish for a dry run, and is not written as one.
const NO_BOOLEANS: [&str; 7] = [r#""true""#, r#""yes""#, r#""false""#, "1", "0", "[]", "{}"];

#[test]
fn a_dry_run_that_is_no_boolean_never_acts_whether_the_tool_is_listed_or_not() {
    for (listed, handshake) in [("listed", "done"), ("not listed", "done"), ("not yet listed", "begun")] {
        let home = Home::new();
        if listed == "not listed" {
            home.raise("nolist");
        }
        let mut client = home.client();
        if handshake == "done" {
            client.initialize();
        } else {
            // Until the client says that it is ready, the server is not asked for its tools.
            client.request("initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {} }));
        }
        for raw in NO_BOOLEANS {
            let dry_run: Value = serde_json::from_str(raw).unwrap();
            let told = client.call("pay", json!({ "amount": 1, "dry_run": dry_run }));
            let expected = if listed == "listed" { "BAD_ARGUMENTS" } else { "TOOL_NOT_LISTED" };
            assert_eq!((told["isError"].as_bool(), code(&told)), (Some(true), expected), "{listed}: {raw}");
            assert!(text(&told, 0).contains("nothing ran"), "{listed}: {told}");
        }
        let forecast = client.call("pay", json!({ "amount": 1, "dry_run": true }));
        assert!(text(&forecast, 0).contains("would run pay"), "{listed}: {forecast}");
        let asked = home.seen().iter().any(|line| line.contains("tools/list"));
        assert_eq!(asked, listed != "not yet listed");
        drop(client);
        assert!(home.effects().is_empty(), "{listed}");
    }
}

/// Calls a tool, and again from a new process when the server lists its tools.
fn before_and_after_the_list(tool: &str, arguments: &Value, meta: &Value) -> (Vec<Value>, Home) {
    let home = Home::new();
    home.raise("nolist");
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    let before = home.ready().request("tools/call", params.clone());
    std::fs::remove_file(home.path("nolist")).unwrap();
    let after = home.ready().request("tools/call", params);
    (vec![before["result"].clone(), after["result"].clone()], home)
}

#[test]
fn an_argument_that_may_be_ours_never_makes_a_retry_another_call_once_the_tool_is_listed() {
    let keyed = json!({ "idempotencyKey": "k" });
    for (tool, argument, meta) in [
        ("pay", json!({ "dry_run": false }), json!({})),
        ("pay", json!({ "dry_run": null }), json!({})),
        ("pay", json!({ "dry_run": false }), keyed.clone()),
        ("pay", json!({ "idempotency_key": null }), json!({})),
        ("pay", json!({ "idempotency_key": "other" }), keyed),
        ("keyed", json!({ "dry_run": false }), json!({})),
        ("keyed", json!({ "idempotency_key": null }), json!({})),
    ] {
        let mut arguments = json!({ "amount": 1 });
        arguments.as_object_mut().unwrap().extend(argument.as_object().unwrap().clone());
        let (told, home) = before_and_after_the_list(tool, &arguments, &meta);
        assert_eq!(code(&told[0]), "TOOL_NOT_LISTED", "{arguments} {meta}: {told:?}");
        assert!(text(&told[0], 0).contains("nothing ran"), "{told:?}");
        let envelope = &told[0]["_meta"]["dev.oncely/envelope"];
        assert_eq!(envelope["error"]["retryable"], true, "{told:?}");
        assert_ne!(told[1]["isError"], true, "{arguments} {meta}: {told:?}");
        assert_eq!(home.effects().len(), 1, "{arguments} {meta}");
    }
}

#[test]
fn a_key_among_the_arguments_is_the_same_key_before_and_after_the_tool_is_listed() {
    for (tool, said) in
        [("pay", "paid 1, effect 1"), ("keyed", r#"done {"amount": 1, "idempotency_key": "k"}"#)]
    {
        let arguments = json!({ "amount": 1, "idempotency_key": "k" });
        let (told, home) = before_and_after_the_list(tool, &arguments, &json!({}));
        for told in &told {
            assert_eq!(text(told, 0), said, "{told}");
        }
        assert!(told[1]["_meta"]["dev.oncely/replayed"].is_object(), "{told:?}");
        assert_eq!(home.effects().len(), 1, "{tool}");
    }
}

#[test]
fn the_policy_can_say_that_a_dry_run_argument_is_a_tools_own_which_the_server_does_not_list() {
    let home = Home::new();
    home.raise("nolist");
    home.write("oncely.toml", "[tool.keyed]\ndry_run = false\n");
    let mut client = home.ready();
    for _ in 0..2 {
        assert_eq!(text(&client.call("keyed", json!({ "dry_run": false })), 0), r#"done {"dry_run": false}"#);
    }
    drop(client);
    assert_eq!(home.effects().len(), 1);
}

#[test]
fn a_dry_run_argument_of_the_tools_own_may_be_anything() {
    let home = Home::new();
    let mut client = home.ready();
    let done = client.call("keyed", json!({ "dry_run": "true" }));
    assert_eq!(text(&done, 0), r#"done {"dry_run": "true"}"#);
    drop(client);
    assert_eq!(home.effects(), [r#"keyed {"dry_run": "true"}"#]);
}

#[test]
fn the_policy_can_say_that_a_tool_reads_which_the_server_does_not_list() {
    let home = Home::new();
    home.raise("nolist");
    home.write("oncely.toml", "[tool.balance]\nkind = \"read\"\n");
    let mut client = home.ready();
    assert_ne!(client.call("balance", json!({})), client.call("balance", json!({})));
    assert_eq!(home.states(), []);
}

#[test]
fn what_the_server_listed_before_its_tools_changed_counts_while_it_does_not_list_them_anew() {
    let home = Home::new();
    let mut client = home.ready();
    assert_ne!(client.call("balance", json!({})), client.call("balance", json!({})));
    home.raise("nolist");
    client.call("change", json!({}));
    assert_ne!(client.call("balance", json!({})), client.call("balance", json!({})), "still a read");
    for _ in 0..2 {
        client.call("get_paid", json!({}));
    }
    drop(client);
    assert_eq!(home.effects(), ["get_paid {}"], "still a write");
    assert_eq!(home.states(), [("get_paid".into(), "succeeded".into())]);
    let asked = home.seen().iter().filter(|line| line.contains("tools/list")).count();
    assert_eq!(asked, 2, "once before the change, and once after it");
}

#[test]
fn an_answer_that_cannot_be_read_leaves_the_call_in_doubt() {
    for how in ["double", "bytes", "long"] {
        let home = Home::new();
        let mut client = home.client_of(&["mcp", "--max-message", "1", "--"], &[script().to_str().unwrap()]);
        client.initialize();
        for _ in 0..2 {
            let result = client.call("garbled", json!({ "how": how }));
            assert_eq!(code(&result), "OUTCOME_UNKNOWN", "{how}");
        }
        drop(client);
        assert_eq!(home.effects(), [format!("garbled {how}")]);
    }
}

#[test]
fn a_dry_run_that_the_tool_itself_knows_of_leaves_the_key_for_the_real_call() {
    let home = Home::new();
    let mut client = home.ready();
    for _ in 0..2 {
        let rehearsed = client.call("keyed", json!({ "idempotency_key": "k", "dry_run": true }));
        assert_eq!(text(&rehearsed, 0), r#"done {"dry_run": true, "idempotency_key": "k"}"#);
    }
    assert_eq!(home.states(), []);
    for _ in 0..2 {
        let real = client.call("keyed", json!({ "idempotency_key": "k" }));
        assert_eq!(text(&real, 0), r#"done {"idempotency_key": "k"}"#);
    }
    drop(client);
    assert_eq!(home.states(), [("keyed".into(), "succeeded".into())]);
    let real = home.effects().iter().filter(|line| !line.contains("dry_run")).count();
    assert_eq!((real, home.effects().len()), (1, 3));
}

#[test]
fn a_carriage_return_within_a_message_begins_no_other_message() {
    let home = Home::new();
    let mut client = home.ready();
    let hidden =
        r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"pay","arguments":{"amount":1}}}"#;
    let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":"#;
    client.send_raw(format!("{ping}\r{hidden}\r}}}}\r\n").as_bytes());
    assert_eq!(client.receive()["id"], 5);
    drop(client);
    assert!(home.effects().is_empty());
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_line_does_not_spoil_what_the_client_is_told() {
    let home = Home::new();
    let mut client = home.ready();
    client.begin("tools/call", json!({ "name": "die", "arguments": { "saying": "{\"half\":" } }));
    assert_eq!(client.line(), "{\"half\":");
    assert_eq!(code(&client.receive()["result"]), "OUTCOME_UNKNOWN");
    drop(client);
    assert_eq!(home.effects(), ["die"]);
}

/// A client of the server with its odd tools, which it lists in several pages.
fn odd(home: &Home) -> Client {
    let mut command = home.command(ONCELY);
    command.args(["mcp", "--", "python3"]).arg(script()).env("PAGE", "5").env("ODD", "1");
    let mut client = Client::start(command);
    client.initialize();
    client
}

#[test]
fn a_dry_run_that_only_a_branch_of_the_schema_names_is_recorded_like_any_write() {
    let home = Home::new();
    let mut client = odd(&home);
    for _ in 0..2 {
        // The tool knows of no dry run here, and acts.
        let told = client.call("planned", json!({ "action": "execute", "dry_run": true }));
        assert_eq!(text(&told, 0), r#"done {"action": "execute", "dry_run": true}"#);
    }
    drop(client);
    assert_eq!(home.effects(), [r#"planned {"action": "execute", "dry_run": true}"#]);
    assert_eq!(home.states(), [("planned".into(), "succeeded".into())]);
}

/// Lists the server's tools page by page; returns what the last page was asked for with.
fn list_all(client: &mut Client) -> Value {
    let mut asked = json!({});
    loop {
        let page = client.request("tools/list", asked.clone())["result"].clone();
        match page.get("nextCursor") {
            Some(cursor) => asked = json!({ "cursor": cursor }),
            None => return asked,
        }
    }
}

#[test]
fn a_tool_that_is_listed_on_two_pages_writes_if_it_does_so_on_one() {
    for lists in ["oncely asks", "the client asks", "the client asks for the last page again"] {
        let home = Home::new();
        let mut client = odd(&home);
        if lists != "oncely asks" {
            let last = list_all(&mut client);
            if lists == "the client asks for the last page again" {
                client.request("tools/list", last);
            }
        }
        for _ in 0..2 {
            client.call("twice", json!({}));
        }
        drop(client);
        assert_eq!(home.effects(), ["twice {}"], "{lists}");
    }
}
