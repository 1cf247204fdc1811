//! Replies over HTTP that are no answers: what their status proves, and what it does not. Effects are counted at the server.

use std::net::{Ipv4Addr, SocketAddrV4};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use serde_json::{Value, json};

use crate::web::{Listening, Web, front, send, server};
use crate::world::{Home, ONCELY, code, text};

fn url(server: &Listening) -> String {
    format!("http://127.0.0.1:{}/mcp", server.port)
}

/// From now on the server replies so to calls of tools.
fn refuse(home: &Home, refusal: &Value) {
    home.write("refuse", &refusal.to_string());
}

fn answer_again(home: &Home) {
    std::fs::remove_file(home.path("refuse")).unwrap();
}

/// The states of all records.
fn states(home: &Home) -> Vec<String> {
    home.states().into_iter().map(|(_, state)| state).collect()
}

/// A page that comes in place of the reply to a call that has run.
fn after(status: u16) -> Value {
    json!({ "status": status, "body": "<html>try later</html>", "kind": "text/html", "after": true })
}

/// What a gateway or the server itself may say when it is too late.
const PROVING_NOTHING: [u16; 11] = [400, 403, 404, 406, 408, 409, 422, 429, 500, 502, 503];

#[test]
fn a_status_that_may_come_after_the_effect_leaves_one_effect_and_an_unknown_outcome() {
    let home = Home::new();
    let server = server(&home, "json");
    let mut client = home.client_of(&["mcp", "--url", &url(&server)], &[]);
    // Without a handshake there is no session: a 404 is not about one.
    for (count, status) in (1..).zip(PROVING_NOTHING) {
        refuse(&home, &after(status));
        for call in ["the first", "its retry"] {
            let told = client.call_modern("pay", json!({ "amount": status }));
            assert_eq!(code(&told), "OUTCOME_UNKNOWN", "{call}, {status}: {told}");
            assert!(text(&told, 0).contains(&status.to_string()), "{told}");
            assert!(text(&told, 0).contains("try later"), "{told}");
        }
        // Nor does it run when the server is well again.
        answer_again(&home);
        assert_eq!(code(&client.call_modern("pay", json!({ "amount": status }))), "OUTCOME_UNKNOWN");
        assert_eq!(home.effects().len(), count, "{status}");
    }
    drop(client);
    assert_eq!(states(&home), ["in_doubt"; PROVING_NOTHING.len()]);
}

#[test]
fn the_same_holds_for_a_client_that_connects_and_is_told_the_status_itself() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--url", &url(&server)]);
    let web = Web::begin(front.port);
    // A page for people is not about the session, even with a 404.
    for (count, status) in (1..).zip(PROVING_NOTHING) {
        refuse(&home, &after(status));
        let told = web.call("pay", json!({ "amount": status }), &[]);
        assert_eq!((told.status, told.body.as_str()), (status, "<html>try later</html>"));
        answer_again(&home);
        let again = web.call("pay", json!({ "amount": status }), &[]).result();
        assert_eq!(code(&again), "OUTCOME_UNKNOWN", "{status}: {again}");
        assert_eq!(home.effects().len(), count, "{status}");
    }
}

#[test]
fn a_rule_about_the_tools_own_errors_says_nothing_about_pages_of_a_gateway() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nis_error = \"rejected\"\nrejected_when = [\"*\"]\n");
    let server = server(&home, "json");
    let mut client = home.client_of(&["mcp", "--url", &url(&server)], &[]);
    client.initialize();
    refuse(&home, &after(400));
    for _ in 0..2 {
        assert_eq!(code(&client.call("pay", json!({ "amount": 1 }))), "OUTCOME_UNKNOWN");
    }
    drop(client);
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn a_call_that_the_server_did_not_look_at_runs_when_it_is_called_again() {
    let home = Home::new();
    let server = server(&home, "json");
    let mut client = home.client_of(&["mcp", "--url", &url(&server)], &[]);
    client.initialize();
    let challenge = json!({ "WWW-Authenticate": "Bearer error=\"insufficient_scope\"" });
    let refusals = [401, 405, 411, 413, 415, 421].map(|status| (status, json!({})));
    // The session is gone; the credentials do not reach far enough.
    for (count, (status, headers)) in
        (1..).zip(refusals.into_iter().chain([(404, json!({})), (403, challenge)]))
    {
        refuse(&home, &json!({ "status": status, "body": "not so", "headers": headers }));
        let told = client.call("pay", json!({ "amount": status }));
        assert_eq!(code(&told), "NOT_SENT", "{status}: {told}");
        assert!(text(&told, 0).contains("nothing ran"), "{told}");
        answer_again(&home);
        let paid = client.call("pay", json!({ "amount": status }));
        assert_eq!(text(&paid, 0), format!("paid {status}, effect {count}"), "{paid}");
    }
    drop(client);
    assert_eq!(home.effects().len(), 8);
}

#[test]
fn a_refusal_costs_a_retry_whether_it_has_a_page_or_not() {
    for page in ["not so", ""] {
        let home = Home::new();
        home.write("oncely.toml", "[tool.pay]\nmax_retries = 1\n");
        let server = server(&home, "json");
        let mut client = home.client_of(&["mcp", "--url", &url(&server)], &[]);
        client.initialize();
        refuse(&home, &json!({ "status": 401, "body": page }));
        for _ in ["the first attempt", "the one retry"] {
            assert_eq!(code(&client.call("pay", json!({ "amount": 1 }))), "NOT_SENT");
        }
        answer_again(&home);
        assert_eq!(client.call("pay", json!({ "amount": 1 }))["isError"], true, "{page:?}");
        drop(client);
        assert!(home.effects().is_empty(), "{page:?}");
    }
}

#[test]
fn a_client_whose_session_is_gone_begins_another_one_and_its_call_runs_once() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--url", &url(&server)]);
    let lost = Web { port: front.port, session: "gone".into() };
    assert_eq!(lost.call("pay", json!({ "amount": 1 }), &[]).status, 404);
    let web = Web::begin(front.port);
    for _ in 0..2 {
        let paid = web.call("pay", json!({ "amount": 1 }), &[]).result();
        assert_eq!(text(&paid, 0), "paid 1, effect 1");
    }
    assert_eq!(home.effects(), ["pay 1"]);
}

#[test]
fn an_address_where_nobody_is_is_said_to_be_so_with_what_ran_and_what_to_do() {
    let home = Home::new();
    // Taken, so that nobody else gets it, and not listened on.
    let taken = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&taken, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = SocketAddrV4::try_from(getsockname(&taken).unwrap()).unwrap().port();
    let address = format!("http://127.0.0.1:{port}/mcp");
    let says_it_all = |told: &str| {
        for part in
            [&format!("127.0.0.1:{port} cannot be reached"), "refused", "nothing ran", "--url", "call again"]
        {
            assert!(told.contains(part), "{part:?} is not in {told:?}");
        }
        assert!(!told.contains("client error"), "{told}");
    };
    let mut client = home.client_of(&["mcp", "--url", &address], &[]);
    for method in ["initialize", "ping", "tools/list"] {
        let told = client.request(method, json!({}));
        says_it_all(told["error"]["message"].as_str().unwrap());
    }
    says_it_all(text(&client.call("pay", json!({ "amount": 1 })), 0));
    drop(client);
    let front = front(&home, &["--url", &address]);
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let told = send(front.port, "POST", "/mcp", &[], &ping);
    assert_eq!(told.status, 502);
    says_it_all(&told.body);
    let output = home.command(ONCELY).args(["mcp", "--explain", "--url", &address]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("cannot be reached") && told.contains("nothing ran"), "{told}");
}
