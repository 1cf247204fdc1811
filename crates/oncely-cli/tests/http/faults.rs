//! Everything that breaks between a request and its answer: upstreams, clients, the ledger.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use oncely_testkit::servers::free_port;
use rustix::process::{Pid, Resource, Rlimit};

use crate::client;
use crate::gateway::{self, Gateway, order, records};
use crate::upstream::Upstream;

fn bench() -> (tempfile::TempDir, Upstream, Gateway) {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "timeout = \"20s\"");
    (home, upstream, gateway)
}

/// The problem says which key and which record it is about.
#[track_caller]
fn expect_named(answer: &client::Answer, key: &str) {
    let (problem, record) = (answer.json(), answer.header("idempotency-record").unwrap());
    assert_eq!(problem["idempotency_key"], key, "{problem}");
    assert_eq!(problem["instance"], format!("urn:oncely:record:{record}"), "{problem}");
    assert_eq!(problem["record"], record, "{problem}");
}

#[test]
fn an_answer_that_is_lost_cut_short_or_reset_is_a_doubt_that_a_person_can_settle() {
    let (home, upstream, gateway) = bench();
    for (at, act) in ["reset", "cut"].into_iter().enumerate() {
        let first = gateway.order(act, act);
        first.expect_code(502, "outcome_unknown");
        assert_eq!(first.json()["retryable"], false);
        expect_named(&first, act);
        // The first did run; only the second can say that nothing ran now.
        assert!(!first.text().to_lowercase().contains("nothing ran"), "{}", first.text());
        let retry = gateway.order(act, "");
        retry.expect_code(409, "outcome_unknown");
        assert!(retry.text().contains("Nothing ran now."), "{}", retry.text());
        let record = retry.json()["record"].as_str().unwrap().to_owned();
        assert_eq!(first.header("idempotency-record"), Some(record.as_str()));
        let settled = gateway::oncely(home.path())
            .args(["resolve", &record[..12], "--succeeded", "--yes"])
            .output()
            .unwrap();
        assert!(settled.status.success(), "{}", String::from_utf8_lossy(&settled.stderr));
        let replay = gateway.order(act, "");
        assert_eq!((replay.status, replay.header("idempotent-replayed")), (200, Some("true")));
        assert_eq!(upstream.total(), at as u32 + 1, "{act}");
    }
}

#[test]
fn a_service_that_cannot_be_reached_proves_that_nothing_happened_and_costs_no_retry() {
    let home = tempfile::tempdir().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let config =
        format!("[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/**\"\nupstream = \"http://{address}\"");
    let gateway = Gateway::start_with(home.path(), &config);
    // More often than there are retries: a service that is away for a while must not use up the key.
    for _ in 0..10 {
        let refused = gateway.order("k", "");
        refused.expect_code(502, "upstream_unreachable");
        assert_eq!(refused.json()["retryable"], true);
        expect_named(&refused, "k");
        assert_eq!(refused.header("idempotency-outcome"), Some("rejected"));
        assert_eq!(refused.header("idempotent-replayed"), None);
    }
    // Then it comes up.
    let listener = TcpListener::bind(address).unwrap();
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).unwrap();
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok").unwrap();
    });
    let answer = gateway.order("k", "");
    assert_eq!((answer.status, answer.text().as_str()), (201, "ok"));
    service.join().unwrap();
}

#[test]
fn where_nothing_is_tried_twice_a_service_that_cannot_be_reached_uses_up_the_key_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/**\"\nupstream = \"http://{address}\"\ntool = \"t\"\n[tool.t]\n\
         max_retries = 0"
    );
    let gateway = Gateway::start_with(home.path(), &config);
    for (status, code) in [(502, "upstream_unreachable"), (409, "rejected"), (409, "rejected")] {
        let refused = gateway.order("k", "");
        refused.expect_code(status, code);
        expect_named(&refused, "k");
        assert_eq!(refused.json()["retryable"], false, "{}", refused.text());
        assert!(refused.text().to_lowercase().contains("use another key"), "{}", refused.text());
        assert_eq!(refused.header("idempotency-retries-left"), Some("0"));
        assert_eq!(refused.header("retry-after"), None);
    }
}

#[test]
fn a_verdict_of_a_person_is_told_as_what_it_is() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "tool = \"t\"\n[tool.t]\nmax_retries = 0");
    let record = gateway.order("k", "status 500").header("idempotency-record").unwrap().to_owned();
    let settled =
        gateway::oncely(home.path()).args(["resolve", &record[..12], "--rejected", "--yes"]).output();
    assert!(settled.unwrap().status.success());
    let refused = gateway.order("k", "");
    refused.expect_code(409, "rejected");
    let told = refused.text();
    assert!(told.contains("somebody looked") && !told.contains("nothing of it was sent"), "{told}");
    assert_eq!(upstream.total(), 1);
}

#[test]
fn what_is_wrong_with_an_answer_is_told() {
    let (_home, upstream, gateway) = bench();
    let guarded = gateway.order("k", "garbage");
    guarded.expect_code(502, "outcome_unknown");
    let passed = gateway.send(&client::request("GET", "/", &[("x-act", "garbage")], ""));
    passed.expect_code(502, "upstream_failed");
    for answer in [guarded, passed] {
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with("the request was sent, and no proper answer came: "), "{detail}");
        assert!(detail.contains("invalid HTTP version"), "{detail}");
    }
    assert_eq!(upstream.total(), 1);
}

#[test]
fn a_service_that_does_not_answer_in_time_leaves_a_doubt() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "timeout = \"1s\"");
    let late = gateway.order("k", "hold never");
    late.expect_code(504, "outcome_unknown");
    expect_named(&late, "k");
    upstream.wait_for_total(1);
    gateway.order("k", "").expect_code(409, "outcome_unknown");
    assert_eq!(upstream.total(), 1);
    let passed = gateway.send(&client::request("GET", "/", &[("x-act", "hold never")], ""));
    passed.expect_code(504, "upstream_failed");
}

#[test]
fn a_connection_that_the_service_closes_after_an_answer_never_causes_a_second_effect() {
    let (_home, upstream, gateway) = bench();
    for number in 0..100 {
        let key = format!("k{number}");
        let answer = gateway.order(&key, "close-after");
        // A request that meets the closing connection may have arrived, for all that can be known.
        assert!(matches!(answer.status, 201 | 502), "{answer:?}");
        if answer.status == 502 {
            gateway.order(&key, "").expect_code(409, "outcome_unknown");
        }
    }
    assert!(upstream.effects().values().all(|count| *count == 1), "{:?}", upstream.effects());
}

#[test]
fn connections_to_the_service_are_kept_and_reused() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    // Every thread keeps its own.
    let gateway = Gateway::start_with(home.path(), &gateway::one_thread(&upstream.url()));
    for number in 0..20 {
        assert_eq!(gateway.order(&format!("k{number}"), "").status, 201);
        assert_eq!(gateway.send(&client::request("GET", "/", &[], "")).status, 200);
    }
    assert!(upstream.connections() <= 2, "{} connections", upstream.connections());
}

#[test]
fn connections_that_nobody_uses_are_closed() {
    let (_home, upstream, gateway) = bench();
    assert_eq!(gateway.order("k", "").status, 201);
    upstream.wait_for_ended(1);
    assert_eq!(gateway.order("l", "").status, 201);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn an_answer_may_come_before_its_request_has_ended() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Answers at the end of the head, and reads the body only then.
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut head, mut byte) = (Vec::new(), [0; 1]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        let mut body = vec![0; 200_000];
        stream.read_exact(&mut body).unwrap();
        body.iter().all(|byte| *byte == b'x')
    });
    let config =
        format!("[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/**\"\nupstream = \"http://{address}\"");
    let gateway = Gateway::start_with(home.path(), &config);
    let head = "PUT /upload HTTP/1.1\r\nhost: shop\r\ncontent-length: 200000\r\n\r\n";
    let mut stream = client::open(gateway.address, &format!("{head}{}", "x".repeat(100_000)));
    assert_eq!(client::read_answer(&mut stream).unwrap().text(), "ok");
    stream.write_all("x".repeat(100_000).as_bytes()).unwrap();
    assert!(service.join().unwrap(), "the rest of the body arrives all the same");
}

#[test]
fn an_upload_takes_as_long_as_it_takes_and_only_its_pauses_are_limited() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "timeout = \"4s\"");
    let head = "PUT /upload HTTP/1.1\r\nhost: shop\r\n";
    for framing in ["content-length: 50\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"] {
        let mut stream = client::open(gateway.address, &format!("{head}{framing}"));
        let chunked = framing.starts_with("transfer");
        for _ in 0..50 {
            // Far less than is allowed each, and far more in all.
            std::thread::sleep(Duration::from_millis(100));
            stream.write_all(if chunked { b"1\r\nx\r\n" } else { b"x" }).unwrap();
        }
        stream.write_all(if chunked { b"0\r\n\r\n" } else { b"" }).unwrap();
        assert_eq!(client::read_answer(&mut stream).unwrap().status, 201, "{framing}");
    }
    assert_eq!(upstream.effects(), [(format!("/upload {}", "x".repeat(50)), 2)].into());
    // Half of a request that never goes on.
    let mut stream = client::open(gateway.address, &format!("{head}content-length: 50\r\n\r\nhalf"));
    let answer = client::read_answer(&mut stream).unwrap();
    answer.expect_code(504, "upstream_failed");
    assert!(answer.text().contains("a part of it was sent, and its end was not"), "{}", answer.text());
    assert_eq!(upstream.total(), 2);
}

#[test]
fn a_client_that_has_its_answer_and_never_ends_its_request_does_not_keep_its_place() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Answers at the end of the head, and keeps every connection open.
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0; 1]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            stream.write_all(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n").unwrap();
            open.push(stream);
        }
    });
    // There is one place only: whoever holds it keeps everybody else out.
    let config = format!(
        "[server]\nadmin = \"off\"\nidle_timeout = \"2s\"\nconnections = 1\n[[route]]\nmatch = \"/**\"\nupstream = \
         \"http://{address}\"\ntimeout = \"2s\""
    );
    let gateway = Gateway::start_with(home.path(), &config);
    let head = "PUT /upload HTTP/1.1\r\nhost: shop\r\ncontent-length: 1000\r\n\r\nx";
    let mut greedy = client::open(gateway.address, head);
    assert_eq!(client::read_answer(&mut greedy).unwrap().status, 401);
    assert_eq!(gateway.send(&client::request("GET", "/", &[], "")).status, 401);
}

#[test]
fn many_clients_at_once_need_no_more_connections_than_there_are_of_them() {
    const CLIENTS: u32 = 16;
    let (_home, upstream, gateway) = bench();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let to = gateway.address;
            std::thread::spawn(move || {
                let get = client::request("GET", "/", &[], "");
                let mut stream = client::open(to, &get);
                for number in 0..50 {
                    assert_eq!(client::read_answer(&mut stream).unwrap().status, 200);
                    stream.write_all(order(&format!("c{client}n{number}"), "").as_bytes()).unwrap();
                    assert_eq!(client::read_answer(&mut stream).unwrap().status, 201);
                    stream.write_all(get.as_bytes()).unwrap();
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(upstream.total(), CLIENTS * 50);
    assert!(upstream.effects().values().all(|count| *count == 1));
    assert!(upstream.connections() <= 2 * CLIENTS, "{} connections", upstream.connections());
}

#[test]
fn a_client_that_hangs_up_does_not_cancel_and_its_retry_gets_the_real_answer() {
    let (_home, upstream, gateway) = bench();
    let client = client::open(gateway.address, &order("k", "hold go"));
    upstream.wait_for_total(1);
    drop(client);
    let mut retry = client::open(gateway.address, &order("k", "hold go"));
    upstream.release("go");
    let answer = client::read_answer(&mut retry).unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (201, "{\"order\":1}"));
    assert_eq!(answer.header("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.total(), 1);
}

#[test]
fn a_body_that_turns_out_too_long_leaves_nothing_behind() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "max_body = \"1KiB\"");
    let head = "POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("200\r\n{}\r\n", "x".repeat(0x200));
    for (chunks, status) in [(3, 413), (2, 201)] {
        let answer = gateway.send(&format!("{head}{}0\r\n\r\n", chunk.repeat(chunks)));
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(upstream.total(), u32::from(status == 201));
        assert_eq!(records(home.path()).len(), usize::from(status == 201));
    }
}

#[test]
fn a_request_that_breaks_off_leaves_nothing_behind() {
    let (home, upstream, gateway) = bench();
    let mut broken = client::open(
        gateway.address,
        "POST /orders HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\ncontent-length: 100\r\n\r\nonly this",
    );
    broken.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = broken.read(&mut [0; 1024]);
    assert_eq!(upstream.total(), 0);
    assert_eq!(records(home.path()).len(), 0);
    assert_eq!(gateway.order("k", "").status, 201);
}

/// A gateway that lives on when its files may not grow: the signal for that is ignored from before it starts.
fn start_unlimited(home: &std::path::Path, upstream: &Upstream) -> Gateway {
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/**\"\nupstream = \"{}\"\ntool = \"t\"\n[tool.t]\nwait_for = \"1s\"",
        upstream.url()
    );
    let file = gateway::write_config(home, &config);
    let inner = gateway::command(home, &file);
    let mut outer = Command::new("sh");
    outer.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(inner.get_program()).args(inner.get_args());
    outer.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").current_dir(home).process_group(0);
    Gateway::of(outer)
}

fn limit_files(gateway: &Gateway, bytes: Option<u64>) {
    let pid = Pid::from_raw(gateway.child.id().cast_signed()).unwrap();
    let limit = Rlimit { current: bytes, maximum: None };
    rustix::process::prlimit(Some(pid), Resource::Fsize, limit).unwrap();
}

#[test]
fn a_ledger_that_is_lost_before_the_effect_lets_nothing_run() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start_unlimited(home.path(), &upstream);
    assert_eq!(gateway.order("before", "").status, 201);
    limit_files(&gateway, Some(0));
    let refused = gateway.order("k", "");
    refused.expect_code(503, "store_unavailable");
    assert_eq!(refused.json()["retryable"], true);
    assert_eq!(upstream.total(), 1);
    limit_files(&gateway, None);
    assert_eq!(gateway.order("k", "").status, 201);
    assert_eq!(upstream.total(), 2);
}

#[test]
fn a_ledger_that_is_lost_after_the_effect_costs_a_warning_and_never_a_second_effect() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = start_unlimited(home.path(), &upstream);
    let mut first = client::open(gateway.address, &order("k", "hold go"));
    upstream.wait_for_total(1);
    limit_files(&gateway, Some(0));
    upstream.release("go");
    let answer = client::read_answer(&mut first).unwrap();
    assert_eq!(answer.status, 201);
    assert!(answer.header("idempotency-warning").unwrap().starts_with("unrecorded"), "{answer:?}");
    let meanwhile = gateway.order("k", "");
    assert_ne!(meanwhile.status, 201, "{meanwhile:?}");
    assert_eq!(upstream.total(), 1);
    limit_files(&gateway, None);
    // It is tried on in the background, at growing intervals.
    let deadline = Instant::now() + Duration::from_secs(180);
    let replay = loop {
        let answer = gateway.order("k", "");
        if answer.status == 201 || Instant::now() > deadline {
            break answer;
        }
    };
    assert_eq!((replay.status, replay.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(upstream.total(), 1);
}
