//! Puts a key into a request on its way: into a header, the query, or a member of the body. Everything else of the
//! request stays as it was, byte for byte.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use oncely_core::DownstreamKey;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Carrier, CompanionValue, Provider};

/// Why a key could not be put into a request. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key for {provider} belongs into {place}, and {why}; nothing was sent")]
pub struct PlaceError {
    provider: String,
    place: String,
    why: String,
}

impl Provider {
    /// Puts the key, and what has to travel with it, into a request; in the place of a key that the caller's library
    /// made up. `first_sent_unix_ms`: when this key was first sent. Returns the body to send; its length may have
    /// changed.
    pub fn place(
        &self,
        key: &DownstreamKey,
        first_sent_unix_ms: u64,
        parts: &mut Parts,
        body: Bytes,
    ) -> Result<Bytes, PlaceError> {
        if !self.takes_key() {
            return Ok(body);
        }
        let value = serde_json::Value::String(self.encode(key));
        let mut body = self.put(&self.key, &value, parts, body)?;
        for companion in &self.also {
            let value = match &companion.value {
                CompanionValue::Fixed(value) => value.clone(),
                CompanionValue::FirstSent => {
                    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(first_sent_unix_ms);
                    serde_json::Value::String(httpdate::fmt_http_date(at))
                }
            };
            body = self.put(&companion.carrier, &value, parts, body)?;
        }
        Ok(body)
    }

    fn put(
        &self,
        carrier: &Carrier,
        value: &serde_json::Value,
        parts: &mut Parts,
        body: Bytes,
    ) -> Result<Bytes, PlaceError> {
        let fail = |why: String| PlaceError { provider: self.title.clone(), place: carrier.describe(), why };
        let text = match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match carrier {
            Carrier::Header { name, quoted } => {
                let text = if *quoted { format!("\"{text}\"") } else { text };
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|e| fail(e.to_string()))?;
                let value = HeaderValue::from_str(&text).map_err(|e| fail(e.to_string()))?;
                parts.headers.insert(name, value);
                Ok(body)
            }
            Carrier::Query { name } => {
                let old = parts.uri.query().unwrap_or("");
                let path_and_query = format!("{}?{}", parts.uri.path(), with_field(old, name, &text));
                let mut uri = parts.uri.clone().into_parts();
                uri.path_and_query =
                    Some(PathAndQuery::try_from(path_and_query).map_err(|e| fail(e.to_string()))?);
                parts.uri = http::Uri::from_parts(uri).map_err(|e| fail(e.to_string()))?;
                Ok(body)
            }
            Carrier::Form { field } => {
                expect_type(parts, "application/x-www-form-urlencoded").map_err(fail)?;
                let old = std::str::from_utf8(&body).map_err(|_| fail("the form is not text".to_owned()))?;
                Ok(with_field(old, field, &text).into_bytes().into())
            }
            Carrier::Json { pointer } => {
                expect_type(parts, "json").map_err(fail)?;
                let old = std::str::from_utf8(&body).map_err(|_| fail("the body is not text".to_owned()))?;
                let path: Vec<String> = pointer
                    .split('/')
                    .skip(1)
                    .map(|step| step.replace("~1", "/").replace("~0", "~"))
                    .collect();
                Ok(with_member(old, &path, &value.to_string()).map_err(fail)?.into_bytes().into())
            }
            Carrier::ByHand { .. } | Carrier::None => Ok(body),
        }
    }
}

impl Provider {
    /// The key that the caller put where the provider looks for it, if it did: it names the intent, and ours takes its
    /// place on the way.
    pub fn given(&self, parts: &Parts, body: &[u8]) -> Option<String> {
        let field = |text: &[u8], name: &str| {
            form_urlencoded::parse(text).find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
        };
        let given = match &self.key {
            Carrier::Header { name, .. } => {
                let text = parts.headers.get(name.as_str())?.to_str().ok()?.trim();
                let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                Some(bare.unwrap_or(text).to_owned())
            }
            Carrier::Query { name } => field(parts.uri.query()?.as_bytes(), name),
            Carrier::Form { field: name } => field(body, name),
            Carrier::Json { pointer } => {
                let value: serde_json::Value = serde_json::from_slice(body).ok()?;
                match value.pointer(pointer)? {
                    serde_json::Value::String(text) => Some(text.clone()),
                    serde_json::Value::Number(number) => Some(number.to_string()),
                    _ => None,
                }
            }
            Carrier::ByHand { .. } | Carrier::None => None,
        };
        given.filter(|text| !text.is_empty())
    }
}

fn expect_type(parts: &Parts, wanted: &str) -> Result<(), String> {
    let Some(stated) = parts.headers.get(CONTENT_TYPE) else { return Ok(()) };
    let stated = stated.to_str().unwrap_or("not text").to_ascii_lowercase();
    let essence = stated.split(';').next().unwrap_or("").trim();
    if essence == wanted
        || essence == format!("application/{wanted}")
        || essence.ends_with(&format!("+{wanted}"))
    {
        return Ok(());
    }
    Err(format!("the body is {essence:?}"))
}

/// A form or query with one field set; the others as they were.
fn with_field(old: &str, name: &str, value: &str) -> String {
    let same = |pair: &&str| {
        let named = pair.split('=').next().unwrap_or("");
        !pair.is_empty() && !form_urlencoded::parse(named.as_bytes()).any(|(known, _)| known == name)
    };
    let mut pairs: Vec<String> = old.split('&').filter(same).map(str::to_owned).collect();
    pairs.push(form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish());
    pairs.join("&")
}

/// A JSON object with one member set; the others as they were, down to the spelling of their numbers.
fn with_member(old: &str, path: &[String], value: &str) -> Result<String, String> {
    let Some((name, rest)) = path.split_first() else { return Ok(value.to_owned()) };
    let members = members(old)?;
    let inner = match members.iter().find(|(known, _)| known == name) {
        _ if rest.is_empty() => value.to_owned(),
        Some((_, raw)) => with_member(raw.get(), rest, value)?,
        None => with_member("{}", rest, value)?,
    };
    let mut text = String::with_capacity(old.len() + name.len() + value.len() + 8);
    text.push('{');
    let kept = members.iter().filter(|(known, _)| known != name);
    for (known, raw) in kept.map(|(known, raw)| (known, raw.get())).chain([(name, inner.as_str())]) {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&serde_json::Value::String(known.clone()).to_string());
        text.push(':');
        text.push_str(raw);
    }
    text.push('}');
    Ok(text)
}

fn members(text: &str) -> Result<Vec<(String, &RawValue)>, String> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let members =
        reader.deserialize_map(Members).map_err(|e| format!("the body is not a JSON object: {e}"))?;
    reader.end().map_err(|e| format!("the body is not a JSON object: {e}"))?;
    Ok(members)
}
