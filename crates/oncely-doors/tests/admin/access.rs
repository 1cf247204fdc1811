//! Who may ask for what, and what becomes of bad requests.

use oncely::Oncely;
use oncely::policy_file::PolicyFile;
use oncely_core::limits::ADMIN_BODY_BYTES_MAX;
use oncely_doors::admin::{self, AdminState, Scope, Tokens};
use oncely_doors::redact::Redaction;
use serde_json::json;

use crate::server::{Server, ledger};

const READER: &str = "Authorization: Bearer reader-0123456789\r\n";
const WRITER: &str = "Authorization: bearer writer-0123456789\r\n";
const OTHER: &str = "Authorization: Bearer other-00123456789\r\n";

async fn guarded(directory: &tempfile::TempDir) -> Server {
    let tokens = Tokens::none()
        .with("dashboard", Scope::Read, "reader-0123456789")
        .and_then(|tokens| tokens.with("billing", Scope::Write, "writer-0123456789"))
        .and_then(|tokens| tokens.with("other", Scope::Write, "other-00123456789"))
        .unwrap();
    Server::start_with(ledger(directory.path()).await, "", tokens, Redaction::default()).await
}

#[tokio::test]
async fn a_token_lets_in_as_far_as_its_scope_goes() {
    let directory = tempfile::tempdir().unwrap();
    let server = guarded(&directory).await;
    let get = |headers: &'static str| server.send("GET", "/v1/records", headers, "");
    assert_eq!(get("").await.problem(401), "unauthorized");
    for wrong in [
        "Authorization: Bearer reader-012345678X\r\n",
        "Authorization: Bearer\r\n",
        "Authorization: Basic cmVhZGVyLTAxMjM0NTY3ODk=\r\n",
        "Authorization: Bearer reader-0123456789x\r\n",
    ] {
        let got = get(wrong).await;
        assert!(got.head.contains("www-authenticate: bearer"), "{got:?}");
        assert_eq!(got.problem(401), "unauthorized");
    }
    get(READER).await.expect(200);
    get(WRITER).await.expect(200);
    assert_eq!(server.post_as("/v1/purge", READER, json!({})).await.problem(403), "forbidden");
    server.post_as("/v1/purge", WRITER, json!({})).await.expect(200);
    // What says nothing of the ledger is open; what does is not.
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        server.get(path).await.expect(200);
    }
    assert_eq!(server.get("/metrics").await.problem(401), "unauthorized");
    server.stop().await;
}

#[tokio::test]
async fn every_change_is_audited_with_the_name_of_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let server = guarded(&directory).await;
    let begin = json!({ "tool": "charge", "key": "k" });
    let claim = server.post_as("/v1/begin", WRITER, begin).await.expect(201);
    // A heartbeat changes nothing but how long whoever began is believed; nobody else can send it, and it has no event.
    let held = json!({ "id": claim["id"], "token": claim["token"] });
    assert_eq!(server.post_as("/v1/renew", OTHER, held.clone()).await.problem(403), "not_yours");
    for _ in 0..2 {
        assert_eq!(server.post_as("/v1/renew", WRITER, held.clone()).await.expect(200)["renewed"], true);
    }
    let end = json!({ "id": claim["id"], "token": claim["token"], "outcome": "unknown", "message": "reset" });
    assert_eq!(server.post_as("/v1/complete", OTHER, end.clone()).await.problem(403), "not_yours");
    assert_eq!(server.post_as("/v1/complete", WRITER, end).await.expect(200)["state"], "in_doubt");
    let path = format!("/v1/records/{}", claim["id"].as_str().unwrap());
    let version = |record: serde_json::Value| record["record"]["version"].as_u64().unwrap();
    let seen = version(server.send("GET", &path, READER, "").await.expect(200));
    let word = json!({ "version": seen, "verdict": "rejected", "reason": "looked" });
    server.post_as(&format!("{path}/resolve"), OTHER, word).await.expect(200);
    let seen = version(server.send("GET", &path, READER, "").await.expect(200));
    server.post_as(&format!("{path}/forget"), WRITER, json!({ "version": seen })).await.expect(200);
    assert_eq!(server.send("GET", &path, READER, "").await.problem(404), "no_record");
    server.post_as("/v1/purge", OTHER, json!({})).await.expect(200);
    let log = server.send("GET", "/v1/events", READER, "").await.expect(200);
    let told: Vec<(&str, &str)> = log["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["event"].as_str().unwrap(), event["actor"].as_str().unwrap_or("-")))
        .collect();
    let expected = [
        ("began", "billing"),
        ("in_doubt", "billing"),
        ("resolved_rejected", "other"),
        ("forgotten", "billing"),
        ("purged", "other"),
    ];
    assert_eq!(told, expected);
    server.stop().await;
}

#[tokio::test]
async fn without_tokens_a_web_page_gets_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(ledger(directory.path()).await).await;
    let port = server.address.port();
    for stranger in [
        "Host: evil.example\r\n".to_owned(),
        format!("Host: evil.example:{port}\r\n"),
        format!("Host: 127.0.0.1:{port}\r\nOrigin: http://evil.example\r\n"),
        format!("Host: 127.0.0.1:{port}\r\nOrigin: null\r\n"),
        format!("Host: 127.0.0.1:{port}\r\nSec-Fetch-Site: cross-site\r\n"),
        "Host: \r\n".to_owned(),
    ] {
        let got = server.send("GET", "/v1/records", &stranger, "").await;
        assert_eq!(got.problem(403), "stranger", "{stranger}");
    }
    for own in [
        format!("Host: localhost:{port}\r\n"),
        format!("Host: [::1]:{port}\r\n"),
        format!(
            "Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\nSec-Fetch-Site: same-origin\r\n"
        ),
    ] {
        server.send("GET", "/v1/records", &own, "").await.expect(200);
    }
    // What a form can send without asking is refused, too.
    let form = "Content-Type: text/plain\r\n";
    assert_eq!(server.send("POST", "/v1/purge", form, "{}").await.problem(415), "not_json");
    assert_eq!(server.send("POST", "/v1/purge", "", "{}").await.problem(415), "not_json");
    server.stop().await;
}

#[tokio::test]
async fn an_address_that_others_can_reach_needs_tokens() {
    let oncely = || async { Oncely::new(oncely_store::open("memory:").await.unwrap()) };
    let policy = std::sync::Arc::new(PolicyFile::empty());
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let state = AdminState::new(oncely().await, policy.clone());
    let error = admin::serve(listener, state, std::future::pending()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("no token is set"), "{error}");
    let tokens = Tokens::none().with("ci", Scope::Read, "0123456789abcdef").unwrap();
    let state = AdminState::new(oncely().await, policy).with_tokens(tokens);
    assert_eq!(state.check("0.0.0.0:1".parse().unwrap()), Ok(()));
}

#[tokio::test]
async fn bad_requests_are_refused_in_words_and_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(ledger(directory.path()).await).await;
    assert_eq!(server.get("/nowhere").await.problem(404), "no_route");
    let got = server.send("DELETE", "/v1/records", "", "").await;
    assert!(got.head.contains("allow: get"), "{got:?}");
    assert_eq!(got.problem(405), "no_method");
    for path in [
        "/v1/records?state=gone",
        "/v1/records?limit=0",
        "/v1/records?limit=1001",
        "/v1/records?limit=1&limit=2",
        "/v1/records?colour=red",
        "/v1/records?cursor=x",
        "/v1/records?cursor=0-99999999999999999999",
        "/v1/records?older_than=soon",
        "/v1/records/abc",
        "/v1/events?after=-1",
        "/v1/events?id=abc",
        "/healthz?x=1",
    ] {
        assert_eq!(server.get(path).await.problem(400), "bad_request", "{path}");
    }
    let json = "Content-Type: application/json\r\n";
    for body in ["", "{", "[]", "{\"tool\":1}", "{\"tool\":\"t\",\"extra\":1}", "{\"tool\":\"t\"} x", "\u{0}"]
    {
        assert_eq!(server.send("POST", "/v1/begin", json, body).await.problem(422), "bad_body", "{body}");
    }
    for token in ["", "0", &"0".repeat(32), &"G".repeat(32), &"A".repeat(32)] {
        let body = json!({ "tool": "t", "key": "k", "token": token });
        assert_eq!(server.post("/v1/begin", body).await.problem(422), "bad_body", "{token}");
    }
    for body in ["[]", " [{}]", "[\"t\"]"] {
        assert_eq!(server.send("POST", "/v1/purge", json, body).await.problem(422), "bad_body", "{body}");
        assert_eq!(server.send("POST", "/v1/begin", json, body).await.problem(422), "bad_body", "{body}");
    }
    let deep = format!("{{\"tool\":\"t\",\"payload\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let code = server.send("POST", "/v1/begin", json, &deep).await.problem(422);
    assert!(code == "bad_body" || code == "bad_payload", "{code}");
    let huge = format!("{{\"tool\":\"t\",\"payload\":\"{}\"}}", "x".repeat(ADMIN_BODY_BYTES_MAX));
    assert_eq!(server.send("POST", "/v1/begin", json, &huge).await.problem(413), "body_too_large");
    let got = server.raw(b"NOT HTTP\r\n\r\n").await;
    assert_eq!(got.status, 400);
    assert_eq!(server.get("/v1/records").await.expect(200)["records"], json!([]), "nothing was written");
    server.stop().await;
}
