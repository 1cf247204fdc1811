//! The context of a trace, after W3C Trace Context, and a span.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderName, HeaderValue};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use tokio::time::Instant;

/// The header that carries a trace across services.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Which trace, which span of it, and whether it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    trace: [u8; 16],
    span: [u8; 8],
    sampled: bool,
}

impl SpanContext {
    /// Reads `00-<trace>-<span>-<flags>`; a later version counts by its first four parts.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = bytes::<1>(version)?[0];
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span) = (bytes::<16>(trace)?, bytes::<8>(span)?);
        let sampled = bytes::<1>(flags)?[0] & 1 == 1;
        (trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span, sampled })
    }

    /// As a header's value.
    pub fn header(&self) -> Option<HeaderValue> {
        use oncely_core::name::hex;
        let flags = u8::from(self.sampled);
        HeaderValue::try_from(format!("00-{}-{}-{flags:02x}", hex(&self.trace), hex(&self.span))).ok()
    }
}

/// Lower-case hexadecimal digits, exactly so many bytes of them.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut read = [0; N];
    for (byte, pair) in read.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(read)
}

/// A span that has begun.
#[derive(Debug, Clone)]
pub struct Started {
    context: SpanContext,
    parent: Option<[u8; 8]>,
    began: Instant,
    began_unix: Duration,
}

impl Started {
    /// Begins one in the trace of the caller, or in a new one; none where the trace is not recorded.
    pub(super) fn begin(traceparent: Option<&HeaderValue>, sample: f64) -> Option<Self> {
        let given = traceparent.and_then(|value| SpanContext::parse(value.to_str().ok()?));
        let mut random = [0; 24];
        getrandom::fill(&mut random).ok()?;
        let (trace, span) = (random.first_chunk::<16>()?, random.last_chunk::<8>()?);
        let (trace, parent) = match given {
            Some(given) if !given.sampled => return None,
            Some(given) => (given.trace, Some(given.span)),
            // The number is random: a share of all is a share of the numbers.
            None if f64::from(u32::from_be_bytes(*trace.last_chunk()?)) >= sample * 4_294_967_296.0 => {
                return None;
            }
            None => (*trace, None),
        };
        let context = SpanContext { trace, span: *span, sampled: true };
        Some(Self { context, parent, began: Instant::now(), began_unix: wall() })
    }

    /// What the service behind us is told.
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Ends it.
    pub fn end(self, name: String, failed: bool, attributes: Vec<(&'static str, Value)>) -> Ended {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // By the steady clock: the other one may jump.
        let ended = self.began_unix + self.began.elapsed();
        let code = if failed { StatusCode::Error } else { StatusCode::Unset };
        Ended(Span {
            trace_id: self.context.trace.to_vec(),
            span_id: self.context.span.to_vec(),
            parent_span_id: self.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
            name,
            kind: SpanKind::Server.into(),
            start_time_unix_nano: nanos(self.began_unix),
            end_time_unix_nano: nanos(ended),
            attributes: attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
            status: Some(Status { code: code.into(), ..Status::default() }),
            ..Span::default()
        })
    }
}

/// A span that has ended.
#[derive(Debug, Clone)]
pub struct Ended(pub(super) Span);

pub(super) fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// Since 1970, by the wall clock.
#[allow(clippy::disallowed_methods, reason = "traces are compared by date; nothing of ours is decided by it")]
pub(super) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::{SpanContext, Started};

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_read_and_written_as_the_standard_has_it() {
        let context = SpanContext::parse(GIVEN).unwrap();
        assert_eq!(context.header().unwrap(), GIVEN);
        assert!(SpanContext::parse("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more").is_some());
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319é-b7ad6b7169203331-01",
        ] {
            assert!(SpanContext::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_trace_goes_on_where_it_is_recorded_and_begins_as_often_as_asked() {
        let given = HeaderValue::from_static(GIVEN);
        let span = Started::begin(Some(&given), 0.0).unwrap();
        let ended = span.end("x".into(), false, Vec::new()).0;
        assert_eq!(ended.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        assert_eq!(ended.trace_id[..2], [0x0a, 0xf7]);
        let unwanted = HeaderValue::from_str(&GIVEN.replace("-01", "-00")).unwrap();
        assert!(Started::begin(Some(&unwanted), 1.0).is_none());
        assert!(Started::begin(None, 0.0).is_none());
        assert!(Started::begin(None, 1.0).unwrap().parent.is_none());
    }
}
