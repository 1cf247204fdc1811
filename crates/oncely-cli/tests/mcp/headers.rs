//! Headers that repeat what a message says, which gateways on the way go by: they have to agree, whatever is behind us.

use serde_json::{Value, json};

use crate::web::{Listening, call, call_modern, described, front, send, server};
use crate::world::{Home, modern_meta, script};

/// oncely in front of a server at an address, and of one that it starts.
fn fronts(home: &Home) -> [(Listening, Option<Listening>); 2] {
    let server = server(home, "json");
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let command = ["--name", "started", "--", "python3", script().to_str().unwrap()].map(str::to_owned);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    [(front(home, &["--url", &url]), Some(server)), (front(home, &command), None)]
}

fn modern(tool: &str, arguments: Value) -> String {
    let mut message = call(tool, arguments);
    message["params"]["_meta"] = modern_meta();
    message.to_string()
}

#[test]
fn headers_that_contradict_the_message_or_are_missing_are_refused_and_nothing_runs() {
    let home = Home::new();
    for (front, server) in fronts(&home) {
        assert_eq!(call_modern(front.port, "pay", json!({ "amount": 1 })).status, 200);
        let effects = home.effects();
        let good = described("pay");
        let mut odd: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
        for at in 0..good.len() {
            odd.push(
                good.iter().copied().enumerate().filter(|(i, _)| *i != at).map(|(_, pair)| pair).collect(),
            );
            let mut wrong = good.to_vec();
            wrong[at].1 = "balance";
            odd.push(wrong);
            odd.push(good.iter().copied().chain([(good[at].0, "balance")]).collect());
        }
        for headers in odd {
            // One that would be replayed, and one that would run.
            for amount in [1, 2] {
                let body = modern("pay", json!({ "amount": amount }));
                let refused = send(front.port, "POST", "/mcp", &headers, &body);
                let error = refused.messages()[0]["error"].clone();
                assert_eq!((refused.status, &error["code"]), (400, &json!(-32020)), "{headers:?}");
                assert!(error["message"].as_str().unwrap().contains("nothing ran"), "{error}");
            }
        }
        assert_eq!(home.effects(), effects, "{}", if server.is_some() { "url" } else { "command" });
    }
}

#[test]
fn a_started_server_is_not_called_past_a_gateway_that_goes_by_headers() {
    let home = Home::new();
    let front = front(&home, &["--", "python3", script().to_str().unwrap()]);
    // Reads, too: it is we who are the server here.
    for (body, said) in [("balance", "pay"), ("pay", "balance")] {
        let refused =
            send(front.port, "POST", "/mcp", &described(said), &modern(body, json!({ "amount": 1 })));
        assert_eq!(
            (refused.status, &refused.messages()[0]["error"]["code"]),
            (400, &json!(-32020)),
            "{body}"
        );
    }
    assert!(home.effects().is_empty() && home.seen().is_empty());
    // Nor in the era that does not need them.
    let web = crate::web::Web::begin(front.port);
    let refused = web.call("pay", json!({ "amount": 1 }), &[("Mcp-Name", "balance")]);
    assert_eq!((refused.status, &refused.messages()[0]["error"]["code"]), (400, &json!(-32020)));
    assert!(home.effects().is_empty());
}

#[test]
fn an_argument_that_a_header_repeats_has_to_be_the_same_there() {
    let home = Home::new();
    let front = front(&home, &["--", "env", "ROUTED=1", "python3", script().to_str().unwrap()]);
    let post = |region: Option<&str>, arguments: Value| {
        let more = region.map(|region| ("Mcp-Param-Region", region));
        let headers: Vec<_> = described("routed").into_iter().chain(more).collect();
        send(front.port, "POST", "/mcp", &headers, &modern("routed", arguments))
    };
    for (region, arguments) in
        [(Some("us"), json!({ "region": "eu" })), (None, json!({ "region": "eu" })), (Some("eu"), json!({}))]
    {
        let refused = post(region, arguments);
        assert_eq!(
            (refused.status, &refused.messages()[0]["error"]["code"]),
            (400, &json!(-32020)),
            "{region:?}"
        );
    }
    assert!(home.effects().is_empty());
    assert_eq!(post(Some("eu"), json!({ "region": "eu" })).status, 200);
    assert_eq!(post(None, json!({})).status, 200);
    assert_eq!(home.effects().len(), 2);
}

#[test]
fn errors_that_have_a_status_in_the_protocol_get_it() {
    let home = Home::new();
    for (count, (front, server)) in (1..).zip(fronts(&home)) {
        let mut able = modern_meta();
        able["io.modelcontextprotocol/clientCapabilities"] =
            json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let mut message = call("task", json!({}));
        message["params"]["_meta"] = able;
        let begun = send(front.port, "POST", "/mcp", &described("task"), &message.to_string());
        assert_eq!((begun.status, &begun.result()["task"]["taskId"]), (200, &json!("t-1")), "{begun:?}");
        let refused = call_modern(front.port, "task", json!({}));
        assert_eq!((refused.status, &refused.messages()[0]["error"]["code"]), (400, &json!(-32021)));
        assert_eq!(home.effects().len(), count);
        if server.is_none() {
            let odd =
                json!({ "jsonrpc": "2.0", "id": 1, "method": "odd", "params": { "_meta": modern_meta() } });
            let headers = [("Mcp-Method", "odd"), ("MCP-Protocol-Version", "2026-07-28")];
            let unknown = send(front.port, "POST", "/mcp", &headers, &odd.to_string());
            assert_eq!((unknown.status, &unknown.messages()[0]["error"]["code"]), (404, &json!(-32601)));
        }
    }
}
