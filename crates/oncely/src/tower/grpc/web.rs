//! gRPC-Web: browsers see no trailers, so they are the last frame of the body.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The flag of a frame that holds trailers.
const TRAILERS: u8 = 0x80;

/// What a body holds.
pub(super) struct Content {
    /// Anything but trailers: a message, or bytes that nobody can read.
    pub(super) has_data: bool,
    /// The trailers at its end; none if it was cut short, or holds something else.
    pub(super) trailers: Option<HeaderMap>,
}

impl Content {
    pub(super) fn of(body: &[u8]) -> Self {
        let trailers = trailers(body);
        let is_trailers_alone = trailers.is_some() && body.first() == Some(&TRAILERS);
        Self { has_data: !body.is_empty() && !is_trailers_alone, trailers }
    }

    /// The same of a body in base64.
    pub(super) fn of_text(text: &[u8]) -> Self {
        match decoded(text) {
            Some(body) => Self::of(&body),
            None => Self { has_data: true, trailers: None },
        }
    }
}

fn trailers(mut body: &[u8]) -> Option<HeaderMap> {
    loop {
        let (head, rest) = body.split_first_chunk::<5>()?;
        let [flag, length @ ..] = head;
        let (frame, after) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        if *flag == TRAILERS {
            return after.is_empty().then(|| lines(frame)).flatten();
        }
        body = after;
    }
}

fn lines(frame: &[u8]) -> Option<HeaderMap> {
    let lines = frame.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let mut trailers = HeaderMap::new();
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        // A map has room for some thousand names, a frame for more.
        trailers.try_append(name, value).ok()?;
    }
    Some(trailers)
}

/// A body in base64, which may be several such texts one after the other.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut groups = text.chunks_exact(4);
    for group in &mut groups {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        let mut bits = 0u32;
        for byte in &group[..4 - padding] {
            bits = bits << 6 | u32::from(value(*byte)?);
        }
        bits <<= 6 * padding;
        let [_, whole @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(whole.get(..3usize.checked_sub(padding)?)?);
    }
    groups.remainder().is_empty().then_some(bytes)
}

fn value(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}
