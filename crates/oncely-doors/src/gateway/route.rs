//! One route: which requests it takes, what is wrong with them, and their way to the service, guarded or not.

use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST};
use http::{HeaderName, Method, Request, StatusCode, Version};
use oncely::tower::{
    Body, Code, Dialect, DryRun, Gate, OncelyLayer, OncelyService, Problem, Reader, Rules, asks_for_dry_run,
};
use oncely_core::ToolName;
use tokio_rustls::TlsConnector;
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::advice;
use super::check::check_of;
use super::config::RouteConfig;
use super::counters::{Count, Counters};
use super::forward::{self, HostSeen, Peer, Way, Wish};
use super::guarded::{Destination, KeyPassed, Placed, ToUpstream, judge_of};
use super::handle::{Answer, Arriving};
use super::pattern::PathPattern;
use super::traced::Taken;
use super::upgrade;
use super::upstream::{AnswerBody, Reuse, SendFailure, Timeouts, Upstream};

/// What all lanes and routes have in common.
#[derive(Clone, Copy)]
pub(super) struct Common<'a> {
    pub(super) tls: Option<&'a TlsConnector>,
    pub(super) gate: &'a Arc<Gate>,
    pub(super) ping: Duration,
    /// Most idle connections that one lane keeps to one service.
    pub(super) idle_max: usize,
}

/// One route of one lane.
pub(super) struct Route {
    pub(super) pattern: PathPattern,
    tool: ToolName,
    upstream: Arc<Upstream>,
    way: Arc<Way>,
    dialect: Dialect,
    pub(super) methods: Vec<Method>,
    /// Requests whose key the upstream gets from us.
    keyed: OncelyService<ToUpstream>,
    /// The other guarded requests: the upstream knows no key for them.
    plain: OncelyService<ToUpstream>,
    takes_key: Vec<Method>,
    dry_run: DryRun,
    /// The service can be asked about a request in doubt.
    is_checked: bool,
    /// What its operator is told when nobody can tell whose requests are.
    about_tenants: String,
    counters: Arc<Counters>,
}

/// Whether a header is one by which some services take a request for one of another method.
fn overrides_method(name: &HeaderName) -> bool {
    matches!(name.as_str(), "x-http-method-override" | "x-http-method" | "x-method-override")
}

impl Route {
    /// Why a request cannot be forwarded on this route: it would be another to the service than to us. `read` is its path as it
    /// was read to find the route.
    pub(super) fn refusal<B>(&self, request: &Request<B>, read: &str) -> Option<&'static str> {
        if self.way.is_misspelt(request.uri().path(), read) {
            return Some(
                "the path spells the prefix that is taken off here in another way; nothing was forwarded. Write it plainly",
            );
        }
        // One look at all of them is cheaper than a search for each.
        if !self.methods.is_empty() && request.headers().keys().any(overrides_method) {
            return Some(
                "the request asks to be taken for one of another method; nothing was forwarded. Send that method",
            );
        }
        let passes = !self.methods.contains(request.method()) && !request.method().is_safe();
        if passes && self.dry_run == DryRun::Forecast && asks_for_dry_run(request.headers()) {
            return Some(
                "a request that is not guarded here has no dry run, and would be executed; nothing was forwarded",
            );
        }
        None
    }

    pub(super) fn new(
        config: &RouteConfig,
        layer: OncelyLayer,
        common: Common<'_>,
        counters: &Arc<Counters>,
    ) -> Self {
        let timeouts = Timeouts { ping: common.ping, ..config.timeouts };
        let (address, tls) = (config.upstream.clone(), common.tls.cloned());
        let upstream = Upstream::new(address, tls, timeouts, common.idle_max, counters.clone());
        let way = Arc::new(config.way.clone());
        let to = |key: KeyPassed| {
            let (upstream, way, counters) = (upstream.clone(), way.clone(), counters.clone());
            let to = Destination {
                upstream,
                way,
                key,
                dialect: config.dialect,
                counters,
                max_retries: config.policy.max_retries,
            };
            ToUpstream { to: Arc::new(to), peer: None }
        };
        let mut fingerprint_headers = config.fingerprint_headers.clone();
        if config.way.host == HostSeen::Client {
            fingerprint_headers.push(HOST);
        }
        if let Some(provider) = &config.provider {
            fingerprint_headers.extend(provider.account_headers.iter().filter_map(|name| name.parse().ok()));
        }
        let layer = layer
            .tool(config.tool.clone())
            .methods(config.methods.clone())
            .tenant(config.tenant.clone())
            .dialect(config.dialect)
            .key_form(config.key_form)
            .fingerprint_headers(fingerprint_headers.clone())
            .replay_headers(config.replay_headers.clone())
            .rules(config.rules.clone())
            .body_max(config.body_max)
            .stall(config.timeouts.answer)
            .dry_run(config.dry_run);
        let layer = match &config.check {
            Some(check) => layer.check(check_of(check.clone(), upstream.clone(), way.clone())),
            None => layer,
        };
        let in_force = config.in_force();
        let (key, plain_key) = match &config.provider {
            Some(provider) => (KeyPassed::Provider(provider.clone()), KeyPassed::Callers),
            None if config.policy.forwards_key_for_ms.is_some() => (KeyPassed::Ours, KeyPassed::Ours),
            None => (KeyPassed::Callers, KeyPassed::Callers),
        };
        let (mut keyed, mut plain) = (layer.clone(), layer);
        if in_force.compares_credential {
            fingerprint_headers.push(AUTHORIZATION);
            keyed = keyed.fingerprint_headers(fingerprint_headers);
        }
        if let Some(provider) = &config.provider {
            let judged =
                |placed| Rules { judge: Some(judge_of(provider.clone(), placed)), ..config.rules.clone() };
            let own = provider.clone();
            keyed = keyed
                .rules(judged(Placed::Ours))
                .own_key(Arc::new(move |parts, body| own.given(parts, body)));
            plain = plain.rules(judged(Placed::Nothing));
        }
        Self {
            pattern: config.pattern.clone(),
            tool: config.tool.clone(),
            keyed: keyed.policy(in_force.keyed).layer(to(key)),
            plain: plain.policy(in_force.plain).layer(to(plain_key)),
            dry_run: config.dry_run,
            is_checked: config.check.is_some(),
            about_tenants: advice::about_tenants(config.pattern.as_str(), &config.tenant),
            counters: counters.clone(),
            upstream,
            way,
            dialect: config.dialect,
            methods: config.methods.clone(),
            takes_key: in_force.takes_key,
        }
    }

    pub(super) fn taken(&self) -> Taken<'_> {
        Taken { pattern: self.pattern.as_str(), tool: self.tool.as_str() }
    }

    pub(super) async fn guard(&self, mut request: Request<Arriving>, peer: &Arc<Peer>) -> Answer {
        if self.is_checked {
            // A check is asked with the head of the request alone, in the name of whoever sent it; nobody else looks for it.
            request.extensions_mut().insert(peer.clone());
        }
        let service = if self.takes_key.contains(request.method()) { &self.keyed } else { &self.plain };
        let mut service = service.clone();
        service.get_mut().peer = Some(peer.clone());
        let answer = match service.call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        if answer.extensions().get::<Code>() == Some(&Code::TenantRequired) {
            self.counters.advice.note(&self.about_tenants);
        }
        answer
    }

    /// Passes a request through: nothing is buffered, nothing remembered.
    pub(super) async fn pass(
        &self,
        request: Request<Arriving>,
        wish: Wish,
        peer: &Peer,
        counters: &Counters,
    ) -> Answer {
        let (mut parts, mut body) = request.into_parts();
        let upload = body.noted();
        let reader = Reader::of(&parts.headers, self.dialect);
        let reuse = if wish == Wish::WebSocket { Reuse::ForUpgrade } else { Reuse::Allowed };
        forward::prepare(&mut parts, self.upstream.address(), &self.way, Some(peer), wish);
        let request = Request::from_parts(parts, Body::passed(body));
        let failure = match self.upstream.send(request, reuse, upload.as_deref()).await {
            Ok(response) if response.status().is_informational() => {
                let granted = forward::wish_of(Version::HTTP_11, response.headers()) == Wish::WebSocket;
                if wish == Wish::WebSocket && granted {
                    return upgrade::agree(&peer.tunnel, response);
                }
                SendFailure::MaybeSent("it changed the protocol without being asked".to_owned())
            }
            Ok(response) => return forward::passed_on(response).map(Body::passed),
            Err(failure) => failure,
        };
        let problem = match failure {
            SendFailure::NotSent(_) => {
                counters.add(Count::Unreachable);
                let detail = "the service could not be reached and nothing was sent; nothing happened";
                Problem::new(Code::UpstreamUnreachable, detail)
            }
            SendFailure::MaybeSent(why) => {
                counters.add(Count::Failed);
                let detail = format!("the request was sent, and no proper answer came: {why}");
                Problem::new(Code::UpstreamFailed, detail)
            }
            SendFailure::TimedOut(_) => {
                counters.add(Count::Failed);
                Problem::new(Code::UpstreamFailed, "the request was sent, and no answer came in time")
                    .with_status(StatusCode::GATEWAY_TIMEOUT)
            }
            SendFailure::CutShort(pause) => {
                counters.add(Count::Failed);
                let detail = format!("{}: a part of it was sent, and its end was not", pause.why());
                Problem::new(Code::UpstreamFailed, detail).with_status(StatusCode::GATEWAY_TIMEOUT)
            }
        };
        problem.into_response(reader).map(|bytes| Body::passed(AnswerBody::whole(bytes)))
    }
}
