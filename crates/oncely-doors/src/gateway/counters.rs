//! What the gateway counts about itself, for metrics. Every lane counts for itself; who reads adds them up.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::advice::Advice;
use super::reach::{Reach, Unreached};

/// Counters of one lane.
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
    pub(super) reach: Reach,
    pub(super) advice: Advice,
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

/// The counters of all lanes.
#[derive(Debug, Clone)]
pub struct AllCounters(Vec<Arc<Counters>>);

/// A connection that is open.
pub(super) struct OpenConnection(Arc<Counters>);

/// A connection that is at rest.
pub(super) struct RestingConnection<'c>(&'c Counters);

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

    /// Counts a connection, for as long as what it returns is kept.
    pub(super) fn open(self: &Arc<Self>) -> OpenConnection {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self.clone())
    }

    /// How many connections are open.
    pub(super) fn opened(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// How many of them are not at rest.
    pub(super) fn awake(&self) -> u64 {
        self.opened().saturating_sub(self.resting.load(Ordering::Relaxed))
    }

    /// Counts a connection as resting, for as long as what it returns is kept.
    pub(super) fn rest(&self) -> RestingConnection<'_> {
        self.resting.fetch_add(1, Ordering::Relaxed);
        RestingConnection(self)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for RestingConnection<'_> {
    fn drop(&mut self) {
        self.0.resting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FromIterator<Arc<Counters>> for AllCounters {
    fn from_iter<I: IntoIterator<Item = Arc<Counters>>>(lanes: I) -> Self {
        Self(lanes.into_iter().collect())
    }
}

impl AllCounters {
    /// The services that could not be reached when they were last tried.
    pub fn unreached(&self) -> Vec<Unreached> {
        Reach::unreached(self.0.iter().map(|lane| &lane.reach))
    }

    /// What should be known about routes, of which requests have shown it since this was asked last: a line for each.
    pub fn advice(&self) -> BTreeSet<String> {
        self.0.iter().flat_map(|lane| lane.advice.take()).collect()
    }

    /// In the text format of Prometheus.
    pub fn render(&self, out: &mut String) {
        type Of = fn(&Counters) -> &AtomicU64;
        let sum = |of: Of| self.0.iter().map(|lane| of(lane).load(Ordering::Relaxed)).sum::<u64>();
        let mut family = |name: &str, kind: &str, help: &str, values: &[(&str, Of)]| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, of) in values {
                let _ = writeln!(out, "{name}{labels} {}", sum(*of));
            }
        };
        family(
            "oncely_http_connections_total",
            "counter",
            "Connections accepted.",
            &[("", |c| &c.connections)],
        );
        family("oncely_http_connections_open", "gauge", "Connections open now.", &[("", |c| &c.open)]);
        let help = "Open connections with nothing going on.";
        family("oncely_http_connections_resting", "gauge", help, &[("", |c| &c.resting)]);
        let help = "Requests by what became of them.";
        family(
            "oncely_http_requests_total",
            "counter",
            help,
            &[
                ("{way=\"passed\"}", |c| &c.passed),
                ("{way=\"guarded\"}", |c| &c.guarded),
                ("{way=\"refused\"}", |c| &c.refused),
            ],
        );
        let help = "Requests that got no proper answer.";
        family(
            "oncely_http_upstream_errors_total",
            "counter",
            help,
            &[("{kind=\"nothing_sent\"}", |c| &c.unreachable), ("{kind=\"maybe_sent\"}", |c| &c.failed)],
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{AllCounters, Count, Counters};

    #[test]
    fn what_the_lanes_count_is_added_up() {
        let lanes = [Arc::new(Counters::default()), Arc::new(Counters::default())];
        let all: AllCounters = lanes.iter().cloned().collect();
        let (_one, two) = (lanes[0].open(), lanes[1].open());
        drop(two);
        let _resting = lanes[0].rest();
        assert_eq!((lanes[0].opened(), lanes[0].awake()), (1, 0));
        for (lane, count) in [(0, Count::Passed), (1, Count::Passed), (1, Count::Failed)] {
            lanes[lane].add(count);
        }
        let mut text = String::new();
        all.render(&mut text);
        for line in [
            "oncely_http_connections_total 2",
            "oncely_http_connections_open 1",
            "oncely_http_connections_resting 1",
            "oncely_http_requests_total{way=\"passed\"} 2",
            "oncely_http_requests_total{way=\"guarded\"} 0",
            "oncely_http_upstream_errors_total{kind=\"maybe_sent\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
