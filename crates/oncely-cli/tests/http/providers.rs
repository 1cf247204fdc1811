//! Routes to providers: the right key in the right place, and answers read as the provider means them.

use crate::client;
use crate::gateway::Gateway;
use crate::upstream::Upstream;

fn start(home: &std::path::Path, upstream: &Upstream, provider: &str) -> Gateway {
    start_to(home, &upstream.url(), provider)
}

fn start_to(home: &std::path::Path, upstream: &str, provider: &str) -> Gateway {
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/{provider}/**\"\nupstream = \"{upstream}\"\nprovider = \"{provider}\"\n"
    );
    Gateway::start_with(home, &config)
}

fn key_of(head: &str) -> String {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("idempotency-key: "));
    line.unwrap_or_else(|| panic!("no key in {head}")).split_once(": ").unwrap().1.to_owned()
}

#[test]
fn a_header_provider_gets_our_key_and_a_retry_after_a_doubt_carries_the_same() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start(home.path(), &upstream, "stripe");
    let send = |act: &str| {
        let headers = [("idempotency-key", "order-42"), ("authorization", "Bearer sk"), ("x-act", act)];
        gateway.send(&client::post("/stripe/v1/charges", &headers, "{\"amount\":1}"))
    };
    // Nothing is known after a 500; Stripe de-duplicates by our key, so that a retry is harmless.
    assert_eq!(send("status 500").header("idempotency-outcome"), Some("unknown"));
    assert_eq!(
        send("say 409 {\"error\":{\"code\":\"idempotency_key_in_use\"}}").header("idempotency-outcome"),
        Some("unknown")
    );
    assert_eq!(send("").status, 201);
    assert_eq!(send("").header("idempotent-replayed"), Some("true"));
    let heads = upstream.heads();
    assert_eq!(heads.len(), 3);
    let keys: Vec<String> = heads.iter().map(|head| key_of(head)).collect();
    assert!(keys[0].len() == 36 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert!(heads[0].starts_with("POST /v1/charges "), "{}", heads[0]);
    assert!(!heads[0].contains("x-forwarded") && !heads[0].contains("order-42"), "{}", heads[0]);
}

#[test]
fn a_retry_after_a_doubt_that_cannot_be_sent_does_not_say_that_nothing_happened() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let send = |gateway: &Gateway, key: &str, act: &str| {
        let headers = [("idempotency-key", key), ("authorization", "Bearer sk"), ("x-act", act)];
        gateway.send(&client::post("/stripe/v1/charges", &headers, "{\"amount\":1}"))
    };
    let reachable = start(home.path(), &upstream, "stripe");
    assert_eq!(send(&reachable, "k", "status 500").header("idempotency-outcome"), Some("unknown"));
    drop(reachable);
    // The same route, to a place where nobody listens.
    let unreachable = start_to(home.path(), "http://127.0.0.1:1", "stripe");
    for _ in 0..2 {
        let retry = send(&unreachable, "k", "");
        retry.expect_code(502, "outcome_unknown");
        let problem = retry.json();
        assert_eq!((&problem["retryable"], &problem["idempotency_key"]), (&false.into(), &"k".into()));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("nothing was sent") && detail.contains("an earlier one"), "{detail}");
        assert!(!detail.contains("nothing happened") && detail.contains("Ask again"), "{detail}");
        assert_eq!(
            (retry.header("retry-after"), retry.header("idempotency-outcome")),
            (Some("1"), Some("unknown"))
        );
    }
    // Of one that was never sent at all it is true.
    let fresh = send(&unreachable, "other", "");
    fresh.expect_code(502, "upstream_unreachable");
    assert_eq!(fresh.json()["retryable"], true);
    assert!(fresh.text().contains("nothing happened"), "{}", fresh.text());
    drop(unreachable);
    let again = start(home.path(), &upstream, "stripe");
    assert_eq!(send(&again, "k", "").header("idempotency-outcome"), Some("succeeded"));
    let heads = upstream.heads();
    assert_eq!((heads.len(), key_of(&heads[0])), (2, key_of(&heads[1])), "under the same key");
}

#[test]
fn a_certain_rejection_gets_a_new_key() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start(home.path(), &upstream, "stripe");
    for act in ["refuse 400", ""] {
        gateway.send(&client::post("/stripe/v1/charges", &[("idempotency-key", "k"), ("x-act", act)], "{}"));
    }
    let heads = upstream.heads();
    assert_ne!(key_of(&heads[0]), key_of(&heads[1]));
}

#[test]
fn a_mismatch_at_the_provider_proves_that_this_attempt_did_nothing() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start(home.path(), &upstream, "resend");
    let send = |act: &str| {
        let headers = [("idempotency-key", "k"), ("authorization", "Bearer a"), ("x-act", act)];
        gateway.send(&client::post("/resend/emails", &headers, "{\"to\":\"a\"}"))
    };
    // Any other 409 would prove nothing.
    let first = send("say 409 {\"name\":\"invalid_idempotent_request\"}");
    assert_eq!((first.status, first.header("idempotency-outcome")), (409, Some("rejected")));
    assert_eq!(send("").header("idempotency-outcome"), Some("succeeded"));
    assert_eq!(send("").header("idempotent-replayed"), Some("true"));
    let heads = upstream.heads();
    assert_eq!(heads.len(), 2);
    assert_ne!(
        key_of(&heads[0]),
        key_of(&heads[1]),
        "a key that the provider holds against us is not used again"
    );
}

#[test]
fn what_a_provider_has_already_created_is_ours_only_if_it_was_under_our_key() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/gocardless/**\"\nupstream = \"{}\"\nprovider = \
         \"gocardless\"\nmethods = [\"POST\", \"PUT\"]\n",
        upstream.url()
    );
    let gateway = Gateway::start_with(home.path(), &config);
    let created = "say 409 {\"error\":{\"errors\":[{\"reason\":\"idempotent_creation_conflict\"}]}}";
    let send = |method: &str, act: &str| {
        let headers = [("idempotency-key", method), ("authorization", "Bearer a"), ("x-act", act)];
        gateway.send(&client::request(method, "/gocardless/payments", &headers, "{\"amount\":1}"))
    };
    // Only an attempt of ours had that key.
    let found = send("POST", created);
    assert_eq!((found.status, found.header("idempotency-outcome")), (409, Some("succeeded")));
    let replay = send("POST", "");
    assert_eq!((replay.status, replay.header("idempotent-replayed")), (409, Some("true")));
    assert_eq!(upstream.heads().len(), 1);
    // Without a key of ours, whatever is there was made by somebody else.
    assert_eq!(send("PUT", created).header("idempotency-outcome"), Some("rejected"));
    assert_eq!(send("PUT", "").header("idempotency-outcome"), Some("succeeded"));
    assert_eq!(upstream.heads().len(), 3);
}

#[test]
fn a_method_that_the_provider_gives_no_key_for_is_not_retried() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/stripe/**\"\nupstream = \"{}\"\nprovider = \
         \"stripe\"\nmethods = [\"POST\", \"PATCH\"]\n",
        upstream.url()
    );
    let gateway = Gateway::start_with(home.path(), &config);
    let send = |act: &str| {
        gateway.send(&client::request(
            "PATCH",
            "/stripe/x",
            &[("idempotency-key", "k"), ("x-act", act)],
            "{}",
        ))
    };
    assert_eq!(send("status 500").status, 500);
    send("").expect_code(409, "outcome_unknown");
    assert_eq!(upstream.total(), 1);
}

#[test]
fn a_body_provider_gets_our_key_in_its_field() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start(home.path(), &upstream, "square");
    let body = "{\"amount\": 12345678901234567890, \"idempotency_key\": \"made-up\"}";
    let send =
        |key: &str| gateway.send(&client::post("/square/v2/payments", &[("idempotency-key", key)], body));
    // Which of two keys names the intent would be a guess.
    send("another").expect_code(400, "key_malformed");
    assert_eq!(send("made-up").status, 201);
    let effect = upstream.effects().keys().next().unwrap().clone();
    let (path, sent) = effect.split_once(' ').unwrap();
    assert_eq!(path, "/v2/payments");
    assert!(sent.contains("12345678901234567890") && !sent.contains("made-up"), "{sent}");
    let sent: serde_json::Value = serde_json::from_str(sent).unwrap();
    assert_eq!(sent["idempotency_key"].as_str().unwrap().len(), 36);
}

#[test]
fn a_body_that_cannot_hold_the_key_is_refused_and_the_refusal_names_key_and_record() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start(home.path(), &upstream, "square");
    let answer = gateway.send(&client::post("/square/v2/payments", &[("idempotency-key", "k")], "[1]"));
    answer.expect_code(400, "body_unusable");
    let (problem, record) = (answer.json(), answer.header("idempotency-record").unwrap());
    assert_eq!(problem["idempotency_key"], "k", "{problem}");
    assert_eq!(problem["instance"], format!("urn:oncely:record:{record}"), "{problem}");
    assert_eq!(upstream.heads().len(), 0);
}

#[test]
fn a_key_in_the_place_of_the_provider_names_the_intent() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start(home.path(), &upstream, "square");
    let send = |key: &str| {
        let body = format!("{{\"amount\": 1, \"idempotency_key\": \"{key}\"}}");
        gateway.send(&client::post("/square/v2/payments", &[("authorization", "Bearer a")], &body))
    };
    // Two payments of one amount are two intents, and each of them is made once.
    for (key, replayed) in [("p1", None), ("p2", None), ("p1", Some("true"))] {
        let answer = send(key);
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, replayed), "{key}");
        assert_eq!(answer.header("idempotency-key"), Some(key), "it is explicit, and has no window");
    }
    assert_eq!(upstream.total(), 2);

    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start(home.path(), &upstream, "paypal");
    let send = |key: &str| {
        let headers = [("authorization", "Bearer a"), ("paypal-request-id", key)];
        gateway.send(&client::post("/paypal/v2/payments", &headers, "{}"))
    };
    for (key, replayed) in [("p1", None), ("p2", None), ("p1", Some("true"))] {
        assert_eq!(send(key).header("idempotent-replayed"), replayed, "{key}");
    }
    assert_eq!(upstream.total(), 2);
    assert!(upstream.heads().iter().all(|head| !head.contains(": p1") && !head.contains(": p2")));
}

#[test]
fn another_account_of_the_provider_is_another_request() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start(home.path(), &upstream, "stripe");
    let send = |account: &str| {
        let headers = [("authorization", "Bearer a"), ("stripe-account", account)];
        gateway.send(&client::post("/stripe/v1/charges", &headers, "{}"))
    };
    assert_eq!(send("acct_1").status, 201);
    assert_eq!(send("acct_2").header("idempotent-replayed"), None);
    assert_eq!(upstream.total(), 2);
}

/// Providers keep a key unique within an account, an endpoint, a region or a credential: a key that came twice within it would be
/// taken for a retry, one that came outside of it again would not. So a key of ours goes to one place only, in one request.
#[test]
fn a_key_of_ours_is_sent_to_one_account_endpoint_and_region_only() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let route = |name: &str| {
        format!(
            "[[route]]\nmatch = \"/{name}/**\"\nupstream = \"{}\"\nprovider = \"ours\"\nmethods = [\"POST\", \"PUT\"]\n",
            upstream.url()
        )
    };
    let provider = "[[provider]]\nname = \"ours\"\nkey = { header = \"Idempotency-Key\" }\nmethods = [\"POST\", \
                    \"PUT\"]\nscope = \"account\"\naccount_headers = [\"X-Account\"]\n";
    let config = format!("[server]\nadmin = \"off\"\n{provider}{}{}", route("eu"), route("us"));
    let gateway = Gateway::start_with(home.path(), &config);
    let send = |method: &str, path: &str, credential: &str, more: &[(&str, &str)]| {
        let headers = [&[("authorization", credential)], more].concat();
        gateway.send(&client::request(method, path, &headers, "{\"amount\":1}"))
    };
    let named = ("idempotency-key", "k");
    assert_eq!(send("POST", "/eu/pay", "Bearer a", &[named]).status, 201);
    // Another credential, and another region behind another route, are other intents.
    assert_eq!(send("POST", "/eu/pay", "Bearer b", &[named]).status, 201);
    assert_eq!(send("POST", "/us/pay", "Bearer a", &[named]).status, 201);
    // Another endpoint, method or account with one key is a mistake, and nothing is sent.
    send("POST", "/eu/refund", "Bearer a", &[named]).expect_code(409, "key_reused");
    send("PUT", "/eu/pay", "Bearer a", &[named]).expect_code(409, "key_reused");
    send("POST", "/eu/pay", "Bearer a", &[named, ("x-account", "2")]).expect_code(409, "key_reused");
    // Without a key, all of these make it another one.
    for (method, path, account) in [
        ("POST", "/eu/pay", "1"),
        ("POST", "/eu/refund", "1"),
        ("PUT", "/eu/pay", "1"),
        ("POST", "/eu/pay", "2"),
    ] {
        assert_eq!(send(method, path, "Bearer a", &[("x-account", account)]).status, 201, "{method} {path}");
    }
    let mut keys: Vec<String> = upstream.heads().iter().map(|head| key_of(head)).collect();
    assert_eq!(keys.len(), 7);
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 7, "no two requests had one key: {keys:?}");
}

/// A provider that remembers a key for one API key takes it for a new one under the next: where tenants are told apart by
/// something else, the retry must not run.
#[test]
fn a_key_of_ours_is_sent_with_one_credential_only_to_a_provider_that_remembers_it_for_that() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/mt/**\"\nupstream = \"{}\"\nprovider = \"modern-treasury\"\n\
         tenant = {{ header = \"X-Tenant\" }}\n",
        upstream.url()
    );
    let gateway = Gateway::start_with(home.path(), &config);
    let send = |credential: &str, more: &[(&str, &str)]| {
        let headers = [&[("x-tenant", "t"), ("authorization", credential)], more].concat();
        gateway.send(&client::post("/mt/api/payment_orders", &headers, "{\"amount\":1}"))
    };
    let named = ("idempotency-key", "order-42");
    let first = send("Basic old", &[named, ("x-act", "status 500")]);
    assert_eq!(first.header("idempotency-outcome"), Some("unknown"));
    // The API key is rotated: to the provider our key would be new, and the payment a second one.
    send("Basic new", &[named]).expect_code(409, "key_reused");
    assert_eq!(upstream.heads().len(), 1);
    // Without a key nothing shows that it is the same payment.
    for credential in ["Basic old", "Basic new"] {
        send(credential, &[]).expect_code(400, "key_required");
    }
    assert_eq!(upstream.heads().len(), 1);
    // With the same credential it is harmless.
    assert_eq!(send("Basic old", &[named]).status, 201);
    send("Basic new", &[named]).expect_code(409, "key_reused");
    let heads = upstream.heads();
    assert_eq!(heads.len(), 2);
    assert_eq!(key_of(&heads[0]), key_of(&heads[1]));
}

#[test]
fn a_retry_after_the_provider_has_forgotten_the_key_halts() {
    // Remembered for an hour, a retry is harmless; remembered for a moment, it might pay twice.
    for (retention, sent) in [("1h", 2), ("1ms", 1)] {
        let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
        let config = format!(
            "[server]\nadmin = \"off\"\n[[provider]]\nname = \"ours\"\nkey = {{ header = \"X-Key\" }}\neverywhere = true\nretention = \
             \"{retention}\"\n[[route]]\nmatch = \"/ours/**\"\nupstream = \"{}\"\nprovider = \"ours\"\n",
            upstream.url()
        );
        let gateway = Gateway::start_with(home.path(), &config);
        let send = |act: &str| {
            let headers = [("idempotency-key", "k"), ("authorization", "Bearer a"), ("x-act", act)];
            gateway.send(&client::post("/ours/pay", &headers, "{\"amount\":1}"))
        };
        assert_eq!(send("status 500").header("idempotency-outcome"), Some("unknown"), "{retention}");
        // Far longer than the shorter of the two; the other is not over before the test is.
        std::thread::sleep(std::time::Duration::from_millis(50));
        for _ in 0..2 {
            let retry = send("");
            if sent == 1 {
                retry.expect_code(409, "outcome_unknown");
                assert!(retry.text().contains("no longer remembers the key"), "{}", retry.text());
            } else {
                assert_eq!(retry.status, 201);
            }
        }
        assert_eq!(upstream.heads().len(), sent, "{retention}");
    }
}
