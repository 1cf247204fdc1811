//! What is kept of a response and replayed: status, allow-listed headers, body and trailers, in a versioned form.

use bytes::{Buf as _, Bytes};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use oncely_core::Payload;

use super::body::Body;
use super::grpc;

/// How many headers an answer gets that is replayed.
const STAMPS: usize = 5;
/// Starts every kept response, so that a result given by a person is not taken for one.
const MAGIC: &[u8; 4] = b"\x00oh1";

/// The headers of a response that mean the same on a replay. Never `Set-Cookie`, `Date`, hop-by-hop or rate-limit ones.
pub const REPLAYED_HEADERS: [HeaderName; 11] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_DISPOSITION,
    header::CONTENT_LOCATION,
    header::LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    header::VARY,
    header::CACHE_CONTROL,
];

/// Headers that are never replayed, whatever a route lists: they speak of one exchange, one connection or one person.
const NEVER_REPLAYED: [&str; 15] = [
    "set-cookie",
    "date",
    "age",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "retry-after",
    "grpc-retry-pushback-ms",
    "www-authenticate",
];

/// Whether a header may ever be replayed.
pub fn may_be_replayed(name: &HeaderName) -> bool {
    let name = name.as_str();
    !NEVER_REPLAYED.contains(&name)
        && !name.contains("ratelimit")
        && !name.contains("rate-limit")
        && !name.starts_with("idempoten")
}

/// A response as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

impl Kept {
    /// Keeps what may be replayed.
    pub(super) fn of(
        status: StatusCode,
        headers: &HeaderMap,
        more: &[HeaderName],
        body: Bytes,
        trailers: Option<HeaderMap>,
    ) -> Self {
        let mut kept = HeaderMap::new();
        for name in REPLAYED_HEADERS.iter().chain(more).chain(&grpc::kept_in_head(headers)) {
            if may_be_replayed(name) && !kept.contains_key(name) {
                for value in headers.get_all(name) {
                    kept.append(name.clone(), value.clone());
                }
            }
        }
        Self { status, headers: kept, body, trailers: trailers.map(only_replayed) }
    }

    /// Magic, status, headers, trailers, body; lengths before texts, big-endian.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.headers.len() * 48 + self.body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.status.as_u16().to_be_bytes());
        encode_headers(&self.headers, &mut bytes);
        match &self.trailers {
            Some(trailers) => {
                bytes.push(1);
                encode_headers(trailers, &mut bytes);
            }
            None => bytes.push(0),
        }
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Reads the bytes back; `None` if they are something else. The body is not copied: it stays where the ledger's
    /// memory has it.
    pub(super) fn decode(bytes: &Payload) -> Option<Self> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let status = StatusCode::from_u16(u16::from_be_bytes(take::<2>(&mut rest)?)).ok()?;
        let headers = decode_headers(&mut rest)?;
        let trailers = match take::<1>(&mut rest)? {
            [0] => None,
            [1] => Some(decode_headers(&mut rest)?),
            _ => return None,
        };
        let body = shared_end(bytes, rest.len());
        Some(Self { status, headers, body, trailers })
    }

    /// What a stored result answers. One that is not a kept response was handed in by a person or a probe: it is the
    /// body of a plain success.
    pub(super) fn of_result(result: &Payload) -> Self {
        Self::decode(result).unwrap_or_else(|| {
            let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(result).is_ok();
            let kind = if is_json { "application/json" } else { "application/octet-stream" };
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            Self { status: StatusCode::OK, headers, body: shared_end(result, result.len()), trailers: None }
        })
    }

    /// Whether a gRPC client can read it: an answer of gRPC, or the refusal of something in between.
    pub(super) fn can_answer_grpc(&self) -> bool {
        !self.status.is_success() || grpc::speech_of(&self.headers).is_some()
    }

    pub(super) fn into_response<B>(self) -> Response<Body<B>> {
        let mut response = Response::new(Body::with_trailers(self.body, self.trailers));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// Trailers without what may never be replayed.
fn only_replayed(mut trailers: HeaderMap) -> HeaderMap {
    let never: Vec<HeaderName> = trailers.keys().filter(|name| !may_be_replayed(name)).cloned().collect();
    for name in never {
        trailers.remove(name);
    }
    trailers
}

/// The last bytes of a stored result, where they are.
fn shared_end(bytes: &Payload, length: usize) -> Bytes {
    let mut end = Bytes::from_owner(Payload::clone(bytes));
    end.advance(bytes.len() - length);
    end
}

fn encode_headers(headers: &HeaderMap, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(headers.len() as u32).to_be_bytes());
    for (name, value) in headers {
        for text in [name.as_str().as_bytes(), value.as_bytes()] {
            bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text);
        }
    }
}

fn decode_headers(rest: &mut &[u8]) -> Option<HeaderMap> {
    let count = u32::from_be_bytes(take::<4>(rest)?);
    // Room for what is added to a replay, too; a count is believed only as far as any answer goes.
    let mut headers = HeaderMap::with_capacity(count.min(32) as usize + STAMPS);
    for _ in 0..count {
        let name = HeaderName::from_bytes(text(rest)?).ok()?;
        headers.try_append(name, HeaderValue::from_bytes(text(rest)?).ok()?).ok()?;
    }
    Some(headers)
}

fn text<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = usize::try_from(u32::from_be_bytes(take::<4>(rest)?)).ok()?;
    let (text, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(text)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::Kept;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn sample() -> Kept {
        let all = headers(&[
            ("content-type", "text/plain"),
            ("location", "/orders/1"),
            ("set-cookie", "session=secret"),
            ("date", "today"),
            ("x-ratelimit-remaining", "3"),
            ("x-request-id", "r1"),
        ]);
        let more = ["x-request-id", "set-cookie", "x-ratelimit-remaining"].map(|n| n.parse().unwrap());
        let trailers = headers(&[("x-checksum", "1"), ("set-cookie", "a"), ("grpc-retry-pushback-ms", "7")]);
        Kept::of(StatusCode::CREATED, &all, &more, Bytes::from_static(b"hi"), Some(trailers))
    }

    #[test]
    fn only_what_means_the_same_on_a_replay_is_kept() {
        let kept = sample();
        let names: Vec<&str> = kept.headers.keys().map(|n| n.as_str()).collect();
        assert_eq!(names, ["content-type", "location", "x-request-id"]);
        assert_eq!(kept.trailers.unwrap(), headers(&[("x-checksum", "1")]));
    }

    #[test]
    fn what_is_kept_reads_back_byte_for_byte() {
        let kept = Kept { trailers: None, ..sample() };
        assert_eq!(Kept::decode(&kept.encode().into()), Some(kept.clone()));
        let with_trailers = Kept { trailers: Some(headers(&[("grpc-status", "0")])), ..kept };
        assert_eq!(Kept::decode(&with_trailers.encode().into()), Some(with_trailers.clone()));
        for cut in 0..with_trailers.encode().len() - 2 {
            assert_eq!(Kept::decode(&with_trailers.encode()[..cut].into()), None, "{cut}");
        }
        // Pinned: ledgers in the field hold this form.
        let small = Kept {
            status: StatusCode::OK,
            headers: headers(&[("etag", "x")]),
            body: Bytes::from_static(b"hi"),
            trailers: None,
        };
        assert_eq!(small.encode(), b"\x00oh1\x00\xc8\0\0\0\x01\0\0\0\x04etag\0\0\0\x01x\0hi");
    }

    #[test]
    fn a_result_that_a_person_gave_is_a_plain_success() {
        let kept = Kept::of_result(&b"{\"charge\":1}"[..].into());
        assert_eq!(
            (kept.status, &kept.headers["content-type"]),
            (StatusCode::OK, &"application/json".parse().unwrap())
        );
        assert_eq!(
            Kept::of_result(&b"\x01\x02"[..].into()).headers["content-type"],
            "application/octet-stream"
        );
    }
}
