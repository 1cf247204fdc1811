//! What a request looks like when it is passed on: its headers, its path, and what it may change.

use http::{HeaderValue, Request};

use super::{Forwarded, HostSeen, Peer, Tunnel, Way, Wish, drop_hop_by_hop, prepare, wish_of};

fn prepared(way: &Way, headers: &[(&str, &str)], uri: &str, upstream: &str) -> (String, Vec<String>) {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    let ip = HeaderValue::from_static("10.0.0.9");
    let peer = Peer { place: None, ip, scheme: "http", tunnel: Tunnel::default() };
    drop_hop_by_hop(&mut parts.headers);
    prepare(&mut parts, &upstream.parse().unwrap(), way, Some(&peer), Wish::Plain);
    let mut shown: Vec<String> =
        parts.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
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
            ("content-length", "5"),
            ("http2-settings", "AAMAAABk"),
            ("x-original-url", "/admin"),
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
    let claimed = [
        ("host", "shop"),
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-user", "root"),
        ("x-forwarded-prefix", "/admin"),
        ("x-real-ip", "6.6.6.6"),
        ("x_forwarded_email", "root"),
    ];
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
        "x-forwarded-prefix: /admin",
        "x-forwarded-proto: https",
        "x-forwarded-user: root",
        "x-real-ip: 6.6.6.6",
        "x_forwarded_email: root",
    ];
    assert_eq!(headers, chain);
}

#[test]
fn every_line_of_a_chain_is_kept_in_order() {
    let way = Way { forwarded: Forwarded::Append, ..Way::default() };
    let lines = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "10.0.0.1")];
    let (_, headers) = prepared(&way, &lines, "/", "http://up:9");
    assert!(headers.contains(&"x-forwarded-for: 6.6.6.6, 10.0.0.1, 10.0.0.9".to_owned()), "{headers:?}");
}

#[test]
fn only_a_websocket_may_change_the_protocol() {
    let wish = |upgrade: &[&str]| {
        let mut headers = http::HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static("keep-alive, Upgrade"));
        for protocol in upgrade {
            headers.append("upgrade", protocol.parse().unwrap());
        }
        wish_of(http::Version::HTTP_11, &headers)
    };
    assert_eq!(wish(&["WebSocket"]), Wish::WebSocket);
    for other in [&["h2c"][..], &["websocket, h2c"], &["websocket", "h2c"], &[]] {
        assert_eq!(wish(other), Wish::Plain, "{other:?}");
    }
}

#[test]
fn paths_are_moved_byte_for_byte() {
    let stripe = Way { strip_prefix: "/stripe".into(), ..Way::default() };
    for (way, path, upstream, expected) in [
        (&Way::default(), "/a%2Fb?x=%20", "http://up", "/a%2Fb?x=%20"),
        (&stripe, "/stripe/v1/charges?a=1", "https://up", "/v1/charges?a=1"),
        (&stripe, "/stripe", "https://up", "/"),
        (&stripe, "/stripe?a", "https://up", "/?a"),
        (&stripe, "/stripes/v1", "https://up", "/stripes/v1"),
        (&Way::default(), "/orders", "http://up/base/", "/base/orders"),
    ] {
        assert_eq!(prepared(way, &[], path, upstream).0, expected);
    }
}

#[test]
fn a_prefix_that_is_spelled_in_another_way_is_known_for_one() {
    let stripe = Way { strip_prefix: "/stripe".into(), ..Way::default() };
    for (path, misspelt) in [
        ("/stripe/v1", false),
        ("/stripe", false),
        ("/stripe/%76%31", false),
        ("/stripes/v1", false),
        ("/other", false),
        ("/%73tripe/v1", true),
        ("//stripe/v1", true),
        ("/stripe%2fv1", true),
        ("/stripe;a=1/v1", true),
        ("/stripe\\v1", true),
    ] {
        let read = crate::gateway::pattern::read_path(path).unwrap();
        assert_eq!(stripe.is_misspelt(path, &read), misspelt, "{path}");
        assert!(!Way::default().is_misspelt(path, &read), "{path}");
    }
}
