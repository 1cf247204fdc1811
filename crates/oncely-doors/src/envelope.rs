//! The envelope: the answer as JSON, the same for every door.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `{ "ok", "effect", "reason"?, "changes"?, "data", "error"?, "warnings"?, "meta" }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Whether the wish of the caller is fulfilled: it happened now, or it had happened.
    pub ok: bool,
    /// What changed now: `created`, …, `noop`, or `would_*` under dry run; `null` where that is not known.
    #[serde(default)]
    pub effect: Option<String>,
    /// Why, where the effect alone does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What would change, under dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Value>,
    /// The result.
    #[serde(default)]
    pub data: Value,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// What the caller should know besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// About the record and the attempt.
    #[serde(default)]
    pub meta: Map<String, Value>,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// UPPER_SNAKE.
    pub code: String,
    /// What happened, whether anything ran, what to do next.
    pub message: String,
    /// `true` implies that nothing happened.
    #[serde(default)]
    pub retryable: bool,
    /// When to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The exact command to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Envelope {
    /// A good answer.
    pub fn done(effect: &str, data: Value) -> Self {
        Self {
            ok: true,
            effect: Some(effect.to_owned()),
            reason: None,
            changes: None,
            data,
            error: None,
            warnings: Vec::new(),
            meta: Map::new(),
        }
    }

    /// A bad answer.
    pub fn failed(code: &str, message: impl Into<String>, retryable: bool) -> Self {
        let error = ErrorBody {
            code: code.to_owned(),
            message: message.into(),
            retryable,
            retry_after_ms: None,
            fix: None,
        };
        Self { ok: false, effect: None, error: Some(error), ..Self::done("noop", Value::Null) }
    }

    /// Adds the exact command to run.
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        if let Some(error) = &mut self.error {
            error.fix = Some(fix.into());
        }
        self
    }

    /// Adds to `meta`.
    pub fn with_meta(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.meta.insert(name.to_owned(), value.into());
        self
    }
}
