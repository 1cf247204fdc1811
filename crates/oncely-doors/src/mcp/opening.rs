//! The beginning of a server's message whose end has not come yet: whether it can already be told whom it is for.

use super::ids;
use super::message::{is_id, is_lookalike};

/// Most members that are looked at.
pub(super) const FEW: usize = 8;

/// What the beginning of a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening<'a> {
    /// It answers the request of this id, as it was written.
    Answer(&'a str),
    /// It is a request or a notification.
    Call,
    /// It could be either: the id comes later, or it is not plain.
    Unclear,
}

impl<'a> Opening<'a> {
    /// Looks at the beginning of a message, as far as its first member that may be long.
    pub fn of(begun: &'a [u8]) -> Self {
        Self::seen(begun).unwrap_or(Self::Unclear)
    }

    fn seen(begun: &'a [u8]) -> Option<Self> {
        let mut rest = after(begun, b'{')?;
        let (mut names, mut id) = ([""; FEW], None);
        for count in 0..FEW {
            let (name, after_name) = string(rest)?;
            // One that is there twice, or that only some take for another, needs a closer look.
            if names.contains(&name) || name.contains('\\') || is_lookalike(name) {
                return None;
            }
            names[count] = name;
            rest = after(after_name, b':')?;
            if matches!(name, "result" | "error") {
                return id.map(Self::Answer);
            }
            let (value, after_value) = scalar(rest)?;
            match name {
                "id" => id = Some(value).filter(|id| is_id(id)),
                "method" => return value.starts_with('"').then_some(Self::Call),
                _ => {}
            }
            rest = after(after_value, b',')?;
        }
        None
    }

    /// The id that it answers, in its one spelling.
    pub(super) fn answers(&self) -> Option<std::borrow::Cow<'a, str>> {
        match self {
            Self::Answer(id) => Some(ids::canonical(id)),
            Self::Call | Self::Unclear => None,
        }
    }
}

/// What follows this byte, which has to come next.
pub(super) fn after(text: &[u8], byte: u8) -> Option<&[u8]> {
    text.trim_ascii_start().strip_prefix(&[byte])
}

/// A string that comes next, without its quotes and with its escapes, and what follows it.
pub(super) fn string(text: &[u8]) -> Option<(&str, &[u8])> {
    let text = after(text, b'"')?;
    let mut end = 0;
    loop {
        end += memchr::memchr2(b'"', b'\\', &text[end..])?;
        if text[end] == b'"' {
            break;
        }
        // What is escaped does not end it.
        end += 2;
        if end > text.len() {
            return None;
        }
    }
    Some((std::str::from_utf8(&text[..end]).ok()?, &text[end + 1..]))
}

/// A whole value that is neither an object nor an array, and what follows it.
pub(super) fn scalar(text: &[u8]) -> Option<(&str, &[u8])> {
    let text = text.trim_ascii_start();
    let length = if text.first() == Some(&b'"') {
        let (_, rest) = string(text)?;
        text.len() - rest.len()
    } else {
        // What follows has to be seen: a number may go on.
        text.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"+-.".contains(byte)))?
    };
    let (value, rest) = text.split_at(length);
    let value = std::str::from_utf8(value).ok()?;
    serde_json::from_str::<serde::de::IgnoredAny>(value).ok()?;
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::Opening;

    #[test]
    fn whom_a_message_is_for_is_told_from_plain_beginnings() {
        for (begun, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{"#, Opening::Answer("1")),
            (r#" { "id" : "a" , "error" :"#, Opening::Answer(r#""a""#)),
            (r#"{"id":"\u0061\"","x":null,"result":"#, Opening::Answer(r#""\u0061\"""#)),
            (r#"{"id":-1.0,"result":"#, Opening::Answer("-1.0")),
            (r#"{"jsonrpc":"2.0","method":"notifications/x","#, Opening::Call),
            (r#"{"id":1,"method":"x","params""#, Opening::Call),
        ] {
            assert_eq!(Opening::of(begun.as_bytes()), expected, "{begun}");
        }
        assert_eq!(Opening::Answer(r#""\u0061""#).answers().unwrap(), r#""a""#);
    }

    #[test]
    fn whatever_could_be_read_in_another_way_is_unclear() {
        for begun in [
            "",
            "[",
            "x",
            "{",
            r#"{"result":{"id":1,"#,
            r#"{"jsonrpc":"2.0","result":"#,
            r#"{"id":1"#,
            r#"{"id":1,"resu"#,
            r#"{"id":12"#,
            r#"{"id":"a"#,
            r#"{"id":"a\"#,
            r#"{"id":null,"result":"#,
            r#"{"id":1.5,"result":"#,
            r#"{"id":01,"result":"#,
            r#"{"id":{},"result":"#,
            r#"{"id":1,"id":2,"result":"#,
            r#"{"id":1,"Id":2,"result":"#,
            r#"{"id":1,"i\u0064":2,"result":"#,
            r#"{"id":1,"_meta":{},"result":"#,
            r#"{"id":1 "result":"#,
            r#"{"id":1}{"result":"#,
            r#"{"method":3,"#,
            r#"{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"id":1,"result":"#,
        ] {
            assert_eq!(Opening::of(begun.as_bytes()), Opening::Unclear, "{begun}");
        }
        assert_eq!(Opening::of(b"{\"id\":\"\xff\",\"result\":"), Opening::Unclear);
    }
}
