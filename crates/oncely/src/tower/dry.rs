//! Dry runs: how one is asked for, and what it is answered with. Nothing runs, nothing is written, no key is used up.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use oncely_core::{IntentId, Record};
use serde_json::json;

use super::body::Body;
use super::classify::{IDEMPOTENCY_EFFECT, expected_effect};
use super::grpc;
use super::reply::{Asked, insert_record, json_response};
use super::settings::{DryRun, Settings};
use crate::answer::Replay;

/// `true` asks what would happen.
pub const IDEMPOTENCY_DRY_RUN: HeaderName = HeaderName::from_static("idempotency-dry-run");

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Whether a request asks what would happen. In doubt it does: a dry run that executes cannot be taken back.
pub fn asks_for_dry_run(headers: &HeaderMap) -> bool {
    let is_false =
        |text: &str| matches!(text.trim().to_ascii_lowercase().as_str(), "false" | "?0" | "0" | "no");
    let header = headers.get_all(IDEMPOTENCY_DRY_RUN).iter();
    let by_header = header.map(|value| value.to_str().unwrap_or("")).any(|value| !is_false(value));
    let prefers = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let by_preference = prefers.flat_map(|value| value.split(',')).any(|preference| {
        let preference = preference.split(';').next().unwrap_or("");
        let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
        name.trim().eq_ignore_ascii_case("dry-run") && !is_false(value.trim().trim_matches('"'))
    });
    by_header || by_preference
}

/// Whether a request that passes by asks for a dry run which nobody would honour.
pub(super) fn would_be_executed<B>(settings: &Settings, request: &Request<B>) -> bool {
    !request.method().is_safe() && settings.dry_run == DryRun::Forecast && asks_for_dry_run(request.headers())
}

/// Says on a request that it is a dry run, in both spellings: a service may know only one.
pub(super) fn mark_request_dry(headers: &mut HeaderMap) {
    headers.insert(IDEMPOTENCY_DRY_RUN, HeaderValue::from_static("true"));
    headers.append(PREFER, HeaderValue::from_static("dry-run"));
}

/// Says on a response that it answers a dry run.
pub(super) fn marked_dry<R>(mut response: Response<Body<R>>) -> Response<Body<R>> {
    let headers = response.headers_mut();
    headers.insert(IDEMPOTENCY_DRY_RUN, HeaderValue::from_static("true"));
    headers.insert(HeaderName::from_static("preference-applied"), HeaderValue::from_static("dry-run"));
    response
}

impl Asked {
    /// A dry run of a call that would run.
    pub(super) fn would_run<R>(&self, attempt: u32) -> Response<Body<R>> {
        let effect = expected_effect(&self.method, &self.settings.policy).would();
        self.dry(effect, format!("it would run, as attempt {attempt}"), None)
    }

    /// A dry run of a call that would first ask about an attempt in doubt.
    pub(super) fn would_check<R>(&self, record: &Record) -> Response<Body<R>> {
        let reason = "an earlier attempt is in doubt: the check would be asked, and it would run or not";
        let effect = expected_effect(&self.method, &self.settings.policy).would();
        self.dry(effect, reason.to_owned(), Some(record.intent))
    }

    /// A dry run of a call that would be answered from memory.
    pub(super) fn would_replay<R>(&self, replay: &Replay) -> Response<Body<R>> {
        let reason = format!("it happened {} s ago: its answer would be replayed", replay.age_ms() / 1_000);
        self.dry("noop", reason, Some(replay.record.intent))
    }

    fn dry<R>(&self, effect: &'static str, reason: String, record: Option<IntentId>) -> Response<Body<R>> {
        let mut response = match self.reader.grpc() {
            Some(speech) => grpc::dry(&reason, speech),
            None => {
                let mut meta = json!({ "dry_run": true });
                if let Some(record) = record {
                    meta["id"] = record.to_string().into();
                }
                json_response(&json!({
                    "ok": true, "effect": effect, "reason": reason, "data": null, "meta": meta,
                }))
            }
        };
        let headers = response.headers_mut();
        headers.insert(IDEMPOTENCY_EFFECT, HeaderValue::from_static(effect));
        if let Some(record) = record {
            insert_record(headers, record);
        }
        marked_dry(response)
    }
}
