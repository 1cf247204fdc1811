//! The admin API: records, the audit log, counters and settings over HTTP, and `begin`/`renew`/`complete`, so that any
//! language can use the ledger. On a listener of its own, so that no path of an upstream is shadowed.
//!
//! Rooms: `serve` (connections), `routes` (the table of routes, and what every request goes through), `auth` (who asks),
//! `problem` (errors as problem+json), `records`, `events`, `claims` (begin, renew, complete), `info` (health, counters),
//! `policy` (settings), `metrics` (Prometheus). The OpenAPI document is `openapi.json`; a test compares it with the table.
//!
//! ```no_run
//! # async fn example(oncely: oncely::Oncely) -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use oncely::policy_file::PolicyFile;
//! use oncely_doors::admin::{self, AdminState, Scope, Tokens};
//!
//! let tokens = Tokens::none().with("dashboard", Scope::Read, "a-long-random-secret")?;
//! let state = AdminState::new(oncely, Arc::new(PolicyFile::empty())).with_tokens(tokens);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7301").await?;
//! admin::serve(listener, state, async { /* until this returns */ }).await?;
//! # Ok(())
//! # }
//! ```

mod auth;
mod claims;
mod config;
mod events;
mod info;
pub mod metrics;
mod policy;
mod problem;
mod query;
mod records;
mod routes;
mod serve;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;

use oncely::Oncely;
use oncely::policy_file::PolicyFile;
use oncely_core::Namespace;
use tokio::sync::watch;

pub use self::auth::{Scope, TokenError, Tokens};
pub use self::config::{Settings, TokenSetting};
pub use self::metrics::{Metrics, MetricsSource};
pub use self::routes::{OPENAPI, documented_routes};
pub use self::serve::serve;
use crate::gateway::config::RouteConfig;
use crate::redact::Redaction;
use crate::telemetry::MetricsText;

/// Everything that the admin API needs to answer.
pub struct AdminState {
    oncely: Oncely,
    policy: Arc<PolicyFile>,
    /// Those of the gateway beside it.
    routes: Vec<RouteConfig>,
    namespace: Namespace,
    tokens: Tokens,
    redaction: Redaction,
    metrics: Option<Arc<Metrics>>,
    sources: Vec<Arc<dyn MetricsSource>>,
    feeds: tokio::sync::Semaphore,
    /// Turns true when the listener is about to close: feeds end then.
    closing: watch::Sender<bool>,
}

/// Why the admin API cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// Anybody who can reach the address could change the ledger.
    #[error(
        "the admin API on {0} could be reached from other machines, and no token is set; it was not opened. Set a token, \
         or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
}

impl AdminState {
    /// For this engine and what tools declare; without tokens, for a loopback address only.
    pub fn new(oncely: Oncely, policy: Arc<PolicyFile>) -> Self {
        let namespace = policy.namespace().and_then(|name| Namespace::parse(name).ok()).unwrap_or_default();
        Self {
            oncely,
            policy,
            routes: Vec::new(),
            namespace,
            tokens: Tokens::none(),
            redaction: Redaction::default(),
            metrics: None,
            sources: Vec::new(),
            feeds: tokio::sync::Semaphore::new(oncely_core::limits::ADMIN_FEEDS_MAX),
            closing: watch::channel(false).0,
        }
    }

    /// The namespace of calls that name none.
    pub fn with_namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// The routes of the gateway beside it, whose policies are told.
    pub fn with_routes(mut self, routes: Vec<RouteConfig>) -> Self {
        self.routes = routes;
        self
    }

    /// Who may ask.
    pub fn with_tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = tokens;
        self
    }

    /// What is taken out of results before they are stored.
    pub fn with_redaction(mut self, redaction: Redaction) -> Self {
        self.redaction = redaction;
        self
    }

    /// What this process has counted; the same that observes the engine.
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Adds counters of another part of the process.
    pub fn with_source(mut self, source: Arc<dyn MetricsSource>) -> Self {
        self.sources.push(source);
        self
    }

    /// Writes what `/metrics` says, whether or not the API is opened.
    pub fn scrape(&self) -> MetricsText {
        let mut own = Self::new(self.oncely.clone(), self.policy.clone());
        (own.metrics, own.sources) = (self.metrics.clone(), self.sources.clone());
        let own = Arc::new(own);
        Arc::new(move || {
            let own = own.clone();
            Box::pin(async move { Some(metrics::render(&own).await) })
        })
    }

    /// Whether it may be opened on this address.
    pub fn check(&self, address: SocketAddr) -> Result<(), AdminError> {
        if self.tokens.is_empty() && !address.ip().to_canonical().is_loopback() {
            return Err(AdminError::Exposed(address));
        }
        Ok(())
    }
}
