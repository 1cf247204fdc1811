//! What the gateway counts about itself, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one gateway.
#[derive(Debug, Default)]
pub struct Counters {
    connections: AtomicU64,
    open: AtomicU64,
    passed: AtomicU64,
    guarded: AtomicU64,
    refused: AtomicU64,
    unreachable: AtomicU64,
    failed: AtomicU64,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// A request that passed through.
    Passed,
    /// A request that was guarded.
    Guarded,
    /// A request that was refused before any route: bad framing, no route.
    Refused,
    /// A service that could not be reached: nothing was sent.
    Unreachable,
    /// A service that broke off or did not answer.
    Failed,
}

/// One open connection.
pub(super) struct Open<'c>(&'c Counters);

impl Counters {
    pub(super) fn add(&self, what: Count) {
        let counter = match what {
            Count::Passed => &self.passed,
            Count::Guarded => &self.guarded,
            Count::Refused => &self.refused,
            Count::Unreachable => &self.unreachable,
            Count::Failed => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn open(&self) -> Open<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(self)
    }

    /// In the text format of Prometheus.
    pub fn render(&self, out: &mut String) {
        use std::fmt::Write as _;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP oncely_http_connections_total Connections accepted.");
        let _ = writeln!(out, "# TYPE oncely_http_connections_total counter");
        let _ = writeln!(out, "oncely_http_connections_total {}", read(&self.connections));
        let _ = writeln!(out, "# HELP oncely_http_connections_open Connections open now.");
        let _ = writeln!(out, "# TYPE oncely_http_connections_open gauge");
        let _ = writeln!(out, "oncely_http_connections_open {}", read(&self.open));
        let _ = writeln!(out, "# HELP oncely_http_requests_total Requests by what became of them.");
        let _ = writeln!(out, "# TYPE oncely_http_requests_total counter");
        for (name, counter) in
            [("passed", &self.passed), ("guarded", &self.guarded), ("refused", &self.refused)]
        {
            let _ = writeln!(out, "oncely_http_requests_total{{way=\"{name}\"}} {}", read(counter));
        }
        let _ = writeln!(out, "# HELP oncely_http_upstream_errors_total Requests that got no proper answer.");
        let _ = writeln!(out, "# TYPE oncely_http_upstream_errors_total counter");
        for (name, counter) in [("nothing_sent", &self.unreachable), ("maybe_sent", &self.failed)] {
            let _ = writeln!(out, "oncely_http_upstream_errors_total{{kind=\"{name}\"}} {}", read(counter));
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
