//! A route that asks its service whether an attempt in doubt has happened.

use crate::client;
use crate::gateway::{Gateway, records};
use crate::upstream::Upstream;

/// The service answers the check as the path tells it: `/check/<status>/<text>`.
fn bench(check: &str) -> (tempfile::TempDir, Upstream, Gateway) {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, check);
    (home, upstream, gateway)
}

/// An order under this key; what the service answers to the check is part of its body.
fn order(gateway: &Gateway, key: &str, act: &str) -> client::Answer {
    let headers = [("idempotency-key", key), ("x-act", act), ("authorization", "Bearer me")];
    gateway.send(&client::post("/orders", &headers, "{\"id\":\"a b\"}"))
}

const RULES: &str = "happened = { status = [200], at = \"/found\" }, not_happened = { status = [404], at = \"/code\", is = \
                     \"none\" }";

#[test]
fn what_the_service_knows_to_have_happened_is_its_answer_and_nothing_runs_again() {
    let (home, upstream, gateway) =
        bench(&format!("check = {{ path = \"/by-key/{{key}}?id={{/id}}\", {RULES} }}"));
    order(&gateway, "k", "reset").expect_code(502, "outcome_unknown");
    // The retry's own act is what the check is answered with: it asks with the caller's headers.
    let settled = order(&gateway, "k", "say 200 {\"found\":7}");
    assert_eq!((settled.status, settled.text().as_str()), (200, "{\"found\":7}"));
    assert_eq!(settled.header("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.total(), 1);
    let asked = upstream.heads().pop().unwrap();
    assert!(asked.starts_with("GET /by-key/k?id=a%20b HTTP/1.1"), "{asked}");
    assert!(asked.contains("authorization: Bearer me") && !asked.contains("idempotency-key"), "{asked}");
    // The length of the order's body would make the service wait for one, and take the next request for it.
    assert!(!asked.contains("content-length") && !asked.contains("transfer-encoding"), "{asked}");
    assert_eq!(records(home.path())[0]["state"], "succeeded");
    // From now on nobody has to be asked.
    assert_eq!(order(&gateway, "k", "").text(), "{\"found\":7}");
    assert_eq!(upstream.heads().len(), 2);
}

#[test]
fn only_a_clear_answer_lets_it_run_again() {
    let (_home, upstream, gateway) =
        bench(&format!("check = {{ path = \"/by-key/{{key}}\", {RULES}, after = \"0s\" }}"));
    order(&gateway, "k", "reset").expect_code(502, "outcome_unknown");
    for unclear in [
        "say 404 {}",
        "say 404 {\"code\":\"no_route\"}",
        "say 200 {}",
        "say 200 {\"code\":\"none\"}",
        "say 500 {\"code\":\"none\"}",
        "say 404 <html>",
        "cut",
        "reset",
    ] {
        let answer = order(&gateway, "k", unclear);
        answer.expect_code(409, "outcome_unknown");
        assert!(answer.text().contains("could not tell"), "{}", answer.text());
    }
    assert_eq!(upstream.total(), 1);
    // The check says that it did not happen, and then the order is made; both are told to say the same.
    let answer = order(&gateway, "k", "say 404 {\"code\":\"none\"}");
    assert_eq!((answer.status, answer.header("idempotency-outcome")), (404, Some("rejected")));
    assert_eq!(upstream.total(), 2);
}

#[test]
fn what_may_still_be_on_its_way_is_not_run_again() {
    let (_home, upstream, gateway) = bench(&format!("check = {{ path = \"/by-key/{{key}}\", {RULES} }}"));
    order(&gateway, "k", "reset").expect_code(502, "outcome_unknown");
    order(&gateway, "k", "say 404 {\"code\":\"none\"}").expect_code(409, "outcome_unknown");
    assert_eq!(upstream.total(), 1);
}

#[test]
fn a_check_that_cannot_be_asked_is_refused_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let refused = |route: &str, part: &str| {
        let config = format!("[[route]]\nmatch = \"/**\"\nupstream = \"http://a\"\n{route}");
        let file = crate::gateway::write_config(home.path(), &config);
        let output = crate::gateway::command(home.path(), &file).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(part), "{route}: {said}");
    };
    let check = "check = { path = \"/o/{key}\", happened = { status = [200] } }";
    refused("check = { path = \"/o/{key}\" }", "needs both path and happened");
    refused("check = { path = \"/o\", happened = { status = [200] } }", "asks the same for every request");
    refused("check = { path = \"/o/{key}\", happened = { at = \"/a\" } }", "needs a status");
    refused(&format!("{check}\nprovider = \"stripe\""), "a route to a provider has no check");
    refused(&format!("{check}\ntool = \"t\"\n[tool.t]\nwhen_unknown = \"halt\""), "says itself");
    refused(
        &format!("{check}\ntool = \"t\"\n[tool.t]\nforwards_key_for = \"24h\""),
        "cannot be asked by {key}",
    );
    refused("tool = \"t\"\n[tool.t]\ncheck = [\"./probe\"]", "has a check command");
}
