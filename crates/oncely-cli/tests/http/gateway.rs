//! A real `oncely serve` process with a ledger of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::client::{self, Answer};
use crate::upstream::Upstream;

pub(crate) const ONCELY: &str = env!("CARGO_BIN_EXE_oncely");

/// A running gateway; killed when dropped.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) child: Child,
}

impl Gateway {
    /// One route for everything, with more lines for its table.
    pub(crate) fn start(home: &Path, upstream: &Upstream, route: &str) -> Self {
        let text = format!(
            "[server]\nadmin = \"off\"\n[defaults]\nwait_for = \"30s\"\n[[route]]\nmatch = \"/**\"\nupstream = \
             \"{}\"\n{route}\n",
            upstream.url()
        );
        Self::start_with(home, &text)
    }

    /// With a whole configuration.
    pub(crate) fn start_with(home: &Path, config: &str) -> Self {
        let file = write_config(home, config);
        Self::of(command(home, &file))
    }

    /// Started by this command, once it says where it listens.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let said: serde_json::Value =
            serde_json::from_str(&ready).unwrap_or_else(|e| panic!("it did not start: {e}: {ready:?}"));
        let address = |name: &str| Some(said[name].as_str()?.split_once("://")?.1.parse().unwrap());
        Self { address: address("listening").unwrap(), admin: address("admin"), child }
    }

    pub(crate) fn send(&self, request: &str) -> Answer {
        client::send(self.address, request)
    }

    /// A POST of one order.
    pub(crate) fn order(&self, key: &str, act: &str) -> Answer {
        self.send(&order(key, act))
    }

    /// Connections accepted so far, as its metrics say.
    pub(crate) fn connections(&self) -> u32 {
        self.metric("oncely_http_connections_total")
    }

    /// One of its metrics.
    pub(crate) fn metric(&self, name: &str) -> u32 {
        let metrics =
            client::send(self.admin.unwrap(), "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").text();
        let line = metrics.lines().find(|line| line.strip_prefix(name).is_some_and(|l| l.starts_with(' ')));
        line.unwrap_or_else(|| panic!("{metrics}")).rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    /// Waits until one of its metrics is as wanted.
    #[track_caller]
    pub(crate) fn wait_for_metric(&self, name: &str, wanted: impl Fn(u32) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !wanted(self.metric(name)) {
            assert!(Instant::now() < deadline, "{name} is {}", self.metric(name));
            std::thread::yield_now();
        }
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// As `kill -9` ends it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The configuration of a gateway with one route, all of whose requests are served by one thread.
pub(crate) fn one_thread(upstream: &str) -> String {
    format!("[server]\nadmin = \"off\"\nthreads = 1\n[[route]]\nmatch = \"/**\"\nupstream = \"{upstream}\"\n")
}

/// The request of one order.
pub(crate) fn order(key: &str, act: &str) -> String {
    client::post("/orders", &[("idempotency-key", key), ("x-act", act)], &format!("{{\"key\":\"{key}\"}}"))
}

pub(crate) fn write_config(home: &Path, config: &str) -> PathBuf {
    let file = home.join("oncely.toml");
    std::fs::write(&file, config).unwrap();
    file
}

/// `oncely serve` with this configuration.
pub(crate) fn command(home: &Path, config: &Path) -> Command {
    let mut command = oncely(home);
    command.arg("--config").arg(config).args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command
}

/// `oncely` on the ledger of this home.
pub(crate) fn oncely(home: &Path) -> Command {
    let mut command = Command::new(ONCELY);
    command.env_clear().env("HOME", home).current_dir(home).arg("--store").arg(home.join("ledger.db"));
    command
}

/// The records of this home, as `oncely ls` tells them.
pub(crate) fn records(home: &Path) -> Vec<serde_json::Value> {
    let Output { stdout, stderr, status } =
        oncely(home).args(["ls", "--all", "--all-namespaces", "--json"]).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
