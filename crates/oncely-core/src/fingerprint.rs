//! What a call's payload means: its fingerprint, and the key derived from it where the caller gave none.

use sha2::{Digest as _, Sha256};

use crate::canonical::{self, PayloadError};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::name::{Key, hex};
use crate::policy::{Matching, Policy};
use crate::select;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digest({})", &hex(&self.0)[..12])
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Digest of a payload, so that a key reused for something else is caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Of the canonical form: decides.
    pub canonical: Digest,
    /// Of the very bytes: a retry is nearly always the same bytes, and then needs no parsing.
    pub raw: Digest,
}

impl Fingerprint {
    /// The fingerprint of a whole JSON payload.
    pub fn of_json(payload: &[u8]) -> Result<Self, PayloadError> {
        let canonical = Digest::of(&canonical::parse(payload)?.to_canonical());
        Ok(Self { canonical, raw: Digest::of(payload) })
    }

    /// Whether both are of the same payload. The very same bytes are, also where a policy has come to count other fields
    /// of them since.
    pub fn matches(&self, other: &Self) -> bool {
        self.raw == other.raw || self.canonical == other.canonical
    }
}

/// The key and fingerprint of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The caller's key, or the derived one.
    pub key: Key,
    /// What the payload is.
    pub fingerprint: Fingerprint,
}

/// Works out key and fingerprint of a call.
///
/// With an explicit key the fingerprint covers the whole payload less the ignored fields. A derived key is the digest
/// of the key fields, or of the whole payload where the tool declares none; the key fields then *are* the intent, so
/// the fingerprint covers just them, unless the policy asks for the whole payload.
pub fn identify(explicit: Option<Key>, payload: &[u8], policy: &Policy) -> Result<Identity, PayloadError> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(PayloadError::TooLarge { len: payload.len() });
    }
    identify_digested(explicit, payload, Digest::of(payload), policy)
}

/// The same for a caller that has the digest of the payload's bytes already.
pub fn identify_digested(
    explicit: Option<Key>,
    payload: &[u8],
    raw: Digest,
    policy: &Policy,
) -> Result<Identity, PayloadError> {
    let mut node = canonical::parse(payload)?;
    let chosen = if explicit.is_none() && !policy.key.is_empty() {
        Some(Digest::of(&select::pick(&node, &policy.key)?.to_canonical()))
    } else {
        None
    };
    let whole = |node: &mut canonical::Node<'_>| {
        select::leave_out(node, &policy.ignore);
        Digest::of(&node.to_canonical())
    };
    let (key, canonical) = match (explicit, chosen) {
        (Some(key), _) => (key, whole(&mut node)),
        (None, Some(chosen)) if policy.matching == Matching::KeyFields => (Key::derived(&chosen.0), chosen),
        (None, Some(chosen)) => (Key::derived(&chosen.0), whole(&mut node)),
        (None, None) => {
            let digest = whole(&mut node);
            (Key::derived(&digest.0), digest)
        }
    };
    Ok(Identity { key, fingerprint: Fingerprint { canonical, raw } })
}

#[cfg(test)]
mod tests {
    use super::{Identity, identify};
    use crate::canonical::PayloadError;
    use crate::name::{Key, KeyOrigin};
    use crate::policy::{Matching, Policy};
    use crate::select::Selector;

    fn policy(key: &[&str], ignore: &[&str], matching: Matching) -> Policy {
        let parse = |l: &[&str]| l.iter().map(|s| Selector::parse(s).unwrap()).collect();
        Policy { key: parse(key), ignore: parse(ignore), matching, ..Policy::default() }
    }

    fn of(payload: &str, policy: &Policy) -> Identity {
        identify(None, payload.as_bytes(), policy).unwrap()
    }

    const WELCOME: &str = r#"{"to":"a@b.c","body":"Welcome!","at":1}"#;
    const REWORDED: &str = r#"{"to":"a@b.c","body":"A warm welcome","at":2}"#;

    #[test]
    fn key_fields_are_the_intent_and_the_rest_may_differ() {
        let p = policy(&["to"], &[], Matching::KeyFields);
        let (a, b) = (of(WELCOME, &p), of(REWORDED, &p));
        assert_eq!(a.key, b.key);
        assert_eq!(a.key.origin(), KeyOrigin::Derived);
        assert!(a.fingerprint.matches(&b.fingerprint));
    }

    #[test]
    fn match_payload_asks_for_the_whole_of_it() {
        let p = policy(&["to"], &["at"], Matching::Payload);
        let (a, b) = (of(WELCOME, &p), of(REWORDED, &p));
        assert_eq!(a.key, b.key);
        assert!(!a.fingerprint.matches(&b.fingerprint));
    }

    #[test]
    fn an_explicit_key_covers_the_whole_payload_less_the_ignored() {
        let p = policy(&["to"], &["at"], Matching::KeyFields);
        let key = Key::explicit("k").unwrap();
        let of = |text: &str| identify(Some(key.clone()), text.as_bytes(), &p).unwrap();
        assert!(!of(WELCOME).fingerprint.matches(&of(REWORDED).fingerprint));
        let later = WELCOME.replace("\"at\":1", "\"at\":9");
        assert!(of(WELCOME).fingerprint.matches(&of(&later).fingerprint));
    }

    #[test]
    fn the_same_bytes_are_the_same_payload_whatever_the_policy_counts_by_now() {
        let key = Key::explicit("k").unwrap();
        let of = |text: &str, ignore: &[&str]| {
            let policy = policy(&[], ignore, Matching::KeyFields);
            identify(Some(key.clone()), text.as_bytes(), &policy).unwrap().fingerprint
        };
        assert!(of(WELCOME, &[]).matches(&of(WELCOME, &["at"])));
        assert!(!of(WELCOME, &[]).matches(&of(REWORDED, &["at"])));
    }

    #[test]
    fn a_missing_key_field_is_an_error() {
        let p = policy(&["customer"], &[], Matching::KeyFields);
        let result = identify(None, WELCOME.as_bytes(), &p);
        assert_eq!(result, Err(PayloadError::MissingField("/customer".into())));
    }
}
