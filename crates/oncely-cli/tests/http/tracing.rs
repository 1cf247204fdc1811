//! Traces: the context that comes in is kept, and with a collector every request is a span that holds no secret.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;

use crate::client;
use crate::gateway::{Gateway, order};
use crate::grpc::open;
use crate::shop::{Client, PLACE_AGAIN, Shop};
use crate::upstream::Upstream;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A collector of OTLP over HTTP: decodes what it gets with the standard's own messages.
struct Collector {
    address: SocketAddr,
    book: Arc<Book>,
}

#[derive(Default)]
struct Book {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    spans: Vec<Span>,
    metrics: Vec<Metric>,
    heads: Vec<String>,
    bytes: Vec<u8>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, book) = (listener.local_addr().unwrap(), Arc::new(Book::default()));
        let shared = book.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let book = shared.clone();
                std::thread::spawn(move || while take(&stream, &book).is_some() {});
            }
        });
        Self { address, book }
    }

    /// What it has seen once that is enough, or when nobody would wait any longer.
    fn wait_for(&self, enough: impl Fn(&Seen) -> bool) -> std::sync::MutexGuard<'_, Seen> {
        let seen = self.book.seen.lock().unwrap();
        let patience = std::time::Duration::from_secs(180);
        self.book.changed.wait_timeout_while(seen, patience, |seen| !enough(seen)).unwrap().0
    }
}

/// One request.
fn take(mut stream: &TcpStream, book: &Book) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).ok()?;
    let mut seen = book.seen.lock().unwrap();
    if head.starts_with("POST /v1/traces ") {
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        let spans = request.resource_spans.into_iter().flat_map(|of| of.scope_spans).flat_map(|of| of.spans);
        seen.spans.extend(spans);
    } else {
        assert!(head.starts_with("POST /v1/metrics "), "{head}");
        let request = ExportMetricsServiceRequest::decode(body.as_slice()).unwrap();
        let of = request.resource_metrics.into_iter().flat_map(|of| of.scope_metrics);
        seen.metrics = of.flat_map(|of| of.metrics).collect();
    }
    seen.heads.push(head);
    seen.bytes.extend(body);
    book.changed.notify_all();
    drop(seen);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{name}: {other:?}"),
    }
}

fn traced(home: &std::path::Path, upstream: &Upstream, collector: SocketAddr) -> Gateway {
    traced_to(home, &upstream.url(), "/orders/**", collector)
}

fn traced_to(home: &std::path::Path, upstream: &str, pattern: &str, collector: SocketAddr) -> Gateway {
    let config = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\n[otlp]\nendpoint = \"http://{collector}\"\ninterval = \"100ms\"\nservice = \
         \"shop\"\nheaders_file = \"headers\"\n[[route]]\nmatch = \"{pattern}\"\nupstream = \"{upstream}\"\ntool = \"orders\"\n"
    );
    std::fs::write(home.join("headers"), "authorization=Bearer for-the-collector\n").unwrap();
    Gateway::start_with(home, &config)
}

#[test]
fn a_trace_that_comes_in_is_passed_on_as_it_is_and_is_no_part_of_what_a_request_means() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let gateway = Gateway::start(home.path(), &upstream, "");
    let state = ("tracestate", "vendor=1");
    for method in ["GET", "POST"] {
        let headers = [("traceparent", GIVEN), state, ("idempotency-key", "k")];
        assert!(gateway.send(&client::request(method, "/orders", &headers, "")).status < 300);
    }
    for head in upstream.heads() {
        assert!(
            head.contains(&format!("traceparent: {GIVEN}")) && head.contains("tracestate: vendor=1"),
            "{head}"
        );
    }
    // A retry is another span of its caller's, and the same request.
    let other = GIVEN.replace("b7ad6b7169203331", "00f067aa0ba902b7");
    let headers = [("traceparent", other.as_str()), ("idempotency-key", "k")];
    let retry = gateway.send(&client::request("POST", "/orders", &headers, ""));
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.total(), 1);
}

#[test]
fn every_request_is_a_span_with_its_outcome_and_without_secrets() {
    let (home, upstream, collector) = (tempfile::tempdir().unwrap(), Upstream::start(), Collector::start());
    let gateway = traced(home.path(), &upstream, collector.address);
    let secret = [("authorization", "Bearer very-secret"), ("idempotency-key", "very-secret-key")];
    let headers = [secret.as_slice(), &[("traceparent", GIVEN)]].concat();
    let request = client::post("/orders/7", &headers, "{\"card\":\"very-secret-card\"}");
    assert_eq!(gateway.send(&request).status, 201);
    assert_eq!(gateway.send(&request).header("idempotent-replayed"), Some("true"));
    gateway.send(&client::post("/elsewhere", &[], "")).expect_code(404, "no_route");
    let seen = collector.wait_for(|seen| seen.spans.len() >= 3 && !seen.metrics.is_empty());
    let [first, replay, lost] = seen.spans.as_slice() else { panic!("{:?}", seen.spans) };
    for span in [first, replay] {
        assert_eq!(span.name, "POST /orders/**");
        assert_eq!(
            span.trace_id,
            (0..16).map(|at| u8::from_str_radix(&TRACE[2 * at..][..2], 16).unwrap()).collect::<Vec<_>>()
        );
        assert_eq!(span.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        assert_eq!(text(&span.attributes, "oncely.tool").as_deref(), Some("orders"));
        assert_eq!(text(&span.attributes, "oncely.attempt").as_deref(), Some("1"));
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    }
    let told = |span: &Span| ["oncely.verdict", "oncely.outcome"].map(|name| text(&span.attributes, name));
    assert_eq!(told(first), [Some("began".into()), Some("succeeded".into())]);
    assert_eq!(told(replay), [Some("replayed".into()), None]);
    assert_eq!(text(&lost.attributes, "http.response.status_code").as_deref(), Some("404"));
    // The service hears of our span, in the same trace.
    let head = upstream.heads().remove(0);
    let span: String = first.span_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(head.contains(&format!("traceparent: 00-{TRACE}-{span}-01")), "{head}");
    assert!(seen.heads.iter().all(|head| head.contains("authorization: Bearer for-the-collector")));
    assert!(!seen.bytes.windows(11).any(|window| window == b"very-secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grpc_call_that_failed_is_a_span_that_failed() {
    let (home, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let shop = Shop::new(home.path());
    let (address, _server) = open(&shop, None).await;
    let gateway =
        traced_to(home.path(), &format!("h2c://{address}"), "/shop.Orders/Place", collector.address);
    let client = Client::connect(gateway.address).await;
    // How it ends, and whether that is an error of the service: what a caller did wrong is none.
    let ends =
        [("", false), ("5", false), ("3", false), ("13", true), ("14", true), ("12", true), ("8", true)];
    for (act, _) in ends {
        let key = format!("k{act}");
        let _ = client.place("tea", act, &[("idempotency-key", key.as_str())]).await;
    }
    // In trailers, since the answer was too long to be sent.
    let too_long = [("idempotency-key", "long"), ("x-answer-max", "1024")];
    client.place("tea", "large", &too_long).await.unwrap_err();
    // Refused by the gateway itself: a bad key, and no route.
    client.place("tea", "", &[("idempotency-key", "a,b")]).await.unwrap_err();
    client.place_at(PLACE_AGAIN, "tea", "", &[]).await.unwrap_err();
    let expected: Vec<bool> = ends.into_iter().map(|(_, failed)| failed).chain([true, false, true]).collect();
    let seen = collector.wait_for(|seen| seen.spans.len() >= expected.len());
    let failed = |span: &Span| span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
    assert_eq!(seen.spans.iter().map(failed).collect::<Vec<_>>(), expected);
}

#[test]
fn metrics_are_sent_as_the_admin_api_shows_them() {
    let (home, upstream, collector) = (tempfile::tempdir().unwrap(), Upstream::start(), Collector::start());
    let gateway = traced(home.path(), &upstream, collector.address);
    let order = |key: &str| gateway.send(&client::post("/orders/7", &[("idempotency-key", key)], "{}"));
    assert_eq!((order("a").status, order("a").status, order("b").status), (201, 201, 201));
    let value = |seen: &Seen, name: &str| {
        let metric = seen.metrics.iter().find(|metric| metric.name == name)?;
        let points = match metric.data.as_ref()? {
            Data::Sum(sum) => &sum.data_points,
            Data::Gauge(gauge) => &gauge.data_points,
            Data::Histogram(histogram) => return Some(histogram.data_points.first()?.count as f64),
            other => panic!("{other:?}"),
        };
        points.iter().find_map(|point| match point.value? {
            opentelemetry_proto::tonic::metrics::v1::number_data_point::Value::AsDouble(value) => Some(value),
            _ => None,
        })
    };
    // Tallies reach the ledger within a second, not all of them at once; what is sent meanwhile tells of some of the calls.
    let all = [
        ("oncely_duplicates_prevented_total", 1.0),
        ("oncely_executions_total", 2.0),
        ("oncely_answer_seconds", 3.0),
    ];
    let told = |seen: &Seen| all.map(|(name, _)| (name, value(seen, name).unwrap_or_default()));
    let seen = collector.wait_for(|seen| told(seen) == all);
    assert_eq!(told(&seen), all);
}

#[test]
fn a_collector_that_is_slow_or_gone_costs_no_call() {
    // It accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = SocketAddr::from(([127, 0, 0, 1], oncely_testkit::servers::free_port().unwrap()));
    for collector in [silent.local_addr().unwrap(), gone] {
        let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
        let mut gateway = traced(home.path(), &upstream, collector);
        let get = client::request("GET", "/orders/1", &[], "");
        let mut stream = client::open(gateway.address, "");
        // More than the queue holds.
        for _ in 0..5_000 {
            stream.write_all(get.as_bytes()).unwrap();
            assert_eq!(client::read_answer(&mut stream).unwrap().status, 200);
        }
        assert_eq!(gateway.send(&order("k", "").replace("/orders", "/orders/k")).status, 201);
        assert!(gateway.metric("oncely_otlp_spans_total{result=\"dropped\"}") > 0, "the queue has an end");
        // Nor does it keep the process.
        gateway.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    }
}
