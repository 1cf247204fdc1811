//! The service behind the layer: one request to an upstream, with the key where a provider wants it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use oncely::AttemptInfo;
use oncely::tower::{Body, Class, Code, Dialect, IDEMPOTENCY_KEY, Judge, Problem, Reader, Said};
use oncely_core::KeyOrigin;
use oncely_core::machine::Because;
use oncely_core::select::Selector;
use tower_service::Service;

use super::counters::{Count, Counters};
use super::forward::{self, Peer, Way, Wish};
use super::upstream::{AnswerBody, Outgoing, Reuse, SendFailure, Upstream};
use crate::providers::{Carrier, Meaning, Provider};

/// When a caller should ask again whose earlier attempt is in doubt and could not be repeated.
const ASK_AGAIN_MS: u64 = 1_000;

/// What key the upstream gets.
#[derive(Clone)]
pub(super) enum KeyPassed {
    /// The caller's own, if there is one.
    Callers,
    /// Ours, in the header `Idempotency-Key`: the upstream de-duplicates by it.
    Ours,
    /// Ours, where the provider wants it.
    Provider(Arc<Provider>),
}

/// One upstream, as the layer sees it, and who asks.
#[derive(Clone)]
pub(super) struct ToUpstream {
    pub(super) to: Arc<Destination>,
    pub(super) peer: Option<Arc<Peer>>,
}

/// Where requests of a route go, and how.
pub(super) struct Destination {
    pub(super) upstream: Arc<Upstream>,
    pub(super) way: Arc<Way>,
    pub(super) key: KeyPassed,
    pub(super) dialect: Dialect,
    pub(super) counters: Arc<Counters>,
    /// How often a rejected request may be tried again.
    pub(super) max_retries: u32,
}

impl Service<Request<Outgoing>> for ToUpstream {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Outgoing>) -> Self::Future {
        let Self { to, peer } = self.clone();
        Box::pin(async move { Ok(to.send(request, peer.as_deref()).await) })
    }
}

impl Destination {
    async fn send(&self, request: Request<Outgoing>, peer: Option<&Peer>) -> Response<AnswerBody> {
        let (mut parts, body) = request.into_parts();
        let attempt = parts.extensions.remove::<AttemptInfo>();
        let reader = Reader::of(&parts.headers, self.dialect);
        let body = match self.with_key(&mut parts, body, attempt.as_ref()) {
            Ok(body) => body,
            Err(why) => {
                let problem = self.never_sent(Code::BodyUnusable, &why, attempt.as_ref());
                return said(problem, reader, Class::NotStarted, why);
            }
        };
        if takes_body(&parts.method) && body.as_whole().is_some_and(|whole| whole.is_empty()) {
            // Some services refuse (411) what says of no length at all, and our client adds none.
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        forward::prepare(&mut parts, self.upstream.address(), &self.way, peer, Wish::Plain);
        match self.upstream.send(Request::from_parts(parts, body), Reuse::Allowed, None).await {
            Ok(response) if response.status().is_informational() => {
                let why = "it changed the protocol without being asked".to_owned();
                self.failed(SendFailure::MaybeSent(why), reader, attempt.as_ref())
            }
            Ok(response) => forward::passed_on(response),
            Err(failure) => self.failed(failure, reader, attempt.as_ref()),
        }
    }

    /// Puts the key where the upstream looks for it.
    fn with_key(
        &self,
        parts: &mut Parts,
        body: Outgoing,
        attempt: Option<&AttemptInfo>,
    ) -> Result<Outgoing, String> {
        let Some(attempt) = attempt else { return Ok(body) };
        match &self.key {
            KeyPassed::Callers => Ok(body),
            KeyPassed::Ours => {
                if let Ok(key) = HeaderValue::try_from(attempt.downstream_key().to_string()) {
                    parts.headers.insert(IDEMPOTENCY_KEY, key);
                }
                Ok(body)
            }
            KeyPassed::Provider(provider) => {
                // The caller's own key named the intent to us; what the provider gets is ours.
                parts.headers.remove(IDEMPOTENCY_KEY);
                let whole = body.as_whole().unwrap_or_default();
                let placed = provider
                    .place(&attempt.downstream_key(), first_sent_unix_ms(attempt), parts, whole)
                    .map_err(|e| e.to_string())?;
                parts.headers.remove(CONTENT_LENGTH);
                Ok(Body::whole(placed))
            }
        }
    }

    /// The problem of a request of which nothing was sent: whether it may be sent again depends on the route. That nothing
    /// was sent now says nothing of an attempt before it whose end is not known.
    fn never_sent(&self, code: Code, detail: &str, attempt: Option<&AttemptInfo>) -> Problem {
        if attempt.is_some_and(|attempt| attempt.because() == Because::Harmless) {
            let detail = format!(
                "{detail}. That is this try; what an earlier one did is not known: it may have happened. Ask again with \
                 the same key"
            );
            let problem = Problem::new(Code::OutcomeUnknown, detail).with_status(StatusCode::BAD_GATEWAY);
            return about(problem.retry_after_ms(ASK_AGAIN_MS), attempt);
        }
        let problem = match (self.max_retries, code.is_retryable()) {
            (0, _) => {
                let detail =
                    format!("{detail}; nothing happened. This route tries nothing twice: use another key");
                Problem::new(code, detail).for_good()
            }
            (_, true) => {
                Problem::new(code, format!("{detail}; nothing happened. Try again with the same key"))
            }
            (_, false) => Problem::new(code, format!("{detail}; nothing happened")),
        };
        about(problem, attempt)
    }

    fn failed(
        &self,
        failure: SendFailure,
        reader: Reader,
        attempt: Option<&AttemptInfo>,
    ) -> Response<AnswerBody> {
        let (status, why) = match failure {
            SendFailure::NotSent(why) => {
                self.counters.add(Count::Unreachable);
                let detail = "the service could not be reached and nothing was sent";
                let problem = self.never_sent(Code::UpstreamUnreachable, detail, attempt);
                return said(problem, reader, Class::NotStarted, format!("nothing was sent: {why}"));
            }
            SendFailure::MaybeSent(why) => {
                (StatusCode::BAD_GATEWAY, format!("the request was sent, and no proper answer came: {why}"))
            }
            SendFailure::CutShort(pause) => (StatusCode::GATEWAY_TIMEOUT, pause.why().to_owned()),
            SendFailure::TimedOut(waited) => {
                let waited = waited.as_millis();
                (
                    StatusCode::GATEWAY_TIMEOUT,
                    format!("the request was sent, and no answer came within {waited} ms"),
                )
            }
        };
        self.counters.add(Count::Failed);
        let detail = format!(
            "{why}. It may have happened. A retry with the same key will say what is known, and run it again only where that \
             is harmless"
        );
        let problem = Problem::new(Code::OutcomeUnknown, detail).with_status(status);
        said(about(problem, attempt), reader, Class::Unknown, why)
    }
}

/// Whether a request of this method usually has a body, so that none is said to be none.
fn takes_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// A problem with the record that it is about, and the key that the caller gave.
fn about(problem: Problem, attempt: Option<&AttemptInfo>) -> Problem {
    let Some(attempt) = attempt else { return problem };
    let key = &attempt.name().key;
    let given = (key.origin() == KeyOrigin::Explicit).then(|| key.as_str());
    problem.about(attempt.intent()).with_key(given)
}

/// A problem that says itself what it proves.
fn said(problem: Problem, reader: Reader, class: Class, why: String) -> Response<AnswerBody> {
    let mut response = problem.into_response(reader).map(AnswerBody::whole);
    response.extensions_mut().insert(Said { class, why: Some(why) });
    response
}

/// When the key that an attempt passes on was first sent, by the wall clock.
#[allow(clippy::disallowed_methods, reason = "a provider asks for a date; nothing of ours is decided by it")]
fn first_sent_unix_ms(attempt: &AttemptInfo) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX).saturating_sub(attempt.key_age_ms())
}

/// Whether a provider got our key with the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// It did: what it says of the key, it says of ours.
    Ours,
    /// It did not: that something exists already does not mean that it was us.
    Nothing,
}

/// What a provider's own answers prove.
pub(super) fn judge_of(provider: Arc<Provider>, placed: Placed) -> Judge {
    Arc::new(move |parts, body: &[u8]| {
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        match provider.classify(parts.status.as_u16(), header, body)? {
            // The first request under this key is still at work there.
            Meaning::InFlight => Some(Class::Unknown),
            // This attempt did nothing; whether an earlier one did stays in doubt by itself.
            Meaning::Mismatch | Meaning::Rejected => Some(Class::Rejected),
            Meaning::AlreadyCreated if placed == Placed::Ours && provider.takes_key() => {
                Some(Class::Succeeded)
            }
            Meaning::AlreadyCreated => Some(Class::Rejected),
            Meaning::Replayed => None,
        }
    })
}

/// The field of the body that holds the provider's key: the name of the intent, not a part of it.
pub(super) fn key_field(provider: &Provider) -> Option<Selector> {
    match &provider.key {
        Carrier::Json { pointer } => Selector::parse(pointer).ok(),
        _ => None,
    }
}

/// An empty body, for answers that have none.
pub(super) fn nothing() -> AnswerBody {
    AnswerBody::whole(Bytes::new())
}
