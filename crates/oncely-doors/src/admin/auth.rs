//! Who asks: bearer tokens with a scope, compared in constant time; without tokens only what comes from this machine
//! and was not sent by a web page.

use http::StatusCode;
use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use oncely_core::Digest;
use subtle::ConstantTimeEq;

use super::problem::Problem;

/// Fewest characters of a secret.
const SECRET_CHARS_MIN: usize = 16;
/// Most characters of a secret.
const SECRET_CHARS_MAX: usize = 512;
/// Most tokens.
pub(super) const TOKENS_MAX: usize = 100;
/// Who asks where no tokens are set.
const LOOPBACK: &str = "loopback";

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// To look.
    Read,
    /// To look and to change.
    Write,
}

/// What a route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: it tells nothing of the ledger.
    Open,
    /// A scope.
    Needs(Scope),
}

/// Who asks, as the audit log names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) name: String,
}

/// What is wrong with a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Its name cannot be used.
    #[error("the name {0:?} of a token must have 1 to 64 letters, digits and . _ @ -")]
    Name(String),
    /// Its secret cannot be used; it is not shown.
    #[error("the secret of the token {0:?} must have 16 to 512 visible ASCII characters")]
    Secret(String),
    /// Its name or its secret is another's.
    #[error("the token {0:?} has the name or the secret of another")]
    Twice(String),
    /// There are too many.
    #[error("at most {TOKENS_MAX} tokens may be set")]
    TooMany,
}

/// Tokens, of which only digests are kept.
#[derive(Clone, Default)]
pub struct Tokens(Vec<Token>);

#[derive(Clone)]
struct Token {
    name: String,
    scope: Scope,
    digest: Digest,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|token| (&token.name, token.scope))).finish()
    }
}

/// Whether a token can have this name in the audit log.
pub(super) fn check_name(name: &str) -> Result<(), TokenError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._@-".contains(&b);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(good) || name == LOOPBACK {
        return Err(TokenError::Name(oncely_core::limits::clip_to(name.to_owned(), 80)));
    }
    Ok(())
}

impl Tokens {
    /// None: only this machine may ask.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a token.
    pub fn with(mut self, name: &str, scope: Scope, secret: &str) -> Result<Self, TokenError> {
        check_name(name)?;
        let length = SECRET_CHARS_MIN..=SECRET_CHARS_MAX;
        if !length.contains(&secret.len()) || !secret.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(TokenError::Secret(name.to_owned()));
        }
        let digest = Digest::of(secret.as_bytes());
        if self.0.iter().any(|token| token.name == name || token.digest == digest) {
            return Err(TokenError::Twice(name.to_owned()));
        }
        if self.0.len() >= TOKENS_MAX {
            return Err(TokenError::TooMany);
        }
        self.0.push(Token { name: name.to_owned(), scope, digest });
        Ok(self)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The token with this secret. Every one is compared, so that the time says nothing of how close a guess was.
    fn find(&self, secret: &str) -> Option<&Token> {
        let digest = Digest::of(secret.as_bytes());
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.digest.0.ct_eq(&digest.0)) {
                found = Some(token);
            }
        }
        found
    }

    /// Lets a request in, or says why not.
    pub(super) fn admit(&self, parts: &Parts, access: Access) -> Result<Who, Problem> {
        let loopback = Who { name: LOOPBACK.to_owned() };
        if self.is_empty() {
            // A page that a browser shows can reach this machine: under a name of its own that leads here, or by
            // sending what needs no permission.
            refuse_strangers(parts)?;
            return Ok(loopback);
        }
        let Access::Needs(needed) = access else { return Ok(loopback) };
        let given = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let secret = given
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, secret)| secret.trim());
        let Some(token) = secret.and_then(|secret| self.find(secret)) else {
            let detail = "send a token that is set here: Authorization: Bearer …; nothing was done";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail));
        };
        if token.scope < needed {
            let detail = format!("the token {:?} may only read; nothing was done", token.name);
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
        }
        Ok(Who { name: token.name.clone() })
    }
}

fn refuse_strangers(parts: &Parts) -> Result<(), Problem> {
    let stranger = |what: &str| {
        let detail = format!(
            "{what}; without tokens only programs on this machine may ask, by 127.0.0.1, [::1] or localhost; nothing was \
             done. Set a token to ask from elsewhere"
        );
        Err(Problem::new(StatusCode::FORBIDDEN, "stranger", detail))
    };
    let header = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let host = parts.uri.authority().map(Authority::as_str).or_else(|| header(HOST));
    let Some(host) = host.filter(|host| is_this_machine(host)) else {
        return stranger("the request was addressed to another host");
    };
    if let Some(origin) = parts.headers.get(ORIGIN) {
        let own = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        if own != Some(host) {
            return stranger("a web page from elsewhere sent the request");
        }
    }
    if header(HeaderName::from_static("sec-fetch-site")).is_some_and(|site| site == "cross-site") {
        return stranger("a web page from elsewhere sent the request");
    }
    Ok(())
}

fn is_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    if host.contains('@') {
        return false;
    }
    let name = authority.host();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{Scope, TokenError, Tokens, is_this_machine};

    #[test]
    fn a_host_is_this_machine_only_by_its_own_names() {
        for host in ["localhost", "LOCALHOST:7301", "127.0.0.1:7301", "127.8.8.8", "[::1]:1", "[::1]"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "a@localhost",
            "[::2]",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn bad_tokens_are_refused_and_their_secrets_never_shown() {
        let tokens = Tokens::none().with("ci", Scope::Read, "0123456789abcdef").unwrap();
        assert!(matches!(tokens.clone().with("", Scope::Read, "0123456789abcdeX"), Err(TokenError::Name(_))));
        for secret in ["short", "with a blank 0123456789", &"x".repeat(513)] {
            let error = tokens.clone().with("x", Scope::Read, secret).unwrap_err();
            assert!(!error.to_string().contains(secret), "{error}");
        }
        assert!(matches!(
            tokens.clone().with("ci", Scope::Read, "0123456789abcdeX"),
            Err(TokenError::Twice(_))
        ));
        assert!(matches!(
            tokens.clone().with("x", Scope::Read, "0123456789abcdef"),
            Err(TokenError::Twice(_))
        ));
        assert!(!format!("{tokens:?}").contains("0123"));
        assert!(tokens.find("0123456789abcdef").is_some() && tokens.find("0123456789abcdeF").is_none());
    }
}
