//! Answers that look as if nothing had happened, although it has; and callers that look like others.

use serde_json::json;

use crate::web::{Reply, Web, call, front, open, send, server};
use crate::world::{Home, code, modern_meta, script, text};

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/mcp")
}

#[test]
fn an_error_that_the_client_itself_gave_the_server_proves_nothing() {
    let home = Home::new();
    let mut client = home.ready();
    let id = client.begin("tools/call", json!({ "name": "consult", "arguments": {} }));
    assert_eq!(client.receive()["method"], "sampling/createMessage");
    client.send(&json!({ "jsonrpc": "2.0", "id": "srv-2", "error": { "code": -32601, "message": "Method not found" } }));
    assert_eq!(client.answer_to(&id).0["error"]["code"], -32601);
    assert_eq!(code(&client.call("consult", json!({}))), "OUTCOME_UNKNOWN");
    drop(client);
    assert_eq!(home.effects(), ["consult"]);
}

/// What a client says to the server's question of `consult`, in a batch with something else.
fn answer_in_a_batch() -> serde_json::Value {
    let error = json!({ "code": -32601, "message": "Method not found" });
    json!([
        { "jsonrpc": "2.0", "method": "notifications/x" },
        { "jsonrpc": "2.0", "id": "srv-2", "error": error },
    ])
}

#[test]
fn an_error_that_the_client_gave_the_server_in_a_batch_proves_nothing_either() {
    let home = Home::new();
    let mut client = home.ready();
    let id = client.begin("tools/call", json!({ "name": "consult", "arguments": {} }));
    assert_eq!(client.receive()["method"], "sampling/createMessage");
    client.send(&answer_in_a_batch());
    assert_eq!(client.answer_to(&id).0["error"]["code"], -32601);
    assert_eq!(code(&client.call("consult", json!({}))), "OUTCOME_UNKNOWN");
    drop(client);
    assert_eq!(home.effects(), ["consult"]);
}

#[test]
fn over_http_an_error_that_the_client_gave_the_server_in_a_batch_proves_nothing_either() {
    let home = Home::new();
    let server = server(&home, "sse");
    let front = front(&home, &["--url", &url(server.port)]);
    let web = Web::begin(front.port);
    let message = call("consult", json!({})).to_string();
    let waiting = open(front.port, "POST", "/mcp", &[("Mcp-Session-Id", &web.session)], &message);
    home.until(|| home.effects() == ["consult"]);
    assert_eq!(web.post(&answer_in_a_batch(), &[]).status, 202);
    let told = Reply::read(Vec::new(), waiting).messages();
    assert_eq!(told.last().unwrap()["error"]["code"], -32601, "{told:?}");
    assert_eq!(code(&web.call("consult", json!({}), &[]).result()), "OUTCOME_UNKNOWN");
    assert_eq!(home.effects(), ["consult"]);
}

#[test]
fn an_http_status_does_not_overrule_an_answer_to_the_call() {
    let home = Home::new();
    let server = server(&home, "json");
    let arguments = json!({ "code": -32600, "text": "no" });
    let front = front(&home, &["--url", &url(server.port)]);
    let web = Web::begin(front.port);
    let reply = web.call("rpc_error", arguments.clone(), &[]);
    let told = &reply.messages()[0];
    assert_eq!((reply.status, &told["id"], &told["error"]["code"]), (400, &json!(1), &json!(-32600)));
    // What is left to say is said here, too.
    let (first, more) = told["error"]["message"].as_str().unwrap().split_once('\n').unwrap();
    assert!(first == "no" && more.contains("Outcome unknown"), "{told}");
    let envelope = &told["error"]["data"]["dev.oncely/envelope"];
    assert_eq!(envelope["error"]["code"], "OUTCOME_UNKNOWN", "{told}");
    assert_eq!(reply.header("x-server"), Some("scripted"), "the reply is the server's own otherwise");
    assert_eq!(code(&web.call("rpc_error", arguments.clone(), &[]).result()), "OUTCOME_UNKNOWN");
    assert_eq!(home.effects().len(), 1);
    let mut client = home.client_of(&["mcp", "--name", "another", "--url", &url(server.port)], &[]);
    client.initialize();
    let answer = client.request("tools/call", json!({ "name": "rpc_error", "arguments": arguments }));
    assert_eq!(answer["error"]["code"], -32600);
    assert_eq!(code(&client.call("rpc_error", arguments)), "OUTCOME_UNKNOWN");
    drop(client);
    assert_eq!(home.effects().len(), 2);
}

#[test]
fn a_session_that_the_server_does_not_know_proves_that_nothing_happened() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--url", &url(server.port)]);
    let lost = Web { port: front.port, session: "gone".into() };
    let reply = lost.call("pay", json!({ "amount": 1 }), &[]);
    assert_eq!((reply.status, reply.body.as_str()), (404, "no such session"));
    assert_eq!(home.states(), [("pay".into(), "rejected".into())]);
}

#[test]
fn what_tells_callers_apart_can_be_chosen() {
    for (tenant, effects) in [("authorization", 2), ("header:X-User", 1), ("none", 1)] {
        let home = Home::new();
        let server = server(&home, "json");
        let front = front(&home, &["--tenant", tenant, "--url", &url(server.port)]);
        let web = Web::begin_as(front.port, &[("X-User", "ann")]);
        for token in ["Bearer first", "Bearer refreshed"] {
            web.call("pay", json!({ "amount": 1 }), &[("Authorization", token), ("X-User", "ann")]);
        }
        assert_eq!(home.effects().len(), effects, "{tenant}");
        web.call("pay", json!({ "amount": 1 }), &[("Authorization", "Bearer first"), ("X-User", "bob")]);
        let expected = if tenant == "header:X-User" { 2 } else { effects };
        assert_eq!(home.effects().len(), expected, "{tenant}");
    }
}

#[test]
fn whoever_does_not_say_what_tells_callers_apart_is_refused() {
    let home = Home::new();
    let server = server(&home, "json");
    for behind in [&["--url", &url(server.port)][..], &["--", "python3", script().to_str().unwrap()]] {
        let front = front(&home, &[&["--tenant", "header:X-User"][..], behind].concat());
        let web = Web::begin_as(front.port, &[("X-User", "ann")]);
        let refused = web.call("pay", json!({ "amount": 1 }), &[("X-Request-Id", "1")]);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.body.contains("x-user") && refused.body.contains("nothing ran"), "{refused:?}");
    }
    assert!(home.effects().is_empty() && home.states().is_empty());
}

#[test]
fn a_credential_of_any_name_keeps_results_of_one_caller_from_another() {
    let home = Home::new();
    let server = server(&home, "json");
    for (number, behind) in
        [&["--url", &url(server.port)][..], &["--", "python3", script().to_str().unwrap()]].iter().enumerate()
    {
        let front = front(&home, behind);
        let web = Web::begin(front.port);
        let before = home.effects().len();
        for name in ["apikey", "X-Access-Token", "DD-API-KEY", "Ocp-Apim-Subscription-Key"] {
            for who in ["ann", "bob", "ann"] {
                web.call("pay", json!({ "amount": number, "idempotency_key": name }), &[(name, who)]);
            }
        }
        assert_eq!(home.effects().len() - before, 8);
        // What is new on every retry makes no other call of it.
        for csrf in ["1", "2"] {
            let new = [("X-CSRF-Token", csrf), ("Idempotency-Key", csrf), ("traceparent", csrf)];
            web.call("pay", json!({ "amount": number, "idempotency_key": "same" }), &new);
        }
        assert_eq!(home.effects().len() - before, 9);
    }
}

#[test]
fn over_http_the_policy_can_pass_a_cancellation_on_under_our_id() {
    for (forward, passed) in [("true", true), ("false", false)] {
        let home = Home::new();
        home.write("oncely.toml", &format!("[tool.pay]\nforward_cancel = {forward}\n"));
        let server = server(&home, "sse");
        let front = front(&home, &["--url", &url(server.port)]);
        let web = Web::begin(front.port);
        let message = call("pay", json!({ "amount": 8, "until": "go" }));
        let waiting =
            open(front.port, "POST", "/mcp", &[("Mcp-Session-Id", &web.session)], &message.to_string());
        home.until_reached("go");
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
        assert_eq!(web.post(&cancel, &[]).status, 202);
        home.until(|| !passed || home.read("seen").contains("notifications/cancelled"));
        let seen = home.read("seen");
        assert_eq!(seen.contains("notifications/cancelled"), passed);
        assert_eq!(seen.contains("\"requestId\":\"oncely-"), passed, "{seen}");
        home.raise("go");
        home.until(|| home.states() == [("pay".into(), "succeeded".into())]);
        drop(waiting);
    }
}

#[test]
fn an_answer_that_comes_late_after_a_cancellation_settles_the_doubt() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nforward_cancel = true\n");
    let mut client = home.ready();
    let id =
        client.begin("tools/call", json!({ "name": "pay", "arguments": { "amount": 7, "until": "go" } }));
    home.until_reached("go");
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }),
    );
    home.until(|| home.states() == [("pay".into(), "in_doubt".into())]);
    home.raise("go");
    home.until(|| home.states() == [("pay".into(), "succeeded".into())]);
    let again = client.call("pay", json!({ "amount": 7, "until": "go" }));
    assert_eq!(text(&again, 0), "paid 7, effect 1");
    drop(client);
    assert_eq!(home.effects(), ["pay 7"]);
}

#[test]
fn a_quiet_policy_does_not_hide_an_unknown_outcome() {
    let home = Home::new();
    home.write("oncely.toml", "[defaults]\nannotate = \"off\"\n");
    let mut client = home.ready();
    let result = client.call("fail", json!({ "text": "boom" }));
    assert!(text(&result, 1).contains("Outcome unknown"), "{result}");
}

#[test]
fn a_page_in_place_of_an_answer_proves_nothing_and_never_reaches_a_client_that_reads_lines() {
    let home = Home::new();
    let server = server(&home, "json");
    let mut client = home.client_of(&["mcp", "--url", &url(server.port)], &[]);
    client.initialize();
    client.call("balance", json!({}));
    home.raise("html");
    // Every line that comes is a message, or this would not read it.
    let error = client.request("ping", json!({}))["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("maintenance"), "{error}");
    assert_eq!(code(&client.call("pay", json!({ "amount": 1 }))), "OUTCOME_UNKNOWN");
    drop(client);
    assert!(home.effects().is_empty());
}

#[test]
fn what_a_server_says_in_place_of_an_answer_is_told_and_kept_as_results_are() {
    let home = Home::new();
    home.write("keys", &format!("k {}", "0f".repeat(32)));
    home.write("oncely.toml", "[encryption]\nkeys_file = \"keys\"\n");
    let server = server(&home, "json");
    let mut client = home.client_of(&["mcp", "--url", &url(server.port)], &[]);
    client.initialize();
    client.call("balance", json!({}));
    home.raise("html");
    for _ in ["the first caller", "and whoever asks again"] {
        let told = client.call("pay", json!({ "amount": 1 }));
        assert_eq!(code(&told), "OUTCOME_UNKNOWN");
        assert!(text(&told, 0).contains("maintenance"), "{told}");
    }
    drop(client);
    let id = home.oncely(&["ls"])[0]["id"].as_str().unwrap().to_owned();
    let shown = &home.oncely(&["show", &id, "--json"])[0];
    assert!(shown["evidence"].to_string().contains("maintenance"), "{shown}");
    // Nowhere but there: neither in the record's message nor in its events, nor on disk in plain.
    assert_eq!(shown.to_string().matches("maintenance").count(), 1, "{shown}");
    for file in std::fs::read_dir(home.path(".")).unwrap() {
        let path = file.unwrap().path();
        if path.to_string_lossy().contains("ledger.db") {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(11).any(|part| part == b"maintenance"), "{}", path.display());
        }
    }
}

#[test]
fn what_refused_a_call_before_the_server_saw_it_is_never_taken_for_its_result() {
    for (refusal, annotate) in [
        ("<html>log in</html>", "text"),
        ("<html>log in</html>", "off"),
        (r#"{"content":[{"type":"text","text":"log in"}]}"#, "text"),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"log in"}}"#, "off"),
    ] {
        let home = Home::new();
        home.write("oncely.toml", &format!("[tool.pay]\nmax_retries = 0\nannotate = \"{annotate}\"\n"));
        home.write("refuse", &json!({ "status": 401, "body": refusal }).to_string());
        let server = server(&home, "json");
        let mut client = home.client_of(&["mcp", "--url", &url(server.port)], &[]);
        client.initialize();
        for call in ["it is refused", "its retries are spent"] {
            let told = client.call("pay", json!({ "amount": 1 }));
            assert_eq!(told["isError"], true, "{call}: {told}");
            assert!(text(&told, 0).contains("log in"), "{call}: {told}");
        }
        drop(client);
        assert!(home.effects().is_empty());
    }
}

#[test]
fn a_read_of_a_server_at_an_address_may_take_its_time() {
    let home = Home::new();
    let server = server(&home, "sse");
    let mut client = home.client_of(&["mcp", "--url", &url(server.port)], &[]);
    client.initialize();
    // Longer than a message may take that wants no answer.
    let result = client.call("big", json!({ "bytes": 3, "seconds": 11 }));
    assert_eq!(text(&result, 0), "xxx");
}

#[test]
fn a_query_of_the_client_is_passed_on_and_does_not_make_a_retry_another_call() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--url", &format!("{}?own=1", url(server.port))]);
    let pay = |query: &str| {
        let path = format!("/mcp{query}");
        let params = json!({ "name": "pay", "arguments": { "amount": 1 }, "_meta": modern_meta() });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let headers = crate::web::described("pay");
        text(&send(front.port, "POST", &path, &headers, &message.to_string()).result(), 0).to_owned()
    };
    // What the server lists for this address is believed of this address only: there `pay` is said to read.
    assert_ne!(pay("?read_only=true"), pay("?read_only=true"));
    assert_eq!(home.effects().len(), 2);
    // What is in the query may be another one when it is tried again; a credential tells who calls.
    let first = pay("?session_id=1");
    for query in ["?session_id=2", "?project=a", ""] {
        assert_eq!(pay(query), first, "{query}");
    }
    assert_eq!(home.effects().len(), 3);
    assert!(pay("?api_key=a") != first && pay("?api_key=b") != pay("?x=1&api_key=a"));
    assert_eq!(home.effects().len(), 5);
    for query in ["own=2", "%6fwn=2", "x=1;OWN[]=2", "%256fwn=2"] {
        let path = format!("/mcp?{query}");
        let refused = send(front.port, "POST", &path, &[("Mcp-Method", "ping")], "{}");
        assert_eq!(
            refused.status, 400,
            "{query}: what the proxy's own address says is not the client's to change"
        );
    }
    let seen = home.seen();
    for path in ["/mcp?own=1", "/mcp?own=1&project=a", "/mcp?own=1&read_only=true"] {
        assert!(seen.iter().any(|line| line.contains(&format!("\":path\": \"{path}\""))), "{path}");
    }
}

#[test]
fn what_an_older_release_of_the_server_said_is_not_believed_of_a_new_session() {
    let home = Home::new();
    let server = server(&home, "json");
    for (number, behind) in
        [&["--url", &url(server.port)][..], &["--", "python3", script().to_str().unwrap()]].iter().enumerate()
    {
        let front = front(&home, behind);
        let before = home.effects().len();
        let pay = |web: &Web| {
            web.call("pay", json!({ "amount": number }), &[]);
            home.effects().len() - before
        };
        home.raise("payreads");
        let old = Web::begin(front.port);
        assert_eq!([pay(&old), pay(&old)], [1, 2], "a read goes to the server every time");
        std::fs::remove_file(home.path("payreads")).unwrap();
        let new = Web::begin(front.port);
        assert_eq!([pay(&new), pay(&new), pay(&old)], [3; 3], "{behind:?}");
    }
}
