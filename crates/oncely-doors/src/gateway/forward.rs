//! What changes on the way through: hop-by-hop headers are dropped, `Host` and `X-Forwarded-*` are set, paths are moved.

use http::header::{
    CONNECTION, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Uri, Version};

use super::address::Address;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address, as `X-Forwarded-For` says it.
    pub ip: HeaderValue,
    /// `http` or `https`.
    pub scheme: &'static str,
}

/// What is said to the service about who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Forwarded {
    /// What a client claims is dropped, and what we see is set.
    #[default]
    Set,
    /// What we see is added to what comes in: something trusted is in front.
    Append,
    /// Nothing: a provider need not know who asks.
    Nothing,
}

/// Which `Host` a service sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostSeen {
    /// Its own.
    #[default]
    Upstream,
    /// The one that the client named.
    Client,
}

/// How a route changes what passes through.
#[derive(Debug, Clone, Default)]
pub struct Way {
    /// Taken off the front of paths.
    pub strip_prefix: String,
    /// Which `Host` the service sees.
    pub host: HostSeen,
    /// What it hears about who asks.
    pub forwarded: Forwarded,
}

/// The protocol that a request asks to change to, if it may.
pub fn upgrade_of(parts: &Parts) -> Option<HeaderValue> {
    if parts.version != Version::HTTP_11 || !lists(&parts.headers, &CONNECTION, "upgrade") {
        return None;
    }
    parts.headers.get(UPGRADE).cloned()
}

/// Makes the head of a request ready for the service.
pub fn prepare(
    parts: &mut Parts,
    address: &Address,
    way: &Way,
    peer: Option<&Peer>,
    upgrade: Option<HeaderValue>,
) {
    drop_hop_by_hop(&mut parts.headers);
    // The body is waited for by us.
    parts.headers.remove(EXPECT);
    let asked_host = parts.headers.remove(HOST).or_else(|| {
        parts.uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())
    });
    let host = match (way.host, &asked_host) {
        (HostSeen::Client, Some(asked)) => asked.clone(),
        _ => address.host_header.clone(),
    };
    parts.headers.insert(HOST, host);
    set_forwarded(&mut parts.headers, way.forwarded, peer, asked_host);
    if let Some(protocol) = upgrade {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, protocol);
    }
    parts.uri = moved(&parts.uri, address, way);
}

/// The path and query as the service gets them.
fn moved(uri: &Uri, address: &Address, way: &Way) -> Uri {
    let path = uri.path();
    let below = path.strip_prefix(way.strip_prefix.as_str()).unwrap_or(path);
    let same = below.len() == path.len() && address.base.is_empty();
    let path_and_query = match uri.path_and_query() {
        Some(whole) if same => whole.clone(),
        _ => {
            let slash = if below.starts_with('/') { "" } else { "/" };
            let query = uri.query().map(|q| format!("?{q}")).unwrap_or_default();
            PathAndQuery::try_from(format!("{}{slash}{below}{query}", address.base))
                .unwrap_or_else(|_| PathAndQuery::from_static("/"))
        }
    };
    Uri::from(path_and_query)
}

fn set_forwarded(
    headers: &mut HeaderMap,
    forwarded: Forwarded,
    peer: Option<&Peer>,
    host: Option<HeaderValue>,
) {
    let before = headers.remove(X_FORWARDED_FOR);
    if forwarded != Forwarded::Append {
        for name in [FORWARDED, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_FORWARDED_PORT] {
            headers.remove(name);
        }
    }
    let Some(peer) = peer.filter(|_| forwarded != Forwarded::Nothing) else { return };
    let chain = match before.filter(|_| forwarded == Forwarded::Append) {
        Some(before) => {
            let joined = [before.as_bytes(), b", ", peer.ip.as_bytes()].concat();
            HeaderValue::from_bytes(&joined).unwrap_or_else(|_| peer.ip.clone())
        }
        None => peer.ip.clone(),
    };
    headers.insert(X_FORWARDED_FOR, chain);
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(peer.scheme));
    }
    if let Some(host) = host.filter(|_| !headers.contains_key(X_FORWARDED_HOST)) {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// Drops what speaks of one connection only: the usual headers, and whatever `Connection` lists.
pub fn drop_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let listed: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in listed {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    // The one thing that a client may ask for across hops; gRPC needs it.
    let trailers = headers.get(TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in [
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::{Forwarded, HostSeen, Peer, Way, prepare};

    fn prepared(way: &Way, headers: &[(&str, &str)], uri: &str, upstream: &str) -> (String, Vec<String>) {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let peer = Peer { ip: HeaderValue::from_static("10.0.0.9"), scheme: "http" };
        prepare(&mut parts, &upstream.parse().unwrap(), way, Some(&peer), None);
        let mut shown: Vec<String> = parts
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        shown.sort();
        (parts.uri.to_string(), shown)
    }

    #[test]
    fn hop_by_hop_headers_and_what_connection_lists_are_dropped() {
        let way = Way { forwarded: Forwarded::Nothing, ..Way::default() };
        let (_, headers) = prepared(
            &way,
            &[
                ("connection", "close, X-Secret"),
                ("x-secret", "1"),
                ("keep-alive", "5"),
                ("te", "gzip"),
                ("proxy-authorization", "Basic x"),
                ("upgrade", "h2c"),
                ("transfer-encoding", "chunked"),
                ("x-kept", "1"),
                ("x-forwarded-for", "6.6.6.6"),
                ("forwarded", "for=6.6.6.6"),
            ],
            "/",
            "http://up:9",
        );
        assert_eq!(headers, ["host: up:9", "x-kept: 1"]);
    }

    #[test]
    fn what_a_client_claims_about_itself_is_not_believed_unless_the_route_says_so() {
        let claimed = [("host", "shop"), ("x-forwarded-for", "6.6.6.6"), ("x-forwarded-proto", "https")];
        let (_, headers) = prepared(&Way::default(), &claimed, "/", "http://up:9");
        let own =
            ["host: up:9", "x-forwarded-for: 10.0.0.9", "x-forwarded-host: shop", "x-forwarded-proto: http"];
        assert_eq!(headers, own);
        let way = Way { forwarded: Forwarded::Append, host: HostSeen::Client, ..Way::default() };
        let (_, headers) = prepared(&way, &claimed, "/", "http://up:9");
        let chain = [
            "host: shop",
            "x-forwarded-for: 6.6.6.6, 10.0.0.9",
            "x-forwarded-host: shop",
            "x-forwarded-proto: https",
        ];
        assert_eq!(headers, chain);
    }

    #[test]
    fn paths_are_moved_byte_for_byte() {
        let stripe = Way { strip_prefix: "/stripe".into(), ..Way::default() };
        for (way, path, upstream, expected) in [
            (&Way::default(), "/a%2Fb?x=%20", "http://up", "/a%2Fb?x=%20"),
            (&stripe, "/stripe/v1/charges?a=1", "https://up", "/v1/charges?a=1"),
            (&stripe, "/stripe", "https://up", "/"),
            (&stripe, "/stripe?a", "https://up", "/?a"),
            (&Way::default(), "/orders", "http://up/base/", "/base/orders"),
        ] {
            assert_eq!(prepared(way, &[], path, upstream).0, expected);
        }
    }
}
