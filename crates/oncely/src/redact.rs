//! Redaction: what is taken out of results before they are stored. What is not stored cannot leak; the price is that a
//! replay shows the mark in its place.

use std::borrow::Cow;

use oncely_core::limits::clip_to;
use serde::Deserialize;
use serde_json::Value;

/// What stands in the place of what was taken out.
pub const MARK: &str = "[redacted]";
/// Most rules of one kind.
const RULES_MAX: usize = 100;

/// Rules, checked.
///
/// ```
/// use oncely::redact::Redaction;
///
/// let rules = Redaction::new(&["/card/number", "/items/*/token"], &["X-Secret"])?;
/// let stored = rules.json(br#"{"card":{"number":"4242"},"items":[{"token":"t"}]}"#);
/// assert_eq!(&*stored, br#"{"card":{"number":"[redacted]"},"items":[{"token":"[redacted]"}]}"#);
/// assert!(!rules.keeps_header("x-secret"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Redaction {
    pointers: Vec<Vec<String>>,
    headers: Vec<String>,
}

/// Rules as a configuration writes them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    json: Vec<String>,
    #[serde(default)]
    headers: Vec<String>,
}

impl TryFrom<Written> for Redaction {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        Self::of(written.json, written.headers)
    }
}

impl Redaction {
    /// Rules from JSON pointers, in which `*` stands for every member, and names of headers.
    pub fn new(pointers: &[&str], headers: &[&str]) -> Result<Self, String> {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Self::of(own(pointers), own(headers))
    }

    fn of(pointers: Vec<String>, headers: Vec<String>) -> Result<Self, String> {
        if pointers.len() > RULES_MAX || headers.len() > RULES_MAX {
            return Err(format!("at most {RULES_MAX} rules of a kind may be set"));
        }
        for name in &headers {
            let good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if name.is_empty() || name.len() > 255 || !name.bytes().all(good) {
                return Err(format!("{:?} is not the name of a header", clip_to(name.clone(), 80)));
            }
        }
        let pointers = pointers.into_iter().map(steps).collect::<Result<_, _>>()?;
        Ok(Self { pointers, headers })
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.pointers.is_empty() && self.headers.is_empty()
    }

    /// Whether a header may be stored.
    pub fn keeps_header(&self, name: &str) -> bool {
        !self.headers.iter().any(|header| header.eq_ignore_ascii_case(name))
    }

    /// A body without what the rules name; `kind` is its media type. Nothing if it cannot be told what it holds: JSON in
    /// another wrapping (events, lines), broken or nested too deep. Then it must not be stored.
    pub fn body<'b>(&self, kind: Option<&str>, bytes: &'b [u8]) -> Option<Cow<'b, [u8]>> {
        if self.pointers.is_empty() || serde_json::from_slice::<Value>(bytes).is_ok() {
            return Some(self.json(bytes));
        }
        let kind = kind.unwrap_or("").to_ascii_lowercase();
        let said = ["json", "event-stream", "ndjson", "multipart"].iter().any(|word| kind.contains(word));
        let start = bytes.iter().find(|b| !b.is_ascii_whitespace() && !b"\xef\xbb\xbf".contains(b));
        let looks_like_it = matches!(start, Some(b'{' | b'['));
        (!said && !looks_like_it).then_some(Cow::Borrowed(bytes))
    }

    /// Whether there are rules about bodies.
    pub fn is_about_bodies(&self) -> bool {
        !self.pointers.is_empty()
    }

    /// A JSON text without what the rules name. Anything else, and what no rule names, stays byte for byte.
    pub fn json<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        if self.pointers.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else { return Cow::Borrowed(bytes) };
        let mut changed = false;
        for steps in &self.pointers {
            changed |= take_out(&mut value, steps);
        }
        if changed { Cow::Owned(value.to_string().into_bytes()) } else { Cow::Borrowed(bytes) }
    }
}

fn steps(pointer: String) -> Result<Vec<String>, String> {
    match pointer.strip_prefix('/') {
        Some(rest) if pointer.len() <= 255 => {
            Ok(rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect())
        }
        _ => {
            let said = clip_to(pointer, 80);
            Err(format!("{said:?} is not a JSON pointer: /member, /list/*/member"))
        }
    }
}

/// Puts the mark in the place of what the steps lead to; says whether anything was there.
fn take_out(value: &mut Value, steps: &[String]) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        *value = Value::String(MARK.to_owned());
        return true;
    };
    // Not `any`: every match has to go.
    let all = |values: &mut dyn Iterator<Item = &mut Value>| {
        values.fold(false, |found, value| take_out(value, rest) | found)
    };
    match value {
        Value::Object(members) if step == "*" => all(&mut members.values_mut()),
        Value::Object(members) => members.get_mut(step).is_some_and(|member| take_out(member, rest)),
        Value::Array(items) if step == "*" => all(&mut items.iter_mut()),
        Value::Array(items) => {
            let at = step.parse::<usize>().ok();
            at.and_then(|at| items.get_mut(at)).is_some_and(|item| take_out(item, rest))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::Redaction;

    fn check(pointers: &[&str], before: &str, after: &str) {
        let rules = Redaction::new(pointers, &[]).unwrap();
        assert_eq!(String::from_utf8_lossy(&rules.json(before.as_bytes())), after);
    }

    #[test]
    fn every_match_goes_and_nothing_else() {
        check(&["/a"], r#"{"a":{"b":1},"c":2}"#, r#"{"a":"[redacted]","c":2}"#);
        check(
            &["/*/t"],
            r#"[{"t":1},{"t":2},{"u":3}]"#,
            r#"[{"t":"[redacted]"},{"t":"[redacted]"},{"u":3}]"#,
        );
        check(&["/a/1"], r#"{"a":[1,2]}"#, r#"{"a":[1,"[redacted]"]}"#);
        check(&["/a~1b"], r#"{"a/b":1}"#, r#"{"a/b":"[redacted]"}"#);
        check(&["/"], r#"{"":1}"#, r#"{"":"[redacted]"}"#);
    }

    #[test]
    fn what_no_rule_names_stays_byte_for_byte() {
        check(&["/x"], r#"{ "n": 1.0 }"#, r#"{ "n": 1.0 }"#);
        check(&["/x"], "not json", "not json");
        check(&[], r#"{"x":1}"#, r#"{"x":1}"#);
    }

    #[test]
    fn a_body_that_cannot_be_read_for_the_rules_is_not_kept() {
        let rules = Redaction::new(&["/card"], &[]).unwrap();
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        for (kind, body) in [
            (Some("application/json"), "{\"card\":"),
            (Some("text/event-stream"), "data: {\"card\":\"4242\"}\n\n"),
            (Some("application/x-ndjson"), "{\"card\":1}\n{\"card\":2}\n"),
            (Some("text/plain"), "{\"card\":1}\n{\"card\":2}\n"),
            (Some("application/json"), "\u{feff}{\"card\":1}"),
            (None, "\u{feff} {\"card\":1}"),
            (Some("application/problem+json"), "oops"),
            (None, deep.as_str()),
        ] {
            assert_eq!(rules.body(kind, body.as_bytes()), None, "{kind:?} {body}");
        }
        for (kind, body) in [(Some("text/html"), "<p>hi</p>"), (None, ""), (Some("image/png"), "\u{1}\u{2}")]
        {
            assert_eq!(rules.body(kind, body.as_bytes()).as_deref(), Some(body.as_bytes()));
        }
        let headers_only = Redaction::new(&[], &["x-secret"]).unwrap();
        assert!(headers_only.body(Some("text/event-stream"), b"data: {}").is_some());
    }

    #[test]
    fn wrong_rules_are_refused() {
        assert!(Redaction::new(&["a"], &[]).is_err());
        assert!(Redaction::new(&[], &["not a header"]).is_err());
        assert!(toml::from_str::<Redaction>("json = [\"/a\"]\nheaders = [\"X-A\"]").is_ok());
        assert!(toml::from_str::<Redaction>("jsn = [\"/a\"]").is_err());
        assert!(Redaction::new(&vec!["/a"; 101], &[]).is_err());
    }
}
