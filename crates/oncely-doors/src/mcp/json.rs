//! JSON objects as their members in order, each value as the bytes that came: what is not changed stays as it was.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Objects with more members than this are checked for double names with a set.
const FEW: usize = 16;

/// The members of an object, in order, with raw values. A name that occurs twice is an error: parsers disagree about
/// which one counts, and a guard must not read another call than the server does.
#[derive(Debug, Clone, Default)]
pub struct Members<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> Members<'a> {
    /// Reads an object.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The raw text of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(there, _)| there == name).map(|(_, value)| value.get())
    }

    /// Whether there is such a member.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The text of a member that is a string.
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
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
        self.0.iter().map(|(name, value)| (name.as_ref(), value.get()))
    }

    /// Sets a member, in its place or at the end.
    pub fn set(&mut self, name: &str, value: Box<RawValue>) {
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
        let mut text = String::from("{");
        for (at, (name, value)) in self.0.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&quote(name));
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        text
    }

    /// The object as a raw value.
    pub fn raw(&self) -> Box<RawValue> {
        raw_text(self.render())
    }
}

/// A text as a JSON string.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Anything as a raw value.
pub fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| null())
}

/// A text that is known to be JSON as a raw value.
pub fn raw_text(text: String) -> Box<RawValue> {
    RawValue::from_string(text).unwrap_or_else(|_| null())
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

/// Adds an item to the end of a raw array; `None` if it is none.
pub fn push_item(array: &str, item: &str) -> Option<Box<RawValue>> {
    let inner = array.trim().strip_prefix('[')?.strip_suffix(']')?;
    let comma = if inner.trim().is_empty() { "" } else { "," };
    RawValue::from_string(format!("[{inner}{comma}{item}]")).ok()
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
                let mut members: Vec<(Cow<'de, str>, Cow<'de, RawValue>)> = Vec::new();
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
                    members.push((name, Cow::Borrowed(value)));
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
    use super::{Members, push_item, raw};

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
    fn an_item_is_added_to_an_array() {
        assert_eq!(push_item("[]", "1").unwrap().get(), "[1]");
        assert_eq!(push_item(" [ 1 , 2 ] ", "3").unwrap().get(), "[ 1 , 2 ,3]");
        assert!(push_item("{}", "1").is_none());
    }
}
