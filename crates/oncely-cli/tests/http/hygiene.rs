//! Requests that try to be read in two ways, to reach another server, or to bring the gateway down.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use crate::client::{self, read_answer};
use crate::gateway::Gateway;
use crate::upstream::Upstream;

fn bench() -> (tempfile::TempDir, Upstream, Gateway) {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "");
    (home, upstream, gateway)
}

#[test]
fn what_can_be_read_in_two_ways_or_asks_for_another_server_is_refused() {
    let (_home, upstream, gateway) = bench();
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(100));
    let most = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(99));
    for (request, status) in [
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        ("GET http://elsewhere/ HTTP/1.1\r\nhost: elsewhere\r\n\r\n", 400),
        ("CONNECT elsewhere:443 HTTP/1.1\r\nhost: elsewhere:443\r\n\r\n", 400),
        ("GET /a/../b HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("GET /a/%2e%2e/b HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n", 400),
        (long.as_str(), 431),
        (many.as_str(), 431),
    ] {
        let shown = &request[..request.len().min(120)];
        let answer =
            client::try_send(gateway.address, request).unwrap_or_else(|| panic!("no answer to {shown:?}"));
        assert_eq!(answer.status, status, "{shown:?}: {}", answer.text());
    }
    assert_eq!(upstream.heads().len(), 0, "nothing was forwarded: {:?}", upstream.heads());
    assert_eq!(gateway.send(&most).status, 200, "a hundred headers are not too many");
}

#[test]
fn a_length_beside_chunks_is_dropped_and_nothing_can_be_smuggled_behind_it() {
    let (_home, upstream, gateway) = bench();
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut stream = client::open(
        gateway.address,
        &format!(
            "POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: {}\r\ntransfer-encoding: \
             chunked\r\n\r\n0\r\n\r\n{smuggled}",
            5 + smuggled.len()
        ),
    );
    assert_eq!(read_answer(&mut stream).unwrap().status, 201);
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "the connection is not used any further");
    let heads = upstream.heads();
    assert_eq!(heads.len(), 1, "{heads:?}");
    assert!(!heads[0].contains("transfer-encoding") || !heads[0].contains("content-length"), "{}", heads[0]);
}

#[test]
fn headers_of_one_connection_do_not_travel_on() {
    let (_home, upstream, gateway) = bench();
    let headers = [
        ("connection", "x-secret, keep-alive"),
        ("x-secret", "1"),
        ("keep-alive", "timeout=9"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic c2VjcmV0"),
        ("x-forwarded-for", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("x-forwarded-user", "root"),
        ("x-forwarded-prefix", "/admin"),
        ("x-real-ip", "6.6.6.6"),
        ("x_forwarded_email", "root"),
        ("X_Real_IP", "6.6.6.6"),
        ("cf-connecting-ip", "7.7.7.7"),
        ("x-kept", "yes"),
        ("x-act", "hop"),
    ];
    let answer = gateway.send(&client::request("GET", "/", &headers, ""));
    assert_eq!(answer.status, 200);
    assert_eq!((answer.header("x-private"), answer.header("keep-alive")), (None, None));
    let head = upstream.heads().remove(0);
    for gone in ["x-secret", "keep-alive", "proxy-authorization", "6.6.6.6", "\nforwarded", "root", "/admin"]
    {
        assert!(!head.contains(gone), "{gone} in {head}");
    }
    for there in [
        "x-kept: yes",
        "te: trailers",
        "cf-connecting-ip: 7.7.7.7",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: shop",
    ] {
        assert!(head.contains(there), "no {there} in {head}");
    }
    assert!(head.contains(&format!("host: {}", upstream.address)), "{head}");
}

#[test]
fn a_prefix_is_taken_off_whole_or_not_at_all() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/**\"\nupstream = \"{}/base\"\nstrip_prefix = \"/api\"\n",
        upstream.url()
    );
    let gateway = Gateway::start_with(home.path(), &config);
    for (path, sent) in [
        ("/api/a%2Fb?x=%20", Some("/base/a%2Fb?x=%20")),
        ("/api", Some("/base/")),
        ("/api//a", Some("/base//a")),
        ("/apiary/a", Some("/base/apiary/a")),
        ("/other", Some("/base/other")),
        // The service would get the prefix, and with it another path than the one that was meant.
        ("/%61pi/a", None),
        ("//api/a", None),
        ("/api%2Fa", None),
        ("/api;v=1/a", None),
    ] {
        let before = upstream.heads().len();
        let answer = gateway.send(&client::request("GET", path, &[], ""));
        let heads = upstream.heads().split_off(before);
        match sent {
            Some(sent) => {
                assert!(heads[0].starts_with(&format!("GET {sent} HTTP/1.1")), "{path}: {}", heads[0])
            }
            None => {
                answer.expect_code(400, "bad_request");
                assert_eq!(heads.len(), 0, "{path}");
            }
        }
    }
}

#[test]
fn an_answer_with_two_lengths_is_passed_on_with_one() {
    let (_home, _upstream, gateway) = bench();
    for (method, key) in [("GET", "a"), ("POST", "b")] {
        let headers = [("idempotency-key", key), ("x-act", "two-lengths")];
        let mut stream = client::open(gateway.address, &client::request(method, "/", &headers, ""));
        let answer = read_answer(&mut stream).unwrap();
        assert_eq!((answer.status, answer.body.len()), (201, 20), "{method}: {answer:?}");
        // What follows on the connection is the next answer, and not the rest of this one.
        stream.write_all(client::request("GET", "/next", &[], "").as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream).unwrap().status, 200, "{method}");
    }
}

#[test]
fn no_protocol_but_that_of_websockets_can_be_changed_to() {
    let (_home, upstream, gateway) = bench();
    let headers =
        [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABk")];
    let answer = gateway.send(&client::request("GET", "/", &headers, ""));
    assert_eq!(answer.status, 200);
    let head = upstream.heads().remove(0);
    assert!(!head.contains("upgrade") && !head.contains("http2-settings"), "{head}");
    // Nor if the service does it without being asked.
    let headers = [("connection", "Upgrade"), ("upgrade", "h2c"), ("x-act", "websocket")];
    assert_eq!(gateway.send(&client::request("GET", "/", &headers, "")).status, 502);
}

#[test]
fn where_the_service_sees_the_host_of_the_client_another_host_is_another_request() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "host = \"client\"");
    let send = |host: &str| {
        let request = client::post("/orders", &[("idempotency-key", "k")], "{}");
        gateway.send(&request.replace("host: shop", &format!("host: {host}")))
    };
    assert_eq!(send("shop1").status, 201);
    send("shop2").expect_code(409, "key_reused");
    assert!(upstream.heads()[0].contains("host: shop1"));
}

/// Heads that are mangled at random: whatever they are answered, the next proper request is served.
#[test]
fn mangled_heads_never_do_harm() {
    let (_home, upstream, gateway) = bench();
    let seed: u64 = 0x05ee_d0f4_ead5;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let pieces: [&[u8]; 12] = [
        b"\r\n",
        b"\n",
        b"\0",
        b": ",
        b"content-length: 5\r\n",
        b"transfer-encoding: chunked\r\n",
        b"host: b\r\n",
        b"idempotency-key: \"\r\n",
        b"\xff\xfe",
        b"%",
        b" HTTP/2.0\r\n",
        b"\r\n\r\n",
    ];
    for _ in 0..500 {
        let mut request = client::post("/orders", &[("idempotency-key", "k")], "{\"a\":1}").into_bytes();
        for _ in 0..=next(4) {
            let at = next(request.len());
            match next(3) {
                0 => request.truncate(at.max(1)),
                1 => request[at] = next(256) as u8,
                _ => {
                    let piece = pieces[next(pieces.len())];
                    request.splice(at..at, piece.iter().copied());
                }
            }
        }
        let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
        let _ = stream.write_all(&request);
        // What is not a whole request gets no answer before we hang up.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let _ = stream.read(&mut [0; 64]);
    }
    assert_eq!(gateway.order("after", "").status, 201);
    for _ in 0..2 {
        // Runs unless one of the mangled ones was good enough.
        gateway.send(&client::post("/orders", &[("idempotency-key", "k")], "{\"a\":1}"));
    }
    // Whatever else was mangled, what reached the service under a key has reached it once.
    let mut keys: BTreeMap<String, u32> = BTreeMap::new();
    for head in upstream.heads().iter().filter(|head| head.starts_with("POST ")) {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        for (_, key) in lines.filter(|(name, _)| name.eq_ignore_ascii_case("idempotency-key")) {
            *keys.entry(key.trim().to_owned()).or_default() += 1;
        }
    }
    assert!(keys.values().all(|count| *count == 1), "{keys:?}");
    assert!(keys.contains_key("after"), "{keys:?}");
}
