//! What is not a tool that writes passes byte for byte.

use serde_json::json;

use crate::web::{front, send, server};
use crate::world::{Client, Home, modern_meta, script, text};

/// Sends the same bytes to the server with and without oncely, and returns what each answered.
fn both_ways(messages: &[&str]) -> (Vec<String>, Vec<String>, Vec<String>, Vec<String>) {
    let through = Home::new();
    let direct = Home::new();
    let speak = |mut client: Client| {
        let mut answers = Vec::new();
        for message in messages {
            client.send_raw(format!("{message}\n").as_bytes());
            if message.contains("\"id\"") && message.contains("\"method\"") {
                answers.push(client.line());
            }
        }
        client.end();
        answers
    };
    let mut plain = direct.command("python3");
    plain.arg(script());
    (speak(through.client()), speak(Client::start(plain)), through.seen(), direct.seen())
}

#[test]
fn towards_a_server_on_standard_streams_a_message_stays_one_line_for_every_reader() {
    let home = Home::new();
    let mut client = home.client();
    // A line break between tokens, and two characters in a text that end a line for some readers.
    client
        .send_raw("{\"id\":1,\"method\":\r\"ping\",\"params\":{\"a\":\"x\u{2028}y\u{2029}é\"}}\n".as_bytes());
    assert_eq!(client.receive()["id"], 1);
    drop(client);
    let flat = r#"{"id":1,"method": "ping","params":{"a":"x\u2028y\u2029é"}}"#;
    assert_eq!(home.seen(), [flat]);
}

#[test]
fn from_http_to_http_such_characters_pass_as_they_came() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--url", &format!("http://127.0.0.1:{}/mcp", server.port)]);
    let body = "{\"id\":1,\"method\":\r\"ping\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"},\"a\":\"x\u{2028}y\u{2029}é\"}}";
    let reply = send(front.port, "POST", "/mcp", &[("Mcp-Method", "ping")], body);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(home.read("seen").starts_with(body), "{}", home.read("seen"));
}

#[test]
fn handshakes_unknown_methods_and_odd_fields_pass_byte_for_byte() {
    let messages = [
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"tasks":{"x":1}},"odd":1.50}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"id":"s","jsonrpc":"2.0", "method":"ping" , "unknown":{"big":12345678901234567890123}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"resources/list","params":{"_meta":{"traceparent":"00-1"}}}"#,
        r#"{"jsonrpc":"2.0","id":8,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/odd","params":{"é":"\u00e9"}}"#,
        r#"{"jsonrpc":"2.0","id":"srv-9","result":{"role":"assistant"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":999}}"#,
    ];
    let (ours, plain, ours_seen, plain_seen) = both_ways(&messages);
    assert_eq!(ours, plain);
    assert_eq!(ours_seen, plain_seen);
    assert_eq!(plain_seen.len(), messages.len());
}

#[test]
fn a_batch_without_calls_of_tools_passes_byte_for_byte() {
    let home = Home::new();
    // A server that says what it hears.
    let mut command = home.command(crate::world::ONCELY);
    command.args(["mcp", "--", "cat"]);
    let mut client = Client::start(command);
    for batch in [
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}, {"jsonrpc":"2.0","method":"notifications/x","n":1.50}]"#,
        r#"[{"jsonrpc":"2.0","id":"srv-1","result":{}}]"#,
    ] {
        client.send_raw(format!("{batch}\n").as_bytes());
        assert_eq!(client.line(), batch);
    }
}

#[test]
fn a_repeated_read_asks_the_server_every_time() {
    let home = Home::new();
    let mut client = home.ready();
    for tool in ["balance", "get_time"] {
        let first = client.call(tool, json!({}));
        let again = client.call(tool, json!({}));
        assert_ne!(first, again, "{tool}");
    }
    drop(client);
    assert_eq!(home.states(), []);
}

#[test]
fn a_large_result_of_a_read_passes_whole() {
    let home = Home::new();
    let mut client = home.ready();
    let result = client.call("big", json!({ "bytes": 10_000_000 }));
    assert_eq!(text(&result, 0).len(), 10_000_000);
}

#[test]
fn requests_of_the_server_reach_the_client_and_its_answer_the_server() {
    let home = Home::new();
    let mut client = home.ready();
    let id = client.begin("tools/call", json!({ "name": "sample", "arguments": {} }));
    let (_, before) = client.answer_to(&id);
    assert_eq!(
        before,
        [
            json!({ "jsonrpc": "2.0", "id": "srv-1", "method": "sampling/createMessage", "params": { "n": 1 } })
        ]
    );
    let answer = json!({ "jsonrpc": "2.0", "id": "srv-1", "result": { "x": 1 } });
    client.send(&answer);
    client.end();
    assert_eq!(home.seen().last().unwrap(), &answer.to_string());
}

#[test]
fn tools_that_write_are_listed_with_two_more_arguments_and_nothing_else_changes() {
    let home = Home::new();
    let mut client = home.ready();
    let listed = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let direct = Home::new();
    let mut plain = direct.command("python3");
    plain.arg(script());
    let mut plain = Client::start(plain);
    plain.initialize();
    let mut expected = plain.request("tools/list", json!({}))["result"]["tools"].clone();
    let mut writes = Vec::new();
    for (ours, theirs) in listed.as_array().unwrap().iter().zip(expected.as_array_mut().unwrap()) {
        let name = ours["name"].as_str().unwrap();
        if theirs["inputSchema"]["properties"].get("idempotency_key").is_none()
            && ours["inputSchema"]["properties"].get("idempotency_key").is_some()
        {
            writes.push(name.to_owned());
            for added in ["idempotency_key", "dry_run"] {
                theirs["inputSchema"]["properties"][added] = ours["inputSchema"]["properties"][added].clone();
            }
        }
        assert_eq!(ours, theirs);
    }
    assert_eq!(listed.as_array().unwrap().len(), expected.as_array().unwrap().len());
    assert_eq!(
        writes,
        [
            "pay",
            "get_paid",
            "fail",
            "rpc_error",
            "die",
            "structured",
            "ask",
            "task",
            "old_task",
            "progress",
            "consult",
            "garbled"
        ]
    );
    let description =
        listed[0]["inputSchema"]["properties"]["idempotency_key"]["description"].as_str().unwrap();
    assert!(
        description.contains("same value for every retry of one intent, a new one only for a new intent")
    );
}

#[test]
fn annotations_are_fetched_by_us_page_by_page_before_the_first_call() {
    let home = Home::new();
    let mut command = home.command(crate::world::ONCELY);
    command.args(["mcp", "--", "python3"]).arg(script()).env("PAGE", "2");
    let mut client = Client::start(command);
    client.initialize();
    // Its name does not tell that it reads.
    let first = client.call("balance", json!({}));
    assert_ne!(first, client.call("balance", json!({})));
    drop(client);
    let lists = home.seen().iter().filter(|line| line.contains("tools/list")).count();
    assert_eq!(lists, 10, "each page once: {:?}", home.seen());
}

#[test]
fn in_the_era_without_a_handshake_our_own_request_describes_itself_as_the_clients_does() {
    let home = Home::new();
    let mut client = home.client();
    let result = client.call_modern("pay", json!({ "amount": 3 }));
    assert_eq!(text(&result, 0), "paid 3, effect 1");
    let again = client.call_modern("pay", json!({ "amount": 3 }));
    assert_eq!(text(&again, 0), "paid 3, effect 1");
    drop(client);
    assert_eq!(home.effects().len(), 1);
    let seen = home.seen();
    let list: serde_json::Value = serde_json::from_str(&seen[0]).unwrap();
    assert_eq!((list["method"].as_str(), &list["params"]["_meta"]), (Some("tools/list"), &modern_meta()));
}

#[test]
fn when_the_server_says_that_its_tools_changed_it_is_asked_again() {
    let home = Home::new();
    let mut client = home.ready();
    client.call("pay", json!({ "amount": 1 }));
    client.call("change", json!({}));
    // Now it says that pay reads: nothing is guarded any more.
    client.call("pay", json!({ "amount": 1 }));
    client.call("pay", json!({ "amount": 1 }));
    drop(client);
    assert_eq!(home.effects().len(), 3);
}
