//! Tasks: a handle in place of a result, and clients that can or cannot take one.

use serde_json::{Value, json};

use crate::world::{Client, Home, code, modern_meta, text};

/// A call of the era in which requests describe themselves, by a client that knows of tasks or not.
fn modern(client: &mut Client, tool: &str, extensions: &Value) -> Value {
    let mut meta = modern_meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "extensions": extensions });
    client.request("tools/call", json!({ "name": tool, "arguments": {}, "_meta": meta }))
}

fn able() -> Value {
    json!({ "io.modelcontextprotocol/tasks": {} })
}

#[test]
fn a_task_handle_is_stored_and_replayed() {
    let home = Home::new();
    let mut client = home.client();
    let first = modern(&mut client, "task", &able())["result"].clone();
    let again = modern(&mut client, "task", &able())["result"].clone();
    assert_eq!(first["task"]["taskId"], "t-1");
    assert_eq!((&again["task"], &again["resultType"]), (&first["task"], &first["resultType"]));
    assert!(again["_meta"]["dev.oncely/replayed"].is_object());
    drop(client);
    assert_eq!(home.effects(), ["task"]);
}

#[test]
fn a_client_that_knows_no_tasks_is_never_replayed_the_handle_of_one() {
    let home = Home::new();
    let mut client = home.client();
    modern(&mut client, "task", &able());
    let refused = modern(&mut client, "task", &json!({}))["error"].clone();
    assert_eq!(refused["code"], -32021, "{refused}");
    assert_eq!(refused["data"]["requiredCapabilities"]["extensions"], able());
    for part in ["\"t-1\"", "nothing ran now", "io.modelcontextprotocol/tasks", "idempotency_key"] {
        assert!(refused["message"].as_str().unwrap().contains(part), "{refused}");
    }
    // One that knows of them gets it as before.
    assert_eq!(modern(&mut client, "task", &able())["result"]["task"]["taskId"], "t-1");
    drop(client);
    assert_eq!(home.effects(), ["task"]);
}

#[test]
fn in_the_era_with_a_handshake_only_a_call_that_asks_for_a_task_is_replayed_its_handle() {
    let home = Home::new();
    let mut client = home.ready();
    let call = |more: Value| {
        let mut params = json!({ "name": "old_task", "arguments": {} });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let asking = call(json!({ "task": { "ttl": 60000 } }));
    for _ in 0..2 {
        let handle = client.request("tools/call", asking.clone())["result"].clone();
        assert_eq!(handle["task"]["taskId"], "t-2", "{handle}");
    }
    let refused = client.request("tools/call", call(json!({})))["result"].clone();
    assert_eq!((&refused["isError"], code(&refused)), (&json!(true), "TASK_BEGUN"), "{refused}");
    assert!(text(&refused, 0).contains("\"t-2\"") && text(&refused, 0).contains("nothing ran now"));
    drop(client);
    assert_eq!(home.effects(), ["old_task"]);
}

/// A client of the era with a handshake, which says there that it knows of tasks, or not.
fn legacy(home: &Home, extensions: &Value) -> Client {
    let mut client = home.client();
    let able = json!({ "extensions": extensions });
    client.request("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": able }));
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    client
}

fn is_told_of_the_other_era(refused: &Value, task: &str) {
    assert_eq!((&refused["isError"], code(refused)), (&json!(true), "TASK_BEGUN"), "{refused}");
    for part in
        [task, "nothing ran now", "generation of the protocol", "client that began it", "idempotency_key"]
    {
        assert!(text(refused, 0).contains(part), "{part:?} is not in {refused}");
    }
}

#[test]
fn a_handle_of_the_later_era_is_replayed_over_a_handshake_only_if_that_declared_tasks() {
    let home = Home::new();
    modern(&mut home.client(), "task", &able());
    let mut plain = legacy(&home, &json!({}));
    let asking = json!({ "name": "task", "arguments": {}, "task": { "ttl": 60000 } });
    for params in [json!({ "name": "task", "arguments": {} }), asking] {
        let refused = plain.request("tools/call", params)["result"].clone();
        assert!(refused["resultType"].is_null(), "{refused}");
        is_told_of_the_other_era(&refused, "t-1");
    }
    drop(plain);
    let handle = legacy(&home, &able()).call("task", json!({}));
    assert_eq!((&handle["task"]["taskId"], &handle["resultType"]), (&json!("t-1"), &json!("task")));
    assert_eq!(home.effects(), ["task"]);
}

#[test]
fn a_handle_of_the_era_with_a_handshake_is_never_replayed_in_the_later_one() {
    let home = Home::new();
    home.ready().request("tools/call", json!({ "name": "old_task", "arguments": {}, "task": {} }));
    let mut client = home.client();
    for extensions in [able(), json!({})] {
        let refused = modern(&mut client, "old_task", &extensions)["result"].clone();
        assert_eq!(refused["resultType"], "complete", "{refused}");
        assert!(refused["task"].is_null(), "{refused}");
        is_told_of_the_other_era(&refused, "t-2");
    }
    drop(client);
    assert_eq!(home.effects(), ["old_task"]);
}

#[test]
fn a_call_that_asks_for_a_task_is_replayed_the_plain_result_of_one_that_did_not() {
    let home = Home::new();
    let mut client = home.ready();
    client.call("pay", json!({ "amount": 1 }));
    let asking = json!({ "name": "pay", "arguments": { "amount": 1 }, "task": { "ttl": 60000 } });
    assert_eq!(text(&client.request("tools/call", asking)["result"], 0), "paid 1, effect 1");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}

/// Asks for a task until as much time has passed as makes equal calls of `pay` two, and returns how often it was begun.
fn begun(tool: &str, arguments: &Value) -> usize {
    let home = Home::new();
    home.write("oncely.toml", "[defaults]\nrepeat_after = \"50ms\"\n");
    let mut client = home.ready();
    let params = json!({ "name": tool, "arguments": arguments, "task": {} });
    client.request("tools/call", params.clone());
    let payments = || home.effects().iter().filter(|line| line.starts_with("pay")).count();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while payments() < 2 {
        assert!(std::time::Instant::now() < deadline, "it is never meant anew");
        client.call("pay", json!({ "amount": 1 }));
    }
    client.request("tools/call", params);
    drop(client);
    home.effects().iter().filter(|line| *line == tool).count()
}

#[test]
fn while_a_task_may_be_at_work_an_equal_call_without_a_key_begins_no_other() {
    for tool in ["task", "old_task"] {
        for arguments in
            [json!({}), json!({ "ttl": null }), json!({ "ttl": 3_600_000 }), json!({ "ttlMs": 3_600_000 })]
        {
            assert_eq!(begun(tool, &arguments), 1, "{tool} {arguments}");
        }
        // Its server keeps it for less: it is over.
        assert_eq!(begun(tool, &json!({ "ttl": 10 })), 2, "{tool}");
    }
}
