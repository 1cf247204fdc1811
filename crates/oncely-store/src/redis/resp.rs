//! The protocol's bytes: commands out, replies in. A peer's bytes never make this panic.

use std::fmt;

/// Longest reply that is read, in bytes: a page of the largest results, and room to spare.
const REPLY_BYTES_MAX: usize = 1 << 30;
/// Deepest nesting of a reply.
const DEPTH_MAX: usize = 8;

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Nothing.
    Nil,
    /// A whole number.
    Int(i64),
    /// Bytes; also a simple text.
    Bytes(Vec<u8>),
    /// A refusal, in the server's words.
    Error(String),
    /// Several.
    Array(Vec<Value>),
}

impl Value {
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// A number, also one that is spelled out.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            other => other.text()?.parse().ok(),
        }
    }

    pub(crate) fn items(&self) -> &[Value] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }
}

/// Bytes that are not the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Garbled(pub(crate) &'static str);

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Appends a command.
pub(crate) fn encode(out: &mut Vec<u8>, parts: &[&[u8]]) {
    line(out, b'*', parts.len());
    parts.iter().for_each(|part| encode_part(out, part));
}

/// Parts of a command, to be put together with others.
pub(crate) fn encode_parts(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.iter().map(|part| part.len() + 16).sum());
    parts.iter().for_each(|part| encode_part(&mut out, part));
    out
}

fn encode_part(out: &mut Vec<u8>, part: &[u8]) {
    line(out, b'$', part.len());
    out.extend_from_slice(part);
    out.extend_from_slice(b"\r\n");
}

/// A command on its own.
pub(crate) fn command(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.iter().map(|p| p.len() + 16).sum::<usize>() + 16);
    encode(&mut out, parts);
    out
}

fn line(out: &mut Vec<u8>, kind: u8, number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// How long the first reply in these bytes is, if it is there in full.
pub(crate) fn measure(bytes: &[u8]) -> Result<Option<usize>, Garbled> {
    let mut at = 0;
    let mut open = vec![1_usize];
    while let Some(left) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        *left -= 1;
        let Some((kind, text, next)) = header(bytes, at)? else { return Ok(None) };
        at = next;
        match kind {
            b'+' | b'-' | b':' => {}
            b'$' => match length(text)? {
                None => {}
                Some(len) if at + len + 2 > bytes.len() => return Ok(None),
                Some(len) => at += len + 2,
            },
            b'*' => {
                if open.len() > DEPTH_MAX {
                    return Err(Garbled("a reply is nested too deeply"));
                }
                open.push(length(text)?.unwrap_or(0));
            }
            _ => return Err(Garbled("a reply begins with an unknown sign")),
        }
    }
    Ok(Some(at))
}

/// Reads the first reply; `bytes` hold it in full, as [`measure`] said.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, Garbled> {
    read_at(bytes, &mut 0)
}

fn read_at(bytes: &[u8], at: &mut usize) -> Result<Value, Garbled> {
    let (kind, text, next) = header(bytes, *at)?.ok_or(Garbled("a reply ends too early"))?;
    *at = next;
    Ok(match kind {
        b'+' => Value::Bytes(text.to_vec()),
        b'-' => Value::Error(String::from_utf8_lossy(text).into_owned()),
        b':' => Value::Int(integer(text)?),
        b'$' => match length(text)? {
            None => Value::Nil,
            Some(len) => {
                let body = bytes.get(next..next + len).ok_or(Garbled("a reply ends too early"))?;
                if bytes.get(next + len..next + len + 2) != Some(b"\r\n") {
                    return Err(Garbled("bytes are not followed by an end of line"));
                }
                *at = next + len + 2;
                Value::Bytes(body.to_vec())
            }
        },
        b'*' => match length(text)? {
            None => Value::Nil,
            Some(count) => {
                let mut items = Vec::with_capacity(count.min(bytes.len()));
                for _ in 0..count {
                    items.push(read_at(bytes, at)?);
                }
                Value::Array(items)
            }
        },
        _ => return Err(Garbled("a reply begins with an unknown sign")),
    })
}

/// The sign and the rest of a reply's first line, and where the next one begins.
type Header<'a> = (u8, &'a [u8], usize);

/// Reads the line at a place, if it is there in full.
fn header(bytes: &[u8], at: usize) -> Result<Option<Header<'_>>, Garbled> {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let Some(end) = rest.iter().position(|b| *b == b'\n') else {
        return if rest.len() > 64 * 1024 { Err(Garbled("a line is too long")) } else { Ok(None) };
    };
    let line = rest[..end].strip_suffix(b"\r").ok_or(Garbled("a line ends without a carriage return"))?;
    let (kind, text) = line.split_first().ok_or(Garbled("a line is empty"))?;
    Ok(Some((*kind, text, at + end + 1)))
}

fn length(text: &[u8]) -> Result<Option<usize>, Garbled> {
    match integer(text)? {
        -1 => Ok(None),
        number => match usize::try_from(number) {
            Ok(len) if len <= REPLY_BYTES_MAX => Ok(Some(len)),
            _ => Err(Garbled("a length is out of bounds")),
        },
    }
}

fn integer(text: &[u8]) -> Result<i64, Garbled> {
    std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).ok_or(Garbled("a number is not one"))
}

#[cfg(test)]
mod tests {
    use super::{Garbled, Value, command, measure, read};

    fn check(bytes: &[u8], expected: &Value) {
        for end in 0..bytes.len() {
            assert_eq!(measure(&bytes[..end]), Ok(None), "{end} of {} bytes are no reply", bytes.len());
        }
        let mut longer = bytes.to_vec();
        longer.extend_from_slice(b":1\r\n");
        assert_eq!(measure(&longer), Ok(Some(bytes.len())));
        assert_eq!(read(bytes).as_ref(), Ok(expected));
    }

    #[test]
    fn replies_are_read_however_they_are_cut() {
        check(b"+OK\r\n", &Value::Bytes(b"OK".to_vec()));
        check(b":-7\r\n", &Value::Int(-7));
        check(b"-ERR no\r\n", &Value::Error("ERR no".into()));
        check(b"$-1\r\n", &Value::Nil);
        check(b"*-1\r\n", &Value::Nil);
        check(b"$4\r\na\r\nb\r\n", &Value::Bytes(b"a\r\nb".to_vec()));
        let nested = Value::Array(vec![
            Value::Int(1),
            Value::Array(vec![Value::Nil, Value::Array(vec![])]),
            Value::Bytes(Vec::new()),
        ]);
        check(b"*3\r\n:1\r\n*2\r\n$-1\r\n*0\r\n$0\r\n\r\n", &nested);
    }

    #[test]
    fn garbled_replies_are_an_error_and_not_a_panic() {
        for bytes in [
            &b"?\r\n"[..],
            b"\r\n",
            b"OK\n",
            b":x\r\n",
            b"$-2\r\n",
            b"$99999999999999999999\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        ] {
            assert!(measure(bytes).is_err() || read(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(read(b"$1\r\nabc\r\n"), Err(Garbled("bytes are not followed by an end of line")));
    }

    #[test]
    fn a_command_is_an_array_of_bytes() {
        assert_eq!(command(&[b"SET", b"k", b"a\r\nb"]), b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
        assert_eq!(command(&[&[b'x'; 123]])[..10], *b"*1\r\n$123\r\n");
    }
}
