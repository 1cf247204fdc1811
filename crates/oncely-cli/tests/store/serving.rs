//! Two real gateways on one ledger are one service, in front of an upstream that counts.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use oncely_testkit::servers::{Postgres, Redis, Tap, free_port};

/// Counts requests by their key, and holds those back whose key begins with `slow` until it is told.
#[derive(Default)]
struct Upstream {
    seen: Mutex<HashMap<String, usize>>,
    changed: Condvar,
    released: Mutex<bool>,
    release: Condvar,
}

impl Upstream {
    fn start() -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let upstream = Arc::new(Self::default());
        let serving = Arc::clone(&upstream);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let upstream = Arc::clone(&serving);
                std::thread::spawn(move || upstream.serve(stream));
            }
        });
        (upstream, url)
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(Message { key, .. }) = read(&mut reader) {
            *self.seen.lock().unwrap().entry(key.clone()).or_default() += 1;
            self.changed.notify_all();
            if key.starts_with("slow") {
                let released = self.released.lock().unwrap();
                drop(self.release.wait_while(released, |released| !*released).unwrap());
            }
            let body = format!("done {key}");
            let answer = format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if (&stream).write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn effects(&self, key: &str) -> usize {
        self.seen.lock().unwrap().get(key).copied().unwrap_or(0)
    }

    fn wait_for(&self, key: &str) {
        let seen = self.seen.lock().unwrap();
        drop(self.changed.wait_while(seen, |seen| !seen.contains_key(key)).unwrap());
    }
}

/// A request or an answer.
struct Message {
    first: String,
    key: String,
    body: String,
}

/// Reads one up to its end.
fn read(reader: &mut impl BufRead) -> Option<Message> {
    let (mut first, mut key, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = value.trim().trim_matches('"').to_owned(),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Some(Message { first: first.trim().to_owned(), key, body })
}

/// A gateway, which ends with the test.
struct Gateway {
    child: Child,
    address: String,
}

impl Gateway {
    fn start(store: &str, upstream: &str) -> Self {
        let free = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let mut child = Command::new(env!("CARGO_BIN_EXE_oncely"))
            .args([
                "serve",
                "--listen",
                &free.to_string(),
                "--upstream",
                upstream,
                "--one-tenant",
                "--admin",
                "off",
            ])
            .env_clear()
            .env("ONCELY_STORE", store)
            .env("HOME", std::env::temp_dir())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while TcpStream::connect(free).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "it did not start: {line}{}", rest(&mut said));
            std::thread::yield_now();
        }
        std::thread::spawn(move || said.read_to_string(&mut line));
        Self { child, address: free.to_string() }
    }

    /// One request; the first line of the answer and its body, or `None` if the gateway died.
    fn post(&self, key: &str) -> Option<(String, String)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(100))).unwrap();
        let request = format!(
            "POST /orders HTTP/1.1\r\nHost: orders\r\nIdempotency-Key: \"{key}\"\r\nContent-Type: application/json\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).ok()?;
        read(&mut BufReader::new(stream)).map(|answer| (answer.first, answer.body))
    }
}

fn rest(said: &mut impl Read) -> String {
    let mut text = String::new();
    let _ = said.read_to_string(&mut text);
    text
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn are_one_service(store: &str) {
    let (upstream, url) = Upstream::start();
    let mut gateways = [Gateway::start(store, &url), Gateway::start(store, &url)];
    let answers: Vec<Option<(String, String)>> = std::thread::scope(|scope| {
        let post = |n: usize| {
            let gateway = &gateways[n % 2];
            scope.spawn(move || gateway.post("one"))
        };
        let all: Vec<_> = (0..200).map(post).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(upstream.effects("one"), 1, "200 duplicates through two gateways");
    for answer in answers {
        let (status, body) = answer.expect("an answer");
        assert!(status.contains("201") && body == "done one", "{status}: {body}");
    }
    // One is killed in the middle of a call: nobody knows how it went, and nobody says that they do.
    let [first, second] = &mut gateways;
    std::thread::scope(|scope| {
        let cut_off = scope.spawn(|| first.post("slow"));
        upstream.wait_for("slow");
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(first.child.id() as i32),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        assert!(cut_off.join().unwrap().is_none(), "a killed gateway answered");
    });
    first.child.wait().unwrap();
    let (status, body) = second.post("slow").expect("an answer");
    assert!(status.contains("409") && body.contains("unknown"), "{status}: {body}");
    *upstream.released.lock().unwrap() = true;
    upstream.release.notify_all();
    assert_eq!(upstream.effects("slow"), 1, "it ran a second time");
}

/// The network between a gateway and its ledger is parted: connections stand, and nothing arrives. Then it heals.
fn outlives_a_partition(store: &str, tap: &Tap) {
    let (upstream, url) = Upstream::start();
    let gateway = Gateway::start(store, &url);
    let post = |key: &str| gateway.post(key).expect("an answer");
    assert_eq!(post("before").1, "done before");
    std::thread::scope(|scope| {
        // Claimed before, ended during it.
        let under_way = scope.spawn(|| post("slow"));
        upstream.wait_for("slow");
        tap.black_hole();
        *upstream.released.lock().unwrap() = true;
        upstream.release.notify_all();
        let (status, body) = post("during");
        assert!(status.contains("503"), "{status}: {body}");
        assert_eq!(upstream.effects("during"), 0, "it ran without a record");
        assert_eq!(under_way.join().unwrap().1, "done slow");
    });
    tap.pass();
    for key in ["during", "slow", "before"] {
        let patience = Instant::now() + Duration::from_secs(180);
        loop {
            let (status, body) = post(key);
            assert!(upstream.effects(key) <= 1, "{key} ran twice");
            if status.contains("201") {
                assert_eq!(body, format!("done {key}"));
                break;
            }
            assert!(Instant::now() < patience, "{key} never came through: {status}: {body}");
        }
        assert_eq!(upstream.effects(key), 1, "{key}");
    }
}

#[test]
fn a_gateway_that_is_parted_from_its_postgres_runs_nothing_and_goes_on_afterwards() {
    let server = Postgres::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    outlives_a_partition(&server.url_through(tap.port(), "postgres"), &tap);
}

#[test]
fn a_gateway_that_is_parted_from_its_redis_runs_nothing_and_goes_on_afterwards() {
    let server = Redis::start().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    outlives_a_partition(&server.url_through(tap.port()), &tap);
}

#[test]
fn two_gateways_on_one_postgres_are_one_service() {
    are_one_service(&Postgres::shared().unwrap().fresh_database().unwrap());
}

#[test]
fn two_gateways_on_one_redis_are_one_service() {
    are_one_service(&Redis::shared().unwrap().url());
}
