//! A message that is too long to be kept: whom it concerns, from its beginning and its end. Only what stands in the message
//! itself counts, never what stands in one of its values.

use serde::de::IgnoredAny;

use super::message::{is_id, is_lookalike};
use super::opening::{FEW, after, scalar, string};

/// What can be told of a message of which only the beginning and the end are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// It answers the request of this id, as it was written.
    Answer(String),
    /// It is a request of this id, or a notification.
    Call(Option<String>),
    /// It could be either, or its id was not found.
    Unclear,
}

impl Cut {
    /// Looks at the beginning and the end of a line of JSON. One without an end of line broke off, and is unclear.
    pub fn of(head: &[u8], tail: &[u8]) -> Self {
        tail.ends_with(b"\n").then(|| Self::seen(head, tail)).flatten().unwrap_or(Self::Unclear)
    }

    fn seen(head: &[u8], tail: &[u8]) -> Option<Self> {
        let mut members = Members::default();
        members.lead(head)?;
        members.trail(tail)?;
        let id = match members.value("id") {
            Some(id) => Some(id.filter(|id| is_written_id(id))?.to_owned()),
            None => None,
        };
        let is_call = members.has("method");
        let is_answer = members.has("result") || members.has("error");
        match (is_call, is_answer, id) {
            (true, false, id) => Some(Self::Call(id)),
            (false, true, Some(id)) => Some(Self::Answer(id)),
            _ => None,
        }
    }
}

/// Whether this is an id, and can be put into an answer as it is.
fn is_written_id(raw: &str) -> bool {
    is_id(raw) && serde_json::from_str::<IgnoredAny>(raw).is_ok()
}

/// The id of the message that ends like this, if it stands behind its last long member.
pub(super) fn id_at_end(tail: &[u8]) -> Option<String> {
    let mut members = Members::default();
    members.trail(tail)?;
    members.value("id").flatten().map(str::to_owned)
}

/// Members of a message, and the values of those that have short ones.
#[derive(Default)]
struct Members<'a>(Vec<(&'a str, Option<&'a str>)>);

impl<'a> Members<'a> {
    fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    fn value(&self, name: &str) -> Option<Option<&'a str>> {
        self.0.iter().find(|(there, _)| *there == name).map(|(_, value)| *value)
    }

    /// One that is there twice, or that only some take for another, makes all of them unclear.
    fn note(&mut self, name: &'a str, value: Option<&'a str>) -> Option<()> {
        let is_plain = !self.has(name) && !name.contains('\\') && !is_lookalike(name);
        is_plain.then(|| self.0.push((name, value)))
    }

    /// From the beginning up to the first whose value does not end in here.
    fn lead(&mut self, head: &'a [u8]) -> Option<()> {
        let mut rest = after(head, b'{')?;
        for _ in 0..FEW {
            let (name, after_name) = string(rest)?;
            rest = after(after_name, b':')?;
            let whole = scalar(rest).or_else(|| nested(rest));
            let Some((value, after_value)) = whole else { return self.note(name, None) };
            self.note(name, Some(value))?;
            rest = after(after_value, b',')?;
        }
        None
    }

    /// From the end back to the first whose value does not begin in here.
    fn trail(&mut self, tail: &'a [u8]) -> Option<()> {
        let mut rest = before(tail, b'}')?;
        for _ in 0..FEW {
            let Some(at) = beginning_of_last(rest) else { return Some(()) };
            let (before_value, value) = rest.split_at(at);
            let before_colon = before(before_value, b':')?.trim_ascii_end();
            let (before_name, name) = before_colon.split_at(beginning_of_last(before_colon)?);
            let name = std::str::from_utf8(name).ok()?.strip_prefix('"')?.strip_suffix('"')?;
            self.note(name, std::str::from_utf8(value.trim_ascii_end()).ok())?;
            rest = before(before_name, b',')?;
        }
        None
    }
}

/// A whole object or array that comes next, and what follows it.
fn nested(text: &[u8]) -> Option<(&str, &[u8])> {
    let text = text.trim_ascii_start();
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match text.get(at)? {
            b'"' if depth > 0 => {
                let (_, rest) = string(&text[at..])?;
                at = text.len() - rest.len();
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some((std::str::from_utf8(&text[..at]).ok()?, &text[at..]));
        }
    }
}

/// What comes before this byte, which has to be the last.
fn before(text: &[u8], byte: u8) -> Option<&[u8]> {
    text.trim_ascii_end().strip_suffix(&[byte])
}

/// Where the last value begins; `None` if that is not in here. Read backwards from between two tokens, JSON is as clear as
/// it is forwards: no quote within a text lacks its backslash.
fn beginning_of_last(text: &[u8]) -> Option<usize> {
    let mut end = text.trim_ascii_end().len();
    let mut depth = 0_usize;
    loop {
        let last = end.checked_sub(1)?;
        end = match text[last] {
            b'"' => opening_quote(&text[..last])?,
            b'}' | b']' => {
                depth += 1;
                last
            }
            b'{' | b'[' => {
                depth = depth.checked_sub(1)?;
                last
            }
            _ if depth > 0 => last,
            byte if is_bare(byte) => {
                let at = text[..last].iter().rposition(|byte| !is_bare(*byte))?;
                at + 1
            }
            _ => return None,
        };
        if depth == 0 {
            return Some(end);
        }
    }
}

/// Of numbers and words.
fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

/// Where the text that these bytes end in begins: at the last quote that is not escaped. The first byte may have lost the
/// backslash before it.
fn opening_quote(text: &[u8]) -> Option<usize> {
    let mut end = text.len();
    loop {
        let quote = memchr::memrchr(b'"', &text[..end])?;
        let first = text[..quote].iter().rposition(|byte| *byte != b'\\')? + 1;
        if (quote - first).is_multiple_of(2) {
            return Some(quote);
        }
        end = first;
    }
}

#[cfg(test)]
mod tests {
    use super::{Cut, id_at_end};

    fn cut(head: &str, tail: &str) -> Cut {
        Cut::of(head.as_bytes(), format!("{tail}\n").as_bytes())
    }

    fn answer(head: &str, tail: &str) -> Option<String> {
        match cut(head, tail) {
            Cut::Answer(id) => Some(id),
            _ => None,
        }
    }

    #[test]
    fn the_id_of_an_answer_is_found_at_either_end() {
        let first = r#"{"jsonrpc":"2.0","id":7,"result":{"a":"#;
        assert_eq!(answer(first, "xxx\"}}\n").as_deref(), Some("7"));
        assert_eq!(answer(first, r#"x","id":9}]}} "#).as_deref(), Some("7"));
        let last = r#"{"result":{"id":9"#;
        for tail in [
            r#"..."id":3}]},"jsonrpc":"2.0","id":"x"}"#,
            r#"x" } , "id" : "x" , "jsonrpc" : "2.0" }"#,
            r#"x"},"id":"x","more":{"a":[{"id":4},"\\\"}","]"],"b":{}},"n":-1.5e3,"t":null}"#,
        ] {
            assert_eq!(answer(last, tail).as_deref(), Some("\"x\""), "{tail}");
        }
        let error = r#"{"id":7,"error":{"data":{"id":9,"result":"#;
        assert_eq!(answer(error, "x\"}}}\n").as_deref(), Some("7"));
        let more = r#"{"id":7,"_meta":{"id":1,"a":["}\"]",{}]},"more":[],"result":{"id":9,"#;
        assert_eq!(answer(more, "x\"}}").as_deref(), Some("7"));
        // The value is a text, and what looks like a member is part of it.
        assert_eq!(answer(r#"{"result":"x"#, r#"x\",\"id\":4,\"","id":5}"#).as_deref(), Some("5"));
    }

    #[test]
    fn what_stands_in_a_value_is_no_id() {
        for (head, tail) in [
            (r#"{"result":{"id":9"#, r#"x","id":9}}"#),
            (r#"{"result":{"id":9"#, r#"x","id":9,"a":"}"}}"#),
            (r#"{"result":"x"#, r#"x\",\"id\":4"}"#),
            (r#"{"id":7,"error":{"data":{"id":9,"result":"#, r#"x"},"id":8}"#),
            (r#"{"id":7,"result":"#, r#"x"},"ID":8}"#),
            (r#"{"id":1.5,"result":"#, r#"x"}}"#),
            (r#"{"id":{"id":1},"result":"#, r#"x"}}"#),
            (r#"{"a":"#, r#"x"},"id":8}"#),
            (r#"["#, r#"x"},"id":8}"#),
            (r#"{"result":"#, r#"x"},"id":8}]"#),
            (r#"{"result":"#, r#""id":8}"#),
            (r#"{"result":"#, r#"8}"#),
            (r#"{"result":"#, r#"x"},"id":"\q"}"#),
            (r#"{"id":7,"params":{"a":"#, r#"x"}}"#),
            (r#"{"result":"#, ""),
        ] {
            assert_eq!(cut(head, tail), Cut::Unclear, "{head} {tail}");
        }
        let broken_off = Cut::of(br#"{"result":{"a":"x"#, br#"x","id":2}"#);
        assert_eq!(broken_off, Cut::Unclear);
    }

    #[test]
    fn a_request_is_not_taken_for_an_answer() {
        let one = Cut::Call(Some("1".to_owned()));
        assert_eq!(cut(r#"{"id":1,"method":"x","params":{"result":"#, r#"x"}}"#), one);
        assert_eq!(cut(r#"{"params":{"result":"#, r#"x"},"method":"x","id":1}"#), one);
        assert_eq!(cut(r#"{"method":"x","params":{"id":2,"#, r#"x"}}"#), Cut::Call(None));
        assert_eq!(cut(r#"{"id":1,"result":{"#, r#"x"},"method":"x"}"#), Cut::Unclear);
    }

    /// Whatever the place of the cut, backwards is read what was written.
    #[test]
    fn reading_backwards_finds_what_reading_forwards_does() {
        let texts = [r#"\\"#, r#"\""#, r#"\\\""#, "}", "]", r#",\"id\":4"#, "é", "", r#"\u0022"#];
        for a in texts {
            for b in texts {
                let whole =
                    format!(r#"{{"result":{{"a":"{a}{b}"}},"id":"{b}{a}","z":["{a}",{{"{b}":"{a}"}}]}}"#);
                let expected = format!("\"{b}{a}\"");
                for from in 0..whole.len() {
                    let found = id_at_end(&whole.as_bytes()[from..]);
                    assert!(found.is_none() || found.as_ref() == Some(&expected), "{whole} {from} {found:?}");
                }
                let after_value = whole.find(r#","id""#).unwrap();
                assert_eq!(id_at_end(&whole.as_bytes()[after_value - 1..]), Some(expected), "{whole}");
            }
        }
    }
}
