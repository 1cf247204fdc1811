//! The table as it ships: every row is right, every key fits, and what providers say is understood.

use bytes::Bytes;
use oncely_core::policy::WhenUnknown;
use oncely_core::{DownstreamKey, IntentName, Key, Namespace, Policy, Scope, ToolName};

use super::{
    Carrier, Confidence, Encoder, Meaning, Provider, ProviderError, Providers, WhenUnknownSaid, read,
};

const KEY: DownstreamKey =
    DownstreamKey([0xfb, 0xff, 0x01, 0x23, 0x45, 0x67, 0x49, 0xab, 0x8c, 0xde, 0xf0, 0, 1, 2, 3, 4]);

fn builtin() -> Providers {
    let empty = Providers { by_name: Default::default() };
    read::table(include_str!("providers.toml"), empty, read::Whose::Builtin).unwrap()
}

fn the(name: &str) -> Provider {
    Providers::builtin().get(name).unwrap_or_else(|| panic!("no {name}")).clone()
}

fn some_keys() -> impl Iterator<Item = DownstreamKey> {
    (0..500u32).map(|number| {
        let name = IntentName {
            namespace: Namespace::default(),
            scope: Scope::none(),
            tool: ToolName::parse("t").unwrap(),
            key: Key::explicit(&format!("k{number}")).unwrap(),
        };
        name.intent_id().downstream_key(1, number % 3)
    })
}

fn request(content_type: Option<&str>) -> http::request::Parts {
    let mut request = http::Request::post("https://api.example/v1/things?a=1&requestId=old&b=%20");
    if let Some(content_type) = content_type {
        request = request.header("Content-Type", content_type);
    }
    request.header("Idempotency-Key", "made-up").body(()).unwrap().into_parts().0
}

#[test]
fn every_row_is_right_and_the_table_is_the_one_that_ships() {
    assert_eq!(&builtin(), Providers::builtin());
    assert!(Providers::builtin().iter().count() >= 50);
    for provider in Providers::builtin().iter() {
        assert!(
            provider.takes_key()
                || provider.check.is_some()
                || matches!(provider.key, Carrier::ByHand { .. }),
            "{} has neither a key nor a check",
            provider.name
        );
        assert!(
            provider.confidence == Confidence::Uncertain
                || !provider.sources.is_empty()
                || matches!(provider.name.as_str(), "acp" | "jira"),
            "{} has no source",
            provider.name
        );
    }
}

#[test]
fn what_a_scope_says_of_credentials_is_what_routes_go_by() {
    let mut bound = Vec::new();
    for provider in Providers::builtin().iter() {
        let scope = provider.scope.as_deref().unwrap_or("");
        let said = scope.contains("API key") || scope.contains("credential");
        assert_eq!(provider.per_credential, said, "{}: {scope}", provider.name);
        bound.extend(provider.per_credential.then_some(provider.name.as_str()));
    }
    assert_eq!(bound, ["modern-treasury", "svix"]);
}

#[test]
fn every_key_that_is_made_fits_every_provider_and_stays_unique() {
    for provider in Providers::builtin().iter() {
        let mut seen = std::collections::HashSet::new();
        for key in some_keys().chain([DownstreamKey([0; 16]), DownstreamKey([255; 16]), KEY]) {
            let text = provider.encode(&key);
            assert_eq!(text.chars().count(), provider.encoder.chars(), "{}", provider.name);
            assert!(text.chars().all(|c| provider.encoder.alphabet().contains(c)), "{text}");
            assert!(provider.accepts(&text), "{} refuses {text}", provider.name);
            assert!(seen.insert(text), "{} folds two keys into one", provider.name);
        }
    }
}

#[test]
fn the_spelling_of_a_key_never_changes() {
    for (name, golden) in [
        ("stripe", "fbff0123-4567-49ab-8cde-f00001020304"),
        ("coinbase", "fbff0123-4567-49ab-8cde-f00001020304"),
        ("discord", "-_8BI0VnSauM3vAAAQIDBA"),
        ("google-calendar", "fbff0123456749ab8cdef00001020304"),
    ] {
        assert_eq!(the(name).encode(&KEY), golden);
    }
    let golden: Vec<(Encoder, usize)> = Providers::builtin()
        .iter()
        .filter(|provider| provider.encoder != Encoder::Uuid)
        .map(|provider| (provider.encoder, provider.encoder.chars()))
        .collect();
    assert_eq!(golden, [(Encoder::Base64Url22, 22), (Encoder::Hex32, 32)]);
}

#[test]
fn a_key_beyond_a_published_limit_is_refused_by_the_check() {
    assert!(!the("discord").accepts(&Encoder::Uuid.encode(&KEY)), "a UUID is too long for Discord");
    assert!(!the("google-calendar").accepts(&Encoder::Uuid.encode(&KEY)), "no hyphens in Google Calendar");
    assert!(!the("coinbase").accepts("short"));
}

#[test]
fn what_providers_say_of_a_key_is_understood() {
    let replayed = |name: &str| (name == "Idempotent-Replayed").then_some("True");
    let nothing = |_: &str| None;
    assert_eq!(the("stripe").classify(200, replayed, b"{}"), Some(Meaning::Replayed));
    for (name, status, body, meaning) in [
        ("stripe", 200, "{}", None),
        ("stripe", 409, r#"{"error":{"code":"idempotency_key_in_use"}}"#, Some(Meaning::InFlight)),
        ("stripe", 400, r#"{"error":{"type":"idempotency_error"}}"#, Some(Meaning::Mismatch)),
        ("stripe", 400, r#"{"error":{"type":"card_error"}}"#, None),
        ("resend", 409, r#"{"name":"invalid_idempotent_request"}"#, Some(Meaning::Mismatch)),
        ("resend", 409, r#"{"name":"concurrent_idempotent_requests"}"#, Some(Meaning::InFlight)),
        ("resend", 409, r#"{"name":"something_else"}"#, None),
        (
            "gocardless",
            409,
            r#"{"error":{"errors":[{"reason":"idempotent_creation_conflict"}]}}"#,
            Some(Meaning::AlreadyCreated),
        ),
        ("google-calendar", 409, "not json", Some(Meaning::AlreadyCreated)),
        ("bluesnap", 422, r#"{"message":[{"code":60101}]}"#, Some(Meaning::Mismatch)),
        ("bluesnap", 422, r#"{"message":[{"code":10000}]}"#, None),
        ("adyen", 422, r#"{"errorCode":"704","status":422}"#, Some(Meaning::InFlight)),
        ("adyen", 422, r#"{"errorCode":"14_030","amount":704}"#, None),
        ("hubspot", 200, r#"{"sendResult":"IDEMPOTENT_IGNORE"}"#, Some(Meaning::AlreadyCreated)),
        ("hubspot", 200, r#"{"name":"IDEMPOTENT_IGNORE"}"#, None),
        ("square", 400, r#"{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED"}]}"#, Some(Meaning::Mismatch)),
        // The name or the precondition is the caller's: what is there may be somebody else's.
        ("kubernetes", 409, r#"{"reason":"AlreadyExists"}"#, Some(Meaning::Rejected)),
        ("gcs", 412, "", Some(Meaning::Rejected)),
        ("azure", 501, "", Some(Meaning::Rejected)),
        ("ietf", 422, "", Some(Meaning::Mismatch)),
        ("anthropic", 409, "{}", None),
    ] {
        assert_eq!(the(name).classify(status, nothing, body.as_bytes()), meaning, "{name} {status} {body}");
    }
    // A success happened, whatever it repeats of what a caller or a payee wrote; and so with an error.
    for (name, status, body) in [
        ("stripe", 200, r#"{"error":{"type":"idempotency_error"},"metadata":{"name":"idempotency_error"}}"#),
        ("stripe", 400, r#"{"metadata":{"name":"idempotency_error"}}"#),
        ("stripe", 500, r#"{"error":{"type":"idempotency_error"}}"#),
        ("square", 200, r#"{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED"}]}"#),
        ("adyen", 200, r#"{"errorCode":"704"}"#),
        ("coinbase", 201, r#"{"memo":"idempotency_error"}"#),
        ("resend", 409, r#"{"subject":"invalid_idempotent_request"}"#),
        ("telnyx", 200, "{}"),
    ] {
        assert_eq!(the(name).classify(status, nothing, body.as_bytes()), None, "{name} {status} {body}");
    }
    // A word in a sentence, or as the name of a member, is not what the provider says.
    for body in [r#"{"idempotency_error":1}"#, r#"{"text":"see idempotency_error"}"#] {
        assert_eq!(the("stripe").classify(400, nothing, body.as_bytes()), None);
    }
    let deep = format!("{}\"idempotency_error\"{}", "[".repeat(100), "]".repeat(100));
    assert_eq!(the("stripe").classify(400, nothing, deep.as_bytes()), None);
}

#[test]
fn a_key_travels_as_the_provider_wants_it() {
    let place = |name: &str, content_type: Option<&str>, body: &str| {
        let mut parts = request(content_type);
        let body = the(name).place(&KEY, 1_000, &mut parts, Bytes::copy_from_slice(body.as_bytes()))?;
        Ok::<_, super::PlaceError>((parts, String::from_utf8(body.to_vec()).unwrap()))
    };
    let uuid = "fbff0123-4567-49ab-8cde-f00001020304";
    let (parts, body) = place("stripe", Some("text/plain"), "anything").unwrap();
    assert_eq!(parts.headers.get_all("Idempotency-Key").iter().collect::<Vec<_>>(), [uuid]);
    assert_eq!(body, "anything");
    let (parts, _) = place("ietf", None, "").unwrap();
    assert_eq!(parts.headers["Idempotency-Key"], format!("\"{uuid}\""));

    let (_, body) = place(
        "square",
        Some("application/json; charset=utf-8"),
        r#"{"big":12345678901234567890.10, "idempotency_key":"old","a":[1.0]}"#,
    )
    .unwrap();
    assert_eq!(body, format!(r#"{{"big":12345678901234567890.10,"a":[1.0],"idempotency_key":"{uuid}"}}"#));
    let (_, body) = place("hubspot", None, r#"{"message":{"to":"a@b.c"},"x":1}"#).unwrap();
    assert_eq!(body, format!(r#"{{"x":1,"message":{{"to":"a@b.c","sendId":"{uuid}"}}}}"#));
    let (_, body) = place("discord", None, r#"{"content":"hi"}"#).unwrap();
    assert_eq!(body, r#"{"content":"hi","nonce":"-_8BI0VnSauM3vAAAQIDBA","enforce_nonce":true}"#);

    let (parts, _) = place("google-cloud", None, "").unwrap();
    assert_eq!(parts.uri.query(), Some(format!("a=1&b=%20&requestId={uuid}").as_str()));
    let (parts, _) = place("azure", None, "").unwrap();
    assert_eq!(parts.headers["Repeatability-First-Sent"], "Thu, 01 Jan 1970 00:00:01 GMT");

    for (name, content_type, body) in [
        ("square", Some("text/csv"), "{}"),
        ("square", None, "[1]"),
        ("square", None, "{"),
        ("square", None, "{} x"),
        ("hubspot", None, r#"{"message":7}"#),
    ] {
        let error = place(name, content_type, body).unwrap_err().to_string();
        assert!(error.ends_with("nothing was sent"), "{error}");
    }
}

#[test]
fn a_key_that_the_caller_put_there_is_found() {
    let given = |name: &str, body: &str| the(name).given(&request(None), body.as_bytes());
    assert_eq!(given("stripe", "").as_deref(), Some("made-up"));
    assert_eq!(given("google-cloud", "").as_deref(), Some("old"));
    assert_eq!(given("square", r#"{"idempotency_key":"mine"}"#).as_deref(), Some("mine"));
    assert_eq!(given("hubspot", r#"{"message":{"sendId":7}}"#).as_deref(), Some("7"));
    for (name, body) in [
        ("paypal", ""),
        ("square", "{}"),
        ("square", "not json"),
        ("square", r#"{"idempotency_key":""}"#),
        ("slack", "{}"),
    ] {
        assert_eq!(given(name, body), None, "{name} {body}");
    }
}

#[test]
fn only_a_published_retention_of_a_key_that_we_carry_makes_a_retry_harmless() {
    let adjusted = |name: &str| {
        let mut policy = Policy::default();
        the(name).adjust(&mut policy, WhenUnknownSaid::Nothing);
        policy.validate().unwrap();
        (policy.when_unknown, policy.forwards_key_for_ms)
    };
    // A little less than published: a request takes a while to get there.
    assert_eq!(adjusted("stripe"), (WhenUnknown::Retry, Some(86_400_000 - 60_000)));
    // De-duplicated on some paths only: not by itself.
    assert_eq!(adjusted("discord"), (WhenUnknown::Halt, Some(180_000 - 18_000)));
    for name in ["twilio", "azure", "google-cloud", "plaid", "docusign", "paypal", "resend", "checkout"] {
        assert_eq!(adjusted(name).0, WhenUnknown::Halt, "{name}");
    }
    // What the policy says itself stands, and a shorter time, too.
    let mut own = Policy { forwards_key_for_ms: Some(1_000), ..Policy::default() };
    the("stripe").adjust(&mut own, WhenUnknownSaid::ByPolicy);
    assert_eq!((own.when_unknown, own.forwards_key_for_ms), (WhenUnknown::Halt, Some(1_000)));
    let mut own =
        Policy { forwards_key_for_ms: Some(1_000), when_unknown: WhenUnknown::Retry, ..Policy::default() };
    the("discord").adjust(&mut own, WhenUnknownSaid::ByPolicy);
    assert_eq!((own.when_unknown, own.forwards_key_for_ms), (WhenUnknown::Retry, Some(1_000)));
    for name in ["square", "gocardless", "twilio-messages", "braintree", "stripe-v2", "mercury", "svix"] {
        assert_eq!(adjusted(name), (WhenUnknown::Halt, None), "{name}");
    }
    assert!(the("stripe").applies_to("POST") && !the("stripe").applies_to("GET"));
    assert!(!the("slack").applies_to("POST"));
}

#[test]
fn a_provider_of_ones_own_takes_the_place_of_a_known_one() {
    let own = r#"
        [[provider]]
        name = "paypal"
        key = { header = "PayPal-Request-Id" }
        retention = "45d"
        [[provider]]
        name = "ours"
        key = { form = "request_key" }
    "#;
    let providers = Providers::builtin().clone().with_toml(own).unwrap();
    assert_eq!(providers.get("paypal").unwrap().retention_ms, Some(45 * 86_400_000));
    let ours = providers.get("ours").unwrap();
    let mut parts = request(Some("application/x-www-form-urlencoded"));
    let body = ours.place(&KEY, 0, &mut parts, Bytes::from_static(b"a=b&request_key=x&c=%26")).unwrap();
    assert_eq!(body, "a=b&c=%26&request_key=fbff0123-4567-49ab-8cde-f00001020304");
}

#[test]
fn a_wrong_row_names_the_provider_the_field_and_what_is_allowed() {
    let check =
        |row: &str| Providers::builtin().clone().with_toml(&format!("[[provider]]\n{row}")).unwrap_err();
    for (row, field, part) in [
        ("name = \"X\"\nkey = \"none\"", "name", "lower-case"),
        ("name = \"x\"\nkey = \"header\"", "key", "allowed"),
        ("name = \"x\"\nkey = { header = \"a\", query = \"b\" }", "key", "one way"),
        ("name = \"x\"\nkey = { header = \"a b\" }", "key", "header"),
        ("name = \"x\"\nkey = { json = \"a\" }", "key", "JSON pointer"),
        ("name = \"x\"\nkey = { query = \"a&b\" }", "key", "field"),
        ("name = \"x\"\nkey = { query = \"a\", quoted = true }", "key", "quoted"),
        ("name = \"x\"\nkey = { header = \"a\" }\nchars_max = 20", "encoder", "36 characters"),
        ("name = \"x\"\nkey = { header = \"a\" }\nchars_min = 40", "encoder", "fewer"),
        ("name = \"x\"\nkey = { header = \"a\" }\ncharset = \"0-9\"", "encoder", "'a'"),
        ("name = \"x\"\nkey = \"none\"\nretention = \"soon\"", "retention", ""),
        ("name = \"x\"\nkey = \"none\"\nwhen_unknown = \"retry\"", "when_unknown", "halt"),
        ("name = \"x\"\nkey = \"none\"\nmethods = [\"post\"]", "methods", "capital"),
        ("name = \"x\"\nkey = \"none\"\nanswers = [{ means = \"replayed\" }]", "answers", "status"),
        (
            "name = \"x\"\nkey = \"none\"\nanswers = [{ says = \"a\", means = \"in_flight\" }]",
            "answers",
            "place",
        ),
        (
            "name = \"x\"\nkey = \"none\"\nanswers = [{ says = \"a\", at = \"/b\", means = \"mismatch\" }]",
            "answers",
            "status",
        ),
        (
            "name = \"x\"\nkey = \"none\"\nanswers = [{ status = 200, means = \"mismatch\" }]",
            "answers",
            "success",
        ),
        (
            "name = \"x\"\nkey = \"none\"\nanswers = [{ status = 409, at = \"/a\", means = \"in_flight\" }]",
            "answers",
            "says",
        ),
        ("name = \"x\"\nkey = \"none\"\naccount_headers = [\"a b\"]", "account_headers", "header"),
        ("name = \"x\"\nkey = \"none\"\nanswers = [{ status = 99, means = \"replayed\" }]", "answers", "100"),
        (
            "name = \"x\"\nkey = \"none\"\nanswers = [{ status = 409, is = \"a\", means = \"replayed\" }]",
            "answers",
            "header",
        ),
    ] {
        match check(row) {
            ProviderError::Row { field: found, message, .. } => {
                assert_eq!(found, field, "{row}");
                assert!(message.contains(part), "{message}");
            }
            other => panic!("{row}: {other}"),
        }
    }
    assert!(matches!(check("name = \"x\"\nkey = \"none\"\nextra = 1"), ProviderError::Malformed(_)));
    assert!(matches!(
        check("name = \"x\"\nkey = \"none\"\n[[provider]]\nname = \"x\"\nkey = \"none\""),
        ProviderError::Row { field: "name", .. }
    ));
}
