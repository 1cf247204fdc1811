//! Results that a person or a check gives in place of the server's: clients read them like any other.

use serde_json::{Value, json};

use crate::web::{Web, front};
use crate::world::{Home, code, script, text};

/// Leaves a call in doubt, has a person settle it with this result, and returns the line that a client gets for the next call.
fn settled_with(home: &Home, result: &str) -> String {
    let mut client = home.ready();
    assert_eq!(code(&client.call("fail", json!({}))), "OUTCOME_UNKNOWN");
    resolve(home, result);
    client.begin("tools/call", json!({ "name": "fail", "arguments": {} }));
    let line = client.line();
    // And nothing else comes with it.
    client.send(&json!({ "jsonrpc": "2.0", "id": "after", "method": "ping" }));
    assert_eq!(client.receive()["id"], "after");
    line
}

fn resolve(home: &Home, result: &str) {
    home.write("result", result);
    let id = home.oncely(&["ls"])[0]["id"].as_str().unwrap().to_owned();
    home.oncely(&["resolve", &id, "--succeeded", "--result", "result", "--yes", "--json"]);
}

const INDENTED: &str =
    "{\r\n  \"content\": [\n    {\n      \"type\": \"text\",\n      \"text\": \"re_1\"\n    }\n  ]\n}\n";

#[test]
fn a_result_on_several_lines_is_one_message() {
    let home = Home::new();
    let answer: Value = serde_json::from_str(&settled_with(&home, INDENTED)).unwrap();
    assert_eq!(text(&answer["result"], 0), "re_1");
    assert!(text(&answer["result"], 1).contains("Replayed"), "{answer}");
    assert_eq!(home.effects(), ["fail"]);
}

#[test]
fn a_result_on_several_lines_is_one_event() {
    let home = Home::new();
    let front = front(&home, &["--", "python3", script().to_str().unwrap()]);
    let web = Web::begin(front.port);
    web.call("fail", json!({}), &[]);
    resolve(&home, INDENTED);
    let reply = web.call("fail", json!({}), &[]);
    assert_eq!(text(&reply.result(), 0), "re_1", "{reply:?}");
}

#[test]
fn what_is_no_tool_result_is_told_as_text() {
    let object = "{\n  \"id\": 1\n}\n";
    for (given, told) in
        [(r#"{"id":1}"#, r#"{"id":1}"#), (object, object.trim_end()), ("it is done", "it is done")]
    {
        let home = Home::new();
        let answer: Value = serde_json::from_str(&settled_with(&home, given)).unwrap();
        assert_eq!(text(&answer["result"], 0), told, "{answer}");
        assert!(answer["result"].get("id").is_none(), "{answer}");
    }
}

#[test]
fn what_a_check_prints_on_several_lines_is_one_message() {
    let home = Home::new();
    home.write("found.json", INDENTED);
    home.write("oncely.toml", "[tool.pay]\ncheck = \"cat found.json\"\n");
    let mut client = home.ready();
    for _ in ["found", "and replayed"] {
        assert_eq!(text(&client.call("pay", json!({ "amount": 1 })), 0), "re_1");
    }
    home.write("found.json", r#"{"id":1}"#);
    assert_eq!(text(&client.call("pay", json!({ "amount": 2 })), 0), r#"{"id":1}"#);
    drop(client);
    assert!(home.effects().is_empty());
}
