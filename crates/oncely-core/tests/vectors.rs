//! Runs the golden vectors of identity: data that every other language reads too. A vector never changes; a new scheme
//! gets a new version.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use oncely_core::canonical::{self, PayloadError};
use oncely_core::fingerprint::identify;
use oncely_core::select::Selector;
use oncely_core::{
    Digest, IntentId, IntentName, Key, Matching, NameError, Namespace, Policy, Scope, ToolName,
};
use serde_json::Value;

fn vectors(list: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../vectors/identity.json")).unwrap();
    all[list].as_array().unwrap_or_else(|| panic!("no list {list:?}")).clone()
}

fn text<'v>(case: &'v Value, field: &str) -> &'v str {
    case[field].as_str().unwrap_or_else(|| panic!("{case}: no text {field:?}"))
}

fn selectors(case: &Value, field: &str) -> Vec<Selector> {
    let list = case[field].as_array().unwrap();
    list.iter().map(|s| Selector::parse(s.as_str().unwrap()).unwrap()).collect()
}

fn number(case: &Value, field: &str) -> u32 {
    case[field].as_u64().unwrap().try_into().unwrap()
}

#[test]
fn canonical_texts_and_their_digests_are_as_published() {
    let cases = vectors("canonical");
    assert!(cases.len() >= 60);
    for case in cases {
        let canonical = canonical::parse(text(&case, "input").as_bytes()).unwrap().to_canonical();
        assert_eq!(String::from_utf8(canonical.clone()).unwrap(), text(&case, "canonical"), "{case}");
        assert_eq!(Digest::of(&canonical).to_string(), text(&case, "sha256"), "{case}");
        // What is canonical stays as it is.
        let again = canonical::parse(&canonical).unwrap().to_canonical();
        assert_eq!(again, canonical, "{case}");
    }
}

#[test]
fn keys_and_fingerprints_are_as_published() {
    let cases = vectors("identities");
    assert!(cases.len() >= 20);
    for case in cases {
        let policy = Policy {
            key: selectors(&case, "key_selectors"),
            ignore: selectors(&case, "ignore"),
            matching: match text(&case, "match") {
                "key_fields" => Matching::KeyFields,
                "payload" => Matching::Payload,
                other => panic!("{other:?} is no way of matching"),
            },
            ..Policy::default()
        };
        let explicit = case["explicit_key"].as_str().map(|k| Key::explicit(k).unwrap());
        let identity = identify(explicit, text(&case, "payload").as_bytes(), &policy).unwrap();
        assert_eq!(identity.key.as_str(), text(&case, "key"), "{case}");
        assert_eq!(identity.fingerprint.canonical.to_string(), text(&case, "fingerprint"), "{case}");
        assert_eq!(identity.fingerprint.raw, Digest::of(text(&case, "payload").as_bytes()), "{case}");
    }
}

#[test]
fn intent_ids_are_as_published() {
    for case in vectors("intents") {
        let scope = match text(&case, "scope") {
            "" => Scope::none(),
            named => Scope::parse(named).unwrap(),
        };
        let name = IntentName {
            namespace: Namespace::parse(text(&case, "namespace")).unwrap(),
            scope,
            tool: ToolName::parse(text(&case, "tool")).unwrap(),
            key: Key::from_stored(text(&case, "key")).unwrap(),
        };
        assert_eq!(name.intent_id().to_string(), text(&case, "intent_id"), "{case}");
    }
}

#[test]
fn downstream_keys_are_as_published() {
    for case in vectors("downstream_keys") {
        let intent = IntentId::parse(text(&case, "intent_id")).unwrap();
        let key = intent.downstream_key(number(&case, "generation"), number(&case, "rejections"));
        assert_eq!(key.to_string(), text(&case, "downstream_key"), "{case}");
    }
}

#[test]
fn payloads_that_mean_two_things_or_lack_a_field_are_refused_for_the_published_reason() {
    for case in vectors("refused_payloads") {
        let policy = Policy { key: selectors(&case, "key_selectors"), ..Policy::default() };
        let reason = match identify(None, text(&case, "payload").as_bytes(), &policy) {
            Err(PayloadError::Malformed(_)) => "malformed",
            Err(PayloadError::MissingField(_)) => "missing_field",
            Err(PayloadError::TooLarge { .. }) => "too_large",
            Ok(identity) => panic!("{case} was accepted as {:?}", identity.key),
        };
        assert_eq!(reason, text(&case, "reason"), "{case}");
    }
}

#[test]
fn names_are_refused_for_the_published_reason() {
    for case in vectors("refused_names") {
        let name = text(&case, "text");
        let refused = match text(&case, "part") {
            "key" => Key::explicit(name).err(),
            "namespace" => Namespace::parse(name).err(),
            "scope" => Scope::parse(name).err(),
            "tool" => ToolName::parse(name).err(),
            other => panic!("{other:?} is no part of a name"),
        };
        let reason = match refused {
            Some(NameError::Empty { .. }) => "empty",
            Some(NameError::TooLong { .. }) => "too_long",
            Some(NameError::BadCharacter { .. }) => "bad_character",
            None => panic!("{case} was accepted"),
        };
        assert_eq!(reason, text(&case, "reason"), "{case}");
    }
}

#[test]
fn bad_selectors_are_refused() {
    for selector in vectors("refused_selectors") {
        assert!(Selector::parse(selector.as_str().unwrap()).is_err(), "{selector} was accepted");
    }
}
