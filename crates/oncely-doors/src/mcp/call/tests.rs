//! What calls are read as, and what is passed on of them.

use super::{Asked, BadCall, ToolCall};
use crate::mcp::message::{Message, read};
use crate::mcp::tools::{Added, Whose};

const OURS: Added = Added { key: Whose::Ours, dry_run: Whose::Ours };
const OWN: Added = Added { key: Whose::Own, dry_run: Whose::Own };
const UNCLEAR: Added = Added { key: Whose::Unclear, dry_run: Whose::Unclear };

fn ask(params: &str, added: Added) -> Result<(Asked, String), BadCall> {
    let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let Ok(Message::Request(request)) = read(line.as_bytes()) else { panic!("{line}") };
    let call = ToolCall::read(&request).unwrap();
    let asked = call.ask(added)?;
    let forwarded = String::from_utf8(call.forward("us-1", &asked, None)).unwrap();
    Ok((asked, forwarded))
}

fn key(params: &str, added: Added) -> Option<String> {
    ask(params, added).unwrap().0.key.map(|key| key.as_str().to_owned())
}

#[test]
fn a_key_is_found_in_this_order() {
    let all = r#"{"name":"p","arguments":{"idempotency_key":"d"},"idempotencyKey":"c","_meta":{"idempotency-key":"b","dev.oncely/idempotency-key":"a"}}"#;
    assert_eq!(key(all, OURS).as_deref(), Some("a"));
    for spelling in ["dev.oncely/idempotency-key", "idempotencyKey", "idempotency-key", "idempotency_key"] {
        assert_eq!(
            key(&format!(r#"{{"name":"p","_meta":{{"{spelling}":"k"}}}}"#), OURS).as_deref(),
            Some("k")
        );
        assert_eq!(key(&format!(r#"{{"name":"p","{spelling}":"k"}}"#), OURS).as_deref(), Some("k"));
    }
    assert_eq!(key(r#"{"name":"p","arguments":{"idempotency_key":"d"}}"#, OURS).as_deref(), Some("d"));
    assert_eq!(key(r#"{"name":"p","arguments":{"idempotency_key":null}}"#, OURS), None);
    assert_eq!(key(r#"{"name":"p","id":9}"#, OURS), None);
}

#[test]
fn our_arguments_are_taken_out_and_the_tools_own_are_kept() {
    let params = r#"{"name":"p","arguments":{"idempotency_key":"k","a":1.0,"dry_run":true},"x":[1]}"#;
    let (asked, forwarded) = ask(params, OURS).unwrap();
    assert!(asked.dry_run);
    assert_eq!(asked.payload, br#"{"a":1.0}"#);
    assert_eq!(
        forwarded,
        "{\"jsonrpc\":\"2.0\",\"id\":\"us-1\",\"method\":\"tools/call\",\"params\":{\"name\":\"p\",\"arguments\":{\"a\":1.0},\"x\":[1]}}\n"
    );
    let (asked, forwarded) = ask(params, OWN).unwrap();
    assert_eq!((asked.dry_run, asked.key.as_ref().unwrap().as_str().to_owned()), (false, "k".to_owned()));
    assert!(forwarded.contains(r#""arguments":{"idempotency_key":"k","a":1.0,"dry_run":true}"#));
    assert_eq!(asked.payload, br#"{"a":1.0,"dry_run":true}"#);
}

#[test]
fn a_bad_key_is_refused_unless_it_is_an_argument_of_the_tools_own() {
    let bad = |value: &str| format!(r#"{{"name":"p","arguments":{{"idempotency_key":{value}}}}}"#);
    for value in ["\"\"", "\"a b\"", "7", "{}"] {
        assert!(ask(&bad(value), OURS).is_err(), "{value}");
        assert_eq!(key(&bad(value), OWN), None, "{value}");
    }
    let dry = r#"{"name":"p","arguments":{"dry_run":"yes"}}"#;
    assert_eq!(ask(dry, OURS).unwrap_err(), BadCall::DryRunIsNoBoolean);
    assert!(ask(dry, OWN).is_ok());
}

#[test]
fn answers_to_what_the_server_asked_count_under_a_key_that_was_given() {
    let payloads = |key: &str| {
        ["", r#","requestState":"s""#, r#","requestState":"s","inputResponses":{}"#, r#","task":{"ttl":5}"#]
            .map(|more| {
                let params = format!(r#"{{"name":"p","arguments":{{"a":1{key}}}{more}}}"#);
                ask(&params, OURS).unwrap().0.payload
            })
    };
    let keyed = payloads(r#","idempotency_key":"k""#);
    for (i, a) in keyed.iter().enumerate() {
        assert!(keyed[..i].iter().all(|b| a != b));
    }
    assert!(payloads("").iter().all(|payload| payload == br#"{"a":1}"#));
    assert_eq!(ask(r#"{"name":"p","arguments":null}"#, OURS).unwrap().0.payload, b"{}");
}

#[test]
fn a_call_that_cannot_be_read_is_answered_with_invalid_params() {
    for params in [
        "null",
        "[]",
        "{}",
        r#"{"name":7}"#,
        r#"{"name":"p","arguments":[]}"#,
        r#"{"name":"p","arguments":"x"}"#,
        r#"{"name":"p","arguments":{"a":1,"a":2}}"#,
        r#"{"name":"p","Name":"q"}"#,
        r#"{"name":"p","_meta":3}"#,
    ] {
        let line = format!(r#"{{"id":1,"method":"tools/call","params":{params}}}"#);
        let Ok(Message::Request(request)) = read(line.as_bytes()) else { panic!("{line}") };
        let answer = ToolCall::read(&request).unwrap_err();
        assert!(String::from_utf8(answer).unwrap().contains("-32602"), "{params}");
    }
}

#[test]
fn what_would_mean_something_else_once_the_tool_is_listed_is_refused() {
    let with = |arguments: &str, more: &str| {
        ask(&format!(r#"{{"name":"p","arguments":{{{arguments}}}{more}}}"#), UNCLEAR)
    };
    let key = r#","_meta":{"idempotencyKey":"k"}"#;
    for raw in ["false", "null", r#""true""#, "1", "{}"] {
        for more in ["", key] {
            let dry = with(&format!(r#""dry_run":{raw}"#), more).unwrap_err();
            assert_eq!(dry, BadCall::NotListed("dry_run"), "{raw} {more}");
        }
    }
    for raw in ["null", "7", r#""a b""#] {
        let none = with(&format!(r#""idempotency_key":{raw}"#), "").unwrap_err();
        assert_eq!(none, BadCall::NotListed("idempotency_key"), "{raw}");
    }
    // Beside another key it may be an argument like any other.
    assert!(with(r#""idempotency_key":"d""#, key).is_err());
    assert!(with(r#""dry_run":true"#, "").unwrap().0.dry_run, "a forecast does nothing");
}

#[test]
fn what_is_taken_of_a_tool_that_is_not_listed_means_the_same_once_it_is() {
    for (arguments, more) in [
        (r#"{"a":1}"#, ""),
        (r#"{"a":1}"#, r#","_meta":{"idempotencyKey":"k"}"#),
        (r#"{"a":1,"idempotency_key":"k"}"#, ""),
        (r#"{"idempotency_key":"k","a":1}"#, r#","requestState":"s""#),
    ] {
        let params = format!(r#"{{"name":"p","arguments":{arguments}{more}}}"#);
        let meant = |added| ask(&params, added).map(|(asked, _)| (asked.key, asked.payload)).unwrap();
        assert_eq!(meant(UNCLEAR), meant(OURS), "{params}");
        assert_eq!(meant(UNCLEAR), meant(OWN), "{params}");
    }
}
