//! Traces and metrics over OTLP, for whoever wants them elsewhere than at `/metrics`: off unless an endpoint is named.
//!
//! One span for each request that the gateway answers: route, tool, verdict, outcome, attempt, record. Never a key, a
//! body, a credential or a header. Spans wait in a queue of limited length and are sent in the background; a collector
//! that is slow or gone costs spans, and never a call.
//!
//! - `config`: `[otlp]`. `trace`: the context of a trace, and a span. `metrics`: what `/metrics` says, as OTLP has it. `export`: sends.

mod config;
mod export;
mod metrics;
mod trace;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tokio::sync::mpsc;

pub use self::config::{OtlpSettings, headers};
pub use self::export::{Exporter, MetricsText};
pub use self::trace::{Ended, SpanContext, Started, TRACEPARENT};
use crate::admin::MetricsSource;
use crate::admin::metrics::family;
use crate::gateway::address::Address;

/// Spans that wait to be sent; beyond that they are dropped, and counted.
pub const QUEUE_MAX: usize = 2_048;
/// Spans in one request to the collector.
pub const BATCH_MAX: usize = 512;

/// Where traces and metrics go.
#[derive(Clone)]
pub struct TelemetryConfig {
    /// The collector's address; `/v1/traces` and `/v1/metrics` are below it.
    pub endpoint: Address,
    /// Headers for the collector, such as a credential.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The name of this service in the traces.
    pub service: String,
    /// How often something is sent.
    pub interval: Duration,
    /// The share of traces that begin here and are recorded. One that began elsewhere is recorded if it is there.
    pub sample: f64,
}

/// Takes spans. Cheap to use: nothing here waits.
pub struct Telemetry {
    spans: mpsc::Sender<Ended>,
    sample: f64,
    counts: Arc<Counts>,
}

/// What became of spans and metrics.
#[derive(Debug, Default)]
pub struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
    failures: AtomicU64,
}

impl Telemetry {
    /// What takes spans, and what sends them.
    pub fn new(
        config: TelemetryConfig,
        tls: Option<tokio_rustls::TlsConnector>,
        metrics: MetricsText,
    ) -> (Arc<Self>, Exporter) {
        let (spans, waiting) = mpsc::channel(QUEUE_MAX);
        let counts = Arc::new(Counts::default());
        let sample = config.sample;
        let exporter = Exporter::new(config, tls, waiting, metrics, counts.clone());
        (Arc::new(Self { spans, sample, counts }), exporter)
    }

    /// Begins a span for a request that came with this `traceparent`; none where the trace is not recorded.
    pub fn begin(&self, traceparent: Option<&HeaderValue>) -> Option<Started> {
        Started::begin(traceparent, self.sample)
    }

    /// Hands a span in.
    pub fn end(&self, span: Ended) {
        if self.spans.try_send(span).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of spans and metrics, for `/metrics`.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }
}

impl MetricsSource for Counts {
    fn render(&self, out: &mut String) {
        use std::fmt::Write as _;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Writing to a string cannot fail.
        family(out, "oncely_otlp_spans_total", "counter", "Spans by what became of them.");
        let _ = writeln!(out, "oncely_otlp_spans_total{{result=\"sent\"}} {}", read(&self.sent));
        let _ = writeln!(out, "oncely_otlp_spans_total{{result=\"dropped\"}} {}", read(&self.dropped));
        family(out, "oncely_otlp_failures_total", "counter", "Requests to the collector that failed.");
        let _ = writeln!(out, "oncely_otlp_failures_total {}", read(&self.failures));
    }
}
