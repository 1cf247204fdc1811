//! What an operator is told on standard error: a ledger or a service that is lost, and that it is back. Once each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::Signal;
use oncely_testkit::servers::{Redis, Tap};

use crate::client;
use crate::gateway::{Gateway, ONCELY, command, oncely, one_thread, write_config};
use crate::upstream::Upstream;

/// So long a line is waited for that does not come; on any machine it comes sooner.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a gateway says on standard error, line by line, as it is said.
struct Said(Receiver<String>);

impl Said {
    fn next(&self) -> String {
        self.0.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("nothing more was said"))
    }

    /// What is left when it has ended.
    fn rest(self) -> Vec<String> {
        self.0.iter().collect()
    }
}

/// A gateway whose standard error is read.
fn start(mut command: Command) -> (Gateway, Said) {
    command.stderr(Stdio::piped());
    let mut gateway = Gateway::of(command);
    let lines = BufReader::new(gateway.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (sender, receiver) = channel();
    std::thread::spawn(move || lines.for_each(|line| sender.send(line).unwrap_or_default()));
    (gateway, Said(receiver))
}

#[test]
fn a_ledger_that_is_lost_and_back_is_told_of_once_each() {
    let (server, upstream, home) = (Redis::start().unwrap(), Upstream::start(), tempfile::tempdir().unwrap());
    let tap = Tap::to_port(server.port()).unwrap();
    let file = write_config(home.path(), &one_thread(&upstream.url()));
    let mut command = Command::new(ONCELY);
    let store = server.url_through(tap.port());
    command.env_clear().env("HOME", home.path()).arg("--config").arg(file).args(["--store", &store]);
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let (mut gateway, said) = start(command);
    assert_eq!(gateway.order("before", "").status, 201);
    tap.cut();
    // At its start it says what such a server could lose.
    let mut told = std::iter::repeat_with(|| said.next());
    let line = told.find(|line| !line.starts_with("oncely: warning: the ledger: ")).unwrap();
    assert!(line.starts_with("oncely: the ledger cannot be used: "), "{line}");
    assert!(line.contains("No new attempt begins until it can"), "{line}");
    for _ in 0..3 {
        assert_eq!(gateway.order("s3cret-key", "").status, 503);
    }
    tap.pass();
    let line = said.next();
    assert!(line.starts_with("oncely: the ledger can be used again, after "), "{line}");
    assert_eq!(gateway.order("after", "").status, 201);
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.child.wait().unwrap().success());
    assert_eq!(said.rest(), [""; 0], "one line each");
}

#[test]
fn a_service_that_cannot_be_reached_and_can_again_is_told_of_once_each() {
    let home = tempfile::tempdir().unwrap();
    // Bound and not listening: whoever connects is refused, and nobody else can take the port.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let file = write_config(home.path(), &one_thread(&format!("http://127.0.0.1:{port}")));
    let (mut gateway, said) = start(command(home.path(), &file));
    for _ in 0..3 {
        assert_eq!(gateway.order("s3cret-key", "").status, 502);
    }
    let line = said.next();
    assert!(
        line.starts_with(&format!("oncely: 127.0.0.1:{port} cannot be reached: could not connect")),
        "{line}"
    );
    assert!(!line.contains("s3cret"), "{line}");
    let listener = runtime.block_on(async { socket.listen(16).unwrap().into_std().unwrap() });
    listener.set_nonblocking(false).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(|stream| answer(&mut stream.unwrap())));
    assert_eq!(gateway.order("after", "").status, 201);
    let line = said.next();
    assert!(line.starts_with(&format!("oncely: 127.0.0.1:{port} is reached again, after ")), "{line}");
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.child.wait().unwrap().success());
    assert_eq!(said.rest(), [""; 0], "one line each");
}

#[test]
fn that_a_route_cannot_tell_its_tenants_apart_is_told_once_to_who_can_change_it() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let route = |pattern: &str, tenant: &str| {
        format!("[[route]]\nmatch = \"{pattern}\"\nupstream = \"{}\"\n{tenant}\n", upstream.url())
    };
    let named = route("/named/**", "tenant = { header = \"X-Tenant\" }");
    let config = format!("[server]\nthreads = 1\n{named}{}", route("/**", ""));
    let (mut gateway, said) = start(command(home.path(), &write_config(home.path(), &config)));
    assert!(said.next().contains("the route /named/** believes the header x-tenant"));
    for round in 0..3 {
        // What a client writes is never part of it, not even what looks like the name of a scheme.
        for (path, header) in [
            ("/a", ("cookie", "session=s3cret")),
            ("/a", ("authorization", "hmac-s3cret")),
            ("/named/a", ("authorization", "Bearer s3cret")),
        ] {
            let request = client::post(path, &[("idempotency-key", "s3cret-key"), header], "{}");
            gateway.send(&request).expect_code(400, "tenant_required");
        }
        if round == 0 {
            let mut lines = [said.next(), said.next()];
            lines.sort_unstable();
            assert!(
                lines[0].contains("requests to the route /** are refused (400 tenant_required)")
                    && lines[0].contains("tenant = { header = "),
                "{lines:?}"
            );
            assert!(
                lines[1].contains("requests to the route /named/** are refused")
                    && lines[1].contains("x-tenant"),
                "{lines:?}"
            );
            assert!(lines.iter().all(|line| !line.to_lowercase().contains("s3cret")), "{lines:?}");
        }
    }
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.child.wait().unwrap().success());
    assert_eq!(said.rest(), [""; 0], "one line each");
    assert_eq!(upstream.heads().len(), 0);
}

#[test]
fn it_is_told_of_callers_that_speak_grpc_too() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = one_thread(&upstream.url());
    let (mut gateway, said) = start(command(home.path(), &write_config(home.path(), &config)));
    for _ in 0..2 {
        let headers =
            [("content-type", "application/grpc"), ("idempotency-key", "k"), ("cookie", "session=s3cret")];
        let refused = gateway.send(&client::post("/shop.Orders/Place", &headers, "x"));
        assert_eq!((refused.status, refused.header("grpc-status")), (200, Some("3")));
        assert_eq!(refused.header("idempotency-code"), Some("tenant_required"));
    }
    let line = said.next();
    assert!(line.contains("requests to the route /** are refused (400 tenant_required)"), "{line}");
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.child.wait().unwrap().success());
    assert_eq!(said.rest(), [""; 0], "one line");
    assert_eq!(upstream.heads().len(), 0);
}

/// Answers one request.
fn answer(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut buffer = [0; 1024];
    while !seen.ends_with(b"}") {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => seen.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
}

#[test]
fn a_ledger_in_memory_is_warned_of() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let mut command = oncely(home.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--upstream"]);
    command.arg(upstream.url());
    let mut in_memory = Command::new(ONCELY);
    in_memory
        .env_clear()
        .env("HOME", home.path())
        .current_dir(home.path())
        .args(["--store", "memory:", "serve"]);
    in_memory.args(["--listen", "127.0.0.1:0", "--admin", "off", "--upstream", &upstream.url()]);
    for (command, warned) in [(in_memory, true), (command, false)] {
        let (mut gateway, said) = start(command);
        gateway.signal(Signal::SIGTERM);
        assert!(gateway.child.wait().unwrap().success());
        let said = said.rest();
        assert_eq!(said.iter().any(|line| line.contains("everything is forgotten")), warned, "{said:?}");
    }
}
