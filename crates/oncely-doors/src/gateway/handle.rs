//! From a request to an answer: finds the route, refuses what cannot be forwarded, guards or passes through.

use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use oncely::Oncely;
use oncely::tower::{
    Body, Code, Dialect, DryRun, Gate, OncelyLayer, OncelyService, Problem, Reader, Rules, asks_for_dry_run,
};
use oncely_core::{Namespace, ToolName, WhenUnknown};
use tokio_rustls::TlsConnector;
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::activity::Underway;
use super::check::check_of;
use super::config::{GatewayConfig, RouteConfig};
use super::connection::Patience;
use super::counters::{Count, Counters};
use super::forward::{self, HostSeen, Peer, Way, Wish};
use super::guarded::{KeyPassed, Placed, ToUpstream, judge_of, key_field};
use super::pattern::{PathPattern, read_path};
use super::traced::{Taken, Traced};
use super::upgrade;
use super::upstream::{AnswerBody, Reuse, SendFailure, Timeouts, Upstream};
use crate::telemetry::Telemetry;

/// The body of a client's request.
pub(super) type Arriving = Underway<Incoming>;
/// What a client gets.
pub type Answer = Response<Body<AnswerBody>>;

/// Routes the requests of one lane to upstreams, over connections of its own.
pub struct Gateway {
    routes: Vec<Route>,
    patience: Patience,
    counters: Arc<Counters>,
    telemetry: Option<Arc<Telemetry>>,
}

struct Route {
    pattern: PathPattern,
    tool: ToolName,
    upstream: Arc<Upstream>,
    way: Arc<Way>,
    dialect: Dialect,
    methods: Vec<Method>,
    /// Requests whose key the upstream gets from us.
    keyed: OncelyService<ToUpstream>,
    /// The other guarded requests: the upstream knows no key for them.
    plain: OncelyService<ToUpstream>,
    takes_key: Vec<Method>,
    dry_run: DryRun,
}

impl Gateway {
    /// A gateway for each of so many lanes, with these routes, the first that matches wins. What is limited is limited for
    /// all of them together.
    pub fn for_lanes(
        count: usize,
        config: &GatewayConfig,
        oncely: &Oncely,
        namespace: &Namespace,
        tls: Option<&TlsConnector>,
    ) -> Vec<Self> {
        let gate = Arc::new(Gate::new(config.calls_max, config.calls_per_key_max));
        (0..count).map(|_| Self::new(config, oncely, namespace, tls, &gate)).collect()
    }

    fn new(
        config: &GatewayConfig,
        oncely: &Oncely,
        namespace: &Namespace,
        tls: Option<&TlsConnector>,
        gate: &Arc<Gate>,
    ) -> Self {
        let counters = Arc::new(Counters::default());
        let routes = config.routes.iter().map(|route| {
            let layer = OncelyLayer::new(oncely.clone()).gate(gate.clone()).namespace(namespace.clone());
            let layer = layer.redact(config.redaction.clone());
            Route::new(route, layer, tls, config.patience.ping, &counters)
        });
        Self { routes: routes.collect(), patience: config.patience, counters, telemetry: None }
    }

    /// Makes a span of every request.
    pub fn traced(self, telemetry: Option<Arc<Telemetry>>) -> Self {
        Self { telemetry, ..self }
    }

    /// What it counts about itself.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// How much patience it has with clients.
    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// Answers one request.
    pub(super) async fn handle(&self, mut request: Request<Arriving>, peer: &Arc<Peer>) -> Answer {
        let span = self.telemetry.as_deref().and_then(|to| {
            let method = request.method().clone();
            Traced::begin(to, method, request.headers_mut())
        });
        let (answer, route) = self.answer(request, peer).await;
        if let Some(span) = span {
            span.answered(route.map(Route::taken), &answer);
        }
        answer
    }

    /// The answer, and the route that it came by.
    async fn answer(&self, mut request: Request<Arriving>, peer: &Arc<Peer>) -> (Answer, Option<&Route>) {
        if let Some(why) = refusal(&request) {
            return (self.refused(&request, Problem::new(Code::BadRequest, why)), None);
        }
        let wish = forward::wish_of(request.version(), request.headers());
        forward::drop_hop_by_hop(request.headers_mut());
        name_host(&mut request);
        let path = match read_path(request.uri().path()) {
            Ok(path) => path,
            Err(why) => {
                let problem = Problem::new(Code::BadRequest, format!("{why}; nothing was forwarded"));
                return (self.refused(&request, problem), None);
            }
        };
        let Some(route) = self.routes.iter().find(|route| route.pattern.matches(&path)) else {
            let detail = "no route of this gateway fits the path; nothing was forwarded";
            return (self.refused(&request, Problem::new(Code::NoRoute, detail)), None);
        };
        if let Some(why) = route.refusal(&request) {
            return (self.refused(&request, Problem::new(Code::BadRequest, why)), Some(route));
        }
        if route.methods.contains(request.method()) {
            self.counters.add(Count::Guarded);
            return (route.guard(request, peer).await, Some(route));
        }
        self.counters.add(Count::Passed);
        (route.pass(request, wish, peer, &self.counters).await, Some(route))
    }

    fn refused(&self, request: &Request<Arriving>, problem: Problem) -> Answer {
        self.counters.add(Count::Refused);
        let reader = Reader::of(request.headers(), Dialect::Default);
        problem.into_response(reader).map(|bytes| Body::passed(AnswerBody::whole(bytes)))
    }
}

/// Why a request cannot be forwarded, whatever its route: it asks for another server, or can be read in two ways.
fn refusal<B>(request: &Request<B>) -> Option<&'static str> {
    let http1 = request.version() < Version::HTTP_2;
    if request.method().as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Some("methods are written in capitals; nothing was forwarded");
    }
    if request.method() == Method::CONNECT {
        return Some(
            "CONNECT is not served: this gateway forwards to its own upstreams only; nothing was forwarded",
        );
    }
    if http1 && request.uri().authority().is_some() {
        return Some(
            "the request names another server in its first line; this gateway forwards to its own upstreams only; nothing was forwarded",
        );
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() || (request.version() == Version::HTTP_11 && host.is_none()) {
        return Some("the request needs exactly one Host header; nothing was forwarded");
    }
    let authority = request.uri().authority();
    if let (Some(host), Some(authority)) = (host, authority)
        && !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
    {
        return Some("the request names two hosts; nothing was forwarded");
    }
    None
}

/// HTTP/2 names the host in another place; from here on it is in one.
fn name_host(request: &mut Request<Arriving>) {
    if !request.headers().contains_key(HOST)
        && let Some(host) = request.uri().authority().and_then(|a| HeaderValue::from_str(a.as_str()).ok())
    {
        request.headers_mut().insert(HOST, host);
    }
}

/// Headers by which some services take a request for one of another method.
const METHOD_OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

impl Route {
    /// Why a request cannot be forwarded on this route: it would be another to the service than to us.
    fn refusal<B>(&self, request: &Request<B>) -> Option<&'static str> {
        let overrides = || METHOD_OVERRIDES.iter().any(|name| request.headers().contains_key(*name));
        if !self.methods.is_empty() && overrides() {
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

    fn new(
        config: &RouteConfig,
        layer: OncelyLayer,
        tls: Option<&TlsConnector>,
        ping: Duration,
        counters: &Arc<Counters>,
    ) -> Self {
        let timeouts = Timeouts { ping, ..config.timeouts };
        let upstream = Upstream::new(config.upstream.clone(), tls.cloned(), timeouts);
        let way = Arc::new(config.way.clone());
        let to = |key: KeyPassed| ToUpstream {
            upstream: upstream.clone(),
            way: way.clone(),
            key,
            dialect: config.dialect,
            counters: counters.clone(),
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
            .fingerprint_headers(fingerprint_headers)
            .replay_headers(config.replay_headers.clone())
            .rules(config.rules.clone())
            .body_max(config.body_max)
            .stall(config.timeouts.answer)
            .dry_run(config.dry_run);
        let layer = match &config.check {
            Some(check) => layer.check(check_of(check.clone(), upstream.clone(), way.clone())),
            None => layer,
        };
        let (mut keyed_policy, mut takes_key) = (config.policy.clone(), Vec::new());
        let key = match &config.provider {
            Some(provider) => {
                takes_key =
                    config.methods.iter().filter(|m| provider.applies_to(m.as_str())).cloned().collect();
                provider.adjust(&mut keyed_policy, config.when_unknown);
                KeyPassed::Provider(provider.clone())
            }
            None if config.policy.forwards_key_for_ms.is_some() => KeyPassed::Ours,
            None => KeyPassed::Callers,
        };
        let (mut plain_policy, mut plain_key) = (config.policy.clone(), key.clone());
        if config.provider.is_some() {
            // The provider takes no key for these: whatever the tool declares, a retry is not harmless.
            plain_policy.forwards_key_for_ms = None;
            if plain_policy.when_unknown == WhenUnknown::Retry && !plain_policy.idempotent {
                plain_policy.when_unknown = WhenUnknown::Halt;
            }
            plain_key = KeyPassed::Callers;
        }
        let (mut keyed, mut plain) = (layer.clone(), layer);
        if let Some(provider) = &config.provider {
            let judged =
                |placed| Rules { judge: Some(judge_of(provider.clone(), placed)), ..config.rules.clone() };
            let own = provider.clone();
            keyed = keyed
                .rules(judged(Placed::Ours))
                .own_key(Arc::new(move |parts, body| own.given(parts, body)));
            plain = plain.rules(judged(Placed::Nothing));
            keyed_policy.ignore.extend(key_field(provider));
        }
        Self {
            pattern: config.pattern.clone(),
            tool: config.tool.clone(),
            keyed: keyed.policy(keyed_policy).layer(to(key)),
            plain: plain.policy(plain_policy).layer(to(plain_key)),
            dry_run: config.dry_run,
            upstream,
            way,
            dialect: config.dialect,
            methods: config.methods.clone(),
            takes_key,
        }
    }

    fn taken(&self) -> Taken<'_> {
        Taken { pattern: self.pattern.as_str(), tool: self.tool.as_str() }
    }

    async fn guard(&self, mut request: Request<Arriving>, peer: &Arc<Peer>) -> Answer {
        request.extensions_mut().insert(peer.clone());
        let service = if self.takes_key.contains(request.method()) { &self.keyed } else { &self.plain };
        match service.clone().call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }

    /// Passes a request through: nothing is buffered, nothing remembered.
    async fn pass(&self, request: Request<Arriving>, wish: Wish, peer: &Peer, counters: &Counters) -> Answer {
        let (mut parts, body) = request.into_parts();
        let reader = Reader::of(&parts.headers, self.dialect);
        let reuse = if wish == Wish::WebSocket { Reuse::ForUpgrade } else { Reuse::Allowed };
        forward::prepare(&mut parts, self.upstream.address(), &self.way, Some(peer), wish);
        let failure = match self.upstream.send(Request::from_parts(parts, Body::passed(body)), reuse).await {
            Ok(response) if response.status().is_informational() => {
                let granted = forward::wish_of(Version::HTTP_11, response.headers()) == Wish::WebSocket;
                if wish == Wish::WebSocket && granted {
                    return upgrade::agree(&peer.tunnel, response);
                }
                SendFailure::MaybeSent("it changed the protocol without being asked".to_owned())
            }
            Ok(mut response) => {
                forward::drop_hop_by_hop(response.headers_mut());
                return response.map(Body::passed);
            }
            Err(failure) => failure,
        };
        let problem = match failure {
            SendFailure::NotSent(_) => {
                counters.add(Count::Unreachable);
                let detail = "the service could not be reached and nothing was sent; nothing happened";
                Problem::new(Code::UpstreamUnreachable, detail)
            }
            SendFailure::MaybeSent(_) => {
                counters.add(Count::Failed);
                Problem::new(Code::UpstreamFailed, "the request was sent, and the connection broke off")
            }
            SendFailure::TimedOut(_) => {
                counters.add(Count::Failed);
                Problem::new(Code::UpstreamFailed, "the request was sent, and no answer came in time")
                    .with_status(StatusCode::GATEWAY_TIMEOUT)
            }
        };
        problem.into_response(reader).map(|bytes| Body::passed(AnswerBody::whole(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Version};

    use super::refusal;

    fn refused(version: Version, method: &str, uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().version(version).method(method).uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        refusal(&request.body(()).unwrap()).is_some()
    }

    #[test]
    fn a_request_has_one_host_and_asks_for_no_other_server() {
        for (version, method, uri, hosts, expected) in [
            (Version::HTTP_11, "GET", "/", &["a"][..], false),
            (Version::HTTP_10, "GET", "/", &[], false),
            (Version::HTTP_11, "GET", "/", &[], true),
            (Version::HTTP_11, "GET", "/", &["a", "a"], true),
            (Version::HTTP_11, "GET", "http://a/", &["a"], true),
            (Version::HTTP_11, "CONNECT", "a:1", &["a:1"], true),
            (Version::HTTP_2, "GET", "http://a/", &[], false),
            (Version::HTTP_2, "GET", "http://a/", &["A"], false),
            (Version::HTTP_2, "GET", "http://a/", &["b"], true),
            (Version::HTTP_2, "CONNECT", "a:1", &[], true),
            (Version::HTTP_11, "post", "/", &["a"], true),
        ] {
            assert_eq!(
                refused(version, method, uri, hosts),
                expected,
                "{version:?} {method} {uri} {hosts:?}"
            );
        }
    }
}
