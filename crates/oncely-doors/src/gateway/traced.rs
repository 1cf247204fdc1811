//! A request as a span: which route, which tool, what was said and how it ended. Never a key, a body or a credential.

use http::{HeaderMap, Method};
use oncely::tower::Told;
use opentelemetry_proto::tonic::common::v1::any_value::Value;

use super::handle::Answer;
use crate::telemetry::{Started, TRACEPARENT, Telemetry};

/// The route that a request took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken<'g> {
    pub(super) pattern: &'g str,
    pub(super) tool: &'g str,
}

/// A request while it is answered. One whose client goes away before is a span, too.
pub(super) struct Traced<'g> {
    telemetry: &'g Telemetry,
    span: Option<Started>,
    method: Method,
}

impl<'g> Traced<'g> {
    /// Begins a span, and names it to the service behind us; none where the trace is not recorded.
    pub(super) fn begin(telemetry: &'g Telemetry, method: Method, headers: &mut HeaderMap) -> Option<Self> {
        let span = telemetry.begin(headers.get(TRACEPARENT))?;
        if let Some(context) = span.context().header() {
            headers.insert(TRACEPARENT, context);
        }
        Some(Self { telemetry, span: Some(span), method })
    }

    /// Ends it with its answer.
    pub(super) fn answered(mut self, taken: Option<Taken<'_>>, answer: &Answer) {
        let Some(span) = self.span.take() else { return };
        let status = answer.status();
        let mut attributes = vec![
            ("http.request.method", text(self.method.as_str())),
            ("http.response.status_code", Value::IntValue(status.as_u16().into())),
        ];
        let name = match taken {
            Some(taken) => {
                attributes.push(("http.route", text(taken.pattern)));
                attributes.push(("oncely.tool", text(taken.tool)));
                format!("{} {}", self.method, taken.pattern)
            }
            None => self.method.to_string(),
        };
        if let Some(told) = answer.extensions().get::<Told>() {
            attributes.push(("oncely.verdict", text(told.verdict.as_str())));
            attributes.extend(told.outcome.map(|outcome| ("oncely.outcome", text(outcome))));
            attributes.extend(told.attempt.map(|number| ("oncely.attempt", Value::IntValue(number.into()))));
            attributes.extend(told.record.map(|record| ("oncely.record", text(&record.to_string()))));
        }
        self.telemetry.end(span.end(name, is_failed(answer), attributes));
    }
}

/// Whether an answer is an error of the service or of ours. One of gRPC is a success to HTTP however it ended: the statuses
/// that count are those that OpenTelemetry has for servers. Where they are in its trailers, what was made of them is known.
fn is_failed(answer: &Answer) -> bool {
    let says_failed = answer.headers().get("grpc-status").is_some_and(|status| {
        // UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS
        matches!(status.as_bytes(), b"2" | b"4" | b"12" | b"13" | b"14" | b"15")
    });
    let proves_nothing =
        answer.extensions().get::<Told>().is_some_and(|told| told.outcome == Some("unknown"));
    answer.status().is_server_error() || says_failed || (answer.status().is_success() && proves_nothing)
}

impl Drop for Traced<'_> {
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            let attributes = vec![
                ("http.request.method", text(self.method.as_str())),
                ("oncely.client_gone", Value::BoolValue(true)),
            ];
            self.telemetry.end(span.end(self.method.to_string(), true, attributes));
        }
    }
}

fn text(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}
