//! What went wrong, as problem+json after RFC 9457.

use axum::body::Body;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use oncely::{Answer, ResolveError};
use oncely_core::limits::clip;
use oncely_core::{IntentId, StoreError, StoreErrorKind};
use serde_json::json;

/// Where every code is explained.
const DOCUMENTATION: &str = "https://github.com/oncely/oncely/blob/main/docs/admin.md";

/// What went wrong.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    status: StatusCode,
    code: String,
    detail: String,
    retryable: bool,
    retry_after_ms: Option<u64>,
    id: Option<IntentId>,
}

impl Problem {
    /// A problem that trying again does not mend.
    pub(super) fn new(status: StatusCode, code: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            status,
            code: code.into(),
            detail: clip(detail),
            retryable: false,
            retry_after_ms: None,
            id: None,
        }
    }

    /// The request itself is wrong.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// There is no such record.
    pub(super) fn no_record() -> Self {
        Self::new(StatusCode::NOT_FOUND, "no_record", "there is no record with this id; nothing was done")
    }

    /// Nothing happened, and the same request can succeed later.
    pub(super) fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// About this record.
    pub(super) fn about(mut self, id: IntentId) -> Self {
        self.id = Some(id);
        self
    }

    /// Of an answer for which nothing runs; `None` if it is not a problem.
    pub(super) fn of_answer(answer: &Answer) -> Option<Self> {
        let conflict = |code: &str, detail: String| Self::new(StatusCode::CONFLICT, code, detail);
        let told = crate::tell::without_running(answer)?.error?;
        Some(match answer {
            Answer::Executed(_) | Answer::Replayed(_) | Answer::Refused(_) => return None,
            Answer::Conflict { intent } => conflict("key_reused", told.message).about(*intent),
            Answer::InProgress(there) => Self {
                retry_after_ms: Some(there.retry_after_ms),
                ..conflict("in_progress", told.message).about(there.record.intent)
            },
            Answer::Unknown(there) => conflict("outcome_unknown", told.message).about(there.record.intent),
        })
    }

    /// The answer to the client.
    pub(super) fn into_response(self) -> Response<Body> {
        let body = json!({
            "type": format!("{DOCUMENTATION}#{}", self.code),
            "title": self.code.replace('_', " "),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
            "retryable": self.retryable,
            "retry_after_ms": self.retry_after_ms,
            "id": self.id.map(|id| id.to_string()),
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"oncely\""));
        }
        if let Some(ms) = self.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000).max(1)));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = format!("the ledger cannot be used: {error}");
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", detail);
        let mendable = matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::Overloaded);
        if mendable && error.wrote == oncely_core::Wrote::No { problem.retryable() } else { problem }
    }
}

impl From<oncely::Error> for Problem {
    fn from(error: oncely::Error) -> Self {
        let status = match &error {
            oncely::Error::Store(store) => return store.clone().into(),
            oncely::Error::Overloaded { .. } => StatusCode::SERVICE_UNAVAILABLE,
            oncely::Error::TokenUsed => StatusCode::CONFLICT,
            oncely::Error::Policy(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let problem = Self::new(status, error.code().to_ascii_lowercase(), error.to_string());
        if error.is_retryable() { problem.retryable() } else { problem }
    }
}

impl From<ResolveError> for Problem {
    fn from(error: ResolveError) -> Self {
        let conflict =
            |code: &str| Self::new(StatusCode::CONFLICT, code, format!("{error}; nothing was changed"));
        match &error {
            ResolveError::NoRecord => Self::no_record(),
            ResolveError::NotInDoubt => conflict("not_in_doubt"),
            ResolveError::Running => conflict("running"),
            ResolveError::Moved => conflict("moved"),
            ResolveError::Kept(_) => conflict("unreadable"),
            ResolveError::Store(store) => store.clone().into(),
        }
    }
}
