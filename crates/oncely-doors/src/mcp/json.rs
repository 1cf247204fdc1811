//! JSON objects as their members in order, each value as the bytes that came: what is not changed stays as it was.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::plain::Plain;

/// Objects with more members than this are checked for double names with a set.
const FEW: usize = 16;
/// Room for the members that messages and their parameters have.
const USUAL: usize = 4;

/// The members of an object, in order, with their values as they are written. A name that occurs twice is an error: parsers disagree about
/// which one counts, and a guard must not read another call than the server does.
#[derive(Debug, Clone, Default)]
pub struct Members<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Members<'a> {
    /// Reads an object.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        match Self::plain(text) {
            Some(members) => Ok(members),
            None => serde_json::from_str(text),
        }
    }

    /// The same where it is plain and has few members, as most have.
    fn plain(text: &'a str) -> Option<Self> {
        let mut members: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::with_capacity(USUAL);
        let mut plain = Plain::new(text);
        plain.object(|name, plain| {
            let is_new = members.len() < FEW && members.iter().all(|(there, _)| there != name);
            let value = plain.value().filter(|_| is_new)?;
            members.push((Cow::Borrowed(name), Cow::Borrowed(value)));
            Some(())
        })?;
        plain.end()?;
        Some(Self(members))
    }

    /// The raw text of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(there, _)| there == name).map(|(_, value)| value.as_ref())
    }

    /// The same where it is as it came, for as long as that lasts.
    pub fn came(&self, name: &str) -> Option<&'a str> {
        match &self.0.iter().find(|(there, _)| there == name)?.1 {
            Cow::Borrowed(value) => Some(value),
            Cow::Owned(_) => None,
        }
    }

    /// Whether there is such a member.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The text of a member that is a string.
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        text_of(self.get(name)?)
    }

    /// The members of a member that is an object.
    pub fn object(&self, name: &str) -> Option<Members<'_>> {
        Members::parse(self.get(name)?).ok()
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    /// Names and raw values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Sets a member to a value that is JSON, in its place or at the end.
    pub fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(there, _)| there == name) {
            Some((_, there)) => *there = Cow::Owned(value),
            None => self.0.push((Cow::Owned(name.to_owned()), Cow::Owned(value))),
        }
    }

    /// Takes a member out; says whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|(there, _)| there != name);
        self.0.len() != before
    }

    /// The object as text.
    pub fn render(&self) -> String {
        // Quotes, a colon and a comma for each, and the braces.
        let length = self.0.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>() + 2;
        let mut text = String::with_capacity(length);
        text.push('{');
        for (name, value) in &self.0 {
            push_name(&mut text, name);
            text.push_str(value);
        }
        text.push('}');
        text
    }
}

/// A text as a JSON string.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    push_quoted(&mut quoted, text);
    quoted
}

fn push_quoted(to: &mut String, text: &str) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        to.push('"');
        to.push_str(text);
        to.push('"');
    } else {
        to.push_str(&raw(&text));
    }
}

/// Anything as JSON.
pub fn raw<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// The text that a JSON string means; `None` if it is none.
pub fn text_of(raw: &str) -> Option<Cow<'_, str>> {
    let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inside.contains('\\') {
        return serde_json::from_str(raw).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inside))
}

/// Begins a member of an object that is being written.
pub fn push_name(to: &mut String, name: &str) {
    if !to.ends_with('{') {
        to.push(',');
    }
    push_quoted(to, name);
    to.push(':');
}

/// Writes an array with one more item at its end; `None`, and nothing is written, if it is none.
pub fn push_with_item(to: &mut String, array: &str, item: &str) -> Option<()> {
    let inner = array.trim().strip_prefix('[')?.strip_suffix(']')?;
    let comma = if inner.trim().is_empty() { "" } else { "," };
    for piece in ["[", inner, comma, item, "]"] {
        to.push_str(piece);
    }
    Some(())
}

/// The items of a raw array.
pub fn items(array: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(array).ok()
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members: Vec<(Cow<'de, str>, Cow<'de, str>)> = Vec::with_capacity(USUAL);
                let mut seen: HashSet<Cow<'de, str>> = HashSet::new();
                while let Some(Name(name)) = map.next_key()? {
                    let double = if members.len() < FEW {
                        members.iter().any(|(there, _)| *there == name)
                    } else {
                        if seen.is_empty() {
                            seen.extend(members.iter().map(|(there, _)| there.clone()));
                        }
                        !seen.insert(name.clone())
                    };
                    if double {
                        return Err(A::Error::custom(format!("the member {name:?} is there twice")));
                    }
                    let value: &'de RawValue = map.next_value()?;
                    members.push((name, Cow::Borrowed(value.get())));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// A member's name, borrowed where it holds no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Members, push_with_item, quote, raw, text_of};

    #[test]
    fn what_is_not_changed_keeps_its_bytes_and_its_place() {
        let text = r#"{"a": 1.50,"b":{"z":12345678901234567890123},"c":"\u0041"}"#;
        let mut members = Members::parse(text).unwrap();
        members.set("b", raw(&2));
        members.set("d", raw(&"x"));
        assert_eq!(members.render(), r#"{"a":1.50,"b":2,"c":"\u0041","d":"x"}"#);
        assert!(members.remove("a") && !members.remove("a"));
    }

    #[test]
    fn a_name_that_is_there_twice_is_an_error_however_it_is_spelled() {
        assert!(Members::parse(r#"{"name":1,"n\u0061me":2}"#).is_err());
        let many: String = (0..100).map(|i| format!("\"k{i}\":0,")).collect();
        assert!(Members::parse(&format!("{{{many}\"k7\":1}}")).is_err());
        assert!(Members::parse(&format!("{{{many}\"x\":1}}")).is_ok());
    }

    #[test]
    fn texts_are_read_and_written_as_json_has_them() {
        for text in ["", "plain", "é", "a\"b\\c", "line\nbreak", "\u{7f}\u{2028}"] {
            let quoted = quote(text);
            assert_eq!(quoted, serde_json::to_string(text).unwrap());
            assert_eq!(text_of(&quoted).as_deref(), Some(text));
        }
        assert_eq!(text_of(r#""\u0041\/""#).as_deref(), Some("A/"));
        for none in ["1", "null", "{}", r#""\ud800""#] {
            assert_eq!(text_of(none), None, "{none}");
        }
    }

    #[test]
    fn an_item_is_added_to_an_array() {
        let with_item = |array: &str, item: &str| {
            let mut text = "x".to_owned();
            push_with_item(&mut text, array, item).map(|()| text)
        };
        assert_eq!(with_item("[]", "1").unwrap(), "x[1]");
        assert_eq!(with_item(" [ 1 , 2 ] ", "3").unwrap(), "x[ 1 , 2 ,3]");
        assert!(with_item("{}", "1").is_none());
    }
}
