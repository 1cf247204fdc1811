//! Streamable HTTP, behind and in front, in both eras.

use serde_json::{Value, json};

use crate::web::{FORMS, Web, call, call_modern, front, open, send, server, start_server};
use crate::world::{Client, Home, ONCELY, code, modern_meta, script, text};

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/mcp")
}

/// What the server got, with the headers that came with it.
fn requests(home: &Home) -> Vec<(Value, Value)> {
    let seen = home.seen();
    let pairs =
        seen.windows(2).filter_map(|pair| Some((pair[0].as_str(), pair[1].strip_prefix("HEADERS ")?)));
    pairs
        .map(|(body, headers)| (serde_json::from_str(body).unwrap(), serde_json::from_str(headers).unwrap()))
        .collect()
}

#[test]
fn a_client_on_standard_input_speaks_with_a_server_at_an_address_in_both_eras() {
    for form in FORMS {
        let home = Home::new();
        let server = server(&home, form);
        let url = url(server.port);
        let arguments = ["mcp", "--url", &url, "--header", "Authorization: Bearer ${TOKEN}"];
        let mut command = home.command(ONCELY);
        command.args(arguments).env("TOKEN", "s3cret");
        let mut client = Client::start(command);
        let answer = client.initialize();
        assert_eq!(answer["result"]["capabilities"]["odd"]["kept"], true);
        for _ in 0..2 {
            assert_eq!(text(&client.call("pay", json!({ "amount": 2 })), 0), "paid 2, effect 1", "{form}");
        }
        assert_ne!(client.call("balance", json!({})), client.call("balance", json!({})));
        for _ in 0..2 {
            assert_eq!(text(&client.call_modern("keyed", json!({})), 0), "done {}");
        }
        assert_eq!(client.request("nope", json!({}))["error"]["code"], -32601);
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            client.request(method, json!({ "taskId": "t-1", "_meta": modern_meta() }));
        }
        client.end();
        assert_eq!(home.effects().len(), 2);
        let seen = requests(&home);
        let tasks: Vec<_> = seen.iter().filter(|(body, _)| body["params"]["taskId"] == "t-1").collect();
        assert!(
            tasks.len() == 3 && tasks.iter().all(|(_, headers)| headers["mcp-name"] == "t-1"),
            "{tasks:?}"
        );
        assert!(seen.iter().all(|(_, headers)| headers["authorization"] == "Bearer s3cret"));
        let modern = seen.iter().rev().find(|(body, _)| body["params"]["name"] == "keyed").unwrap();
        assert_eq!(modern.1["mcp-method"], "tools/call");
        assert_eq!(modern.1["mcp-name"], "keyed");
        assert_eq!(modern.1["mcp-protocol-version"], "2026-07-28");
        let legacy = seen.iter().find(|(body, _)| body["params"]["name"] == "balance").unwrap();
        assert_eq!(legacy.1["mcp-protocol-version"], "2025-06-18");
        assert!(home.seen().last().unwrap().starts_with("DELETE "), "the session is ended");
        assert!(!home.read("ledger.db").contains("s3cret"));
    }
}

#[test]
fn a_server_at_an_https_address_is_spoken_to_if_the_system_trusts_it() {
    let tls = script().with_file_name("tls");
    let home = Home::new();
    let mut command = home.command("python3");
    command.arg(script()).arg("--http").env("CERTIFICATE", tls.join("server.pem"));
    let server = start_server(command);
    let client = |trusted: Option<&str>| {
        let mut command = home.command(ONCELY);
        command.args(["mcp", "--url", &format!("https://localhost:{}/mcp", server.port)]);
        if let Some(trusted) = trusted {
            command.env("SSL_CERT_FILE", tls.join(trusted));
        }
        Client::start(command)
    };
    let mut trusting = client(Some("ca.pem"));
    trusting.initialize();
    assert_eq!(text(&trusting.call("pay", json!({ "amount": 1 })), 0), "paid 1, effect 1");
    let mut wary = client(None);
    let refused = wary.request("ping", json!({}));
    assert!(refused["error"]["message"].as_str().unwrap().contains("certificate"), "{refused}");
    let refused = wary.call("pay", json!({ "amount": 2 }));
    assert_eq!(code(&refused), "NOT_SENT");
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn what_the_server_says_by_itself_and_with_an_answer_reaches_the_client() {
    let home = Home::new();
    let server = server(&home, "sse");
    let url = url(server.port);
    let mut client = home.client_of(&["mcp", "--url", &url], &[]);
    client.initialize();
    assert_eq!(client.receive()["params"]["data"], "hello");
    let params = json!({ "name": "progress", "arguments": {}, "_meta": { "progressToken": 4 } });
    let id = client.begin("tools/call", params);
    let (_, before) = client.answer_to(&id);
    assert_eq!(before[0]["params"]["progressToken"], 4);
}

#[test]
fn a_server_that_cannot_be_reached_proves_that_nothing_happened() {
    let home = Home::new();
    let port = oncely_testkit::servers::free_port().unwrap();
    let mut client = home.client_of(&["mcp", "--url", &url(port)], &[]);
    let result = client.call("pay", json!({ "amount": 1 }));
    assert_eq!(code(&result), "NOT_SENT");
    assert_eq!(result["_meta"]["dev.oncely/envelope"]["error"]["retryable"], true);
    drop(client);
    assert_eq!(home.states(), [("pay".into(), "rejected".into())]);
}

#[test]
fn a_reply_that_breaks_off_leaves_the_call_in_doubt() {
    let home = Home::new();
    let mut server = server(&home, "sse");
    let url = url(server.port);
    let mut client = home.client_of(&["mcp", "--url", &url], &[]);
    client.initialize();
    let id =
        client.begin("tools/call", json!({ "name": "pay", "arguments": { "amount": 3, "until": "never" } }));
    home.until_reached("never");
    server.child.kill().unwrap();
    let (answer, _) = client.answer_to(&id);
    assert_eq!(code(&answer["result"]), "OUTCOME_UNKNOWN");
    drop(client);
    assert_eq!(home.effects(), ["pay 3"]);
}

#[test]
fn from_http_to_http_only_guarded_calls_change() {
    for form in FORMS {
        let home = Home::new();
        let server = server(&home, form);
        let front = front(&home, &["--url", &url(server.port)]);
        let web = Web::begin(front.port);
        for _ in 0..2 {
            let reply = web.call("pay", json!({ "amount": 2 }), &[]);
            assert_eq!((reply.status, text(&reply.result(), 0)), (200, "paid 2, effect 1"));
        }
        // A read is the server's own reply, header for header.
        let through = web.call("big", json!({ "bytes": 10 }), &[("Traceparent", "00-1")]);
        let direct = Web { port: server.port, session: web.session.clone() };
        let direct = direct.call("big", json!({ "bytes": 10 }), &[("Traceparent", "00-1")]);
        assert_eq!((through.status, &through.body), (direct.status, &direct.body));
        for name in ["content-type", "x-server", "content-length"] {
            assert_eq!(through.header(name), direct.header(name), "{form} {name}");
        }
        let seen = requests(&home);
        let big: Vec<&Value> =
            seen.iter().filter(|(b, _)| b["params"]["name"] == "big").map(|(_, h)| h).collect();
        for name in ["traceparent", "accept", "content-type", "mcp-session-id"] {
            assert_eq!(big[0][name], big[1][name], "{form} {name}");
        }
        let tools = web.post(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }), &[]);
        let tools = tools.result()["tools"].clone();
        assert!(tools[0]["inputSchema"]["properties"]["idempotency_key"].is_object());
        assert!(tools[1]["inputSchema"]["properties"]["idempotency_key"].is_null());
        for _ in 0..2 {
            assert_eq!(text(&call_modern(front.port, "keyed", json!({})).result(), 0), "done {}");
        }
        assert_eq!(home.effects().len(), 2, "{form}");
        // Ends of sessions, unknown sessions and the lookup of metadata pass, too.
        let unknown = send(
            front.port,
            "POST",
            "/mcp",
            &[("Mcp-Session-Id", "no")],
            &json!({ "id": 1, "method": "ping" }).to_string(),
        );
        assert_eq!((unknown.status, unknown.body.as_str()), (404, "no such session"));
        let known = send(front.port, "GET", "/.well-known/oauth-protected-resource/mcp", &[], "");
        assert_eq!((known.status, known.body.contains("oauth-protected-resource/mcp")), (200, true));
        assert_eq!(send(front.port, "GET", "/admin", &[], "").status, 404);
        assert_eq!(send(front.port, "DELETE", "/mcp", &[("Mcp-Session-Id", &web.session)], "").status, 200);
    }
}

#[test]
fn a_refusal_of_the_server_keeps_its_status_and_headers_and_is_no_outcome() {
    let home = Home::new();
    let mut command = home.command("python3");
    command.arg(script()).arg("--http").env("TOKEN", "good");
    let server = start_server(command);
    let front = front(&home, &["--url", &url(server.port)]);
    let refused = call_modern(front.port, "pay", json!({ "amount": 1 }));
    assert_eq!((refused.status, refused.body.as_str()), (401, "who are you?"));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"scripted\""));
    assert_eq!(home.states(), [("pay".into(), "rejected".into())]);
    assert!(home.effects().is_empty());
}

#[test]
fn credentials_of_the_client_reach_the_server_as_they_are_with_every_kind_of_request() {
    let home = Home::new();
    let mut command = home.command("python3");
    command.arg(script()).arg("--http").env("TOKEN", "good");
    let server = start_server(command);
    let front = front(&home, &["--url", &url(server.port)]);
    let identified = [("Authorization", "Bearer good"), ("X-Api-Key", "k3y"), ("Cookie", "a=1; b=2")];
    let post = |message: Value| send(front.port, "POST", "/mcp", &identified, &message.to_string());
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {} } });
    let session = post(hello).header("mcp-session-id").unwrap().to_owned();
    let web = Web { port: front.port, session };
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    for reply in [
        web.post(&list, &identified),
        web.call("balance", json!({}), &identified),
        web.call("pay", json!({ "amount": 1 }), &identified),
    ] {
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let seen = requests(&home);
    for (body, headers) in &seen {
        for (name, value) in &identified {
            assert_eq!(headers[name.to_lowercase()], *value, "{name} {body}");
        }
    }
    // The handshake, what the client asked for, and the list that we asked for ourselves.
    assert!(seen.len() >= 4, "{seen:?}");
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn callers_with_other_credentials_never_see_each_others_results() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--url", &url(server.port)]);
    let web = Web::begin(front.port);
    let pay = |who: &str| {
        web.call("pay", json!({ "amount": 1, "idempotency_key": "k" }), &[("Authorization", who)]).result()
    };
    assert_eq!(text(&pay("Bearer ann"), 0), "paid 1, effect 1");
    assert_eq!(text(&pay("Bearer bob"), 0), "paid 1, effect 2");
    assert_eq!(text(&pay("Bearer ann"), 0), "paid 1, effect 1");
    assert!(home.oncely(&["ls"]).iter().all(|record| !record.to_string().contains("Bearer")));
}

#[test]
fn a_client_that_hangs_up_leaves_its_write_to_finish() {
    for behind in ["url", "command"] {
        let home = Home::new();
        let server = server(&home, "sse");
        let front = match behind {
            "url" => front(&home, &["--url", &url(server.port)]),
            _ => front(&home, &["--", "python3", script().to_str().unwrap()]),
        };
        let web = Web::begin(front.port);
        let message = call("pay", json!({ "amount": 8, "until": "go" }));
        let gone =
            open(front.port, "POST", "/mcp", &[("Mcp-Session-Id", &web.session)], &message.to_string());
        home.until_reached("go");
        drop(gone);
        home.raise("go");
        home.until(|| home.states() == [("pay".into(), "succeeded".into())]);
        let again = web.post(&message, &[]).result();
        assert_eq!(text(&again, 0), "paid 8, effect 1", "{behind}");
        assert_eq!(home.effects(), ["pay 8"]);
    }
}

#[test]
fn servers_are_started_for_clients_that_connect() {
    let home = Home::new();
    let front = front(&home, &["--", "python3", script().to_str().unwrap()]);
    let (ann, bob) = (Web::begin(front.port), Web::begin(front.port));
    assert_ne!(ann.session, bob.session);
    // Both use the same ids and the same tokens.
    for web in [&ann, &bob] {
        let mut message = call("progress", json!({}));
        message["params"]["_meta"] = json!({ "progressToken": 5 });
        let messages = web.post(&message, &[]).messages();
        let answer = messages.last().unwrap();
        assert_eq!((&answer["id"], text(&answer["result"], 0)), (&json!(1), "done {}"));
        if messages.len() > 1 {
            assert_eq!(messages[0]["params"]["progressToken"], 5);
        }
    }
    assert_eq!(home.effects().len(), 1, "one ledger for all");
    assert_ne!(ann.call("balance", json!({}), &[]).result(), ann.call("balance", json!({}), &[]).result());
    for _ in 0..2 {
        assert_eq!(
            text(&call_modern(front.port, "pay", json!({ "amount": 1 })).result(), 0),
            "paid 1, effect 2"
        );
    }
    let delete =
        |web: &Web| send(front.port, "DELETE", "/mcp", &[("Mcp-Session-Id", &web.session)], "").status;
    assert_eq!(delete(&ann), 204);
    assert_eq!(ann.call("balance", json!({}), &[]).status, 404);
    assert_eq!(bob.call("balance", json!({}), &[]).status, 200);
    let bare = send(front.port, "POST", "/mcp", &[], &call("balance", json!({})).to_string());
    assert_eq!(bare.status, 400);
    let batch = send(front.port, "POST", "/mcp", &[], "[]");
    assert_eq!(batch.status, 400);
    assert_eq!(send(front.port, "POST", "/mcp", &[], "{").messages()[0]["error"]["code"], -32700);
    assert_eq!(send(front.port, "GET", "/mcp", &[], "").status, 405);
    assert_eq!(send(front.port, "PUT", "/mcp", &[], "").status, 405);
    assert_eq!(send(front.port, "POST", "/other", &[], "").status, 404);
}

#[test]
fn a_web_page_of_another_origin_and_a_rebound_name_are_kept_out() {
    let home = Home::new();
    let front = front(&home, &["--", "python3", script().to_str().unwrap()]);
    let body = call("pay", json!({ "amount": 1 })).to_string();
    for headers in [[("Origin", "https://evil.example"), ("X", "1")], [("Host", "evil.example"), ("X", "1")]]
    {
        assert_eq!(send(front.port, "POST", "/mcp", &headers, &body).status, 403);
    }
    assert!(home.seen().is_empty() && home.states().is_empty());
}

#[test]
fn a_message_over_the_limit_is_refused_over_http_too() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--max-message", "1", "--url", &url(server.port)]);
    let long = call("pay", json!({ "amount": "x".repeat(2 * 1024 * 1024) })).to_string();
    assert_eq!(send(front.port, "POST", "/mcp", &[], &long).status, 413);
    assert!(home.seen().is_empty());
}
