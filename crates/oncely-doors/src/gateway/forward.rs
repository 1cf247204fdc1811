//! What changes on the way through: hop-by-hop headers are dropped, `Host` and `X-Forwarded-*` are set, paths are moved.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Response, Uri, Version};
use tokio::sync::OwnedSemaphorePermit;

use super::address::Address;
use super::upgrade::Tunnel;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Who is at the other end of a connection. Shared by its requests.
#[derive(Debug)]
pub struct Peer {
    /// Held for as long as anything of the connection lives.
    pub place: Option<OwnedSemaphorePermit>,
    /// Its address, as `X-Forwarded-For` says it.
    pub ip: HeaderValue,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Where its connection leads if it leaves HTTP.
    pub tunnel: Tunnel,
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

impl Way {
    /// A path without the prefix, which ends where a segment does.
    fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(self.strip_prefix.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// Whether a path, by what it means, begins with the prefix, and spells it in another way: it could not be taken off, and
    /// the service would get another path than was meant. `read` is the path as [`super::pattern::read_path`] gave it.
    pub fn is_misspelt(&self, path: &str, read: &str) -> bool {
        self.below(path).is_none() && self.below(read).is_some()
    }
}

/// An answer of a service, as it goes on: without what spoke of the connection to the service, its version included.
pub fn passed_on<B>(mut answer: Response<B>) -> Response<B> {
    drop_hop_by_hop(answer.headers_mut());
    // The next hop is ours: that the service speaks HTTP/1.0 does not make us do so.
    *answer.version_mut() = Version::HTTP_11;
    answer
}

/// The one protocol that may be changed to. Any other would be a tunnel past every route and guard: HTTP/2 above all.
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Whether a request asks to become a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It stays what it is.
    Plain,
    /// It asks to become a WebSocket.
    WebSocket,
}

/// What a request, or an answer to it, wishes to become.
pub fn wish_of(version: Version, headers: &HeaderMap) -> Wish {
    let mut protocols = headers.get_all(UPGRADE).iter();
    match (protocols.next(), protocols.next()) {
        (Some(one), None)
            if version == Version::HTTP_11
                && lists(headers, &CONNECTION, "upgrade")
                && one.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes()) =>
        {
            Wish::WebSocket
        }
        _ => Wish::Plain,
    }
}

/// Says on a message that it changes the protocol.
pub fn grant(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Makes the head of a request ready for the service. What speaks of one connection only is gone already.
pub fn prepare(parts: &mut Parts, address: &Address, way: &Way, peer: Option<&Peer>, wish: Wish) {
    // The body is waited for by us.
    parts.headers.remove(EXPECT);
    let by_uri = || parts.uri.authority().and_then(|whole| HeaderValue::from_str(whole.as_str()).ok());
    let own = || address.host_header.clone();
    let asked_host = match way.host {
        HostSeen::Upstream => parts.headers.insert(HOST, own()).or_else(by_uri),
        HostSeen::Client => {
            let asked = parts.headers.get(HOST).cloned().or_else(by_uri);
            parts.headers.insert(HOST, asked.clone().unwrap_or_else(own));
            asked
        }
    };
    set_forwarded(&mut parts.headers, way.forwarded, peer, asked_host);
    if wish == Wish::WebSocket {
        grant(&mut parts.headers);
    }
    if let Some(uri) = moved(&parts.uri, address, way) {
        parts.uri = uri;
    }
}

/// The path and query as the service gets them; nothing where they are that already.
fn moved(uri: &Uri, address: &Address, way: &Way) -> Option<Uri> {
    let path = uri.path();
    let below = way.below(path).unwrap_or(path);
    let same = below.len() == path.len() && address.base.is_empty();
    let path_and_query = match uri.path_and_query() {
        Some(_) if same && uri.authority().is_none() => return None,
        Some(whole) if same => whole.clone(),
        _ => {
            let slash = if below.starts_with('/') { "" } else { "/" };
            let query = uri.query().map(|q| format!("?{q}")).unwrap_or_default();
            PathAndQuery::try_from(format!("{}{slash}{below}{query}", address.base))
                .unwrap_or_else(|_| PathAndQuery::from_static("/"))
        }
    };
    Some(Uri::from(path_and_query))
}

/// Whether a header says who has asked, and how. Services believe it, user names in it too, so that the whole family counts;
/// and many read an underscore as a hyphen.
fn says_who_asks(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    let begins = |with: &[u8]| {
        let same = |(is, with): (&u8, &u8)| is == with || (*is == b'_' && *with == b'-');
        name.len() >= with.len() && name.iter().zip(with).all(same)
    };
    name == b"forwarded" || begins(b"x-forwarded-") || (begins(b"x-real-ip") && name.len() == 9)
}

fn set_forwarded(
    headers: &mut HeaderMap,
    forwarded: Forwarded,
    peer: Option<&Peer>,
    host: Option<HeaderValue>,
) {
    let mut chain: Vec<HeaderValue> = Vec::new();
    // Few clients say it: one look is cheaper than a search for each.
    if headers.keys().any(says_who_asks) {
        if forwarded == Forwarded::Append {
            // Every line counts: what something in front has added may be a line of its own.
            chain.extend(headers.get_all(X_FORWARDED_FOR).iter().cloned());
        } else {
            let claimed: Vec<HeaderName> =
                headers.keys().filter(|name| says_who_asks(name)).cloned().collect();
            for name in claimed {
                headers.remove(name);
            }
        }
    }
    let Some(peer) = peer.filter(|_| forwarded != Forwarded::Nothing) else { return };
    headers.insert(X_FORWARDED_FOR, joined(&chain, &peer.ip));
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(peer.scheme));
    }
    if let Some(host) = host.filter(|_| !headers.contains_key(X_FORWARDED_HOST)) {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// A chain of addresses, and one more.
fn joined(chain: &[HeaderValue], last: &HeaderValue) -> HeaderValue {
    if chain.is_empty() {
        return last.clone();
    }
    let lines: Vec<&[u8]> = chain.iter().chain([last]).map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&lines.join(&b", "[..])).unwrap_or_else(|_| last.clone())
}

/// Whether a header is one of those that are not passed on as they are.
fn is_not_passed_on(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            // Some services take these for the path, which would then be another than the one that was routed.
            | "x-original-url"
            | "x-rewrite-url"
    )
}

/// Drops what speaks of one connection only: the usual headers, and whatever `Connection` lists. Before anything else is
/// read from a message: what is judged here must be what the other side sees.
pub fn drop_hop_by_hop(headers: &mut HeaderMap) {
    // Most messages hold nothing of it: one look is cheaper than a search for each.
    if !headers.keys().any(is_not_passed_on) {
        return;
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        // Of two lengths the other one counted.
        headers.remove(CONTENT_LENGTH);
    }
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
    }
    // The one thing that a client may ask for across hops; gRPC needs it.
    let trailers = headers.get(TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    let left: Vec<HeaderName> = headers.keys().filter(|name| is_not_passed_on(name)).cloned().collect();
    for name in left {
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
mod tests;
