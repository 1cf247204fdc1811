//! What the layer says itself to a gRPC client: a status without a message, and what to do about it as metadata.

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LINK};

use super::{GRPC_STATUS, Speech};
use crate::tower::body::Body;
use crate::tower::key::IDEMPOTENCY_KEY;
use crate::tower::problem::{Code, Problem};
use crate::tower::reply::insert_record;

const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// How long a client that retries by itself has to wait; below zero it must not retry (gRFC A6).
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// What `code` is in a problem.
const IDEMPOTENCY_CODE: HeaderName = HeaderName::from_static("idempotency-code");
/// What `retryable` is in a problem.
const IDEMPOTENCY_RETRYABLE: HeaderName = HeaderName::from_static("idempotency-retryable");
/// What `reason` is in the answer to a dry run.
const IDEMPOTENCY_REASON: HeaderName = HeaderName::from_static("idempotency-reason");

const UNKNOWN: u16 = 2;
const INVALID_ARGUMENT: u16 = 3;
const ALREADY_EXISTS: u16 = 6;
const RESOURCE_EXHAUSTED: u16 = 8;
const FAILED_PRECONDITION: u16 = 9;
const ABORTED: u16 = 10;
const UNIMPLEMENTED: u16 = 12;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;

/// One message without a single field, and the trailers of a success as gRPC-Web has them.
const EMPTY_MESSAGE: &[u8] = &[0; 5];
const EMPTY_MESSAGE_AND_OK: &[u8] = b"\0\0\0\0\0\x80\0\0\0\x0fgrpc-status:0\r\n";
const EMPTY_MESSAGE_AND_OK_TEXT: &[u8] = b"AAAAAACAAAAAD2dycGMtc3RhdHVzOjANCg==";

/// The status of a problem. Clients retry `UNAVAILABLE` by themselves, so it stands only where nothing ran and the same
/// call can succeed later. A key that was used for another request is not `ALREADY_EXISTS`: who makes something takes that
/// for done. That the outcome is unknown is never a status by which anybody, another Oncely above all, takes it for a
/// rejection.
fn status_of(problem: &Problem) -> u16 {
    match problem.code {
        Code::KeyRequired | Code::KeyMalformed | Code::TenantRequired => INVALID_ARGUMENT,
        Code::BodyTooLarge | Code::BodyUnusable | Code::BadRequest => INVALID_ARGUMENT,
        Code::InProgress => ABORTED,
        Code::OutcomeUnknown => UNKNOWN,
        Code::KeyReused | Code::Rejected => FAILED_PRECONDITION,
        Code::TooManyWaiters => RESOURCE_EXHAUSTED,
        Code::Overloaded | Code::StoreUnavailable | Code::UpstreamUnreachable if problem.retryable => {
            UNAVAILABLE
        }
        Code::Overloaded | Code::StoreUnavailable | Code::UpstreamUnreachable => FAILED_PRECONDITION,
        Code::Misconfigured => INTERNAL,
        Code::NoRoute => UNIMPLEMENTED,
        Code::UpstreamFailed => UNKNOWN,
    }
}

/// Whether an answer is a refusal of ours that says that the outcome is unknown.
pub(super) fn says_unknown(headers: &HeaderMap) -> bool {
    headers
        .get_all(IDEMPOTENCY_CODE)
        .iter()
        .any(|code| code.as_bytes() == Code::OutcomeUnknown.as_str().as_bytes())
}

/// A problem as a gRPC client reads it.
pub(in crate::tower) fn refusal(problem: &Problem, speech: Speech) -> Response<Bytes> {
    let mut response = ended(speech, status_of(problem), &problem.detail);
    let headers = response.headers_mut();
    headers.insert(IDEMPOTENCY_CODE, HeaderValue::from_static(problem.code.as_str()));
    let retryable = if problem.retryable { "true" } else { "false" };
    headers.insert(IDEMPOTENCY_RETRYABLE, HeaderValue::from_static(retryable));
    if let Some(seconds) = problem.retry_after_s {
        let ms = i32::try_from(seconds.saturating_mul(1_000)).unwrap_or(i32::MAX);
        headers.insert(GRPC_RETRY_PUSHBACK_MS, HeaderValue::from(ms));
    }
    if let Ok(link) = HeaderValue::try_from(problem.help()) {
        headers.insert(LINK, link);
    }
    if let Some(key) = problem.key.as_deref().and_then(|key| HeaderValue::try_from(key).ok()) {
        headers.insert(IDEMPOTENCY_KEY, key);
    }
    if let Some(record) = problem.record {
        insert_record(headers, record);
    }
    response
}

/// It happened, and there is no message to show for it. An empty one would be a lie, another error an invitation to do it
/// again under another key.
pub(in crate::tower) fn happened<R>(reason: &str, speech: Speech) -> Response<Body<R>> {
    ended(speech, ALREADY_EXISTS, reason).map(Body::whole)
}

/// The answer to a dry run: a success with an empty message, since without one a client reports a broken answer. What would
/// happen is in the metadata.
pub(in crate::tower) fn dry<R>(reason: &str, speech: Speech) -> Response<Body<R>> {
    let ok = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = match speech {
        Speech::Plain => Body::with_trailers(Bytes::from_static(EMPTY_MESSAGE), Some(ok)),
        Speech::Web => Body::whole(Bytes::from_static(EMPTY_MESSAGE_AND_OK)),
        Speech::WebText => Body::whole(Bytes::from_static(EMPTY_MESSAGE_AND_OK_TEXT)),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, speech.content_type());
    response.headers_mut().insert(IDEMPOTENCY_REASON, message(reason));
    response
}

/// An answer that is a status and nothing else, and that must not be retried unless it says when.
fn ended(speech: Speech, status: u16, detail: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, speech.content_type());
    headers.insert(GRPC_STATUS, HeaderValue::from(status));
    headers.insert(GRPC_MESSAGE, message(detail));
    headers.insert(GRPC_RETRY_PUSHBACK_MS, HeaderValue::from_static("-1"));
    response
}

/// Text as a `grpc-message` holds it: all but printable ASCII is percent-encoded, and the percent sign.
pub(super) fn message(text: &str) -> HeaderValue {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | ..0x20 | 0x7f.. => {
                // Writing to a string cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
            _ => encoded.push(char::from(byte)),
        }
    }
    HeaderValue::try_from(encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
}
