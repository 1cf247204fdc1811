//! Asking a service whether an attempt in doubt has happened: one GET, whose answer counts only where a rule of the
//! route says what it means.
//!
//! ```toml
//! check = { path = "/orders/by-key/{key}", happened = { status = [200] },
//!           not_happened = { status = [404], at = "/code", is = "no_such_order" }, after = "2m" }
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderValue,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, PRAGMA, RANGE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Limited};
use oncely::tower::{Body, Check, Doubted, Found, IDEMPOTENCY_DRY_RUN, IDEMPOTENCY_KEY, Statuses};
use oncely_core::limits::RESULT_BYTES_MAX;
use serde_json::Value;

use super::forward::{self, Peer, Way, Wish};
use super::upstream::{Reuse, Upstream};

/// What of a request speaks of its own body, its own time or another method, and has no place in a question about it.
const NOT_ASKED: [HeaderName; 18] = [
    ACCEPT_ENCODING,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    IF_RANGE,
    PRAGMA,
    RANGE,
    IDEMPOTENCY_KEY,
    IDEMPOTENCY_DRY_RUN,
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

/// How a service is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckConfig {
    /// Where: a path of the service, with `{key}` and `{/pointer}` into a JSON body.
    pub path: Template,
    /// Which answer means that it happened.
    pub happened: Rule,
    /// Which answer means that it did not; without one, nothing ever runs again by itself.
    pub not_happened: Option<Rule>,
    /// How long it must have been in doubt before *not happened* is believed.
    pub after: Duration,
}

/// What an answer has to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// One of these statuses.
    pub status: Statuses,
    /// A JSON body that has something here.
    pub at: Option<String>,
    /// Exactly this; anything but null where nothing is said.
    pub is: Option<Value>,
}

impl Rule {
    fn fits(&self, status: u16, body: &[u8]) -> bool {
        if !self.status.iter().any(|range| range.contains(&status)) {
            return false;
        }
        let Some(pointer) = &self.at else { return true };
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return false };
        match (body.pointer(pointer), &self.is) {
            (Some(found), Some(wanted)) => found == wanted,
            (Some(found), None) => !found.is_null(),
            (None, _) => false,
        }
    }
}

/// A path with places that are filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Key,
    Field(String),
}

impl Template {
    /// Reads a template such as `/orders?key={key}` or `/orders/{/order/id}`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') || text.parse::<PathAndQuery>().is_err() && !text.contains('{') {
            return Err(format!("{text:?} is no path such as \"/orders/by-key/{{key}}\""));
        }
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| format!("{text:?} has no end of {{"))?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match name {
                "key" => Piece::Key,
                pointer if pointer.starts_with('/') => Piece::Field(pointer.to_owned()),
                other => {
                    return Err(format!(
                        "{{{other}}} is not known; allowed: {{key}}, and {{/pointer}} into a JSON body"
                    ));
                }
            });
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        if pieces.len() == 1 {
            return Err(format!(
                "{text:?} asks the same for every request; name it by {{key}} or {{/pointer}}"
            ));
        }
        Ok(Self(pieces))
    }

    /// Whether it names the caller's key.
    pub fn names_key(&self) -> bool {
        self.0.contains(&Piece::Key)
    }

    fn fill(&self, key: Option<&str>, body: &[u8]) -> Result<Uri, String> {
        let mut path = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => path.push_str(text),
                Piece::Key => {
                    let key = key.ok_or("the caller gave no key that the service could know")?;
                    path.extend(form_urlencoded::byte_serialize(key.as_bytes()).map(spaces));
                }
                Piece::Field(pointer) => {
                    let text = field(body, pointer).ok_or_else(|| {
                        format!("the request's body has no text or whole number at {pointer}")
                    })?;
                    path.extend(form_urlencoded::byte_serialize(text.as_bytes()).map(spaces));
                }
            }
        }
        // Services resolve these, and would be asked about something else.
        let only_path = path.split('?').next().unwrap_or_default();
        if only_path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(format!("{path:?} would lead elsewhere"));
        }
        path.parse::<PathAndQuery>().map(Uri::from).map_err(|e| format!("{path:?} is no path: {e}"))
    }
}

/// A plus stands for a space in forms only.
fn spaces(encoded: &str) -> &str {
    if encoded == "+" { "%20" } else { encoded }
}

fn field(body: &[u8], pointer: &str) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    match body.pointer(pointer)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        // Only what is read exactly: a rounded number names something else, which has certainly not happened.
        Value::Number(number) if number.is_u64() || number.is_i64() => Some(number.to_string()),
        _ => None,
    }
}

/// The check of a route, for the layer.
pub(super) fn check_of(config: CheckConfig, upstream: Arc<Upstream>, way: Arc<Way>) -> Check {
    let asking = Arc::new((config, upstream, way));
    Arc::new(move |doubted| {
        let asking = asking.clone();
        Box::pin(async move {
            let (config, upstream, way) = &*asking;
            match ask(config, upstream, way, &doubted).await {
                Ok(answer) => config.judge(answer, doubted.age),
                Err(why) => Found::Unsure(why),
            }
        })
    })
}

async fn ask(
    config: &CheckConfig,
    upstream: &Arc<Upstream>,
    way: &Way,
    doubted: &Doubted,
) -> Result<Response<Bytes>, String> {
    let mut parts: Parts = doubted.parts.clone();
    let peer = parts.extensions.remove::<Arc<Peer>>();
    parts.method = Method::GET;
    parts.uri = config.path.fill(doubted.key.as_deref(), &doubted.body)?;
    for name in NOT_ASKED {
        parts.headers.remove(name);
    }
    // What somebody on the way remembers is of before the doubt.
    parts.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // The path is the service's own already.
    let way = Way { strip_prefix: String::new(), ..way.clone() };
    forward::prepare(&mut parts, upstream.address(), &way, peer.as_deref(), Wish::Plain);
    let request = Request::from_parts(parts, Body::whole(Bytes::new()));
    let response = upstream.send(request, Reuse::Allowed, None).await;
    let (parts, body) = response.map_err(|_| "the service could not be asked".to_owned())?.into_parts();
    let whole = Limited::new(body, RESULT_BYTES_MAX).collect().await;
    let whole = whole.map_err(|e| format!("the service's answer to the check could not be read: {e}"))?;
    Ok(Response::from_parts(parts, whole.to_bytes()))
}

impl CheckConfig {
    /// Only one clear answer decides.
    fn judge(&self, mut answer: Response<Bytes>, age: Duration) -> Found {
        let status = answer.status().as_u16();
        if answer.headers().get(AGE).is_some_and(|age| age != "0") {
            return Found::Unsure("the answer to the check came from a cache".to_owned());
        }
        let happened = self.happened.fits(status, answer.body());
        let not = self.not_happened.as_ref().is_some_and(|rule| rule.fits(status, answer.body()));
        match (happened, not) {
            (true, false) => {
                forward::drop_hop_by_hop(answer.headers_mut());
                Found::Happened(answer)
            }
            (false, true) if age < self.after => Found::Unsure(format!(
                "the service says that it has not happened, but it may still be on its way: it has been in doubt for {} s, \
                 and that counts after {} s",
                age.as_secs(),
                self.after.as_secs()
            )),
            (false, true) => Found::NotHappened,
            (true, true) => Found::Unsure(format!("the answer {status} to the check means both")),
            (false, false) => {
                Found::Unsure(format!("no rule says what the answer {status} to the check means"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::Response;
    use oncely::tower::Found;
    use serde_json::json;

    use super::{CheckConfig, Rule, Template};

    fn rule(status: u16, at: Option<&str>, is: Option<serde_json::Value>) -> Rule {
        Rule { status: vec![status..=status], at: at.map(str::to_owned), is }
    }

    #[test]
    fn a_path_is_filled_in_and_what_is_missing_is_said() {
        let fill = |text: &str, key: Option<&str>, body: &str| {
            Template::parse(text).unwrap().fill(key, body.as_bytes()).map(|uri| uri.to_string())
        };
        assert_eq!(fill("/o?key={key}&x=1", Some("a b/&?"), "").unwrap(), "/o?key=a%20b%2F%26%3F&x=1");
        assert_eq!(fill("/o/{/id}/{/a/0}", None, "{\"id\":7,\"a\":[\"é\"]}").unwrap(), "/o/7/%C3%A9");
        assert!(fill("/o/{key}", None, "").is_err());
        for body in ["", "{}", "{\"id\":null}", "{\"id\":{}}", "{\"id\":\"\"}"] {
            assert!(fill("/o/{/id}", None, body).is_err(), "{body}");
        }
        // A number that cannot be read exactly names another order.
        for number in ["98765432109876543210", "1.10", "1e3"] {
            assert!(fill("/o/{/id}", None, &format!("{{\"id\":{number}}}")).is_err(), "{number}");
        }
        for elsewhere in [".", ".."] {
            assert!(fill("/o/{key}", Some(elsewhere), "").is_err(), "{elsewhere}");
            assert!(fill("/o/{key}/x", Some(elsewhere), "").is_err(), "{elsewhere}");
        }
        assert_eq!(fill("/o?key={key}", Some(".."), "").unwrap(), "/o?key=..");
        for bad in ["", "orders/{key}", "/orders", "/o/{key", "/o/{id}", "/o/{}", "http://elsewhere/{key}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_one_clear_answer_decides() {
        let check = CheckConfig {
            path: Template::parse("/o/{key}").unwrap(),
            happened: rule(200, Some("/orders/0"), None),
            not_happened: Some(rule(200, Some("/orders"), Some(json!([])))),
            after: Duration::from_secs(60),
        };
        let judged = |status: u16, body: &'static str, age: u64| {
            let answer =
                Response::builder().status(status).body(Bytes::from_static(body.as_bytes())).unwrap();
            match check.judge(answer, Duration::from_secs(age)) {
                Found::Happened(_) => "happened",
                Found::NotHappened => "not happened",
                Found::Unsure(_) => "unsure",
            }
        };
        assert_eq!(judged(200, "{\"orders\":[{\"id\":1}]}", 0), "happened");
        assert_eq!(judged(200, "{\"orders\":[]}", 61), "not happened");
        // It may still be on its way.
        assert_eq!(judged(200, "{\"orders\":[]}", 59), "unsure");
        for (status, body) in [
            (404, "{\"orders\":[]}"),
            (200, "<html>"),
            (200, "{}"),
            (200, ""),
            (500, ""),
            (200, "{\"orders\":null}"),
        ] {
            assert_eq!(judged(status, body, 1_000), "unsure", "{status} {body}");
        }
        let remembered = Response::builder().header("Age", "3").body(Bytes::from_static(b"{\"orders\":[]}"));
        let found = check.judge(remembered.unwrap(), Duration::from_secs(1_000));
        assert!(matches!(found, Found::Unsure(why) if why.contains("cache")));
    }
}
