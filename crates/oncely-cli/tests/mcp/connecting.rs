//! Clients that connect and do not mean well, or do not know of each other.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::web::{Listening, Web, call, call_modern, described, front, open, send, server, start_server};
use crate::world::{Home, code, modern_meta, script, text};

fn started(home: &Home) -> Listening {
    front(home, &["--", "python3", script().to_str().unwrap()])
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/mcp")
}

#[test]
fn lines_within_a_posted_message_are_no_messages_to_a_started_server() {
    let home = Home::new();
    let front = started(&home);
    let web = Web::begin(front.port);
    let session = [("Mcp-Session-Id", web.session.as_str())];
    let hidden =
        r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"pay","arguments":{"amount":1}}}"#;
    for end in ["\n", "\r", "\r\n"] {
        let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":"#;
        let body = format!("{ping}{end}{hidden}{end}}}}}");
        assert_eq!(send(front.port, "POST", "/mcp", &session, &body).messages()[0]["result"], json!({}));
        let odd = r#"{"jsonrpc":"2.0","method":"notifications/odd","params":{"a":"#;
        let body = format!("{odd}{end}{hidden}{end}}}}}");
        assert_eq!(send(front.port, "POST", "/mcp", &session, &body).status, 202);
    }
    assert!(home.effects().is_empty());
    // A client that writes its messages for people is understood.
    let body = serde_json::to_string_pretty(&call("pay", json!({ "amount": 2 }))).unwrap();
    for _ in 0..2 {
        let reply = send(front.port, "POST", "/mcp", &session, &body);
        assert_eq!(text(&reply.result(), 0), "paid 2, effect 1");
    }
    assert_eq!(home.effects(), ["pay 2"]);
}

#[test]
fn there_is_no_way_around_the_guard_by_another_path_or_method_or_encoding() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--url", &url(server.port)]);
    let web = Web::begin(front.port);
    let session = [("Mcp-Session-Id", web.session.as_str())];
    let body = call("pay", json!({ "amount": 1 })).to_string();
    let seen = home.seen().len();
    for path in [
        "/.well-known/x",
        "/.well-known/../mcp",
        "/.well-known/%2e%2E/mcp",
        "/.well-known//../mcp",
        "/.well-known/..%2fmcp",
        "/.well-known/\\..\\mcp",
    ] {
        assert_eq!(send(front.port, "POST", path, &session, &body).status / 100, 4, "{path}");
        assert_eq!(send(front.port, "GET", path, &session, &body).status / 100, 4, "{path}");
    }
    assert_eq!(send(front.port, "GET", "/.well-known/../mcp", &session, "").status, 404);
    for method in ["PUT", "PATCH", "GET", "DELETE"] {
        assert_eq!(send(front.port, method, "/mcp", &session, &body).status, 405, "{method}");
    }
    let utf7 = [session[0], ("Content-Type", "application/json; charset=utf-7")];
    assert_eq!(send(front.port, "POST", "/mcp", &utf7, &body).status, 415);
    assert_eq!(home.seen().len(), seen, "the server saw nothing of it");
    assert!(home.effects().is_empty());
    assert_eq!(send(front.port, "GET", "/.well-known/oauth-protected-resource", &[], "").status, 200);
    let started = started(&home);
    assert_eq!(send(started.port, "POST", "/mcp", &utf7, &body).status, 415);
}

#[test]
fn callers_with_other_credentials_of_a_started_server_never_see_each_others_results() {
    let home = Home::new();
    let front = started(&home);
    let web = Web::begin(front.port);
    let pay = |who: &str| {
        web.call("pay", json!({ "amount": 1, "idempotency_key": "k" }), &[("Authorization", who)]).result()
    };
    assert_eq!(text(&pay("Bearer ann"), 0), "paid 1, effect 1");
    assert_eq!(text(&pay("Bearer bob"), 0), "paid 1, effect 2");
    assert_eq!(text(&pay("Bearer ann"), 0), "paid 1, effect 1");
    let mut message = call("pay", json!({ "amount": 3 }));
    message["params"]["_meta"] = modern_meta();
    let pay = |who: &str| {
        let described = described("pay");
        let headers: Vec<_> = described.iter().copied().chain([("Authorization", who)]).collect();
        send(front.port, "POST", "/mcp", &headers, &message.to_string()).result()
    };
    assert_eq!(text(&pay("Bearer ann"), 0), "paid 3, effect 3");
    assert_eq!(text(&pay("Bearer bob"), 0), "paid 3, effect 4");
    assert_eq!(text(&pay("Bearer bob"), 0), "paid 3, effect 4");
    assert!(home.oncely(&["ls"]).iter().all(|record| !record.to_string().contains("Bearer")));
}

#[test]
fn a_started_server_that_dies_leaves_the_call_in_doubt_and_the_client_is_told_so() {
    let home = Home::new();
    let front = started(&home);
    for _ in 0..2 {
        assert_eq!(code(&call_modern(front.port, "die", json!({})).result()), "OUTCOME_UNKNOWN");
    }
    assert_eq!(home.effects(), ["die"]);
}

/// A connection that stays open; posts, and says with which status it is answered.
struct Late(TcpStream);

impl Late {
    fn at(port: u16) -> Self {
        Self(TcpStream::connect(("127.0.0.1", port)).unwrap())
    }

    fn post(&mut self, session: &str, body: &str) -> String {
        let head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";
        let session =
            if session.is_empty() { String::new() } else { format!("Mcp-Session-Id: {session}\r\n") };
        let length = body.len();
        self.0
            .write_all(format!("{head}{session}Content-Length: {length}\r\n\r\n{body}").as_bytes())
            .unwrap();
        let mut start = [0; 12];
        self.0.read_exact(&mut start).unwrap();
        let mut rest = [0; 4096];
        assert_ne!(self.0.read(&mut rest).unwrap(), 0);
        String::from_utf8_lossy(&start[9..]).into_owned()
    }
}

#[test]
fn no_server_is_started_for_a_late_request_on_an_open_connection() {
    let home = Home::new();
    let front = started(&home);
    let web = Web::begin(front.port);
    let mut late = Late::at(front.port);
    assert_eq!(late.post("", "{"), "400");
    let slow = call("pay", json!({ "amount": 8, "until": "go" }));
    let _waiting = open(front.port, "POST", "/mcp", &[("Mcp-Session-Id", &web.session)], &slow.to_string());
    home.until_reached("go");
    kill(Pid::from_raw(i32::try_from(front.child.id()).unwrap()), Signal::SIGTERM).unwrap();
    home.until(|| TcpStream::connect(("127.0.0.1", front.port)).is_err());
    let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {} });
    assert_eq!(late.post("", &begin.to_string()), "503");
    home.raise("go");
    // A second signal would not wait for it.
    home.until(|| home.states() == [("pay".into(), "succeeded".into())]);
    drop(front);
}

#[test]
fn no_write_is_begun_at_an_address_for_a_late_request_on_an_open_connection() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--url", &url(server.port)]);
    let web = Web::begin(front.port);
    let mut late = Late::at(front.port);
    assert_eq!(late.post("", "{"), "400");
    let slow = call("pay", json!({ "amount": 8, "until": "go" }));
    let waiting = open(front.port, "POST", "/mcp", &[("Mcp-Session-Id", &web.session)], &slow.to_string());
    home.until_reached("go");
    kill(Pid::from_raw(i32::try_from(front.child.id()).unwrap()), Signal::SIGTERM).unwrap();
    home.until(|| TcpStream::connect(("127.0.0.1", front.port)).is_err());
    assert_eq!(late.post(&web.session, &call("pay", json!({ "amount": 9 })).to_string()), "503");
    // Whoever reads is served until the end.
    assert_eq!(late.post(&web.session, &call("balance", json!({})).to_string()), "200");
    home.raise("go");
    home.until(|| home.states() == [("pay".into(), "succeeded".into())]);
    drop((waiting, front));
    assert_eq!(home.effects(), ["pay 8"]);
}

#[test]
fn an_event_without_an_end_is_not_kept() {
    let home = Home::new();
    let mut command = home.command("python3");
    command.arg(script()).arg("--http").env("MODE", "sse").env("FLOOD", "1");
    let server = start_server(command);
    let front = front(&home, &["--max-message", "1", "--url", &url(server.port)]);
    let web = Web::begin(front.port);
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let mut reply = open(front.port, "POST", "/mcp", &[("Mcp-Session-Id", &web.session)], &list);
    // Longer than any test waits when all is well.
    reply.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = Vec::new();
    reply.read_to_end(&mut bytes).unwrap();
    assert!(bytes.starts_with(b"HTTP/1.1 200") && bytes.len() < 10_000);
}
