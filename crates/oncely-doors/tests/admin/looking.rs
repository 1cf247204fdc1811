//! Listings, the audit log as it grows, counters, settings and health.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Server, ledger};

async fn filled(directory: &tempfile::TempDir) -> Server {
    let server = Server::start(ledger(directory.path()).await).await;
    for number in 0..25 {
        let tool = if number % 5 == 0 { "mail:send" } else { "charge" };
        let claim = server.run(tool, &format!("k{number}")).await;
        let outcome = match number % 3 {
            0 => "succeeded",
            1 => "rejected",
            _ => "unknown",
        };
        server.end(&claim, outcome).await;
    }
    server
}

async fn keys(server: &Server, query: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/records?{query}{cursor}")).await.expect(200);
        keys.extend(
            page["records"].as_array().unwrap().iter().map(|r| r["key"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return keys,
        }
    }
}

#[tokio::test]
async fn records_are_listed_by_filter_and_page_each_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory).await;
    let all = keys(&server, "limit=1000").await;
    assert_eq!(all.len(), 25);
    for limit in [1, 7, 25] {
        assert_eq!(keys(&server, &format!("limit={limit}")).await, all, "pages of {limit}");
    }
    assert_eq!(keys(&server, "tool=mail:*&limit=2").await.len(), 5);
    assert_eq!(keys(&server, "state=in_doubt&limit=3").await.len(), 8);
    assert_eq!(keys(&server, "state=succeeded&tool=mail:send").await.len(), 2);
    assert_eq!(keys(&server, "key=k3").await, ["k3"]);
    assert_eq!(keys(&server, "namespace=other").await.len(), 0);
    assert_eq!(keys(&server, "newer_than=1h").await.len(), 25);
    assert_eq!(keys(&server, "older_than=1h").await.len(), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_record_in_any_state_has_every_member_that_the_document_names() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory).await;
    server.run("charge", "open").await;
    let document: Value = serde_json::from_str(oncely_doors::admin::OPENAPI).unwrap();
    let members = document["components"]["schemas"]["Record"]["required"].as_array().unwrap();
    let listed = server.get("/v1/records?limit=1000").await.expect(200);
    let mut states = std::collections::BTreeSet::new();
    for record in listed["records"].as_array().unwrap() {
        states.insert(record["state"].as_str().unwrap());
        for member in members {
            assert!(record.get(member.as_str().unwrap()).is_some(), "no {member} in {record}");
        }
    }
    assert_eq!(states.len(), 4, "{states:?}");
    server.stop().await;
}

/// Reads a feed until it holds a text; what has come so far.
async fn until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut text = String::new();
    let mut bytes = [0u8; 4096];
    while !text.contains(wanted) {
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "closed before {wanted}: {text}");
        text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    text
}

#[tokio::test]
async fn the_audit_log_is_followed_as_it_grows_and_taken_up_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(ledger(directory.path()).await).await;
    let before = server.run("charge", "before").await;
    let follow = |headers: &str| {
        let head = format!("GET /v1/events/stream HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", server.address);
        let address = server.address;
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            stream
        }
    };
    let mut stream = follow("").await;
    until(&mut stream, ": following").await;
    server.end(&before, "succeeded").await;
    let text = until(&mut stream, "event: succeeded").await;
    assert!(!text.contains("event: began"), "only what is new: {text}");
    drop(stream);
    let mut stream = follow("Last-Event-ID: 0\r\n").await;
    let text = until(&mut stream, "event: succeeded").await;
    assert!(text.contains("event: began"), "{text}");
    // A follower does not hold up the end.
    server.stop().await;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn counters_survive_a_restart_and_are_told_as_metrics_and_as_stats() {
    let directory = tempfile::tempdir().unwrap();
    let policy = "[tool.charge]\ncost = { amount = 0.5, unit = \"USD\" }\n";
    let tokens = oncely_doors::admin::Tokens::none;
    let rules = oncely_doors::redact::Redaction::default;
    let server = Server::start_with(ledger(directory.path()).await, policy, tokens(), rules()).await;
    let claim = server.run("charge", "k").await;
    server.end(&claim, "succeeded").await;
    for _ in 0..3 {
        server.post("/v1/begin", json!({ "tool": "charge", "key": "k" })).await.expect(200);
    }
    let other = json!({ "tool": "charge", "key": "k", "payload": 2 });
    assert_eq!(server.post("/v1/begin", other).await.problem(409), "key_reused");
    let metrics = server.get("/metrics").await;
    assert!(metrics.head.contains("text/plain; version=0.0.4"), "{}", metrics.head);
    for line in [
        "oncely_calls_total{tool=\"charge\",verdict=\"replayed\"} 3",
        "oncely_calls_total{tool=\"charge\",verdict=\"conflict\"} 1",
        "oncely_store_seconds_count{op=\"create\"} 1",
        "oncely_records{state=\"succeeded\"} 1",
        "oncely_waiting 0",
    ] {
        assert!(metrics.body.lines().any(|found| found == line), "{line} in {}", metrics.body);
    }
    server.stop().await;

    let server = Server::start_with(ledger(directory.path()).await, policy, tokens(), rules()).await;
    let metrics = server.get("/metrics").await.body;
    for line in [
        "oncely_duplicates_prevented_total{tool=\"charge\"} 3",
        "oncely_conflicts_total{tool=\"charge\"} 1",
        "oncely_executions_total{tool=\"charge\"} 1",
        "oncely_cost_saved_total{unit=\"USD\"} 1.5",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    assert!(!metrics.contains("verdict=\"replayed\""), "this process has replayed nothing");
    let stats = server.get("/v1/stats").await.expect(200);
    assert_eq!(stats["totals"]["duplicates_prevented"], 3);
    assert_eq!(stats["cost_saved"], json!([{ "amount": 1.5, "unit": "USD" }]));
    let policy = server.get("/v1/policy?tool=charge").await.expect(200);
    assert_eq!(policy["tools"][0]["cost"]["amount"], 0.5);
    assert_eq!(policy["defaults"]["declared"], Value::Null);
    server.stop().await;
}

#[tokio::test]
async fn a_ledger_that_cannot_be_used_is_not_ready_and_nothing_begins() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(ledger(directory.path()).await).await;
    assert_eq!(server.get("/readyz").await.expect(200)["status"], "ready");
    std::fs::remove_file(directory.path().join("ledger.db")).unwrap();
    assert_eq!(server.get("/readyz").await.problem(503), "store_unavailable");
    let call = json!({ "tool": "t", "key": "k", "wait_for_ms": 0 });
    assert_eq!(server.post("/v1/begin", call).await.problem(503), "store_unavailable");
    assert_eq!(server.get("/healthz").await.expect(200)["status"], "ok", "the process itself lives");
    server.stop().await;
}

#[tokio::test]
async fn a_purge_says_what_it_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let policy = "[defaults]\nreplay_for = \"0ms\"\nremember_for = \"0ms\"\nrepeat_after = \"0ms\"\n";
    let tokens = oncely_doors::admin::Tokens::none();
    let rules = oncely_doors::redact::Redaction::default();
    let server = Server::start_with(ledger(directory.path()).await, policy, tokens, rules).await;
    // One attempt in 64 tidies up after itself, chosen by its token; this one does not.
    let token = "01".repeat(16);
    let call = json!({ "tool": "t", "key": "k", "token": token, "wait_for_ms": 0 });
    let claim = server.post("/v1/begin", call).await.expect(201);
    server.end(&claim, "succeeded").await;
    let purged = server.post("/v1/purge", json!({})).await.expect(200);
    assert_eq!((&purged["records_removed"], &purged["more"]), (&json!(1), &json!(false)), "{purged}");
    assert_eq!(server.get("/v1/records").await.expect(200)["records"], json!([]));
    // The log says who asked, and outlives what was dropped.
    let events = server.get("/v1/events").await.expect(200)["events"].clone();
    let audited = events.as_array().unwrap().iter().find(|event| event["event"] == "purged").unwrap();
    assert_eq!(audited["actor"], "loopback", "{audited}");
    server.stop().await;
}
