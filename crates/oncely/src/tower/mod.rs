//! The HTTP layer: put it around a service and every POST is safe to retry.
//!
//! ```
//! use axum::Router;
//! use axum::routing::post;
//! use oncely::Oncely;
//! use oncely::tower::OncelyLayer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let oncely = Oncely::new(oncely_store::open("memory:").await?);
//! let app: Router = Router::new()
//!     .route("/orders", post(|| async { "ordered" }))
//!     .layer(OncelyLayer::new(oncely));
//! # drop(app);
//! # Ok(())
//! # }
//! ```
//!
//! A request with an `Idempotency-Key` runs once; a retry gets the first answer with `Idempotent-Replayed: true`. The
//! same key with another request is refused, one that is still running is waited for, and where it is not known
//! whether it happened the answer is 409 `outcome_unknown` instead of a second run. What each answer carries and means
//! is in `docs/http.md`.
//!
//! A tonic service is guarded the same way, with `named_layer` of tonic; a gRPC call is judged by its own status and answered
//! with one. There [`paths`](OncelyLayer::paths) names the methods that change something.
//!
//! The service runs in a task of its own: a client that hangs up does not cancel it. It finds its
//! [`AttemptInfo`](crate::AttemptInfo) in the request's extensions, with the key to pass on to a provider; and it may
//! put [`Said`] into the extensions of its response, or the headers `Cache-Control: no-store` and
//! `Idempotency-Status: not-executed`, to say itself what its answer proves. What wraps the layer finds [`Told`] in the
//! extensions of a guarded answer, for logs and traces.
//!
//! - `key`: the header. `tenant`: whose call it is. `request`: from a request to a call.
//! - `check`: asks the service about an attempt in doubt. `service`, `effect`: runs it. `classify`: what an answer proves. `kept`: what is stored.
//! - `reply`, `problem`, `dry`: from what the engine says to a response. `grpc`: the same for gRPC. `gate`: limits.

mod body;
mod check;
mod classify;
mod dry;
mod effect;
mod gate;
mod grpc;
mod kept;
mod key;
mod problem;
mod reply;
mod request;
mod service;
mod settings;
mod tenant;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};
use oncely_core::limits::{HTTP_CALLS_MAX, HTTP_CALLS_PER_KEY_MAX, PAYLOAD_BYTES_MAX};
use oncely_core::{Namespace, Policy, ToolName};
use tower_layer::Layer;

pub use self::body::{Body, BoxError};
pub use self::check::{Check, Doubted, Found};
pub use self::classify::{Class, IDEMPOTENCY_EFFECT, IDEMPOTENCY_STATUS, Judge, Rules, Said, Statuses};
pub use self::dry::{IDEMPOTENCY_DRY_RUN, asks_for_dry_run};
pub use self::gate::Gate;
pub use self::kept::{REPLAYED_HEADERS, may_be_replayed};
pub use self::key::{GivenKey, IDEMPOTENCY_KEY, KeyFault, KeyForm, key_of, parse_key};
pub use self::problem::{Code, DOCUMENTATION, Dialect, Problem, Reader};
pub use self::reply::{
    IDEMPOTENCY_OUTCOME, IDEMPOTENCY_RECORD, IDEMPOTENCY_RETRIES_LEFT, IDEMPOTENCY_WARNING,
    IDEMPOTENT_REPLAYED, Told,
};
pub use self::service::OncelyService;
pub use self::settings::{DryRun, OwnKey};
pub use self::tenant::Tenant;

use self::service::Door;
use self::settings::Settings;
use crate::engine::Oncely;
use crate::redact::Redaction;

/// Makes the guarded requests of a service safe to retry. Cheap to clone.
#[derive(Clone)]
pub struct OncelyLayer {
    door: Door,
}

impl OncelyLayer {
    /// Guards `POST` and `PATCH`, tells tenants apart by their `Authorization` header, and derives a key from the
    /// request where the caller gives none.
    pub fn new(oncely: Oncely) -> Self {
        let gate = Arc::new(Gate::new(HTTP_CALLS_MAX, HTTP_CALLS_PER_KEY_MAX));
        Self { door: Door { oncely, settings: Arc::new(Settings::default()), gate } }
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        let settings = Arc::make_mut(&mut self.door.settings);
        change(settings);
        // In whichever order it is told of them.
        request::count_headers(settings);
        self
    }

    /// The name of the service in the ledger; a key is unique within it. `http` where none is given.
    pub fn tool(self, tool: ToolName) -> Self {
        self.set(|s| s.tool = tool)
    }

    /// The namespace that tenants are below.
    pub fn namespace(self, namespace: Namespace) -> Self {
        self.set(|s| s.namespace = namespace)
    }

    /// What the service declares. `key` and `ignore` name fields of a JSON body.
    pub fn policy(self, policy: Policy) -> Self {
        self.set(|s| s.policy = Arc::new(request::over_body(policy)))
    }

    /// Refuses guarded requests without a key. Say it after [`policy`](Self::policy), which has its own say.
    pub fn require_key(self) -> Self {
        self.set(|s| Arc::make_mut(&mut s.policy).require_key = true)
    }

    /// The methods that are guarded; the others pass through.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.set(|s| s.methods = methods.into_iter().collect())
    }

    /// The only paths that are guarded, compared byte for byte; the others pass through. Every call of gRPC is a `POST`, those
    /// that only read too: there this names the methods that change something, such as `/shop.Orders/Place`.
    pub fn paths(self, paths: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.set(|s| s.paths = Some(paths.into_iter().map(Into::into).collect()))
    }

    /// Which forms of the key are accepted.
    pub fn key_form(self, form: KeyForm) -> Self {
        self.set(|s| s.key_form = form)
    }

    /// What tells one caller from another.
    pub fn tenant(self, tenant: Tenant) -> Self {
        self.set(|s| s.tenant = tenant)
    }

    /// Whose rules about statuses are followed.
    pub fn dialect(self, dialect: Dialect) -> Self {
        self.set(|s| s.dialect = dialect)
    }

    /// Headers of a request that are part of what it means.
    pub fn fingerprint_headers(self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.set(|s| s.headers = headers.into_iter().collect())
    }

    /// What is taken out of answers before they are stored: the first caller gets the whole answer, a replay shows a
    /// mark in its place. An answer that cannot be read for it (compressed, or of gRPC) is remembered without its body.
    pub fn redact(self, rules: Redaction) -> Self {
        self.set(|s| s.redaction = Arc::new(rules))
    }

    /// Headers of a response that are replayed besides [`REPLAYED_HEADERS`]; see [`may_be_replayed`].
    pub fn replay_headers(self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.set(|s| s.replayed = headers.into_iter().collect())
    }

    /// What answers mean, where it differs from the general rules.
    pub fn rules(self, rules: Rules) -> Self {
        self.set(|s| s.rules = rules)
    }

    /// The longest body of a guarded request, at most what a payload may have.
    pub fn body_max(self, bytes: usize) -> Self {
        self.set(|s| s.body_max = bytes.min(PAYLOAD_BYTES_MAX))
    }

    /// How long a body may pause before it counts as broken off.
    pub fn stall(self, stall: Duration) -> Self {
        self.set(|s| s.stall = stall)
    }

    /// What a dry run does where the call would run.
    pub fn dry_run(self, dry_run: DryRun) -> Self {
        self.set(|s| s.dry_run = dry_run)
    }

    /// Asks the service whether an attempt in doubt has happened, where the policy's `when_unknown` is `check`.
    pub fn check(self, check: Check) -> Self {
        self.set(|s| s.check = Some(check))
    }

    /// Where a caller may have put the key, if not into the header.
    pub fn own_key(self, own_key: OwnKey) -> Self {
        self.set(|s| s.own_key = Some(own_key))
    }

    /// Shares the limits of another layer.
    pub fn gate(mut self, gate: Arc<Gate>) -> Self {
        self.door.gate = gate;
        self
    }
}

impl<S> Layer<S> for OncelyLayer {
    type Service = OncelyService<S>;

    fn layer(&self, inner: S) -> OncelyService<S> {
        OncelyService { inner, door: Arc::new(self.door.clone()) }
    }
}
