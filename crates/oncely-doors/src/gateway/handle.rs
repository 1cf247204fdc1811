//! From a request to an answer: finds the route, refuses what cannot be forwarded, guards or passes through.

use std::sync::Arc;

use http::header::HOST;
use http::{HeaderValue, Method, Request, Response, Version};
use hyper::body::Incoming;
use oncely::Oncely;
use oncely::tower::{Body, Code, Dialect, Gate, OncelyLayer, Problem, Reader};
use oncely_core::Namespace;
use tokio_rustls::TlsConnector;

use super::activity::Underway;
use super::alert::{Alert, Came};
use super::config::GatewayConfig;
use super::connection::Patience;
use super::counters::{Count, Counters};
use super::forward::{self, Peer};
use super::pattern::read_path;
use super::route::{Common, Route};
use super::traced::Traced;
use super::upstream::{AnswerBody, idle_share};
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
    alert: Arc<Alert>,
    telemetry: Option<Arc<Telemetry>>,
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
        let common = Common { tls, gate: &gate, ping: config.patience.ping, idle_max: idle_share(count) };
        (0..count).map(|_| Self::new(config, oncely, namespace, common)).collect()
    }

    fn new(config: &GatewayConfig, oncely: &Oncely, namespace: &Namespace, common: Common<'_>) -> Self {
        let counters = Arc::new(Counters::default());
        let routes = config.routes.iter().map(|route| {
            let layer =
                OncelyLayer::new(oncely.clone()).gate(common.gate.clone()).namespace(namespace.clone());
            let layer = layer.redact(config.redaction.clone());
            Route::new(route, layer, common, &counters)
        });
        let (routes, alert) = (routes.collect(), Arc::new(Alert::new(counters.clone())));
        Self { routes, patience: config.patience, counters, alert, telemetry: None }
    }

    /// Makes a span of every request.
    pub fn traced(self, telemetry: Option<Arc<Telemetry>>) -> Self {
        Self { telemetry, ..self }
    }

    /// What it counts about itself.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// What keeps its thread awake.
    pub(super) fn alert(&self) -> &Arc<Alert> {
        &self.alert
    }

    /// How much patience it has with clients.
    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// Answers one request.
    pub(super) async fn handle(&self, mut request: Request<Arriving>, peer: &Arc<Peer>) -> Answer {
        self.alert.came(Came::Request);
        let span = self.telemetry.as_deref().and_then(|to| {
            let method = request.method().clone();
            Traced::begin(to, method, request.headers_mut())
        });
        let (answer, route) = self.answer(request, peer).await;
        self.alert.came(Came::Answer);
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
        if let Some(why) = route.refusal(&request, &path) {
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
            "the request names a server in its first line, as it would to a proxy, and this is none: it forwards to its own upstreams \
             only; nothing was forwarded. Send the path alone",
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
