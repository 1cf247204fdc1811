//! What the gateway counts about itself, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one gateway.
#[derive(Debug, Default)]
pub struct Counters {
    connections: AtomicU64,
    open: AtomicU64,
    resting: AtomicU64,
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

/// One connection that is counted in a gauge.
pub(super) struct Counted<'c>(&'c AtomicU64);

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

    /// A connection that is open.
    pub(super) fn open(&self) -> Counted<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Counted::new(&self.open)
    }

    /// One that is at rest.
    pub(super) fn rest(&self) -> Counted<'_> {
        Counted::new(&self.resting)
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
        let _ =
            writeln!(out, "# HELP oncely_http_connections_resting Open connections with nothing going on.");
        let _ = writeln!(out, "# TYPE oncely_http_connections_resting gauge");
        let _ = writeln!(out, "oncely_http_connections_resting {}", read(&self.resting));
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

impl<'c> Counted<'c> {
    fn new(gauge: &'c AtomicU64) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
