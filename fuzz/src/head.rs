//! What must hold for the head of any request on its way through the gateway: what speaks of one connection stays here,
//! what a client claims about itself is not believed, and nothing else is lost.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use oncely_doors::gateway::forward::{Way, Wish, drop_hop_by_hop, prepare, wish_of};

/// Headers that a service never gets as a client sent them.
const NOT_PASSED_ON: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "x-original-url",
    "x-rewrite-url",
];

/// A head on its way to a service.
pub fn passes_through(request: &Request<()>) {
    let before = request.headers().clone();
    let wish = wish_of(request.version(), &before);
    assert!(wish == Wish::Plain || before.contains_key("upgrade"));
    let (mut parts, ()) = request.clone().into_parts();
    drop_hop_by_hop(&mut parts.headers);
    let listed = listed(&before);
    let drops = |name: &HeaderName| {
        NOT_PASSED_ON.contains(&name.as_str())
            || listed.contains(name)
            || (name == CONTENT_LENGTH && before.contains_key(TRANSFER_ENCODING))
    };
    for name in before.keys() {
        let kept: Vec<&HeaderValue> = parts.headers.get_all(name).iter().collect();
        if name == TE && !kept.is_empty() {
            assert_eq!(kept, ["trailers"]);
        } else if drops(name) {
            assert!(kept.is_empty(), "{name} travels on");
        } else {
            assert_eq!(kept, before.get_all(name).iter().collect::<Vec<_>>(), "{name} is changed");
        }
    }
    let address = "http://up:9".parse().expect("an address");
    prepare(&mut parts, &address, &Way::default(), None, Wish::Plain);
    assert_eq!(parts.headers.get_all(HOST).iter().collect::<Vec<_>>(), ["up:9"]);
    for name in parts.headers.keys().map(|name| name.as_str().replace('_', "-")) {
        let says_who_asks = name == "forwarded" || name == "x-real-ip" || name.starts_with("x-forwarded-");
        assert!(!says_who_asks, "{name} is believed");
    }
    if let Some(asked) = request.uri().path_and_query() {
        assert_eq!((parts.uri.path_and_query(), parts.uri.authority()), (Some(asked), None));
    }
}

/// The names that `Connection` lists.
fn listed(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}
