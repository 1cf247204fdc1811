//! A server at an address that has lost the session of a client on standard input: it gets another one, and nobody notices.

use serde_json::{Value, json};

use crate::web::{FORMS, Listening, server};
use crate::world::{Client, Home, code, text};

fn client(home: &Home, server: &Listening) -> Client {
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let mut client = home.client_of(&["mcp", "--url", &url], &[]);
    client.initialize();
    client
}

/// How many requests of this method the server got.
fn count(home: &Home, method: &str) -> usize {
    let is_it =
        |line: &String| serde_json::from_str::<Value>(line).is_ok_and(|message| message["method"] == method);
    home.seen().iter().filter(|line| is_it(line)).count()
}

#[test]
fn after_a_new_start_of_the_server_writes_and_reads_go_on_and_a_write_runs_once() {
    for form in FORMS {
        let home = Home::new();
        let server = server(&home, form);
        let mut client = client(&home, &server);
        assert_eq!(text(&client.call("pay", json!({ "amount": 1 })), 0), "paid 1, effect 1");
        home.raise("forget");
        for _ in ["it runs", "it is replayed"] {
            assert_eq!(text(&client.call("pay", json!({ "amount": 2 })), 0), "paid 2, effect 2", "{form}");
        }
        home.raise("forget");
        assert_ne!(client.call("balance", json!({})), client.call("balance", json!({})), "{form}");
        home.raise("forget");
        assert!(client.request("tools/list", json!({}))["result"]["tools"].is_array(), "{form}");
        client.end();
        assert_eq!(home.effects(), ["pay 1", "pay 2"], "{form}");
        assert_eq!((count(&home, "initialize"), count(&home, "notifications/initialized")), (4, 4), "{form}");
        assert!(home.seen().last().unwrap().starts_with("DELETE "), "the last session is ended");
    }
}

#[test]
fn a_read_is_known_as_one_even_if_the_session_is_lost_before_the_server_was_asked_for_its_tools() {
    let home = Home::new();
    let server = server(&home, "json");
    let mut client = client(&home, &server);
    home.raise("forget");
    assert_ne!(client.call("balance", json!({})), client.call("balance", json!({})));
    client.end();
    assert!(home.states().is_empty());
}

#[test]
fn of_many_calls_that_find_the_session_lost_one_begins_another() {
    let home = Home::new();
    let server = server(&home, "json");
    let mut client = client(&home, &server);
    client.call("pay", json!({ "amount": 0 }));
    home.raise("forget");
    let calls: Vec<Value> = (1..=8)
        .flat_map(|amount| [("pay", json!({ "amount": amount })), ("balance", json!({}))])
        .map(|(tool, arguments)| client.begin("tools/call", json!({ "name": tool, "arguments": arguments })))
        .collect();
    let mut answered = Vec::new();
    while answered.len() < calls.len() {
        let answer = client.receive();
        if calls.contains(&answer["id"]) {
            assert_ne!(answer["result"]["isError"], true, "{answer}");
            assert!(answer["result"]["content"].is_array(), "{answer}");
            answered.push(answer["id"].clone());
        }
    }
    client.end();
    let mut effects = home.effects();
    effects.sort();
    let expected: Vec<String> = (0..=8).map(|amount| format!("pay {amount}")).collect();
    assert_eq!(effects, expected);
    assert_eq!(count(&home, "initialize"), 2);
}

#[test]
fn as_long_as_no_other_session_is_begun_nothing_runs_and_no_retry_is_spent() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nmax_retries = 1\n");
    let server = server(&home, "json");
    let mut client = client(&home, &server);
    client.call("balance", json!({}));
    home.raise("noinit");
    home.raise("forget");
    for _ in 0..4 {
        let refused = client.call("pay", json!({ "amount": 1 }));
        assert_eq!(code(&refused), "NOT_SENT", "{refused}");
        for part in ["nothing ran", "404", "session", "503"] {
            assert!(text(&refused, 0).contains(part), "{refused}");
        }
    }
    let refused = client.request("tools/call", json!({ "name": "balance", "arguments": {} }));
    let why = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
    assert!(why.contains("nothing ran") && why.contains("session"), "{why}");
    std::fs::remove_file(home.path("noinit")).unwrap();
    assert_eq!(text(&client.call("pay", json!({ "amount": 1 })), 0), "paid 1, effect 1");
    client.end();
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn a_call_that_was_given_up_before_another_session_was_begun_is_not_sent_any_more() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nforward_cancel = true\n");
    let server = server(&home, "json");
    let mut client = client(&home, &server);
    client.call("balance", json!({}));
    home.raise("slowinit");
    home.raise("forget");
    let id = client.begin("tools/call", json!({ "name": "pay", "arguments": { "amount": 1 } }));
    home.until(|| count(&home, "initialize") == 2);
    let cancel = json!({ "requestId": id });
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }));
    home.until(|| home.states() == [("pay".into(), "in_doubt".into())]);
    // Now a person may settle it; what is sent from now on would be one more.
    std::fs::remove_file(home.path("slowinit")).unwrap();
    home.until(|| home.states() == [("pay".into(), "rejected".into())]);
    assert!(home.effects().is_empty());
    assert_eq!(text(&client.call("pay", json!({ "amount": 1 })), 0), "paid 1, effect 1");
    client.end();
    assert_eq!(home.effects(), ["pay 1"]);
}
