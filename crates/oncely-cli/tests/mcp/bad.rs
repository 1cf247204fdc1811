//! Bad input: answered as the protocol says, nothing recorded, and the session goes on.

use serde_json::{Value, json};

use crate::world::{Client, Home, ONCELY, script, text};

fn answers(lines: &[&[u8]]) -> (Vec<Value>, Home) {
    let home = Home::new();
    let mut client = home.ready();
    let mut answers = Vec::new();
    for line in lines {
        client.send_raw(line);
        client.send_raw(b"\n");
        answers.push(client.receive());
    }
    // Still there, and as good as before.
    let paid = client.call("pay", json!({ "amount": 1 }));
    assert_eq!(text(&paid, 0), "paid 1, effect 1");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
    assert_eq!(home.states().len(), 1);
    (answers, home)
}

#[test]
fn what_is_no_message_is_answered_and_never_reaches_the_server() {
    let cases: [(&[u8], i64, Value); 9] = [
        (b"hello", -32700, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,", -32700, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\xfe\",\"method\":\"ping\"}", -32700, Value::Null),
        (b"42", -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", -32600, Value::Null),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"method\":\"tools/call\"}",
            -32600,
            Value::Null,
        ),
        (
            b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"pay\"}}]",
            -32600,
            Value::Null,
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":[]}", -32600, json!(8)),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":9,\"METHOD\":\"tools/call\",\"params\":{\"name\":\"pay\"}}",
            -32600,
            Value::Null,
        ),
    ];
    let lines: Vec<&[u8]> = cases.iter().map(|(line, _, _)| *line).collect();
    let (answers, home) = answers(&lines);
    for ((line, code, id), answer) in cases.iter().zip(&answers) {
        let shown = String::from_utf8_lossy(line);
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), id), "{shown}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("nothing ran"), "{answer}");
    }
    assert!(home.seen().iter().all(|line| !line.contains("METHOD") && !line.contains("hello")));
}

#[test]
fn a_call_that_cannot_be_understood_is_refused_with_its_id() {
    let params = [
        "null",
        "{}",
        r#"{"name":5,"arguments":{}}"#,
        r#"{"name":"pay","arguments":[]}"#,
        r#"{"name":"pay","arguments":"amount"}"#,
        r#"{"name":"pay","arguments":{"amount":1,"amount":2}}"#,
        r#"{"name":"balance","name":"pay","arguments":{"amount":1}}"#,
        r#"{"Name":"pay","name":"balance","arguments":{"amount":1}}"#,
        r#"{"name":"pay","arguments":{"amount":1},"_meta":[]}"#,
    ];
    let lines: Vec<String> = params
        .iter()
        .map(|params| format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{params}}}"#))
        .collect();
    let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
    for (answer, params) in answers(&lines).0.iter().zip(params) {
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32602), &json!("x")), "{params}");
    }
}

#[test]
fn a_message_over_the_limit_is_refused_in_bounded_memory() {
    let home = Home::new();
    let mut client = home.client_of(&["mcp", "--max-message", "1", "--"], &[script().to_str().unwrap()]);
    client.initialize();
    let long = "x".repeat(3 * 1024 * 1024);
    // The answer has the id of the message, wherever that stands; of one that has none, or two, it is not guessed.
    let params = format!(r#""params":{{"name":"pay","arguments":{{"id":7,"amount":"{long}","id":7}}}}"#);
    for (message, id) in [
        (format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call",{params}}}"#), json!(5)),
        (format!(r#"{{"method":"tools/call",{params},"jsonrpc":"2.0","id":"six"}}"#), json!("six")),
        (format!(r#"{{"method":"tools/call",{params}}}"#), Value::Null),
        (format!(r#"{{"id":5,"method":"tools/call",{params},"id":6}}"#), Value::Null),
    ] {
        client.send_raw(format!("{message}\n").as_bytes());
        let answer = client.receive();
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32600), &id));
    }
    // A reply over the limit is answered under its id, however long the server makes it. What had passed of it is cut.
    let id = client.begin("tools/call", json!({ "name": "big", "arguments": { "bytes": 3_000_000 } }));
    assert!(serde_json::from_str::<Value>(&client.line()).is_err());
    let answer = client.receive();
    assert_eq!(answer["id"], id);
    assert!(answer["error"]["message"].as_str().unwrap().contains("--max-message"), "{answer}");
    let paid = client.call("pay", json!({ "amount": 1 }));
    assert_eq!(text(&paid, 0), "paid 1, effect 1");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn an_id_that_is_under_way_is_not_taken_twice() {
    let home = Home::new();
    let mut client = home.ready();
    let call = |amount: u32| {
        json!({ "jsonrpc": "2.0", "id": "same", "method": "tools/call",
            "params": { "name": "pay", "arguments": { "amount": amount, "until": "go" } } })
    };
    client.send(&call(1));
    home.until_reached("go");
    client.send(&call(2));
    let refused = client.receive();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("same"), &json!(-32600)));
    home.raise("go");
    assert_eq!(text(&client.receive()["result"], 0), "paid 1, effect 1");
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn a_call_without_an_id_runs_nothing() {
    let home = Home::new();
    let mut client = home.ready();
    client.send(&json!({ "jsonrpc": "2.0", "method": "tools/call", "params": { "name": "pay", "arguments": { "amount": 1 } } }));
    client.end();
    assert!(home.effects().is_empty());
}

#[test]
fn a_ledger_that_cannot_be_used_lets_no_server_start() {
    let home = Home::new();
    home.write("ledger.db", "this is no ledger, and it is long enough to be seen as a file of another kind");
    let mut command = home.command(ONCELY);
    command.args(["mcp", "--", "python3"]).arg(script());
    let status = Client::start(command).end();
    assert_eq!(status.code(), Some(12));
    assert!(home.seen().is_empty());
}

#[test]
fn arguments_that_contradict_each_other_are_refused() {
    let home = Home::new();
    for arguments in [
        vec!["mcp"],
        vec!["mcp", "--name", "a/b", "--", "true"],
        vec!["mcp", "--url", "ftp://x", "--"],
        vec!["mcp", "--url", "http://user:pw@x/"],
        vec!["mcp", "--url", "http://x/", "--header", "no colon"],
        vec!["mcp", "--url", "http://x/", "--header", "A: ${NOT_SET}"],
        vec!["mcp", "--url", "http://x/", "--header", "A: ${HOME"],
        vec!["mcp", "--url", "http://x/", "--", "true"],
        vec!["mcp", "--listen", "0.0.0.0:0", "--", "true"],
        vec!["mcp", "--max-message", "0", "--", "true"],
    ] {
        let output = home.command(ONCELY).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn without_a_server_both_ways_to_name_one_are_said() {
    let output = std::process::Command::new(ONCELY).arg("mcp").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    for part in ["nothing ran", "oncely mcp -- ", "--url"] {
        assert!(said.contains(part), "{said}");
    }
}
