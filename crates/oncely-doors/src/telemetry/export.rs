//! Sends spans and metrics to a collector: OTLP over HTTP, in batches, in the background.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use oncely::tower::Body;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::trace::{Ended, attribute, wall};
use super::{BATCH_MAX, Counts, QUEUE_MAX, TelemetryConfig, metrics};
use crate::gateway::upstream::{Reuse, Timeouts, Upstream};

/// Idle connections that are kept to a collector: batches go out one after the other.
const IDLE_MAX: usize = 1;
/// How long a collector may take.
const SEND_PATIENCE: Duration = Duration::from_secs(10);
/// How long the last batch may take when the process ends.
const LAST_PATIENCE: Duration = Duration::from_secs(3);

/// Writes what `/metrics` says; nothing if that cannot be had now.
pub type MetricsText = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Option<String>> + Send>> + Send + Sync>;

/// Sends spans and metrics.
pub struct Exporter {
    config: TelemetryConfig,
    upstream: Arc<Upstream>,
    waiting: mpsc::Receiver<Ended>,
    /// Taken from the queue and not sent yet.
    pending: VecDeque<Span>,
    metrics: MetricsText,
    counts: Arc<Counts>,
    since: Duration,
}

/// How a request to the collector ended.
enum Sent {
    Taken,
    /// It will not take this one, however often it is asked.
    Refused,
    /// It may take it later.
    Later,
}

impl Exporter {
    pub(super) fn new(
        config: TelemetryConfig,
        tls: Option<tokio_rustls::TlsConnector>,
        waiting: mpsc::Receiver<Ended>,
        metrics: MetricsText,
        counts: Arc<Counts>,
    ) -> Self {
        let timeouts = Timeouts { answer: SEND_PATIENCE, ..Timeouts::default() };
        let upstream = Upstream::new(config.endpoint.clone(), tls, timeouts, IDLE_MAX, Arc::default());
        Self { config, upstream, waiting, pending: VecDeque::new(), metrics, counts, since: wall() }
    }

    /// Sends until `stop` resolves, and then what is left.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut ticks = tokio::time::interval(self.config.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = pin!(stop);
        loop {
            let work = async {
                tokio::select! {
                    biased;
                    _ = ticks.tick() => {
                        self.send_spans().await;
                        self.send_metrics().await;
                    }
                    // Only while there is room: what does not fit waits in the queue, and is dropped there. Once nobody
                    // can send any more, this branch stays away.
                    Some(ended) = self.waiting.recv(), if self.pending.len() < QUEUE_MAX => {
                        self.pending.push_back(ended.0);
                        if self.pending.len().is_multiple_of(BATCH_MAX) {
                            self.send_spans().await;
                        }
                    }
                }
            };
            // A collector that is slow does not hold up the end. What was being sent then is pending still.
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = work => {}
            }
        }
        let last = async {
            while let Ok(ended) = self.waiting.try_recv() {
                self.pending.push_back(ended.0);
            }
            self.send_spans().await;
            self.send_metrics().await;
        };
        // The process ends, whether the collector listens or not.
        let _ = tokio::time::timeout(LAST_PATIENCE, last).await;
    }

    /// Sends what is pending, batch by batch, until one is not taken.
    async fn send_spans(&mut self) {
        while !self.pending.is_empty() {
            let spans: Vec<Span> = self.pending.iter().take(BATCH_MAX).cloned().collect();
            let count = spans.len();
            let scoped = ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() };
            let of = ResourceSpans {
                resource: Some(self.resource()),
                scope_spans: vec![scoped],
                ..Default::default()
            };
            let request = ExportTraceServiceRequest { resource_spans: vec![of] };
            let counter = match self.send("/v1/traces", request.encode_to_vec()).await {
                Sent::Taken => &self.counts.sent,
                Sent::Refused => &self.counts.dropped,
                Sent::Later => return,
            };
            counter.fetch_add(count as u64, Ordering::Relaxed);
            self.pending.drain(..count);
        }
    }

    /// Sends the metrics as they are now. They are sums: what is not taken is in the next.
    async fn send_metrics(&self) {
        let Some(text) = (self.metrics)().await else { return };
        let metrics = metrics::metrics(&text, self.since, wall());
        let scoped = ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() };
        let of = ResourceMetrics {
            resource: Some(self.resource()),
            scope_metrics: vec![scoped],
            ..Default::default()
        };
        let request = ExportMetricsServiceRequest { resource_metrics: vec![of] };
        self.send("/v1/metrics", request.encode_to_vec()).await;
    }

    fn resource(&self) -> Resource {
        let text = |text: &str| Value::StringValue(text.to_owned());
        let attributes = vec![
            attribute("service.name", text(&self.config.service)),
            attribute("service.version", text(env!("CARGO_PKG_VERSION"))),
        ];
        Resource { attributes, ..Resource::default() }
    }

    async fn send(&self, path: &str, body: Vec<u8>) -> Sent {
        let sent = match self.request(path, body) {
            Some(request) => match self.upstream.send(request, Reuse::Allowed, None).await {
                Ok(response) => match response.status() {
                    status if status.is_success() => Sent::Taken,
                    StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT => Sent::Later,
                    _ => Sent::Refused,
                },
                Err(_) => Sent::Later,
            },
            None => Sent::Refused,
        };
        if !matches!(sent, Sent::Taken) {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    fn request(&self, path: &str, body: Vec<u8>) -> Option<Request<crate::gateway::upstream::Outgoing>> {
        let uri: Uri = format!("{}{path}", self.config.endpoint.base).parse().ok()?;
        let mut request = Request::new(Body::whole(Bytes::from(body)));
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, uri);
        let headers = request.headers_mut();
        for (name, value) in &self.config.headers {
            headers.insert(name.clone(), value.clone());
        }
        headers.insert(HOST, self.config.endpoint.host_header.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        Some(request)
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "oncely".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}
