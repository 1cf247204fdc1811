//! Selectors: which fields of a payload make the key, and which never matter.

use std::borrow::Cow;
use std::fmt;

use crate::canonical::{Node, PayloadError};

/// Names one field of a payload: a JSON Pointer (`/items/0/sku`) or a dotted path (`items.0.sku`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    path: Vec<String>,
}

impl Selector {
    /// Longest selector, in bytes.
    const BYTES_MAX: usize = 512;

    /// Reads either form.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > Self::BYTES_MAX {
            return Err(format!("a selector needs 1 to {} bytes", Self::BYTES_MAX));
        }
        let path: Result<Vec<String>, String> = match text.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(unescape).collect(),
            None => Ok(text.split('.').map(str::to_owned).collect()),
        };
        let path = path.map_err(|e| format!("{text:?}: {e}"))?;
        if !text.starts_with('/') && path.iter().any(String::is_empty) {
            return Err(format!(
                "{text:?} has an empty part; a JSON Pointer can name such a field: \"/a//b\""
            ));
        }
        Ok(Self { path })
    }

    /// The field in a payload.
    pub fn find<'n, 'a>(&self, payload: &'n Node<'a>) -> Option<&'n Node<'a>> {
        self.path.iter().try_fold(payload, |node, name| node.get(name))
    }

    /// The path, part by part.
    pub fn path(&self) -> &[String] {
        &self.path
    }
}

fn unescape(part: &str) -> Result<String, String> {
    let mut out = String::with_capacity(part.len());
    let mut chars = part.chars();
    while let Some(c) = chars.next() {
        match (c, c == '~') {
            (_, true) => match chars.next() {
                Some('0') => out.push('~'),
                Some('1') => out.push('/'),
                _ => {
                    return Err(
                        "in a JSON Pointer \"~\" is written \"~0\" and \"/\" within a name \"~1\"".into()
                    );
                }
            },
            (c, false) => out.push(c),
        }
    }
    Ok(out)
}

/// Prints the JSON Pointer: both spellings of one field look the same.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.path {
            write!(f, "/{}", part.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

/// The chosen fields of a payload as one object, named by their pointers. A missing field is an error.
pub fn pick<'a>(payload: &Node<'a>, selectors: &[Selector]) -> Result<Node<'a>, PayloadError> {
    let mut members: Vec<(Cow<'a, str>, Node<'a>)> = Vec::with_capacity(selectors.len());
    for selector in selectors {
        let name = selector.to_string();
        match selector.find(payload) {
            Some(value) => members.push((Cow::Owned(name), value.clone())),
            None => return Err(PayloadError::MissingField(name)),
        }
    }
    members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    members.dedup_by(|(a, _), (b, _)| a == b);
    Ok(Node::Object(members))
}

/// Leaves the ignored fields out of a payload; one that is not there is no matter.
pub fn leave_out(payload: &mut Node<'_>, selectors: &[Selector]) {
    // Later items first, so that taking one out of an array does not move the next.
    let mut ordered: Vec<&Selector> = selectors.iter().collect();
    ordered.sort_by(|a, b| by_position(b.path(), a.path()));
    for selector in ordered {
        payload.remove(selector.path());
    }
}

fn by_position(a: &[String], b: &[String]) -> std::cmp::Ordering {
    let number = |s: &String| s.parse::<usize>().ok();
    for (x, y) in a.iter().zip(b) {
        let order = match (number(x), number(y)) {
            (Some(m), Some(n)) => m.cmp(&n),
            // Numbers before names: compared as text, "10", "1a" and "9" would go round in a circle.
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => x.cmp(y),
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

#[cfg(test)]
mod tests {
    use super::{Selector, by_position, leave_out, pick};
    use crate::canonical::{PayloadError, parse};

    fn selectors(list: &[&str]) -> Vec<Selector> {
        list.iter().map(|s| Selector::parse(s).unwrap()).collect()
    }

    #[track_caller]
    fn check_pick(payload: &str, list: &[&str], expected: &str) {
        let node = parse(payload.as_bytes()).unwrap();
        let picked = pick(&node, &selectors(list)).unwrap();
        assert_eq!(String::from_utf8(picked.to_canonical()).unwrap(), expected);
    }

    #[track_caller]
    fn check_ignore(payload: &str, list: &[&str], expected: &str) {
        let mut node = parse(payload.as_bytes()).unwrap();
        leave_out(&mut node, &selectors(list));
        assert_eq!(String::from_utf8(node.to_canonical()).unwrap(), expected);
    }

    #[test]
    fn both_spellings_pick_the_same_field() {
        check_pick(r#"{"a":{"b":[1,{"c":2}]}}"#, &["a.b.1.c"], r#"{"/a/b/1/c":2}"#);
        check_pick(r#"{"a":{"b":[1,{"c":2}]}}"#, &["/a/b/1/c", "a.b.1.c"], r#"{"/a/b/1/c":2}"#);
        check_pick(r#"{"a/b":{"~":null}}"#, &["/a~1b/~0"], r#"{"/a~1b/~0":null}"#);
        check_pick(r#"{"z":1,"a":2}"#, &["z", "a"], r#"{"/a":2,"/z":1}"#);
    }

    #[test]
    fn a_missing_field_is_an_error_and_not_an_empty_string() {
        let node = parse(br#"{"a":1}"#).unwrap();
        for gone in ["b", "a.b", "/a/0", "/0"] {
            let result = pick(&node, &selectors(&[gone]));
            assert!(matches!(result, Err(PayloadError::MissingField(_))), "{gone}");
        }
    }

    #[test]
    fn ignoring_takes_out_what_is_there() {
        check_ignore(r#"{"a":1,"at":2}"#, &["at", "nothing.here"], r#"{"a":1}"#);
        check_ignore(r#"{"l":[0,1,2,3]}"#, &["l.1", "l.2"], r#"{"l":[0,3]}"#);
        check_ignore(r#"{"l":[{"t":1,"v":2}]}"#, &["/l/0/t"], r#"{"l":[{"v":2}]}"#);
    }

    #[test]
    fn positions_are_in_one_order_whatever_the_names() {
        let parts = ["9", "10", "1a", "a", "01", "+1", "", "2"].map(|p| vec![p.to_owned()]);
        for a in &parts {
            for b in &parts {
                assert_eq!(by_position(a, b), by_position(b, a).reverse(), "{a:?} and {b:?}");
                for c in &parts {
                    let (ab, bc) = (by_position(a, b), by_position(b, c));
                    assert!(ab.is_gt() || bc.is_gt() || by_position(a, c).is_le(), "{a:?}, {b:?}, {c:?}");
                }
            }
        }
    }

    #[test]
    fn bad_selectors_say_what_is_wrong() {
        for bad in ["", "a..b", ".a", "/a~2b", "/~"] {
            assert!(Selector::parse(bad).is_err(), "{bad}");
        }
        assert!(Selector::parse(&"a".repeat(600)).is_err());
    }
}
