//! The dialects: which status each kind of refusal has.

/// Which contract an endpoint is expected to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// A key is required; 409 for a key reused and for one in flight; replays are marked; `application/problem+json`.
    Default,
    /// The header draft of the IETF: the key is a quoted string; 422 for a key reused.
    Ietf,
    /// Stripe's: the key is optional; 400 with an `idempotency_error` for a key reused; replays are marked.
    Stripe,
}

impl Dialect {
    /// The name for people and flags.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Ietf => "ietf",
            Self::Stripe => "stripe",
        }
    }

    /// The status of a refusal of a key that was used for another payload.
    pub(super) fn mismatch(self) -> u16 {
        match self {
            Self::Default => 409,
            Self::Ietf => 422,
            Self::Stripe => 400,
        }
    }

    /// Whether a request without a key is refused.
    pub(super) fn requires_key(self) -> bool {
        self != Self::Stripe
    }

    /// Whether a repeat is marked by a header.
    pub(super) fn marks_replays(self) -> bool {
        self != Self::Ietf
    }

    /// The key as it is sent.
    pub(super) fn spelled(self, key: &str) -> String {
        match self {
            Self::Ietf => format!("\"{key}\""),
            Self::Default | Self::Stripe => key.to_owned(),
        }
    }

    /// Header values that are no keys, with what is wrong with them.
    pub(super) fn malformed(self) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        let long = "k".repeat(256);
        let too_long = ("256 characters", vec![self.spelled(&long).into_bytes()]);
        if self == Self::Stripe {
            return vec![too_long];
        }
        let quoted = |text: &str| self.spelled(text).into_bytes();
        vec![
            ("an empty key", vec![quoted("")]),
            too_long,
            ("a letter outside ASCII", vec![b"caf\xe9-key".to_vec()]),
            ("a blank inside", vec![quoted("one two")]),
            ("two keys", vec![quoted("key-one"), quoted("key-two")]),
        ]
    }
}
