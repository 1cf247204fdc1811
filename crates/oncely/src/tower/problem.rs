//! Problems after RFC 9457, as JSON or as Markdown that a model can act on; dialects differ in statuses.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LINK, RETRY_AFTER};
use http::{Response, StatusCode};
use oncely_core::IntentId;
use serde_json::{Value, json};

use super::grpc::{self, Speech};

/// Where every code is explained.
pub const DOCUMENTATION: &str = "https://github.com/oncely/oncely/blob/main/docs/http.md";

/// Whose rules about statuses are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// A reused key is 409.
    #[default]
    Default,
    /// After draft-ietf-httpapi-idempotency-key-header: a reused key is 422; errors are replayed like successes.
    Ietf,
    /// After Stripe's v1 API: a reused key is 400; a declined charge (402) is replayed.
    Stripe,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Default, Self::Ietf, Self::Stripe];

    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Ietf => "ietf",
            Self::Stripe => "stripe",
        }
    }
}

/// What went wrong, before it is written for a reader. Nothing ran, unless the code is `outcome_unknown`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub(super) code: Code,
    pub(super) status: StatusCode,
    pub(super) detail: String,
    pub(super) retryable: bool,
    pub(super) retry_after_s: Option<u64>,
    pub(super) key: Option<String>,
    pub(super) record: Option<IntentId>,
}

/// Every code, with what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// A key is needed and was not given.
    KeyRequired,
    /// The key cannot be read.
    KeyMalformed,
    /// What tells tenants apart is missing.
    TenantRequired,
    /// The key was used for another request.
    KeyReused,
    /// The first request with this key is still running.
    InProgress,
    /// An earlier attempt may have happened.
    OutcomeUnknown,
    /// It was rejected before, and its retries are used up.
    Rejected,
    /// The body is longer than allowed.
    BodyTooLarge,
    /// The body broke off, or a key cannot be derived from it.
    BodyUnusable,
    /// Too many calls are under way.
    Overloaded,
    /// Too many calls wait on this key.
    TooManyWaiters,
    /// The ledger cannot be used.
    StoreUnavailable,
    /// The layer's own configuration contradicts itself.
    Misconfigured,
    /// The request cannot be forwarded as it is.
    BadRequest,
    /// No route fits.
    NoRoute,
    /// The service could not be reached; nothing was sent.
    UpstreamUnreachable,
    /// The service broke off or did not answer, on a call that is not guarded.
    UpstreamFailed,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 17] = [
        Self::KeyRequired,
        Self::KeyMalformed,
        Self::TenantRequired,
        Self::KeyReused,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::Rejected,
        Self::BodyTooLarge,
        Self::BodyUnusable,
        Self::Overloaded,
        Self::TooManyWaiters,
        Self::StoreUnavailable,
        Self::Misconfigured,
        Self::BadRequest,
        Self::NoRoute,
        Self::UpstreamUnreachable,
        Self::UpstreamFailed,
    ];

    /// The code that programs see, the title that people see, and the usual status.
    fn facts(self) -> (&'static str, &'static str, StatusCode) {
        match self {
            Self::KeyRequired => ("key_required", "A key is required", StatusCode::BAD_REQUEST),
            Self::KeyMalformed => ("key_malformed", "The key cannot be read", StatusCode::BAD_REQUEST),
            Self::TenantRequired => ("tenant_required", "The tenant is not known", StatusCode::BAD_REQUEST),
            Self::KeyReused => ("key_reused", "The key was used for another request", StatusCode::CONFLICT),
            Self::InProgress => ("in_progress", "The first request is still running", StatusCode::CONFLICT),
            Self::OutcomeUnknown => ("outcome_unknown", "It may have happened", StatusCode::CONFLICT),
            Self::Rejected => ("rejected", "It was rejected too often", StatusCode::CONFLICT),
            Self::BodyTooLarge => ("body_too_large", "The body is too large", StatusCode::PAYLOAD_TOO_LARGE),
            Self::BodyUnusable => ("body_unusable", "The body cannot be used", StatusCode::BAD_REQUEST),
            Self::Overloaded => ("overloaded", "Too many calls at once", StatusCode::SERVICE_UNAVAILABLE),
            Self::TooManyWaiters => {
                ("too_many_waiters", "Too many calls on one key", StatusCode::TOO_MANY_REQUESTS)
            }
            Self::StoreUnavailable => {
                ("store_unavailable", "The ledger cannot be used", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::Misconfigured => {
                ("misconfigured", "The policy contradicts itself", StatusCode::INTERNAL_SERVER_ERROR)
            }
            Self::BadRequest => ("bad_request", "The request is not acceptable", StatusCode::BAD_REQUEST),
            Self::NoRoute => ("no_route", "No route fits", StatusCode::NOT_FOUND),
            Self::UpstreamUnreachable => {
                ("upstream_unreachable", "The service cannot be reached", StatusCode::BAD_GATEWAY)
            }
            Self::UpstreamFailed => {
                ("upstream_failed", "The service did not answer properly", StatusCode::BAD_GATEWAY)
            }
        }
    }

    /// The code that programs see.
    pub fn as_str(self) -> &'static str {
        self.facts().0
    }

    /// `true` implies that nothing happened, and that the same request can succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Overloaded | Self::TooManyWaiters | Self::StoreUnavailable | Self::UpstreamUnreachable
        )
    }
}

impl Problem {
    /// A problem with its usual status.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let (_, _, status) = code.facts();
        let retryable = code.is_retryable();
        let retry_after_s = retryable.then_some(1);
        Self { code, status, detail: detail.into(), retryable, retry_after_s, key: None, record: None }
    }

    /// A key that was used for another request, with the dialect's status. Says nothing of what the other was.
    pub(super) fn key_reused(dialect: Dialect, detail: impl Into<String>) -> Self {
        let status = match dialect {
            Dialect::Default => StatusCode::CONFLICT,
            Dialect::Ietf => StatusCode::UNPROCESSABLE_ENTITY,
            Dialect::Stripe => StatusCode::BAD_REQUEST,
        };
        Self { status, ..Self::new(Code::KeyReused, detail) }
    }

    /// With another status than the usual one.
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Not to be tried again under the same key, whatever its code.
    pub fn for_good(self) -> Self {
        Self { retryable: false, retry_after_s: None, ..self }
    }

    /// When to ask again.
    pub fn retry_after_ms(self, ms: u64) -> Self {
        Self { retry_after_s: Some(ms.div_ceil(1_000).max(1)), ..self }
    }

    /// About which record.
    pub fn about(self, record: IntentId) -> Self {
        Self { record: Some(record), ..self }
    }

    /// The key that the caller gave.
    pub fn with_key(self, key: Option<&str>) -> Self {
        Self { key: key.map(str::to_owned), ..self }
    }

    /// The response, in the form that its reader asks for. Its extensions hold the code.
    pub fn into_response(self, reader: Reader) -> Response<Bytes> {
        let mut response = match reader.form {
            Form::Grpc(speech) => grpc::refusal(&self, speech),
            Form::Markdown => self.written("text/markdown; charset=utf-8", self.markdown()),
            Form::Json => self.written("application/problem+json", self.json(reader.dialect).to_string()),
        };
        // For whoever is between us and the reader, and tells people of it.
        response.extensions_mut().insert(self.code);
        response
    }

    /// The response as HTTP has it.
    fn written(&self, kind: &'static str, body: String) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Ok(link) = HeaderValue::try_from(self.help()) {
            headers.insert(LINK, link);
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Where to read on, as a `Link` says it.
    pub(super) fn help(&self) -> String {
        format!("<{}>; rel=\"help\"", self.link())
    }

    fn link(&self) -> String {
        format!("{DOCUMENTATION}#{}", self.code.as_str())
    }

    fn json(&self, dialect: Dialect) -> Value {
        let (code, title, _) = self.code.facts();
        let mut problem = json!({
            "type": self.link(),
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": code,
            "retryable": self.retryable,
            "documentation": DOCUMENTATION,
        });
        if let Some(record) = &self.record {
            problem["instance"] = format!("urn:oncely:record:{record}").into();
            problem["record"] = record.to_string().into();
        }
        if let Some(key) = &self.key {
            problem["idempotency_key"] = key.as_str().into();
        }
        if let Some(seconds) = self.retry_after_s {
            problem["retry_after"] = seconds.into();
        }
        if dialect == Dialect::Stripe {
            // Where Stripe's own clients look.
            let code = if self.code == Code::InProgress { "idempotency_key_in_use" } else { code };
            problem["error"] = json!({ "type": "idempotency_error", "code": code, "message": self.detail });
        }
        problem
    }

    fn markdown(&self) -> String {
        use std::fmt::Write as _;
        let (code, title, _) = self.code.facts();
        let mut text = format!("# {title}\n\n{}\n\n- code: `{code}`\n", self.detail);
        let retry = if self.retryable { "yes: nothing happened" } else { "no" };
        let mut line = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- {name}: {value}");
        };
        line("retryable", retry);
        if let Some(seconds) = self.retry_after_s {
            line("ask again after", &format!("{seconds} s, with the same key"));
        }
        if let Some(key) = &self.key {
            line("idempotency key", &format!("`{}`", key.replace('`', "'")));
        }
        if let Some(record) = &self.record {
            line("record", &format!("`{record}`"));
        }
        line("documentation", &self.link());
        text
    }
}

/// Who reads a problem: the form that the client asks for, and the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader {
    form: Form,
    pub(super) dialect: Dialect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Markdown,
    Grpc(Speech),
}

impl Reader {
    /// The reader that a request's headers speak of.
    pub fn of(request: &HeaderMap, dialect: Dialect) -> Self {
        let form = match grpc::speech_of(request) {
            Some(speech) => Form::Grpc(speech),
            None if wants_markdown(request) => Form::Markdown,
            None => Form::Json,
        };
        Self { form, dialect }
    }

    /// The gRPC that it speaks, if it does.
    pub(super) fn grpc(self) -> Option<Speech> {
        match self.form {
            Form::Grpc(speech) => Some(speech),
            Form::Json | Form::Markdown => None,
        }
    }
}

/// Whether a client asks for Markdown. One that lists JSON as well, or anything, gets JSON unless Markdown comes first.
fn wants_markdown(request: &HeaderMap) -> bool {
    let values = request.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok());
    let mut ranges =
        values.flat_map(|v| v.split(',')).map(|range| range.split(';').next().unwrap_or("").trim());
    let known =
        |range: &&str| matches!(*range, "text/markdown" | "application/json" | "application/problem+json");
    ranges.find(known) == Some("text/markdown")
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::ACCEPT;
    use oncely_core::IntentId;

    use super::{Code, Dialect, Problem, Reader};

    fn accept(value: &'static str) -> HeaderMap {
        [(ACCEPT, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_problem_says_what_happened_whether_to_retry_and_where_to_read_on() {
        let problem =
            Problem::new(Code::InProgress, "still running").about(IntentId([7; 32])).with_key(Some("k"));
        let response =
            problem.retry_after_ms(1_500).into_response(Reader::of(&HeaderMap::new(), Dialect::Default));
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (409, &"2".parse().unwrap())
        );
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        for field in
            ["type", "title", "detail", "instance", "code", "retryable", "idempotency_key", "documentation"]
        {
            assert!(json.get(field).is_some(), "{field} in {json}");
        }
        assert_eq!(json["retryable"], false);
    }

    #[test]
    fn a_client_that_asks_for_markdown_gets_markdown() {
        let problem = Problem::new(Code::KeyRequired, "send a key");
        for (value, markdown) in [
            ("text/markdown", true),
            ("text/markdown, application/json;q=0.5", true),
            ("application/json, text/markdown", false),
            ("*/*", false),
        ] {
            let response = problem.clone().into_response(Reader::of(&accept(value), Dialect::Default));
            let is_markdown = response.headers()["content-type"].as_bytes().starts_with(b"text/markdown");
            assert_eq!(is_markdown, markdown, "{value}");
        }
    }

    #[test]
    fn only_codes_that_prove_that_nothing_happened_are_retryable() {
        assert!(!Code::OutcomeUnknown.is_retryable() && !Code::InProgress.is_retryable());
        assert!(!Code::UpstreamFailed.is_retryable());
    }
}
