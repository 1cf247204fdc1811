//! Whose call it is: the namespace of a request, from a credential that is hashed and never stored.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use oncely_core::Namespace;
use oncely_core::name::hex;

/// What tells one caller from another. Nothing ever crosses it: neither keys nor stored answers.
///
/// A stored answer is replayed without asking the service again, so whatever tells tenants apart must be something
/// that a caller cannot simply claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Tenant {
    /// The `Authorization` header, hashed. A caller without one is anonymous: all such callers share one namespace,
    /// and get no derived keys. A caller whose token changes between a call and its retry is another tenant: use a
    /// header or a claim there.
    #[default]
    Authorization,
    /// Another header, hashed: an API key, or a tenant's name that something trusted in front has set.
    Header(HeaderName),
    /// A claim of the bearer token, a JWT. **Its signature is not checked here**: only for a service behind something
    /// that has checked it, else anybody can claim to be anybody and see their stored answers.
    VerifiedClaim(String),
    /// There is one tenant only. Every caller can see the stored answer of every other.
    One,
}

/// Whose call it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) namespace: Namespace,
    /// Nothing tells this caller from others.
    pub(super) anonymous: bool,
}

/// Credentials beside `Authorization`: a caller who sends one is somebody, and must not be taken for anybody.
const OTHER_CREDENTIALS: [&str; 4] = ["cookie", "x-api-key", "api-key", "x-auth-token"];
/// Schemes whose header is another one for every request.
const SIGNED_PER_REQUEST: [&str; 9] =
    ["aws", "digest", "oauth", "hawk", "signature", "hmac", "sharedkey", "negotiate", "ntlm"];

/// The scheme of a credential that is made anew for every request.
fn signed_per_request(value: &[u8]) -> Option<String> {
    let scheme = value.split(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    let begins = |known: &&str| {
        scheme.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes()))
    };
    let signed = SIGNED_PER_REQUEST.iter().any(begins);
    signed.then(|| String::from_utf8_lossy(scheme).to_ascii_uppercase())
}

/// Hexadecimal digits of a hashed credential: 128 bits.
const HASH_CHARS: usize = 32;

impl Tenant {
    /// Whose call it is, or what is missing.
    pub(super) fn caller(&self, base: &Namespace, headers: &HeaderMap) -> Result<Caller, String> {
        let named =
            |kind: &str, parts: &[&[u8]]| Caller { namespace: below(base, kind, parts), anonymous: false };
        match self {
            Self::One => Ok(Caller { namespace: base.clone(), anonymous: false }),
            Self::Authorization => {
                let mut values = headers.get_all(AUTHORIZATION).iter();
                let (first, more) = (values.next().map(|v| v.as_bytes()), values.count());
                if let (Some(value), 0) = (first, more)
                    && let Some(scheme) = signed_per_request(value)
                {
                    return Err(format!(
                        "{scheme} signs every request anew, so that a retry could not be known for one; tell tenants \
                         apart by something that stays the same: tenant = {{ header = … }}"
                    ));
                }
                if first.is_none()
                    && let Some(name) = OTHER_CREDENTIALS.iter().find(|name| headers.contains_key(**name))
                {
                    return Err(format!(
                        "the request has no Authorization header but {name}, which tells nobody apart here: another \
                         caller could get its stored answer. Tell tenants apart by it: tenant = {{ header = … }}"
                    ));
                }
                match (first, more) {
                    (None, _) => Ok(Caller { namespace: below(base, "anonymous", &[]), anonymous: true }),
                    (Some(value), 0) => Ok(named("auth", &[value])),
                    (Some(_), more) => {
                        Err(format!("the header Authorization is there {} times; send it once", more + 1))
                    }
                }
            }
            Self::Header(name) => {
                let mut values = headers.get_all(name).iter();
                match (values.next(), values.next()) {
                    (Some(value), None) if !value.is_empty() => {
                        Ok(named("header", &[name.as_str().as_bytes(), value.as_bytes()]))
                    }
                    (Some(_), Some(_)) => {
                        Err(format!("the header {name} is there more than once; send it once"))
                    }
                    _ => Err(format!("the header {name} tells tenants apart here, and is missing; send it")),
                }
            }
            Self::VerifiedClaim(claim) => match claim_of(headers, claim) {
                Some(value) => Ok(named("claim", &[claim.as_bytes(), value.as_bytes()])),
                None => Err(format!(
                    "the claim {claim:?} of the bearer token tells tenants apart here, and could not be read; send a \
                     JWT that has it"
                )),
            },
        }
    }
}

/// The namespace of a tenant below the base: `base/kind:hash`.
fn below(base: &Namespace, kind: &str, parts: &[&[u8]]) -> Namespace {
    let under = |base: &str| {
        // On the way of every request: put together without the machinery of formats.
        let mut whole = String::with_capacity(base.len() + kind.len() + HASH_CHARS + 2);
        for piece in [base, "/", kind] {
            whole.push_str(piece);
        }
        if !parts.is_empty() {
            whole.push(':');
            whole.push_str(&hash(parts));
        }
        Namespace::parse(&whole)
    };
    // A base that leaves no room is hashed too: as good a name, if less readable.
    under(base.as_str()).or_else(|_| under(&hash(&[base.as_str().as_bytes()]))).unwrap_or_default()
}

/// Length-prefixed parts, so that moving characters between them makes another hash.
fn hash(parts: &[&[u8]]) -> String {
    const VERSION: &[u8] = b"oncely-tenant-1";
    let length: usize = parts.iter().map(|part| part.len() + 8).sum();
    let mut bytes = Vec::with_capacity(VERSION.len() + length);
    bytes.extend_from_slice(VERSION);
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    hex(&oncely_core::Digest::of(&bytes).0[..HASH_CHARS / 2])
}

/// A claim of the bearer token, as text.
fn claim_of(headers: &HeaderMap, claim: &str) -> Option<String> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    let mut parts = token.trim().split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let claims: serde_json::Value = serde_json::from_slice(&base64url(payload)?).ok()?;
    match claims.get(claim)? {
        serde_json::Value::String(text) if !text.is_empty() => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Base64url without padding, after RFC 4648.
fn base64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut word, mut bits) = (0u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        word = (word << 6 | u32::from(digit)) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::{AUTHORIZATION, HeaderName};
    use oncely_core::Namespace;

    use super::{Tenant, base64url};

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn namespace(tenant: &Tenant, list: &[(&str, &str)]) -> Result<String, String> {
        tenant.caller(&Namespace::default(), &headers(list)).map(|c| c.namespace.as_str().to_owned())
    }

    #[test]
    fn a_credential_separates_callers_and_is_not_in_the_namespace() {
        let of = |value: &str| namespace(&Tenant::Authorization, &[("authorization", value)]).unwrap();
        assert_eq!(of("Bearer secret-a"), of("Bearer secret-a"));
        assert_ne!(of("Bearer secret-a"), of("Bearer secret-b"));
        assert!(
            of("Bearer secret-a").starts_with("default/auth:") && !of("Bearer secret-a").contains("secret")
        );
        let twice = [("authorization", "a"), ("authorization", "b")];
        assert!(namespace(&Tenant::Authorization, &twice).is_err());
    }

    #[test]
    fn a_caller_without_a_credential_is_anonymous() {
        let caller = Tenant::Authorization.caller(&Namespace::default(), &HeaderMap::new()).unwrap();
        assert!(caller.anonymous);
        assert_eq!(caller.namespace.as_str(), "default/anonymous");
    }

    #[test]
    fn a_credential_that_changes_with_every_request_or_is_not_looked_at_is_no_tenant() {
        for scheme in
            ["AWS4-HMAC-SHA256 Credential=x", "Digest username=a", "OAuth a=b", "Hawk id=1", "HMAC x"]
        {
            assert!(namespace(&Tenant::Authorization, &[("authorization", scheme)]).is_err(), "{scheme}");
        }
        for scheme in ["Bearer a", "Basic a", "Token a", "a"] {
            assert!(namespace(&Tenant::Authorization, &[("authorization", scheme)]).is_ok(), "{scheme}");
        }
        assert!(namespace(&Tenant::Authorization, &[("cookie", "session=1")]).is_err());
        assert!(
            namespace(&Tenant::Authorization, &[("cookie", "session=1"), ("authorization", "Bearer a")])
                .is_ok()
        );
    }

    #[test]
    fn a_tenant_header_that_is_missing_empty_or_repeated_is_refused() {
        let tenant = Tenant::Header("x-tenant".parse().unwrap());
        assert!(namespace(&tenant, &[]).is_err());
        assert!(namespace(&tenant, &[("x-tenant", "")]).is_err());
        assert!(namespace(&tenant, &[("x-tenant", "a"), ("x-tenant", "a")]).is_err());
        assert!(namespace(&tenant, &[("x-tenant", "a")]).is_ok());
    }

    #[test]
    fn a_claim_is_read_from_a_bearer_token() {
        let tenant = Tenant::VerifiedClaim("sub".into());
        // {"sub":"alice"}, {"sub":7}, {"sub":""}
        let of = |token: &str| namespace(&tenant, &[("authorization", token)]);
        let alice = of("Bearer e30.eyJzdWIiOiJhbGljZSJ9.sig").unwrap();
        assert_eq!(of("bearer e30.eyJzdWIiOiJhbGljZSJ9.other"), Ok(alice.clone()));
        assert_ne!(of("Bearer e30.eyJzdWIiOjd9.sig").unwrap(), alice);
        for bad in [
            "Bearer e30.eyJzdWIiOiIifQ.s",
            "Basic e30.eyJzdWIiOjd9.s",
            "Bearer x",
            "Bearer a.!.c",
            "Bearer a.b.c.d",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn base64url_is_that_of_the_rfc() {
        for (coded, plain) in [("", ""), ("Zg", "f"), ("Zm8", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(base64url(coded).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(base64url("__-_").as_deref(), Some(&[0xff, 0xff, 0xbf][..]));
        assert_eq!(AUTHORIZATION.as_str(), "authorization");
    }

    #[test]
    fn a_long_base_still_gives_a_namespace_of_its_own() {
        let base = |c: char| Namespace::parse(&c.to_string().repeat(128)).unwrap();
        let of = |base: &Namespace| Tenant::Authorization.caller(base, &HeaderMap::new()).unwrap().namespace;
        assert_ne!(of(&base('a')), of(&base('b')));
        assert!(of(&base('a')).as_str().ends_with("/anonymous"));
    }
}
