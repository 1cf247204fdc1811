//! What tells callers apart: those who differ in it never see each other's results.

use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use oncely_core::Digest;
use oncely_core::name::hex;

use super::body::Refusal;
use super::query;

/// Words in the names of headers and parameters by which servers know who calls.
const CREDENTIALS: [&str; 10] =
    ["key", "token", "secret", "auth", "jwt", "assertion", "cred", "passw", "bearer", "cookie"];
/// Another one, in headers only: in a query it is the number of a connection.
const SESSION: &str = "session";
/// Words in the names of what looks like that and is another one for every request, or for every call: a retry could not be
/// known for one.
const NEW_EVERY_TIME: [&str; 6] = ["idempoten", "dedup", "csrf", "xsrf", "trace", "captcha"];
/// What headers begin with that are about the protocol, the browser, or a connection that ends here, not about the caller.
const ABOUT_OTHERS: [&str; 4] = ["mcp-", "sec-", "access-control-", "proxy-auth"];

/// What tells callers apart. Those that differ in it never see each other's results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tenant {
    /// What they identify themselves with: a refreshed token is another caller.
    #[default]
    Authorization,
    /// This header, which stays the same for one caller.
    Header(HeaderName),
    /// Nothing: all callers are one.
    None,
}

impl Tenant {
    /// Reads `authorization`, `header:NAME` or `none`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not allowed; allowed: authorization, header:NAME, none");
        match (text, text.strip_prefix("header:")) {
            ("authorization", _) => Ok(Self::Authorization),
            ("none", _) => Ok(Self::None),
            (_, Some(name)) => name.parse().map(Self::Header).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }

    /// What tells a caller from others: a digest of what it says; `None` if it says nothing.
    pub(super) fn principal(&self, request: &Parts) -> Result<Option<String>, Refusal> {
        let mut said = Vec::new();
        let mut say = |kind: &str, name: &str, value: &[u8]| {
            for part in [kind.as_bytes(), name.as_bytes(), &[0], value, &[0]] {
                said.extend_from_slice(part);
            }
        };
        let headers = &request.headers;
        match self {
            Self::None => {}
            Self::Header(name) => {
                let mut values = headers.get_all(name).iter();
                match (values.next(), values.next()) {
                    (Some(value), None) if !value.is_empty() => say("", name.as_str(), value.as_bytes()),
                    // What a browser asks before it sends a request of a page has none of the page's headers.
                    _ if request.method == Method::OPTIONS => {}
                    (Some(_), Some(_)) => return Err(refusal(name, "is there more than once; send it once")),
                    _ => return Err(refusal(name, "is missing; send it")),
                }
            }
            Self::Authorization => {
                let mut names: Vec<&HeaderName> = headers.keys().filter(|name| tells_who(name)).collect();
                // However they are sorted on the way.
                names.sort_unstable_by_key(|name| name.as_str());
                for name in names {
                    for value in headers.get_all(name) {
                        say("", name.as_str(), value.as_bytes());
                    }
                }
                let parameters = query::parameters(request.uri.query().unwrap_or_default());
                let mut pairs: Vec<_> = parameters.map(|one| one.read()).collect();
                pairs.retain(|(name, _)| is_credential(name));
                pairs.sort_unstable();
                for (name, value) in &pairs {
                    say("?", name, value);
                }
            }
        }
        Ok((!said.is_empty()).then(|| hex(&Digest::of(&said).0)[..16].to_owned()))
    }
}

fn refusal(name: &HeaderName, why: &str) -> Refusal {
    let why = format!("the header {name} tells callers apart here, and {why}; nothing ran");
    Refusal::new(StatusCode::BAD_REQUEST, &why)
}

/// Whether a header says who calls.
fn tells_who(name: &HeaderName) -> bool {
    let text = name.as_str();
    let is_about_others = ABOUT_OTHERS.iter().any(|start| text.starts_with(start));
    !is_about_others && (is_credential(text) || (text.contains(SESSION) && !is_new_every_time(text)))
}

/// Whether what has this name, in lower case, is a credential.
fn is_credential(name: &str) -> bool {
    CREDENTIALS.iter().any(|word| name.contains(word)) && !is_new_every_time(name)
}

fn is_new_every_time(name: &str) -> bool {
    NEW_EVERY_TIME.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use hyper::http::request::Parts;
    use hyper::{Method, Request, StatusCode};

    use super::Tenant;

    fn request(method: Method, path: &str, pairs: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn by(tenant: &str, pairs: &[(&str, &str)]) -> Option<String> {
        let principal = Tenant::parse(tenant).unwrap().principal(&request(Method::POST, "/mcp", pairs));
        principal.unwrap_or_else(|refusal| panic!("{}", refusal.status()))
    }

    #[test]
    fn callers_are_told_apart_by_what_they_identify_themselves_with() {
        let who = |value: &str| by("authorization", &[("authorization", value)]);
        assert_eq!(who("Bearer a"), who("Bearer a"));
        assert_ne!(who("Bearer a"), who("Bearer b"));
        assert_eq!(by("authorization", &[("host", "x")]), None);
        assert_eq!(by("none", &[("authorization", "a")]), None);
        let user = |token: &str| by("header:X-User", &[("x-user", "ann"), ("authorization", token)]);
        assert!(user("a").is_some() && user("a") == user("b"));
        assert!(!who("Bearer a").unwrap().contains("Bearer"));
        for bad in ["", "header:", "header:a b", "cookie"] {
            assert!(Tenant::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn whatever_a_server_calls_its_credential_it_tells_callers_apart() {
        for name in [
            "Cookie",
            "apikey",
            "X-Api-Key",
            "X-Access-Token",
            "X-Shopify-Access-Token",
            "DD-API-KEY",
            "DD-APPLICATION-KEY",
            "Ocp-Apim-Subscription-Key",
            "Cf-Access-Jwt-Assertion",
            "Private-Token",
            "X-Goog-Api-Key",
            "X-Client-Secret",
            "X-User-Credentials",
            "X-Password",
            "X-Metabase-Session",
            "X-Auth-Request-Email",
        ] {
            let who = |value: &str| by("authorization", &[(name, value)]);
            assert!(who("a").is_some() && who("a") == who("a") && who("a") != who("b"), "{name}");
        }
    }

    #[test]
    fn what_changes_between_a_call_and_its_retry_tells_nobody_apart() {
        for name in [
            "Idempotency-Key",
            "X-Idempotency-Key",
            "X-IdempotencyKey",
            "X-CSRF-Token",
            "X-XSRF-Token",
            "Mcp-Session-Id",
            "Mcp-Param-Key",
            "Sec-WebSocket-Key",
            "Proxy-Authorization",
            "X-Request-Id",
            "traceparent",
            "X-Trace-Token",
            "User-Agent",
        ] {
            assert_eq!(by("authorization", &[(name, "a")]), None, "{name}");
        }
    }

    #[test]
    fn the_order_of_credentials_does_not_matter_and_which_is_which_does() {
        let who = |pairs: &[(&str, &str)]| by("authorization", pairs);
        assert_eq!(
            who(&[("x-api-key", "a"), ("cookie", "b")]),
            who(&[("cookie", "b"), ("x-request-id", "1"), ("x-api-key", "a")])
        );
        assert_ne!(who(&[("x-api-key", "a"), ("cookie", "b")]), who(&[("x-api-key", "b"), ("cookie", "a")]));
    }

    #[test]
    fn a_credential_in_the_query_tells_callers_apart_and_the_rest_of_the_query_does_not() {
        let who = |query: &str| {
            let request = request(Method::POST, &format!("/mcp?{query}"), &[]);
            Tenant::Authorization.principal(&request).unwrap_or_else(|refusal| panic!("{}", refusal.status()))
        };
        for name in ["api_key", "token", "apiKey", "access_token", "%61pikey", "client_secret"] {
            let [a, b] = ["a", "b"].map(|value| who(&format!("x=1&{name}={value}")));
            assert!(a.is_some() && a != b, "{name}");
            assert_eq!(a, who(&format!("{name}=a&project=b")), "{name}");
        }
        assert_eq!(who("token=%61"), who("TOKEN=a"));
        for other in ["project=a", "session_id=1", "sessionId=1", "idempotency_key=1", "", "x"] {
            assert_eq!(who(other), None, "{other}");
        }
        // A header is not a parameter of the same name.
        assert_ne!(who("cookie=a"), by("authorization", &[("cookie", "a")]));
    }

    #[test]
    fn a_header_that_tells_callers_apart_has_to_be_there_once() {
        let tenant = Tenant::parse("header:X-User").unwrap();
        let status = |method: Method, pairs: &[(&str, &str)]| {
            tenant.principal(&request(method, "/mcp", pairs)).err().map(|refusal| refusal.status())
        };
        for bad in [&[][..], &[("x-user", "")], &[("x-user", "a"), ("x-user", "a")], &[("cookie", "a")]] {
            for method in [Method::POST, Method::GET, Method::DELETE] {
                assert_eq!(status(method, bad), Some(StatusCode::BAD_REQUEST), "{bad:?}");
            }
            assert_eq!(status(Method::OPTIONS, bad), None, "{bad:?}");
        }
        assert_eq!(status(Method::POST, &[("x-user", "a")]), None);
    }
}
