//! From a request to a call: whose it is, which key it carries, and what it means.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts;
use oncely_core::name::hex;
use oncely_core::select::Selector;
use oncely_core::{Digest, Policy, Scope};
use serde_json::value::RawValue;

use super::key::{GivenKey, KeyForm, key_of, parse_key};
use super::problem::{Code, Problem};
use super::settings::Settings;
use super::tenant::Caller;
use crate::call::Call;

/// Who calls, and under which key: known before the body is read.
pub(super) struct Head {
    pub(super) caller: Caller,
    pub(super) given: Option<GivenKey>,
}

impl Head {
    /// Reads the head of a request; what is wrong with it is said before anything runs.
    pub(super) fn read(settings: &Settings, headers: &HeaderMap) -> Result<Self, Problem> {
        let given = key_of(headers, settings.key_form).map_err(|fault| {
            Problem::new(
                Code::KeyMalformed,
                format!("{fault}; nothing ran. Correct the header and send it again"),
            )
        })?;
        let caller = settings
            .tenant
            .caller(&settings.namespace, headers)
            .map_err(|missing| Problem::new(Code::TenantRequired, format!("{missing}; nothing ran")))?;
        Ok(Self { caller, given })
    }

    /// Takes over the key that a caller has put elsewhere. Two that differ are refused: which one names the intent would
    /// be a guess.
    pub(super) fn adopt(&mut self, own: Option<String>) -> Result<(), Problem> {
        let Some(own) = own else { return Ok(()) };
        let malformed = |fault: String| Problem::new(Code::KeyMalformed, format!("{fault}; nothing ran"));
        let key = parse_key(own.as_bytes(), KeyForm::Either).map_err(|fault| malformed(fault.to_string()))?;
        match &self.given {
            Some(given) if given.key != key => Err(malformed(
                "the request carries two keys that differ, in Idempotency-Key and in the place of the provider; send \
                 one, or the same in both"
                    .to_owned(),
            )),
            Some(_) => Ok(()),
            None => {
                let written = HeaderValue::from_str(&own).map_err(|fault| malformed(fault.to_string()))?;
                self.given = Some(GivenKey { key, written });
                Ok(())
            }
        }
    }

    /// Refuses a request that carries no key where one is needed.
    pub(super) fn require_key(&self, settings: &Settings) -> Result<(), Problem> {
        if self.given.is_none() && settings.policy.require_key {
            return Err(Problem::new(
                Code::KeyRequired,
                "this request changes something and carries no key; nothing ran. Send the header Idempotency-Key with \
                 a name of the intent: the same on every retry, a new one for a new intent",
            ));
        }
        if self.given.is_none() && self.caller.anonymous {
            return Err(Problem::new(
                Code::KeyRequired,
                "this request carries neither a key nor a credential, so an equal request of somebody else could not \
                 be told from a retry; nothing ran. Send the header Idempotency-Key with a name of the intent: the \
                 same on every retry, a new one for a new intent",
            ));
        }
        Ok(())
    }

    pub(super) fn key_text(&self) -> Option<&str> {
        self.given.as_ref().map(|given| given.key.as_str())
    }
}

/// How the body takes part in what a call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyForm {
    /// As JSON: spelling does not matter.
    Json,
    /// Byte for byte.
    Raw,
}

/// The form of a body: JSON where it says so and is.
pub(super) fn form_of(headers: &HeaderMap, body: &[u8]) -> BodyForm {
    let says_json = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or("").trim().as_bytes();
        let end = kind.len().checked_sub(b"+json".len()).and_then(|at| kind.get(at..));
        kind.eq_ignore_ascii_case(b"application/json")
            || end.is_some_and(|end| end.eq_ignore_ascii_case(b"+json"))
    });
    // Only what is one whole JSON value may stand inside another.
    if says_json && serde_json::from_slice::<&RawValue>(body).is_ok() {
        BodyForm::Json
    } else {
        BodyForm::Raw
    }
}

/// The call that a request is.
pub(super) fn call_of(settings: &Settings, head: &Head, parts: &Parts, body: &Bytes, form: BodyForm) -> Call {
    Call {
        namespace: head.caller.namespace.clone(),
        scope: Scope::none(),
        tool: settings.tool.clone(),
        key: head.given.as_ref().map(|given| given.key.clone()),
        payload: payload(settings, parts, body, form),
        policy: settings.policy.clone(),
        wait_for: None,
        checked: None,
        probe: None,
        holds: None,
    }
}

/// What a request means, as JSON: `method`, `path`, `query`, chosen `headers`, and `body` or `body_sha256`.
pub(super) fn payload(settings: &Settings, parts: &Parts, body: &Bytes, form: BodyForm) -> Vec<u8> {
    let mut out = Vec::with_capacity(192 + if form == BodyForm::Json { body.len() } else { 0 });
    out.extend_from_slice(b"{\"method\":");
    quote(&mut out, parts.method.as_str());
    out.extend_from_slice(b",\"path\":");
    quote(&mut out, parts.uri.path());
    out.extend_from_slice(b",\"query\":");
    quote(&mut out, parts.uri.query().unwrap_or(""));
    if !settings.headers.is_empty() {
        out.extend_from_slice(b",\"headers\":");
        out.extend_from_slice(chosen_headers(settings, &parts.headers).as_bytes());
    }
    match form {
        BodyForm::Json => {
            out.extend_from_slice(b",\"body\":");
            out.extend_from_slice(body);
        }
        BodyForm::Raw => {
            out.extend_from_slice(b",\"body_sha256\":");
            quote(&mut out, &hex(&Digest::of(body).0));
        }
    }
    out.push(b'}');
    out
}

fn chosen_headers(settings: &Settings, headers: &HeaderMap) -> String {
    let chosen = settings.headers.iter().map(|name| {
        let values = headers.get_all(name).iter().map(|value| match value.to_str() {
            Ok(text) => serde_json::Value::from(text),
            Err(_) => serde_json::json!({ "bytes": hex(value.as_bytes()) }),
        });
        (name.as_str().to_owned(), values.collect::<serde_json::Value>())
    });
    serde_json::Value::Object(chosen.collect()).to_string()
}

fn quote(out: &mut Vec<u8>, text: &str) {
    // Text can be written to memory.
    let _ = serde_json::to_writer(out, text);
}

/// A tool's policy speaks of fields of the body; in the payload the body is one member among others. A key made of
/// fields is always made of the method and the address as well: an order and a refund of one amount are two intents.
pub(super) fn over_body(mut policy: Policy) -> Policy {
    let inside = |selector: &Selector| {
        Selector::parse(&format!("/body{selector}")).unwrap_or_else(|_| selector.clone())
    };
    policy.ignore = policy.ignore.iter().map(inside).collect();
    if !policy.key.is_empty() {
        let address = ["/method", "/path", "/query"].into_iter().filter_map(|s| Selector::parse(s).ok());
        policy.key = address.chain(policy.key.iter().map(inside)).collect();
    }
    policy
}

/// Headers that are part of what a request means are part of a key made of fields, too: equal fields for two accounts are two
/// intents.
pub(super) fn count_headers(settings: &mut Settings) {
    let Ok(headers) = Selector::parse("/headers") else { return };
    let wanted = !settings.headers.is_empty() && !settings.policy.key.is_empty();
    if wanted != settings.policy.key.contains(&headers) {
        let key = &mut Arc::make_mut(&mut settings.policy).key;
        key.retain(|selector| *selector != headers);
        key.extend(wanted.then_some(headers));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use oncely_core::Policy;
    use oncely_core::fingerprint::identify;
    use oncely_core::select::Selector;

    use super::{BodyForm, form_of, over_body, payload};
    use crate::tower::settings::Settings;

    const JSON: &str = "application/json; charset=utf-8";

    fn fingerprint(method: &str, uri: &str, kind: &str, body: &'static str) -> oncely_core::Digest {
        let request =
            Request::builder().method(method).uri(uri).header("content-type", kind).header("x-a", "1");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let body = Bytes::from_static(body.as_bytes());
        let settings = Settings { headers: vec!["x-a".parse().unwrap()], ..Settings::default() };
        let form = form_of(&parts.headers, &body);
        let payload = payload(&settings, &parts, &body, form);
        identify(None, &payload, &Policy::default()).unwrap().fingerprint.canonical
    }

    #[test]
    fn method_path_query_headers_and_body_all_count_and_json_spelling_does_not() {
        let one = fingerprint("POST", "/orders?a=1", JSON, r#"{"a":1,"b":2}"#);
        assert_eq!(
            fingerprint("POST", "/orders?a=1", "application/vnd.x+json", r#"{ "b":2.0, "a":1 }"#),
            one
        );
        assert_ne!(fingerprint("PUT", "/orders?a=1", JSON, r#"{"a":1,"b":2}"#), one);
        assert_ne!(fingerprint("POST", "/order?a=1", JSON, r#"{"a":1,"b":2}"#), one);
        assert_ne!(fingerprint("POST", "/orders?a=2", JSON, r#"{"a":1,"b":2}"#), one);
        assert_ne!(fingerprint("POST", "/orders?a=1", JSON, r#"{"a":1,"b":3}"#), one);
        assert_ne!(fingerprint("POST", "/orders?a=1", "text/plain", r#"{"a":1,"b":2}"#), one);
    }

    #[test]
    fn a_body_that_only_claims_to_be_json_counts_byte_for_byte() {
        // Put inside an object without a look, this would become a second member.
        for body in ["1,\"zz\":2", "{\"a\":1", "", "{\"a\":1}{}"] {
            let headers = [("content-type".parse().unwrap(), JSON.parse().unwrap())].into_iter().collect();
            assert_eq!(form_of(&headers, body.as_bytes()), BodyForm::Raw, "{body}");
        }
        assert_ne!(fingerprint("POST", "/", JSON, "1, \"z\":2"), fingerprint("POST", "/", JSON, "1,\"z\":2"));
    }

    #[test]
    fn key_fields_are_fields_of_the_body_at_one_address() {
        let policy = over_body(Policy { key: vec![Selector::parse("amount").unwrap()], ..Policy::default() });
        let shown: Vec<String> = policy.key.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["/method", "/path", "/query", "/body/amount"]);
    }
}
