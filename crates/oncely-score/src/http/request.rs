//! A request as a file: request line, headers, blank line, body; `###` begins the same request with another payload.

use serde_json::Value;

use crate::intent::{Intent, fill_text, is_quantity};
use crate::{Error, limits};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The whole address.
    pub target: String,
    /// The headers, without the key.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// Reads a file of one request, or of two that differ in their payload. `base` goes before a target that is a path.
pub fn parse(text: &str, base: Option<&str>) -> Result<(Request, Option<Request>), Error> {
    if text.len() > limits::REQUEST_BYTES_MAX {
        return Err(bad(format!("the file is longer than {} bytes", limits::REQUEST_BYTES_MAX)));
    }
    let text = text.replace("\r\n", "\n");
    let mut blocks = vec![String::new()];
    for line in text.lines() {
        if line.starts_with("###") {
            blocks.push(String::new());
        } else if let Some(block) = blocks.last_mut() {
            block.push_str(line);
            block.push('\n');
        }
    }
    let mut requests = Vec::new();
    for block in blocks.iter().filter(|block| !block.trim().is_empty()) {
        requests.push(one(block, base)?);
    }
    let mut requests = requests.into_iter();
    let first = requests.next().ok_or_else(|| bad("the file holds no request"))?;
    let other = requests.next();
    if requests.next().is_some() {
        return Err(bad("the file holds more than two requests"));
    }
    Ok((first, other))
}

fn one(block: &str, base: Option<&str>) -> Result<Request, Error> {
    let is_comment = |line: &&str| line.trim().is_empty() || line.starts_with('#') || line.starts_with("//");
    let skipped: usize = block.lines().take_while(is_comment).map(|line| line.len() + 1).sum();
    let block = block.get(skipped..).unwrap_or_default();
    let (head, body) = block.split_once("\n\n").unwrap_or((block, ""));
    let mut lines = head.lines();
    let line = lines.next().ok_or_else(|| bad("a request has no request line"))?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(bad(format!("`{line}` is no request line; write `POST /orders`")));
    };
    if method.is_empty() || !method.bytes().all(|b| b.is_ascii_uppercase()) {
        return Err(bad(format!("`{method}` is no method; write it in capitals, such as POST")));
    }
    let mut headers = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (name, value) =
            line.split_once(':').ok_or_else(|| bad(format!("the header line `{line}` has no colon")))?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let target = address(target, base)?;
    Ok(Request { method: method.to_owned(), target, headers, body: body.trim_end_matches('\n').to_owned() })
}

fn address(target: &str, base: Option<&str>) -> Result<String, Error> {
    if target.starts_with("http://") || target.starts_with("https://") {
        return Ok(target.to_owned());
    }
    let base = base.ok_or_else(|| bad(format!("`{target}` has no host; give --url")))?;
    if !(base.starts_with("http://") || base.starts_with("https://")) {
        return Err(bad(format!("the address `{base}` does not begin with http:// or https://")));
    }
    if !target.starts_with('/') {
        return Err(bad(format!("the target `{target}` does not begin with a slash")));
    }
    Ok(format!("{}{target}", base.trim_end_matches('/')))
}

fn bad(what: impl std::fmt::Display) -> Error {
    Error::asked(format!("the request cannot be read: {what}; nothing was sent"))
}

impl Request {
    /// The address without its query, which may hold what should not be printed.
    pub(super) fn shown_target(&self) -> &str {
        self.target.split('?').next().unwrap_or(&self.target)
    }

    /// Whether every intent can have a payload of its own.
    pub(super) fn has_number(&self) -> bool {
        self.target.contains("{n}") || self.body.contains("{n}")
    }

    /// With an intent put in.
    pub(super) fn filled(&self, intent: &Intent) -> Self {
        Self { target: fill_text(&self.target, intent), body: fill_text(&self.body, intent), ..self.clone() }
    }

    /// The same with another quantity in its JSON body; `None` if there is none to change.
    pub(super) fn another_quantity(&self) -> Option<Self> {
        let mut body: Value = serde_json::from_str(&self.body).ok()?;
        let members = body.as_object_mut()?;
        let (_, value) =
            members.iter_mut().find(|(name, value)| is_quantity(name) && value.as_u64().is_some())?;
        *value = (value.as_u64()?.checked_add(1)?).into();
        Some(Self { body: body.to_string(), ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_file_holds_a_request_and_perhaps_the_other_payload() {
        let text = "# make an order\nPOST /orders HTTP/1.1\nContent-Type: application/json\n\n{\"amount\": 1}\n\n### other\n\
                    POST /orders\n\n{\"amount\": 2}\n";
        let (first, other) = parse(text, Some("http://host:1/")).unwrap();
        assert_eq!((first.method.as_str(), first.target.as_str()), ("POST", "http://host:1/orders"));
        assert_eq!(first.headers, [("Content-Type".to_owned(), "application/json".to_owned())]);
        assert_eq!(
            (first.body.as_str(), other.unwrap().body.as_str()),
            ("{\"amount\": 1}", "{\"amount\": 2}")
        );
        assert_eq!(first.another_quantity().unwrap().body, "{\"amount\":2}");
    }

    #[test]
    fn what_is_no_request_is_refused_and_nothing_is_sent() {
        for (text, base) in [
            ("", Some("http://h")),
            ("POST", Some("http://h")),
            ("post /x", Some("http://h")),
            ("POST /x", None),
            ("POST x", Some("http://h")),
            ("POST /x", Some("ftp://h")),
            ("POST /x\nno colon here\n", Some("http://h")),
            ("POST /x\n###\nPOST /y\n###\nPOST /z\n", Some("http://h")),
        ] {
            let error = parse(text, base).unwrap_err().to_string();
            assert!(error.contains("nothing was sent"), "{text}: {error}");
        }
    }
}
