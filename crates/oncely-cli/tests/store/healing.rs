//! A gateway whose ledger goes away and comes back: what its metrics, its readiness and `oncely doctor` say meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use oncely_testkit::servers::{Postgres, Redis};
use serde_json::Value;

use crate::world::World;

pub(crate) struct Gateway {
    child: Child,
    admin: SocketAddr,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    pub(crate) fn start(world: &World, store: &str) -> Self {
        let places = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        // Nothing is asked of the upstream here.
        let upstream = ["--upstream", "http://127.0.0.1:9", "--one-tenant"];
        let arguments = [&["serve"][..], &places, &upstream].concat();
        let mut child =
            world.command(&arguments).env("ONCELY_STORE", store).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        let admin = ready["admin"].as_str().unwrap().rsplit_once('/').unwrap().1.parse().unwrap();
        Self { child, admin }
    }

    /// Status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.admin).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Scrapes until a line is there; the whole text then.
    #[track_caller]
    fn scrape_until(&self, wanted: &str) -> String {
        let patience = Instant::now() + Duration::from_secs(120);
        loop {
            let (status, text) = self.get("/metrics");
            assert_eq!(status, 200, "a scrape has to be answered though the ledger is not: {text}");
            if text.lines().any(|line| line == wanted) {
                return text;
            }
            assert!(Instant::now() < patience, "never came about: {wanted} in {text}");
        }
    }
}

fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

fn is_told(store: &str, stop: impl FnOnce(), start: impl FnOnce()) {
    let world = World::new();
    assert_eq!(world.pay(store, "paid"), 0);
    let gateway = Gateway::start(&world, store);
    let text = gateway.scrape_until("oncely_store_link{state=\"connected\"} 1");
    assert_eq!(value(&text, "oncely_store_down_seconds"), 0.0);
    assert!(value(&text, "oncely_store_connections") >= 1.0 && value(&text, "oncely_store_queue_max") > 1.0);
    assert!(text.contains("oncely_executions_total{tool=\"pay\"} 1"), "{text}");
    assert_eq!(gateway.get("/readyz").0, 200);
    stop();
    let text = gateway.scrape_until("oncely_store_link{state=\"reconnecting\"} 1");
    assert!(text.lines().any(|line| line == "oncely_store_link{state=\"connected\"} 0"), "{text}");
    assert!(value(&text, "oncely_store_down_seconds") > 0.0, "{text}");
    assert!(!text.contains("oncely_executions_total{"), "counters that nobody can read are not told as 0");
    assert_eq!(gateway.get("/readyz").0, 503);
    assert_eq!(gateway.get("/healthz").0, 200);
    start();
    let text = gateway.scrape_until("oncely_store_link{state=\"connected\"} 1");
    assert!(value(&text, "oncely_store_reconnects_total") >= 1.0, "{text}");
    gateway.scrape_until("oncely_executions_total{tool=\"pay\"} 1");
    assert_eq!(gateway.get("/readyz").0, 200);
    let report = world.json(&["--store", store, "doctor", "--json"], 0);
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["check"] == "connection").unwrap();
    assert!(found["message"].as_str().unwrap().contains("requests wait"), "{found}");
}

#[test]
fn a_ledger_on_redis_that_goes_away_and_comes_back_is_told() {
    let server = Redis::start().unwrap();
    is_told(&server.url(), || server.stop().unwrap(), || server.start_again().unwrap());
}

#[test]
fn a_ledger_on_postgres_that_goes_away_and_comes_back_is_told() {
    let server = Postgres::start().unwrap();
    is_told(&server.url("postgres"), || server.stop().unwrap(), || server.start_again().unwrap());
}

#[test]
fn a_ledger_in_a_file_is_told_as_local() {
    let world = World::new();
    assert_eq!(world.pay(&world.from, "paid"), 0);
    let gateway = Gateway::start(&world, &world.from);
    let text = gateway.scrape_until("oncely_store_link{state=\"local\"} 1");
    assert_eq!(
        (value(&text, "oncely_store_down_seconds"), value(&text, "oncely_store_connections")),
        (0.0, 0.0)
    );
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin.md");
    let page = std::fs::read_to_string(page).unwrap();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for family in families.filter(|name| !name.starts_with("oncely_http_")) {
        assert!(page.contains(&format!("`{family}`")), "docs/admin.md does not name {family}");
    }
    for named in page.split('`').filter(|word| word.starts_with("oncely_store_")) {
        assert!(text.contains(&format!("# TYPE {named} ")), "docs/admin.md names {named}, which is not told");
    }
}
