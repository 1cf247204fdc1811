//! Identity: the names that say which intent a call belongs to, each parsed once and bounded. They are shared, not copied: a
//! record, the claim that made it and the attempt that it allows all carry the same.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::limits::{KEY_BYTES_MAX, NAMESPACE_BYTES_MAX, SCOPE_BYTES_MAX, TOOL_BYTES_MAX};

/// Version of the identity scheme; part of every intent id, so that a new scheme cannot collide with an old one.
const IDENTITY_VERSION: &[u8] = b"oncely-intent-1";
/// Version of the downstream key scheme.
const DOWNSTREAM_VERSION: &[u8] = b"oncely-downstream-1";
/// Derived keys start with this. It holds a space, which no explicit key may: the two can never be equal.
const DERIVED_PREFIX: &str = "derived ";

/// Why a name was refused. Nothing has run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("the {what} is empty; it needs 1 to {max} characters")]
    Empty {
        /// Which name.
        what: &'static str,
        /// The most bytes it may have.
        max: usize,
    },
    /// The name is too long.
    #[error("the {what} has {len} bytes; at most {max} are allowed")]
    TooLong {
        /// Which name.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The most bytes it may have.
        max: usize,
    },
    /// The name holds a character that is not allowed.
    #[error("the {what} holds {found:?} at byte {at}; allowed are {allowed}")]
    BadCharacter {
        /// Which name.
        what: &'static str,
        /// The character found.
        found: char,
        /// Where, in bytes.
        at: usize,
        /// What is allowed instead.
        allowed: &'static str,
    },
}

fn check(
    what: &'static str,
    text: &str,
    max: usize,
    allowed: &'static str,
    ok: fn(char) -> bool,
) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what, max });
    }
    if text.len() > max {
        return Err(NameError::TooLong { what, len: text.len(), max });
    }
    match text.char_indices().find(|(_, c)| !ok(*c)) {
        Some((at, found)) => Err(NameError::BadCharacter { what, found, at, allowed }),
        None => Ok(()),
    }
}

fn visible_ascii(c: char) -> bool {
    ('!'..='~').contains(&c)
}

fn printable(c: char) -> bool {
    !c.is_control()
}

/// The tenant. Nothing ever crosses it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Parses a namespace: 1 to 128 visible ASCII characters.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check("namespace", text, NAMESPACE_BYTES_MAX, "visible ASCII characters", visible_ascii)?;
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self("default".into())
    }
}

/// What a key is unique within: a session, task or run. May be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scope(Option<Arc<str>>);

impl Scope {
    /// No scope: the whole namespace.
    pub fn none() -> Self {
        Self::default()
    }

    /// Parses a scope: 1 to 255 bytes without control characters.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check("scope", text, SCOPE_BYTES_MAX, "characters other than control characters", printable)?;
        Ok(Self(Some(text.into())))
    }

    /// Whether the caller named a scope.
    pub fn is_named(&self) -> bool {
        self.0.is_some()
    }

    /// The text; empty without a scope.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// A named operation: `charge_payment`, `POST /orders`, `mcp:stripe/create_refund`, `cmd:send-email`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// Parses a tool name: 1 to 255 bytes without control characters.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check("tool name", text, TOOL_BYTES_MAX, "characters other than control characters", printable)?;
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a key came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyOrigin {
    /// The caller gave it.
    Explicit,
    /// It was derived from the payload: a guess that two equal calls are one intent.
    Derived,
}

/// The name of an intent within its scope and tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Parses a key that a caller gave: 1 to 255 visible ASCII characters.
    pub fn explicit(text: &str) -> Result<Self, NameError> {
        check("key", text, KEY_BYTES_MAX, "visible ASCII characters (0x21 to 0x7E)", visible_ascii)?;
        Ok(Self(text.into()))
    }

    /// Makes the key of a call that named none, from the digest of what identifies it.
    pub fn derived(digest: &[u8; 32]) -> Self {
        Self(format!("{DERIVED_PREFIX}{}", hex(digest)).into())
    }

    /// Reads a key back as a store kept it.
    pub fn from_stored(text: &str) -> Result<Self, NameError> {
        match text.strip_prefix(DERIVED_PREFIX) {
            Some(digest) if digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()) => {
                Ok(Self(text.into()))
            }
            _ => Self::explicit(text),
        }
    }

    /// Where it came from.
    pub fn origin(&self) -> KeyOrigin {
        if self.0.starts_with(DERIVED_PREFIX) { KeyOrigin::Derived } else { KeyOrigin::Explicit }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The full name of an intent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IntentName {
    /// The tenant.
    pub namespace: Namespace,
    /// What the key is unique within.
    pub scope: Scope,
    /// The operation.
    pub tool: ToolName,
    /// The intent's own name.
    pub key: Key,
}

impl IntentName {
    /// The intent's id: SHA-256 over the length-prefixed parts.
    pub fn intent_id(&self) -> IntentId {
        let mut hash = Sha256::new();
        for part in [
            IDENTITY_VERSION,
            self.namespace.as_str().as_bytes(),
            self.scope.as_str().as_bytes(),
            self.tool.as_str().as_bytes(),
            self.key.as_str().as_bytes(),
        ] {
            hash_part(&mut hash, part);
        }
        IntentId(hash.finalize().into())
    }
}

/// Feeds one length-prefixed part into a hash: no concatenation of parts equals another.
pub(crate) fn hash_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}

/// Identifies an intent everywhere: in ledgers, messages and commands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IntentId(pub [u8; 32]);

impl IntentId {
    /// Characters of the id that people see; enough to be unique in practice.
    pub const SHORT_CHARS: usize = 12;

    /// Reads a full id of 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0u8; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The first characters of the id, as people see them.
    pub fn short(&self) -> String {
        hex(&self.0)[..Self::SHORT_CHARS].to_owned()
    }

    /// The key under which a provider de-duplicates: a v4-shaped UUID, the same for every attempt after an unknown,
    /// another after a certain rejection (some providers replay stored errors) and in a new generation.
    pub fn downstream_key(&self, generation: u32, rejections: u32) -> DownstreamKey {
        let mut hash = Sha256::new();
        hash_part(&mut hash, DOWNSTREAM_VERSION);
        hash_part(&mut hash, &self.0);
        hash_part(&mut hash, &generation.to_be_bytes());
        hash_part(&mut hash, &rejections.to_be_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let mut uuid = [0u8; 16];
        uuid.copy_from_slice(&digest[..16]);
        uuid[6] = (uuid[6] & 0x0f) | 0x40;
        uuid[8] = (uuid[8] & 0x3f) | 0x80;
        DownstreamKey(uuid)
    }
}

impl fmt::Display for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IntentId({})", self.short())
    }
}

/// A v4-shaped UUID that is passed to a downstream which de-duplicates by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DownstreamKey(pub [u8; 16]);

impl fmt::Display for DownstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = hex(&self.0);
        write!(f, "{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..])
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = vec![0; bytes.len() * 2];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    // Digits are text.
    String::from_utf8(digits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{IntentId, IntentName, Key, KeyOrigin, NameError, Namespace, Scope, ToolName};

    fn name(namespace: &str, scope: &str, tool: &str, key: &str) -> IntentName {
        IntentName {
            namespace: Namespace::parse(namespace).unwrap(),
            scope: if scope.is_empty() { Scope::none() } else { Scope::parse(scope).unwrap() },
            tool: ToolName::parse(tool).unwrap(),
            key: Key::explicit(key).unwrap(),
        }
    }

    #[test]
    fn moving_characters_between_parts_makes_another_intent() {
        let ids = [
            name("a", "b", "c", "d"),
            name("ab", "c", "c", "d"),
            name("a", "bc", "c", "d"),
            name("a", "b", "cd", "d"),
            name("a", "", "bc", "d"),
            name("a", "b", "c", "cd"),
        ]
        .map(|n| n.intent_id());
        for (i, a) in ids.iter().enumerate() {
            assert!(ids[..i].iter().all(|b| a != b));
        }
    }

    #[test]
    fn bad_keys_are_refused_with_the_reason() {
        assert!(matches!(Key::explicit(""), Err(NameError::Empty { .. })));
        assert!(matches!(Key::explicit(&"k".repeat(256)), Err(NameError::TooLong { len: 256, .. })));
        assert!(matches!(Key::explicit("a\nb"), Err(NameError::BadCharacter { at: 1, .. })));
        assert!(matches!(Key::explicit("a b"), Err(NameError::BadCharacter { .. })));
        assert!(matches!(Key::explicit("ключ"), Err(NameError::BadCharacter { .. })));
        assert!(Key::explicit(&"k".repeat(255)).is_ok());
    }

    #[test]
    fn no_explicit_key_can_pose_as_a_derived_one() {
        let derived = Key::derived(&[7; 32]);
        assert_eq!(derived.origin(), KeyOrigin::Derived);
        assert!(Key::explicit(derived.as_str()).is_err());
        assert_eq!(Key::from_stored(derived.as_str()).unwrap(), derived);
        assert!(Key::from_stored("derived nonsense").is_err());
    }

    #[test]
    fn a_downstream_key_is_a_v4_shaped_uuid_that_changes_only_with_rejections_and_generation() {
        let id = name("n", "s", "t", "k").intent_id();
        let text = id.downstream_key(1, 0).to_string();
        assert_eq!(text.len(), 36);
        assert_eq!(&text[14..15], "4");
        assert!("89ab".contains(&text[19..20]));
        assert_eq!(id.downstream_key(1, 0), id.downstream_key(1, 0));
        assert_ne!(id.downstream_key(1, 0), id.downstream_key(1, 1));
        assert_ne!(id.downstream_key(1, 0), id.downstream_key(2, 0));
    }

    #[test]
    fn an_id_reads_back_as_it_was_shown() {
        let id = name("n", "", "t", "k").intent_id();
        assert_eq!(IntentId::parse(&id.to_string()), Some(id));
        assert_eq!(IntentId::parse("zz"), None);
        assert_eq!(IntentId::parse(&"é".repeat(32)), None);
    }
}
