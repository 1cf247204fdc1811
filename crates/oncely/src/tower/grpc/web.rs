//! gRPC-Web: browsers see no trailers, so they are the last frame of the body.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The flag of a frame that holds trailers.
const TRAILERS: u8 = 0x80;

/// The trailers at the end of a body; none if it was cut short, or holds something else.
pub(super) fn trailers(mut body: &[u8]) -> Option<HeaderMap> {
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
        trailers.append(name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?);
    }
    Some(trailers)
}

/// A body in base64, which may be several such texts one after the other.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
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
