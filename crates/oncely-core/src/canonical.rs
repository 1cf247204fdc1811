//! Canonical JSON after RFC 8785, so that spelling does not matter: number forms, key order, escapes, white space.
//!
//! Two deliberate choices beside the RFC. Integers that fit 64 bits are written exactly, where the RFC would round
//! them to doubles: two account numbers that differ only in the last digit must not become one intent. And an object
//! that names a member twice is refused: parsers disagree about which one counts.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};

/// Why a payload has no canonical form. Nothing has run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The payload is larger than the limit.
    #[error("the payload has {len} bytes; at most {PAYLOAD_BYTES_MAX} are allowed")]
    TooLarge {
        /// Its length in bytes.
        len: usize,
    },
    /// The payload is not JSON, or not JSON that means one thing.
    #[error("the payload is not acceptable JSON: {0}")]
    Malformed(String),
    /// A field that the key is made of is missing.
    #[error("the key field {0:?} is missing from the payload; a key cannot be derived without it")]
    MissingField(String),
}

/// Room for so many members is made at once.
const MEMBERS_USUAL: usize = 8;

/// A JSON value whose object members are sorted and unique.
#[derive(Debug, Clone, PartialEq)]
pub enum Node<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer of at most 64 bits, exact.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Node<'a>>),
    /// An object, members in the order of RFC 8785.
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

/// Parses a payload.
pub fn parse(payload: &[u8]) -> Result<Node<'_>, PayloadError> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(PayloadError::TooLarge { len: payload.len() });
    }
    let malformed = |e: serde_json::Error| PayloadError::Malformed(e.to_string());
    // Checked as a whole, which is several times quicker than string by string.
    let text = std::str::from_utf8(payload).map_err(|e| PayloadError::Malformed(e.to_string()))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let node = NodeSeed { depth_left: PAYLOAD_DEPTH_MAX }.deserialize(&mut reader).map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(node)
}

impl<'a> Node<'a> {
    /// The canonical text.
    pub fn to_canonical(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        self.write(&mut out);
        out
    }

    /// Appends the canonical text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Node::Null => out.extend_from_slice(b"null"),
            Node::Bool(true) => out.extend_from_slice(b"true"),
            Node::Bool(false) => out.extend_from_slice(b"false"),
            Node::Integer(n) => out.extend_from_slice(itoa::Buffer::new().format(*n).as_bytes()),
            Node::Float(n) => out.extend_from_slice(ryu_js::Buffer::new().format_finite(*n).as_bytes()),
            Node::Text(text) => write_text(text, out),
            Node::Array(items) => {
                out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Node::Object(members) => {
                out.push(b'{');
                for (i, (name, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    write_text(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The member of an object, or the item of an array, with this name.
    pub fn get(&self, name: &str) -> Option<&Node<'a>> {
        match self {
            Node::Object(members) => members.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            Node::Array(items) => items.get(array_index(name)?),
            _ => None,
        }
    }

    /// Takes out the member or item at a path; says whether it was there.
    pub fn remove(&mut self, path: &[String]) -> bool {
        let Some((name, rest)) = path.split_first() else { return false };
        match self {
            Node::Object(members) => {
                let Some(at) = members.iter().position(|(n, _)| n == name) else { return false };
                if rest.is_empty() {
                    members.remove(at);
                    return true;
                }
                members[at].1.remove(rest)
            }
            Node::Array(items) => match array_index(name) {
                Some(at) if at < items.len() && rest.is_empty() => {
                    items.remove(at);
                    true
                }
                Some(at) => items.get_mut(at).is_some_and(|item| item.remove(rest)),
                None => false,
            },
            _ => false,
        }
    }
}

/// An array index as a JSON Pointer spells it: digits without a leading zero.
fn array_index(name: &str) -> Option<usize> {
    let plain = name == "0" || (!name.starts_with('0') && name.bytes().all(|b| b.is_ascii_digit()));
    if plain { name.parse().ok() } else { None }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut copied = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            0x08 => b'b',
            0x09 => b't',
            0x0a => b'n',
            0x0c => b'f',
            0x0d => b'r',
            0x00..=0x1f => 0,
            _ => continue,
        };
        out.extend_from_slice(&bytes[copied..at]);
        copied = at + 1;
        if short == 0 {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
        } else {
            out.extend_from_slice(&[b'\\', short]);
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

/// Reads any JSON value into a [`Node`], counting depth.
#[derive(Clone, Copy)]
struct NodeSeed {
    depth_left: usize,
}

impl<'de> DeserializeSeed<'de> for NodeSeed {
    type Value = Node<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl NodeSeed {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left }),
            None => Err(E::custom(format!("nested deeper than {PAYLOAD_DEPTH_MAX} levels"))),
        }
    }
}

impl<'de> Visitor<'de> for NodeSeed {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Node<'de>, E> {
        Ok(Node::Integer(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Node<'de>, E> {
        Ok(Node::Integer(v.into()))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Node<'de>, E> {
        if v.is_finite() {
            Ok(Node::Float(v))
        } else {
            Err(E::custom("a number beyond the range of a double"))
        }
    }

    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(v)))
    }

    fn visit_str<E>(self, v: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(v.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node<'de>, A::Error> {
        let seed = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(seed)? {
            items.push(item);
        }
        Ok(Node::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node<'de>, A::Error> {
        let seed = self.deeper()?;
        let mut members: Vec<(Cow<'de, str>, Node<'de>)> = Vec::with_capacity(MEMBERS_USUAL);
        while let Some(name) = map.next_key_seed(NameSeed)? {
            members.push((name, map.next_value_seed(seed)?));
        }
        // Most payloads come sorted, or nearly.
        if !members.is_sorted_by(|(a, _), (b, _)| utf16_order(a, b).is_lt()) {
            members.sort_by(|(a, _), (b, _)| utf16_order(a, b));
        }
        if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(de::Error::custom(format!("the member {:?} is there twice", pair[0].0)));
        }
        Ok(Node::Object(members))
    }
}

/// RFC 8785 sorts by UTF-16 code units, which differs from byte order only beyond the basic plane.
fn utf16_order(a: &str, b: &str) -> std::cmp::Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

/// Reads a member name, borrowed where it has no escapes.
struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(v.to_owned()))
    }
}

#[cfg(test)]
mod tests;
