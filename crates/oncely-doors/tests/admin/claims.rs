//! Begin, renew and complete: effects are counted in a file that the workers append to.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oncely_core::Millis;
use oncely_doors::admin::Tokens;
use oncely_doors::redact::Redaction;
use oncely_store::MemoryStore;
use serde_json::json;

use crate::server::{Server, ledger};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_workers_one_acts_and_all_get_its_result() {
    let directory = tempfile::tempdir().unwrap();
    let server = Arc::new(Server::start(ledger(directory.path()).await).await);
    let effects = directory.path().join("effects");
    let workers: Vec<_> = (0..24)
        .map(|number| {
            let (server, effects) = (Arc::clone(&server), effects.clone());
            tokio::spawn(async move {
                let call = json!({ "tool": "charge", "key": "order-1", "payload": { "amount": 5 } });
                let begun = server.post("/v1/begin", call).await;
                if begun.status == 200 {
                    return begun.json()["result"].clone();
                }
                let claim = begun.expect(201);
                let mut file = std::fs::File::options().append(true).create(true).open(&effects).unwrap();
                writeln!(file, "{number}").unwrap();
                let end = json!({
                    "id": claim["id"], "token": claim["token"], "outcome": "succeeded", "effect": "created",
                    "result": { "by": number },
                });
                server.post("/v1/complete", end).await.expect(200);
                json!({ "by": number })
            })
        })
        .collect();
    let mut results = Vec::new();
    for worker in workers {
        results.push(worker.await.unwrap());
    }
    let acted = std::fs::read_to_string(&effects).unwrap();
    assert_eq!(acted.lines().count(), 1, "{acted}");
    let first = json!({ "by": acted.trim().parse::<u32>().unwrap() });
    assert!(results.iter().all(|result| *result == first), "{results:?}");
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test]
async fn an_attempt_is_completed_after_a_restart_of_the_listener() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(ledger(directory.path()).await).await;
    let claim = server.run("charge", "order-1").await;
    server.stop().await;

    let server = Server::start(ledger(directory.path()).await).await;
    let again = json!({ "tool": "charge", "key": "order-1", "wait_for_ms": 0 });
    assert_eq!(server.post("/v1/begin", again.clone()).await.problem(409), "in_progress");
    let held = json!({ "id": claim["id"], "token": claim["token"] });
    assert_eq!(server.post("/v1/renew", held).await.expect(200)["renewed"], true);
    let end = json!({
        "id": claim["id"], "token": claim["token"], "outcome": "succeeded", "result": 12345678901234567890u64,
    });
    assert_eq!(server.post("/v1/complete", end.clone()).await.expect(200)["state"], "succeeded");
    // The answer was lost: the same again.
    assert_eq!(server.post("/v1/complete", end).await.expect(200)["state"], "succeeded");
    let replayed = server.post("/v1/begin", again).await;
    assert!(replayed.body.contains("\"result\":12345678901234567890"), "to the digit: {replayed:?}");
    assert_eq!(replayed.expect(200)["verdict"], "replayed");
    server.stop().await;
}

#[tokio::test]
async fn a_begin_whose_answer_was_lost_is_repeated_with_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(ledger(directory.path()).await).await;
    let token = "0123456789abcdef0123456789abcdef";
    let call = json!({ "tool": "t", "key": "k", "token": token, "wait_for_ms": 0 });
    let first = server.post("/v1/begin", call.clone()).await.expect(201);
    assert_eq!(first["token"], token);
    assert_eq!(server.post("/v1/begin", call.clone()).await.expect(201), first);
    let rejected =
        json!({ "id": first["id"], "token": token, "outcome": "rejected", "code": "NO", "message": "no" });
    server.post("/v1/complete", rejected).await.expect(200);
    assert_eq!(server.post("/v1/begin", call).await.problem(409), "token_used");
    let second = server.run("t", "k").await;
    assert_eq!(second["attempt"], 2);
    assert_ne!(second["downstream_key"], first["downstream_key"], "a certain rejection makes a new key");
    // The first worker wakes up late: loud, and nothing changes.
    let late = json!({ "id": first["id"], "token": token, "outcome": "succeeded" });
    assert_eq!(server.post("/v1/complete", late).await.problem(409), "superseded");
    let events = server.get(&format!("/v1/events?id={}", first["id"].as_str().unwrap())).await.expect(200);
    let events = events["events"].as_array().unwrap().clone();
    assert!(events.iter().any(|event| event["event"] == "superseded"), "{events:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_lapsed_lease_is_in_doubt_until_somebody_settles_it() {
    let now = Arc::new(AtomicU64::new(1_000));
    let clock = Arc::clone(&now);
    let store = Arc::new(MemoryStore::with_clock(move || Millis(clock.load(Ordering::SeqCst))));
    let server = Server::start(store).await;
    let claim = server.run("charge", "order-1").await;
    assert_eq!(claim["lease_ms"], 30_000);
    now.fetch_add(30_000, Ordering::SeqCst);
    // Seen as in doubt before anybody has called again.
    let listed = server.get("/v1/records?state=in_doubt").await.expect(200);
    assert_eq!(listed["records"][0]["recorded_state"], "running");
    assert_eq!(server.get("/v1/records?state=running").await.expect(200)["records"], json!([]));
    assert!(server.get("/metrics").await.body.contains("oncely_in_doubt{tool=\"charge\"} 1"));

    let call = json!({ "tool": "charge", "key": "order-1", "wait_for_ms": 0 });
    assert_eq!(server.post("/v1/begin", call.clone()).await.problem(409), "outcome_unknown");
    let held = json!({ "id": claim["id"], "token": claim["token"] });
    assert_eq!(server.post("/v1/renew", held).await.problem(409), "not_running");

    let path = format!("/v1/records/{}", claim["id"].as_str().unwrap());
    let version = server.get(&path).await.expect(200)["record"]["version"].as_u64().unwrap();
    let resolve = format!("{path}/resolve");
    let stale = json!({ "version": version - 1, "verdict": "succeeded" });
    assert_eq!(server.post(&resolve, stale).await.problem(409), "moved");
    let word = json!({ "version": version, "verdict": "succeeded", "effect": "created", "result": "found" });
    assert_eq!(server.post(&resolve, word).await.expect(200)["record"]["settled_by"], "loopback");
    let replay = server.post("/v1/begin", call).await.expect(200);
    assert_eq!((&replay["result"], &replay["first_effect"]), (&json!("found"), &json!("created")));
    let again = json!({ "version": version + 1, "verdict": "rejected" });
    assert_eq!(server.post(&resolve, again).await.problem(409), "not_in_doubt");
    server.stop().await;
}

#[tokio::test]
async fn the_policy_counts_and_a_dry_run_runs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let policy =
        "strict = true\n[tool.look]\nkind = \"read\"\n[tool.pay]\nrequire_key = true\neffect = \"sent\"\n";
    let store = ledger(directory.path()).await;
    let server = Server::start_with(store, policy, Tokens::none(), Redaction::default()).await;
    let begin = |body: serde_json::Value| server.post("/v1/begin", body);
    assert_eq!(begin(json!({ "tool": "other", "key": "k" })).await.problem(422), "undeclared");
    assert_eq!(begin(json!({ "tool": "look", "key": "k" })).await.problem(422), "read_only");
    assert_eq!(begin(json!({ "tool": "pay" })).await.problem(422), "key_required");
    assert_eq!(begin(json!({ "tool": "pay", "key": "two words" })).await.problem(422), "bad_name");
    assert_eq!(begin(json!({ "tool": "pay", "key": "k", "lease_ms": 1 })).await.problem(422), "bad_body");
    let dry = begin(json!({ "tool": "pay", "key": "k", "dry_run": true })).await.expect(200);
    assert_eq!((&dry["verdict"], &dry["effect"]), (&json!("would_run"), &json!("would_send")));
    assert_eq!(server.get("/v1/records").await.expect(200)["records"], json!([]), "nothing was written");
    let claim =
        begin(json!({ "tool": "pay", "key": "k", "payload": 1, "lease_ms": 60_000 })).await.expect(201);
    assert_eq!(claim["lease_ms"], 60_000);
    assert_eq!(begin(json!({ "tool": "pay", "key": "k", "payload": 2 })).await.problem(409), "key_reused");
    server.end(&claim, "succeeded").await;
    let record = server.get("/v1/records?key=k").await.expect(200);
    assert_eq!(record["records"][0]["effect"], "sent");
    server.stop().await;
}

#[tokio::test]
async fn what_the_rules_name_never_reaches_the_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let rules = Redaction::new(&["/card/number"], &[]).unwrap();
    let server = Server::start_with(ledger(directory.path()).await, "", Tokens::none(), rules).await;
    let claim = server.run("charge", "k").await;
    let end = json!({
        "id": claim["id"], "token": claim["token"], "outcome": "succeeded",
        "result": { "card": { "number": "4242424242424242" }, "id": "ch_visible_1" },
    });
    server.post("/v1/complete", end).await.expect(200);
    let replay = server.post("/v1/begin", json!({ "tool": "charge", "key": "k" })).await.expect(200);
    assert_eq!(replay["result"], json!({ "card": { "number": "[redacted]" }, "id": "ch_visible_1" }));
    server.stop().await;
    let bytes = every_byte(directory.path());
    assert!(holds(&bytes, b"ch_visible_1"), "the result is there");
    assert!(!holds(&bytes, b"4242424242424242"), "the number is not");
}

fn every_byte(directory: &std::path::Path) -> Vec<u8> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).flat_map(|path| std::fs::read(path).unwrap()).collect()
}

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
