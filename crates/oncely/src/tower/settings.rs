//! What a layer is told about the service behind it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};
use oncely_core::limits::{HTTP_BODY_BYTES, HTTP_STALL_MS};
use oncely_core::{Namespace, Policy, ToolName};

use super::check::Check;
use super::classify::Rules;
use super::key::KeyForm;
use super::problem::Dialect;
use super::tenant::Tenant;
use crate::redact::Redaction;

/// What a dry run does where the call would run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DryRun {
    /// It is answered with what would happen; the service hears nothing.
    #[default]
    Forecast,
    /// The service understands dry runs: it is asked, and nothing is recorded.
    PassOn,
}

/// Finds the key of a caller who has put it elsewhere than into the header, in the head or the body of a request.
pub type OwnKey = Arc<dyn Fn(&http::request::Parts, &[u8]) -> Option<String> + Send + Sync>;

/// Everything that a layer is told.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) namespace: Namespace,
    pub(super) tool: ToolName,
    pub(super) policy: Arc<Policy>,
    pub(super) methods: Vec<Method>,
    /// The only paths that are guarded, where not all are.
    pub(super) paths: Option<Vec<String>>,
    pub(super) key_form: KeyForm,
    pub(super) tenant: Tenant,
    pub(super) dialect: Dialect,
    /// Headers of a request that are part of what it means.
    pub(super) headers: Vec<HeaderName>,
    /// Headers of a response that are replayed besides the usual ones.
    pub(super) replayed: Vec<HeaderName>,
    pub(super) rules: Rules,
    pub(super) body_max: usize,
    /// How long a body may pause before it counts as broken off.
    pub(super) stall: Duration,
    pub(super) dry_run: DryRun,
    /// Asks the service about an attempt in doubt.
    pub(super) check: Option<Check>,
    /// Finds the key of a caller who has put it elsewhere.
    pub(super) own_key: Option<OwnKey>,
    /// What is taken out of answers before they are stored.
    pub(super) redaction: Arc<Redaction>,
}

impl Settings {
    /// Whether a request is guarded.
    pub(super) fn guards(&self, method: &Method, path: &str) -> bool {
        self.methods.contains(method)
            && self.paths.as_ref().is_none_or(|paths| paths.iter().any(|guarded| guarded == path))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: Namespace::default(),
            tool: default_tool(),
            policy: Arc::new(Policy::default()),
            methods: vec![Method::POST, Method::PATCH],
            paths: None,
            key_form: KeyForm::default(),
            tenant: Tenant::default(),
            dialect: Dialect::default(),
            headers: Vec::new(),
            replayed: Vec::new(),
            rules: Rules::default(),
            body_max: HTTP_BODY_BYTES,
            stall: Duration::from_millis(HTTP_STALL_MS),
            dry_run: DryRun::default(),
            check: None,
            own_key: None,
            redaction: Arc::new(Redaction::default()),
        }
    }
}

/// The name of a service that was given none.
fn default_tool() -> ToolName {
    #[allow(clippy::expect_used, reason = "a literal that is a tool name")]
    ToolName::parse("http").expect("a tool name")
}
