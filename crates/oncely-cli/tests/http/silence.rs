//! Those who say nothing: clients that send no request, half a request or a drip, that do not take their answer, and
//! connections that lead nowhere any more.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::client::{self, read_answer};
use crate::gateway::{Gateway, order, records};
use crate::upstream::Upstream;

/// One route, with these lines in `[server]`.
fn bench(server: &str, route: &str) -> (tempfile::TempDir, Upstream, Gateway) {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\n{server}\n[[route]]\nmatch = \"/**\"\nupstream = \"{}\"\n{route}\n",
        upstream.url()
    );
    let gateway = Gateway::start_with(home.path(), &config);
    (home, upstream, gateway)
}

/// Waits until the gateway hangs up; what it says before does not matter.
fn hangs_up(stream: &mut TcpStream) -> bool {
    // A reset is an end, too.
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_client_that_asks_for_nothing_does_not_keep_its_place() {
    // There is one place only: whoever holds it keeps everybody else out.
    let (_home, upstream, gateway) = bench("idle_timeout = \"500ms\"\nconnections = 1", "");
    for said in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n\r\nSM",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nhost: shop\r\nx-half: of a he",
        "POST /orders HTTP/1.1\r\nhost: shop\r\n",
    ] {
        let mut silent = client::open(gateway.address, said);
        assert_eq!(gateway.order(&format!("after {}", said.len()).replace(' ', "-"), "").status, 201);
        assert!(hangs_up(&mut silent), "{said:?}");
    }
    assert_eq!(upstream.heads().len(), 6, "half a head is never forwarded");
}

#[test]
fn a_head_that_drips_has_an_end() {
    let (_home, upstream, gateway) = bench("idle_timeout = \"300ms\"", "");
    let mut stream = client::open(gateway.address, "GET / HTTP/1.1\r\n");
    // Never silent for as long as is allowed, and never done.
    let mut sent = 0;
    while stream.write_all(b"x-drip: 1\r\n").is_ok() {
        sent += 1;
        assert!(sent < 2_000, "it may drip for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(upstream.heads().len(), 0);
}

#[test]
fn a_guarded_body_that_drips_has_an_end_and_leaves_nothing_behind() {
    let (home, upstream, gateway) = bench("guarded_calls = 1", "timeout = \"2s\"");
    let head = "POST /orders HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\ncontent-length: 5000\r\n\r\n";
    let mut stream = client::open(gateway.address, head);
    let mut drip = stream.try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        // Each piece comes in time; all of them together do not.
        let mut sent = 0;
        while drip.write_all(b"x").is_ok() && sent < 2_000 {
            sent += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        sent
    });
    read_answer(&mut stream).unwrap().expect_code(400, "body_unusable");
    // Its place is free, and nothing was used up.
    assert_eq!(records(home.path()).len(), 0);
    assert_eq!(gateway.order("k", "").status, 201);
    assert_eq!(upstream.total(), 1);
    drop(stream);
    assert!(dripping.join().unwrap() < 2_000, "the connection is closed");
}

#[test]
fn clients_that_announce_bodies_and_send_nothing_take_no_memory_from_others() {
    let (_home, upstream, gateway) = bench("", "timeout = \"600s\"");
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    let long = "content-length: 8000000\r\n\r\n";
    // Sixty-four of the longest bodies would be all the memory that there is.
    let silent: Vec<TcpStream> = (0..140)
        .map(|number| {
            let announced = if number % 2 == 0 { chunked } else { long };
            let head =
                format!("POST /orders HTTP/1.1\r\nhost: shop\r\nidempotency-key: s{number}\r\n{announced}");
            client::open(gateway.address, &head)
        })
        .collect();
    gateway.wait_for_metric("oncely_http_requests_total{way=\"guarded\"}", |guarded| guarded == 140);
    assert_eq!(gateway.order("k", "").status, 201);
    assert_eq!(upstream.total(), 1);
    drop(silent);
}

#[test]
fn a_client_that_does_not_take_its_answer_does_not_keep_its_place() {
    let (_home, _upstream, gateway) = bench("idle_timeout = \"1s\"\nconnections = 1", "");
    let request = client::request("GET", "/", &[("x-act", "big 60000000")], "");
    let mut greedy = client::open(gateway.address, &request);
    assert_eq!(gateway.order("after", "").status, 201);
    let mut taken = Vec::new();
    let _ = greedy.read_to_end(&mut taken);
    assert!(taken.len() < 60_000_000, "it did not wait for ever: {} bytes", taken.len());
}

#[test]
fn a_connection_at_rest_is_served_as_if_it_had_never_rested() {
    let (_home, upstream, gateway) = bench("", "");
    let rests = || {
        while gateway.metric("oncely_http_connections_resting") == 0 {
            std::thread::yield_now();
        }
    };
    let mut stream = client::open(gateway.address, &order("a", ""));
    assert_eq!(read_answer(&mut stream).unwrap().status, 201);
    rests();
    stream.write_all(order("b", "").as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).unwrap().text(), "{\"order\":2}");
    // Also in the middle of a head.
    let request = order("c", "");
    let (half, rest) = request.split_at(40);
    stream.write_all(half.as_bytes()).unwrap();
    rests();
    stream.write_all(rest.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).unwrap().text(), "{\"order\":3}");
    rests();
    // Two at once.
    stream.write_all(format!("{}{}", order("d", ""), order("e", "")).as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).unwrap().text(), "{\"order\":4}");
    assert_eq!(read_answer(&mut stream).unwrap().text(), "{\"order\":5}");
    rests();
    let headers = [("connection", "Upgrade"), ("upgrade", "websocket"), ("x-act", "websocket")];
    stream.write_all(client::request("GET", "/socket", &headers, "").as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).unwrap().status, 101);
    stream.write_all(b"hello").unwrap();
    let mut echo = [0; 5];
    stream.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"HELLO");
    assert_eq!(upstream.total(), 5);
    assert_eq!(gateway.connections(), 1);
}

#[test]
fn a_request_that_takes_long_is_not_put_to_rest() {
    let (_home, upstream, gateway) = bench("idle_timeout = \"100ms\"", "");
    let mut stream = client::open(gateway.address, &order("a", "hold go"));
    upstream.wait_for_total(1);
    // Longer than a silent client would be waited for: others come and go.
    let mut silent = client::open(gateway.address, "");
    assert!(hangs_up(&mut silent));
    let mut silent = client::open(gateway.address, "");
    assert!(hangs_up(&mut silent));
    upstream.release("go");
    assert_eq!(read_answer(&mut stream).unwrap().status, 201);
}

#[test]
fn a_shared_connection_that_leads_nowhere_is_found_and_replaced() {
    let (_home, upstream, inner) = bench("", "timeout = \"600s\"");
    let outer_home = tempfile::tempdir().unwrap();
    let config = format!(
        "[server]\nadmin = \"off\"\nhttp2_ping = \"2s\"\n[[route]]\nmatch = \"/**\"\nupstream = \"h2c://{}\"\ntimeout = \
         \"600s\"\n",
        inner.address
    );
    let outer = Gateway::start_with(outer_home.path(), &config);
    assert_eq!(outer.order("a", "").status, 201);
    // It is there, and does nothing any more: the network says that all is well.
    inner.signal(Signal::SIGSTOP);
    // Without asking, this would take the 600 s of the route.
    let lost = outer.order("b", "");
    lost.expect_code(502, "outcome_unknown");
    inner.signal(Signal::SIGCONT);
    assert_eq!(outer.order("c", "").status, 201);
    assert!(inner.connections() >= 2, "a new connection was opened");
    outer.order("b", "").expect_code(409, "outcome_unknown");
    assert!(upstream.effects().values().all(|count| *count == 1), "{:?}", upstream.effects());
}

#[test]
fn a_client_of_http2_that_does_not_answer_is_let_go() {
    let (_home, _upstream, gateway) = bench("http2_ping = \"200ms\"", "");
    // The preface and empty settings; then silence, also to pings.
    let mut stream = client::open(gateway.address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    assert!(hangs_up(&mut stream));
    // One that asks for nothing is let go as well, even if it answers.
    let (_home, _upstream, gateway) = bench("idle_timeout = \"200ms\"", "");
    let mut stream = client::open(gateway.address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    assert!(hangs_up(&mut stream));
}
