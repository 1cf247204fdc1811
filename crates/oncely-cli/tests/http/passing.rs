//! What passes through, and what streams: events, WebSockets, long answers, HTTP/2, TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc;

use crate::client::{self, read_answer, read_chunk};
use crate::gateway::{Gateway, one_thread, records};
use crate::upstream::Upstream;

fn bench() -> (tempfile::TempDir, Upstream, Gateway) {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "");
    (home, upstream, gateway)
}

/// Reads a head byte by byte, so that nothing of the body is taken.
fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn events_arrive_one_by_one_on_every_kind_of_route_and_a_guarded_stream_is_replayed_whole() {
    let (_home, upstream, gateway) = bench();
    for (method, headers) in [("GET", vec![]), ("POST", vec![("idempotency-key", "k")])] {
        let act = format!("events {method}");
        let mut headers = headers;
        headers.push(("x-act", act.as_str()));
        let request = client::request(method, "/events", &headers, "");
        let mut stream = client::open(gateway.address, &request);
        let head = read_head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(head.contains("idempotency-effect: executed"), method == "POST", "{head}");
        // The second event is not sent before the first has been seen.
        assert_eq!(read_chunk(&mut stream).unwrap().unwrap(), b"data: one\n\n", "{method}");
        upstream.release(method);
        assert_eq!(read_chunk(&mut stream).unwrap().unwrap(), b"data: two\n\n");
        assert_eq!(read_chunk(&mut stream), Some(None));
    }
    let replay = gateway.send(&client::request("POST", "/events", &[("idempotency-key", "k")], ""));
    assert_eq!((replay.status, replay.text().as_str()), (200, "data: one\n\ndata: two\n\n"));
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.total(), 1);
}

#[test]
fn a_websocket_passes_through() {
    let (_home, _upstream, gateway) = bench();
    let headers = [("connection", "Upgrade"), ("upgrade", "websocket"), ("x-act", "websocket")];
    let mut stream = client::open(gateway.address, &client::request("GET", "/socket", &headers, ""));
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101") && head.contains("upgrade: websocket"), "{head}");
    speak_to_socket(&mut stream);
}

fn speak_to_socket(stream: &mut TcpStream) {
    for text in ["hello", "there"] {
        stream.write_all(text.as_bytes()).unwrap();
        let mut echo = vec![0; text.len()];
        stream.read_exact(&mut echo).unwrap();
        assert_eq!(String::from_utf8(echo).unwrap(), text.to_uppercase());
    }
}

/// What a service behind TLS was asked: the protocol that was agreed on, and the head of the request.
struct Asked {
    agreed: Option<Vec<u8>>,
    head: String,
}

/// A service behind TLS that would rather speak HTTP/2, but becomes a WebSocket that answers in capitals. Says what it was
/// asked.
fn socket_behind_tls(home: &Path) -> (u16, mpsc::Receiver<Asked>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(home.join("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(home.join("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    let tls = oncely_doors::gateway::acceptor(&home.join("cert.pem"), &home.join("key.pem")).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let (tell, told) = mpsc::channel();
    let serving = async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = tls.accept(stream).await.unwrap();
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        tell.send(Asked { agreed, head: String::from_utf8(head).unwrap() }).unwrap();
        let granted = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(granted.as_bytes()).await.unwrap();
        while let Ok(byte) = stream.read_u8().await {
            stream.write_u8(byte.to_ascii_uppercase()).await.unwrap();
            stream.flush().await.unwrap();
        }
    };
    std::thread::spawn(|| {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(serving);
    });
    (port, told)
}

#[test]
fn a_websocket_passes_through_to_a_service_behind_tls() {
    let (home, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (port, told) = socket_behind_tls(theirs.path());
    let config = format!(
        "[server]\nadmin = \"off\"\nupstream_roots = \"{}\"\n[[route]]\nmatch = \"/**\"\nupstream = \
         \"https://localhost:{port}\"\n",
        theirs.path().join("cert.pem").display()
    );
    let gateway = Gateway::start_with(home.path(), &config);
    let headers = [("connection", "Upgrade"), ("upgrade", "websocket")];
    let mut stream = client::open(gateway.address, &client::request("GET", "/socket", &headers, ""));
    let granted = read_head(&mut stream);
    assert!(granted.starts_with("HTTP/1.1 101") && granted.contains("upgrade: websocket"), "{granted}");
    // HTTP/2 has no such upgrade, so it must not be offered.
    let Asked { agreed, head } = told.recv().unwrap();
    assert_eq!(agreed.as_deref(), Some(b"http/1.1".as_slice()));
    assert!(head.starts_with("GET /socket HTTP/1.1\r\n") && head.contains("upgrade: websocket"), "{head}");
    speak_to_socket(&mut stream);
}

#[test]
fn an_answer_of_a_service_of_http_1_0_goes_on_as_one_of_ours() {
    let (_home, upstream, gateway) = bench();
    for (method, key) in [("GET", "a"), ("POST", "b"), ("POST", "b")] {
        let headers = [("idempotency-key", key), ("x-act", "http10")];
        let mut stream = client::open(gateway.address, &client::request(method, "/old", &headers, ""));
        let mut version = [0; 8];
        stream.read_exact(&mut version).unwrap();
        assert_eq!(version, *b"HTTP/1.1", "{method}");
        let answer = read_answer(&mut version.as_slice().chain(&mut stream)).unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (201, "until the end"), "{method}");
        // Its end is marked, so that the connection goes on.
        stream.write_all(client::request("GET", "/next", &[], "").as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream).unwrap().status, 200, "{method}");
    }
    assert_eq!(upstream.total(), 1);
}

#[test]
fn a_request_without_a_body_says_that_its_length_is_nothing() {
    let (_home, upstream, gateway) = bench();
    // Guarded, guarded without a word about it, and passing through.
    for request in [
        "POST /a HTTP/1.1\r\nhost: a\r\nidempotency-key: 1\r\ncontent-length: 0\r\n\r\n",
        "POST /b HTTP/1.1\r\nhost: a\r\nidempotency-key: 2\r\n\r\n",
        "PUT /c HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
    ] {
        assert_eq!(gateway.send(request).status, 201, "{request}");
    }
    let heads = upstream.heads();
    assert_eq!(heads.len(), 3);
    for head in heads {
        assert_eq!(head.matches("content-length: 0\r\n").count(), 1, "{head}");
        assert!(!head.contains("transfer-encoding"), "{head}");
    }
}

#[test]
fn what_waits_for_a_word_gets_it_here_and_trailers_end_here() {
    let (_home, upstream, gateway) = bench();
    let expect = "host: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n";
    let chunked =
        "host: a\r\nte: trailers\r\nx-act: trailers\r\ntransfer-encoding: chunked\r\ntrailer: x-q\r\n";
    for (method, key) in [("POST", "idempotency-key: e\r\n"), ("PUT", "")] {
        let mut stream = client::open(gateway.address, &format!("{method} /e HTTP/1.1\r\n{key}{expect}\r\n"));
        assert_eq!(read_head(&mut stream), "HTTP/1.1 100 Continue\r\n\r\n", "{method}");
        stream.write_all(b"{}").unwrap();
        assert_eq!(read_answer(&mut stream).unwrap().status, 201, "{method}");
        let key = key.replace("e\r", "t\r");
        let head = format!("{method} /t HTTP/1.1\r\n{key}{chunked}\r\n");
        let mut stream = client::open(gateway.address, &format!("{head}2\r\n{{}}\r\n0\r\nx-q: 1\r\n\r\n"));
        let answer = read_answer(&mut stream).unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (201, "abc"), "{method}");
        assert_eq!(answer.header("trailer"), None, "none is announced that does not come");
    }
    let heads = upstream.heads();
    assert_eq!(heads.len(), 4);
    assert!(heads.iter().all(|head| !head.contains("expect:") && !head.contains("trailer:")), "{heads:?}");
    assert_eq!(upstream.effects().values().sum::<u32>(), 4);
}

#[test]
fn a_guarded_request_stays_one_whatever_it_wishes_to_become() {
    let (_home, upstream, gateway) = bench();
    let headers = [("connection", "Upgrade"), ("upgrade", "websocket"), ("idempotency-key", "k")];
    let request = client::post("/orders", &headers, "{}");
    assert_eq!(gateway.send(&request).status, 201);
    assert_eq!(gateway.send(&request).header("idempotent-replayed"), Some("true"));
    assert!(!upstream.heads()[0].contains("upgrade"), "{}", upstream.heads()[0]);
    assert_eq!(upstream.total(), 1);
}

#[test]
fn an_answer_too_long_to_keep_streams_on_and_is_remembered_without_its_result() {
    let (home, upstream, gateway) = bench();
    let length = 3 * 1024 * 1024;
    let first = gateway.order("k", &format!("big {length}"));
    assert_eq!((first.status, first.body.len()), (201, length));
    assert_eq!(
        (first.header("idempotency-effect"), first.header("idempotency-outcome")),
        (Some("created"), None)
    );
    let retry = gateway.order("k", "");
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!((retry.json()["effect"].as_str(), retry.json()["ok"].as_bool()), (Some("noop"), Some(true)));
    assert!(retry.text().contains("its answer is not kept"), "{}", retry.text());
    assert_eq!(upstream.total(), 1);
    assert_eq!(records(home.path())[0]["state"], "succeeded");
}

#[test]
fn bodies_of_any_length_pass_through_unguarded() {
    let (_home, upstream, gateway) = bench();
    let body = "z".repeat(20 * 1024 * 1024);
    let answer = gateway.send(&client::request("PUT", "/upload", &[], &body));
    assert_eq!(answer.status, 201);
    assert_eq!(upstream.effects().keys().next().unwrap().len(), "/upload ".len() + body.len());
}

/// A gateway in front of a gateway in front of a service.
struct Chain {
    outer: Gateway,
    inner: Gateway,
    upstream: Upstream,
    homes: [tempfile::TempDir; 2],
}

fn chain_of_http2() -> Chain {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let upstream = Upstream::start();
    let config = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\n[[route]]\nmatch = \"/**\"\nupstream = \"{}\"\n",
        upstream.url()
    );
    let inner = Gateway::start_with(homes[0].path(), &config);
    let outer = Gateway::start_with(homes[1].path(), &one_thread(&format!("h2c://{}", inner.address)));
    Chain { outer, inner, upstream, homes }
}

#[test]
fn http2_is_spoken_on_both_sides_without_tls() {
    let Chain { upstream, inner, outer, homes } = chain_of_http2();
    check_chain(&outer, &inner, &upstream);
    for home in &homes {
        assert_eq!(records(home.path()).len(), 1);
    }
}

#[test]
fn a_client_of_http2_that_is_not_ours_is_served() {
    let (_home, upstream, gateway) = bench();
    let url = format!("http://{}/orders", gateway.address);
    let order = || {
        let curl = std::process::Command::new("curl")
            .args(["--silent", "--http2-prior-knowledge", "--max-time", "120", "--include"])
            .args(["-H", "idempotency-key: k", "-d", "{}", &url])
            .output()
            .unwrap();
        String::from_utf8(curl.stdout).unwrap()
    };
    let (first, second) = (order(), order());
    assert!(first.starts_with("HTTP/2 201") && first.ends_with("{\"order\":1}"), "{first}");
    assert!(second.contains("idempotent-replayed: true") && second.ends_with("{\"order\":1}"), "{second}");
    assert_eq!(upstream.total(), 1);
}

#[test]
fn tls_is_spoken_on_both_sides() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(home.path().join("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(home.path().join("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    let config = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\ntls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n[[route]]\nmatch = \
         \"/**\"\nupstream = \"{}\"\n",
        upstream.url()
    );
    let inner = Gateway::start_with(home.path(), &config);
    let outer_home = tempfile::tempdir().unwrap();
    let config = format!(
        "[server]\nadmin = \"off\"\nthreads = 1\nupstream_roots = \"{}\"\n[[route]]\nmatch = \"/**\"\nupstream = \
         \"https://localhost:{}\"\n",
        home.path().join("cert.pem").display(),
        inner.address.port()
    );
    let outer = Gateway::start_with(outer_home.path(), &config);
    check_chain(&outer, &inner, &upstream);
    assert!(upstream.heads()[0].contains("x-forwarded-proto: https"), "{}", upstream.heads()[0]);

    // A gateway that does not trust the certificate sends nothing.
    let wary_home = tempfile::tempdir().unwrap();
    let config =
        config.lines().filter(|line| !line.starts_with("upstream_roots")).collect::<Vec<_>>().join("\n");
    let roots = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).unwrap();
    std::fs::write(wary_home.path().join("other.pem"), roots.cert.pem()).unwrap();
    let config = config.replace("[server]", "[server]\nupstream_roots = \"other.pem\"");
    let wary = Gateway::start_with(wary_home.path(), &config);
    wary.order("w", "").expect_code(502, "upstream_unreachable");
    assert_eq!(upstream.total(), 1);
}

#[test]
fn requests_that_come_at_once_open_one_connection_of_http2() {
    let Chain { inner, outer, .. } = &chain_of_http2();
    let mut streams: Vec<_> =
        (0..50).map(|_| client::open(outer.address, &client::request("GET", "/first", &[], ""))).collect();
    for stream in &mut streams {
        assert_eq!(read_answer(stream).unwrap().status, 200);
    }
    assert_eq!(inner.connections(), 1);
}

#[test]
fn every_thread_serves_and_what_they_count_is_told_together() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\nthreads = 3\n[[route]]\nmatch = \"/**\"\nupstream = \"{}\"\n",
        upstream.url()
    );
    let gateway = Gateway::start_with(home.path(), &config);
    let get = client::request("GET", "/", &[], "");
    // Three clients that stay: each has a thread, and so a connection to the service.
    let mut streams: Vec<_> = (0..3).map(|_| client::open(gateway.address, &get)).collect();
    for stream in &mut streams {
        assert_eq!(read_answer(stream).unwrap().status, 200);
    }
    for stream in &mut streams {
        stream.write_all(get.as_bytes()).unwrap();
        assert_eq!(read_answer(stream).unwrap().status, 200);
    }
    assert_eq!((upstream.connections(), gateway.connections()), (3, 3));
    assert_eq!(gateway.metric("oncely_http_connections_open"), 3);
    assert_eq!(gateway.metric("oncely_http_requests_total{way=\"passed\"}"), 6);
    // A key is one key on all of them.
    for stream in &mut streams {
        stream.write_all(crate::gateway::order("k", "").as_bytes()).unwrap();
        assert_eq!(read_answer(stream).unwrap().text(), "{\"order\":1}");
    }
    assert_eq!(upstream.total(), 1);
}

/// One order through two gateways, retried; and many requests at once on the one connection between them.
fn check_chain(outer: &Gateway, inner: &Gateway, upstream: &Upstream) {
    let first = outer.order("k", "");
    assert_eq!((first.status, first.text().as_str()), (201, "{\"order\":1}"));
    assert_eq!(outer.order("k", "").header("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.total(), 1);
    let mut streams: Vec<_> =
        (0..50).map(|_| client::open(outer.address, &client::request("GET", "/many", &[], ""))).collect();
    for stream in &mut streams {
        assert_eq!(read_answer(stream).unwrap().status, 200);
    }
    // Only HTTP/2 has room for so many requests on so few connections.
    assert!(inner.connections() <= 2, "{} connections", inner.connections());
}
