//! How it starts and how it stops.

use std::io::Read;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::client;
use crate::gateway::{self, Gateway, order, records};
use crate::upstream::Upstream;

fn failing(home: &std::path::Path, config: &str) -> (i32, String) {
    let file = gateway::write_config(home, config);
    let output = gateway::command(home, &file).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn it_needs_no_configuration() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let mut command = gateway::oncely(home.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--upstream", &upstream.url()]);
    let gateway = Gateway::of(command);
    assert_eq!(gateway.order("k", "").status, 201);
    assert_eq!(gateway.order("k", "").header("idempotent-replayed"), Some("true"));
    assert_eq!(gateway.send(&client::request("GET", "/", &[], "")).status, 200);
}

#[test]
fn a_bad_start_says_what_is_wrong_and_where() {
    let home = tempfile::tempdir().unwrap();
    let (code, said) = failing(home.path(), "");
    assert_eq!(code, 2);
    assert!(said.contains("neither --upstream URL nor a [[route]]"), "{said}");
    let (code, said) =
        failing(home.path(), "[[route]]\nmatch = \"/**\"\nupstream = \"http://a\"\nmethod = [\"POST\"]\n");
    assert_eq!(code, 2);
    assert!(
        said.contains("oncely.toml:4:1: route[0]: unknown field \"method\"; did you mean methods?"),
        "{said}"
    );
    let route = "[[route]]\nmatch = \"/**\"\nupstream = \"http://a\"\n";
    let (code, said) =
        failing(home.path(), &format!("[server]\ntls = {{ cert = \"no\", key = \"no\" }}\n{route}"));
    assert_eq!(code, 2);
    assert!(said.contains("no certificate could be read"), "{said}");
}

#[test]
fn one_tenant_is_warned_about() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/**\"\nupstream = \"{}\"\ntenant = \"none\"\n",
        upstream.url()
    );
    let file = gateway::write_config(home.path(), &config);
    let mut command = gateway::command(home.path(), &file);
    command.stderr(Stdio::piped());
    let mut gateway = Gateway::of(command);
    // Without a key and a credential, two equal requests of anybody are one intent here.
    let request = client::post("/orders", &[], "{}");
    assert_eq!(gateway.send(&request).status, 201);
    assert_eq!(gateway.send(&request).header("idempotent-replayed"), Some("true"));
    let mut stderr = gateway.child.stderr.take().unwrap();
    drop(gateway);
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("every caller can see the stored answers of every other"), "{said}");
}

#[test]
fn a_route_that_can_never_be_reached_is_warned_about() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let route =
        |pattern: &str| format!("[[route]]\nmatch = \"{pattern}\"\nupstream = \"{}\"\n", upstream.url());
    let config =
        format!("[server]\nadmin = \"off\"\n{}{}{}", route("/orders/**"), route("/**"), route("/refunds/**"));
    let file = gateway::write_config(home.path(), &config);
    let mut command = gateway::command(home.path(), &file);
    command.stderr(Stdio::piped());
    let mut gateway = Gateway::of(command);
    let mut stderr = gateway.child.stderr.take().unwrap();
    drop(gateway);
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("the route /refunds/** is never reached: /** before it"), "{said}");
    assert_eq!(said.matches("never reached").count(), 1, "{said}");
}

#[test]
fn a_stop_accepts_no_more_and_lets_running_requests_end() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let mut gateway = Gateway::start(home.path(), &upstream, "");
    let mut running = client::open(gateway.address, &order("k", "hold go"));
    upstream.wait_for_total(1);
    gateway.signal(Signal::SIGTERM);
    // It has heard when it no longer listens.
    while std::net::TcpStream::connect(gateway.address).is_ok() {
        std::thread::yield_now();
    }
    upstream.release("go");
    assert_eq!(client::read_answer(&mut running).unwrap().status, 201);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    let records = records(home.path());
    assert_eq!((records.len(), records[0]["state"].as_str()), (1, Some("succeeded")));
}

#[test]
fn a_stop_does_not_wait_for_ever_and_what_was_running_is_in_doubt() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"off\"\ndrain = \"100ms\"\n[[route]]\nmatch = \"/**\"\nupstream = \"{}\"\n",
        upstream.url()
    );
    let mut gateway = Gateway::start_with(home.path(), &config);
    let _running = client::open(gateway.address, &order("k", "hold never"));
    upstream.wait_for_total(1);
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    let gateway = Gateway::start_with(home.path(), &config);
    gateway.order("k", "").expect_code(409, "outcome_unknown");
    assert_eq!(upstream.total(), 1);
}

#[test]
fn clients_and_effects_have_one_time_to_end_and_not_one_each() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"off\"\ndrain = \"3s\"\n[[route]]\nmatch = \"/**\"\nupstream = \"{}\"\n",
        upstream.url()
    );
    let mut command = gateway::command(home.path(), &gateway::write_config(home.path(), &config));
    command.stderr(Stdio::piped());
    let mut gateway = Gateway::of(command);
    let _running = client::open(gateway.address, &order("k", "hold never"));
    upstream.wait_for_total(1);
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    gateway.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("oncely: stopped after ")).unwrap();
    assert!(line.contains("with 1 connections and 1 requests still open"), "{line}");
    // As long as it waited by its own clock; twice as long would be a time for each.
    let waited: f64 = line.split(' ').next().unwrap().parse().unwrap();
    assert!((3.0..6.0).contains(&waited), "{line}");
}

#[test]
fn secrets_of_requests_do_not_reach_the_ledger() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "");
    let headers = [("authorization", "Bearer very-secret-token"), ("cookie", "session=very-secret-cookie")];
    assert_eq!(
        gateway.send(&client::post("/orders", &headers, "{\"card\":\"very-secret-card\"}")).status,
        201
    );
    gateway.kill();
    for entry in std::fs::read_dir(home.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(11).any(|window| window == b"very-secret"));
        assert!(!bytes.windows(14).any(|window| window == b"session=secret"), "nor a cookie of the answer");
    }
}

#[test]
fn nothing_of_a_key_a_body_or_a_credential_is_said_on_the_way() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/gone\"\nupstream = \"http://127.0.0.1:1\"\n[[route]]\n\
         match = \"/**\"\nupstream = \"{}\"\nmax_body = \"1KiB\"\n",
        upstream.url()
    );
    let file = gateway::write_config(home.path(), &config);
    let mut command = gateway::command(home.path(), &file);
    command.stderr(Stdio::piped());
    let mut gateway = Gateway::of(command);
    let long = "very-secret-".repeat(100);
    for (path, key, act, body, status) in [
        ("/orders", "very-secret-1", "", "{\"card\":\"very-secret-card\"}", 201),
        ("/orders", "very-secret-1", "", "{\"card\":\"very-secret-other\"}", 409),
        ("/orders", "very-secret-2", "reset", "{\"card\":\"very-secret-card\"}", 502),
        ("/orders", "very-secret-3", "", long.as_str(), 413),
        ("/orders", long.as_str(), "", "{}", 400),
        ("/gone", "very-secret-4", "", "{\"card\":\"very-secret-card\"}", 502),
        ("/../very-secret-path", "very-secret-5", "", "{}", 400),
    ] {
        let headers =
            [("idempotency-key", key), ("x-act", act), ("authorization", "Bearer very-secret-token")];
        assert_eq!(gateway.send(&client::post(path, &headers, body)).status, status, "{path} {act}");
    }
    let mut stderr = gateway.child.stderr.take().unwrap();
    drop(gateway);
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(!said.contains("very-secret"), "{said}");
}

#[test]
fn an_upstream_beside_routes_takes_what_they_leave() {
    let (home, routed, rest) = (tempfile::tempdir().unwrap(), Upstream::start(), Upstream::start());
    let config = format!("[[route]]\nmatch = \"/orders\"\nupstream = \"{}\"\n", routed.url());
    let mut command = gateway::command(home.path(), &gateway::write_config(home.path(), &config));
    command.args(["--upstream", &rest.url()]);
    let gateway = Gateway::of(command);
    assert_eq!(gateway.order("k", "").status, 201);
    assert_eq!(gateway.send(&client::post("/else", &[("idempotency-key", "k")], "{}")).status, 201);
    assert_eq!((routed.total(), rest.total()), (1, 1));
}
