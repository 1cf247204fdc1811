//! gRPC: all that the layer knows of it. A call always answers 200, and its real end is a status in the trailers, or in the
//! head of an answer that has no body; in gRPC-Web in the last frame of the body.
//!
//! A status that says "nothing happened" says so of a call that sent nothing else. After a message it proves nothing: the
//! service had begun to act.
//!
//! Such a status counts as the HTTP status that it stands for, so that one set of rules, dialects and lists of a route
//! decides what an answer proves. What the layer says itself has the same form: a client reads it as any other status.

mod refusal;
mod web;

use std::borrow::Cow;
use std::fmt;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use http::response::Parts;
use http::{HeaderValue, StatusCode};

use self::refusal::says_unknown;
pub(super) use self::refusal::{dry, happened, refusal};
use super::classify::{Class, Said, says_not_executed};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// How the code of a failure begins that a gRPC service has told, with the name of its status.
pub(super) const OF_GRPC: &str = "GRPC_";

/// Every status by its number, with the HTTP status that it counts as: that of `google.rpc.Code`, but for three.
const STATUSES: [(&str, u16); 17] = [
    ("OK", 200),
    // 499 there, which would be a rejection; a call that was given up may have acted before.
    ("CANCELLED", 408),
    ("UNKNOWN", 500),
    ("INVALID_ARGUMENT", 400),
    ("DEADLINE_EXCEEDED", 504),
    ("NOT_FOUND", 404),
    ("ALREADY_EXISTS", 409),
    ("PERMISSION_DENIED", 403),
    ("RESOURCE_EXHAUSTED", 429),
    ("FAILED_PRECONDITION", 400),
    ("ABORTED", 409),
    // 400 there, which would be a rejection. tonic says it when the service has acted and its answer is longer than it may
    // send.
    ("OUT_OF_RANGE", 500),
    // 501 there, and 404 where gRPC itself maps statuses: there is nobody who could have acted.
    ("UNIMPLEMENTED", 404),
    ("INTERNAL", 500),
    ("UNAVAILABLE", 503),
    ("DATA_LOSS", 500),
    ("UNAUTHENTICATED", 401),
];

/// How a request or an answer speaks gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// `application/grpc`, with whatever messages.
    Plain,
    /// `application/grpc-web`: the trailers are the last frame of the body.
    Web,
    /// `application/grpc-web-text`: the same in base64.
    WebText,
}

impl Speech {
    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Plain => "application/grpc",
            Self::Web => "application/grpc-web",
            Self::WebText => "application/grpc-web-text",
        })
    }
}

/// The gRPC that a request or an answer speaks, if it does.
pub(super) fn speech_of(headers: &HeaderMap) -> Option<Speech> {
    const BEGINS: &[u8] = b"application/grpc";
    let kind = headers.get(CONTENT_TYPE)?.as_bytes();
    let (begin, rest) = kind.split_at_checked(BEGINS.len())?;
    if !begin.eq_ignore_ascii_case(BEGINS) {
        return None;
    }
    let end = rest.iter().position(|byte| matches!(byte, b'+' | b';' | b' ')).unwrap_or(rest.len());
    match rest[..end].to_ascii_lowercase().as_slice() {
        b"" => Some(Speech::Plain),
        b"-web" => Some(Speech::Web),
        b"-web-text" => Some(Speech::WebText),
        _ => None,
    }
}

/// How a gRPC answer ended.
pub(super) struct End<'a> {
    head: &'a HeaderMap,
    /// Where it says so.
    said_in: Cow<'a, HeaderMap>,
    /// Whether anything came between the head and the end.
    has_data: bool,
}

impl<'a> End<'a> {
    /// The end of an answer; `None` if it is none of gRPC. A body that was not held to be looked at is `None`, too.
    pub(super) fn of(
        head: &'a HeaderMap,
        body: Option<&[u8]>,
        trailers: Option<&'a HeaderMap>,
    ) -> Option<Self> {
        let content = match (speech_of(head)?, body) {
            (_, None) => web::Content { has_data: true, trailers: None },
            (Speech::Plain, Some(body)) => web::Content { has_data: !body.is_empty(), trailers: None },
            (Speech::Web, Some(body)) => web::Content::of(body),
            (Speech::WebText, Some(body)) => web::Content::of_text(body),
        };
        // Without trailers the head is all there is.
        let said_in = match (trailers, content.trailers) {
            (Some(trailers), _) => Cow::Borrowed(trailers),
            (None, Some(trailers)) => Cow::Owned(trailers),
            (None, None) => Cow::Borrowed(head),
        };
        Some(Self { head, said_in, has_data: content.has_data })
    }

    /// Whether it is the word of an Oncely behind this one that nobody knows what became of the call.
    pub(super) fn says_unknown(&self) -> bool {
        says_unknown(self.head) || says_unknown(&self.said_in)
    }

    /// Whether it says that nothing was executed.
    pub(super) fn says_not_executed(&self) -> bool {
        says_not_executed(&self.said_in)
    }

    /// The HTTP status that it counts as. None where it proves nothing: it has no status that can be read (it was cut short,
    /// or nobody knows what it means), or one of an error that came after a message.
    pub(super) fn counts_as(&self) -> Option<StatusCode> {
        let status = StatusCode::from_u16(self.status()?.1).ok()?;
        (status.is_success() || !self.has_data).then_some(status)
    }

    /// The name of its status.
    pub(super) fn name(&self) -> Option<&'static str> {
        self.status().map(|(name, _)| *name)
    }

    fn status(&self) -> Option<&'static (&'static str, u16)> {
        let mut said = self.said_in.get_all(GRPC_STATUS).iter();
        let (Some(code), None) = (said.next(), said.next()) else { return None };
        let number = match code.as_bytes() {
            [one @ b'0'..=b'9'] => one - b'0',
            [b'1', one @ b'0'..=b'6'] => 10 + one - b'0',
            _ => return None,
        };
        STATUSES.get(usize::from(number))
    }
}

impl fmt::Display for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("without a grpc-status that can be read"))?;
        let is_error = self.status().is_some_and(|(_, http)| *http != 200);
        f.write_str(if is_error && self.has_data { " after it had sent a message" } else { "" })
    }
}

/// Sees to it that an answer to a gRPC call which is none of gRPC proves no success: it may be the page of something in
/// between. That something in between has refused the call, it may say by an HTTP status.
pub(super) fn distrust(answer: &mut Parts) {
    let speaks_for_itself = answer.extensions.get::<Said>().is_some() || says_not_executed(&answer.headers);
    let looks_well = answer.status.is_success() || answer.status.is_redirection();
    if speaks_for_itself || !looks_well || speech_of(&answer.headers).is_some() {
        return;
    }
    let why = format!(
        "the service answered {}, which is no answer to a gRPC call and does not prove that nothing happened",
        answer.status.as_u16()
    );
    answer.extensions.insert(Said { class: Class::Unknown, why: Some(why) });
}

/// Takes out of a request what speaks of the client and not of the call. Which compression it reads: a retry may come from one
/// that reads none. How long it will wait: a service would give the call up in the middle when that time is over, and a retry
/// could not be told how it ended.
pub(super) fn forget_client(request: &mut HeaderMap) {
    request.remove(GRPC_ACCEPT_ENCODING);
    request.remove(GRPC_TIMEOUT);
}

/// Which headers of an answer are kept besides the usual ones. Where the head is the trailers it is kept as those are, with
/// everything that may ever be replayed.
pub(super) fn kept_in_head(head: &HeaderMap) -> Vec<HeaderName> {
    match speech_of(head) {
        Some(_) if head.contains_key(GRPC_STATUS) => head.keys().cloned().collect(),
        Some(_) => vec![GRPC_ENCODING],
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
