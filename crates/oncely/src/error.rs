//! Why a call got no answer. Every error here means: nothing ran.

use oncely_core::canonical::PayloadError;
use oncely_core::policy::PolicyError;
use oncely_core::{NameError, StoreError};

/// Why a call got no answer. Nothing ran.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A namespace, scope, tool name or key is not acceptable.
    #[error("{0}; nothing ran")]
    Name(#[from] NameError),
    /// The payload is not acceptable.
    #[error("{0}; nothing ran")]
    Payload(#[from] PayloadError),
    /// The tool's policy contradicts itself.
    #[error("the policy is not acceptable: {0}; nothing ran")]
    Policy(#[from] PolicyError),
    /// The tool's policy asks for an explicit key.
    #[error("the tool {tool:?} needs an explicit key (its policy says require_key); nothing ran")]
    KeyRequired {
        /// The tool.
        tool: String,
    },
    /// The token that was given for the attempt names one that has ended.
    #[error("the token names an attempt that has ended; nothing ran. Make a new one for every begin")]
    TokenUsed,
    /// The ledger cannot be used.
    #[error("the ledger cannot be used: {0}; nothing ran")]
    Store(#[from] StoreError),
    /// Too many effects are open in this process.
    #[error("{open} effects are open in this process, the limit; nothing ran, try again later")]
    Overloaded {
        /// How many.
        open: usize,
    },
}

impl Error {
    /// The code that programs see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name(_) => "BAD_NAME",
            Self::Payload(_) => "BAD_PAYLOAD",
            Self::Policy(_) => "BAD_POLICY",
            Self::KeyRequired { .. } => "KEY_REQUIRED",
            Self::TokenUsed => "TOKEN_USED",
            Self::Store(_) => "STORE_UNAVAILABLE",
            Self::Overloaded { .. } => "OVERLOADED",
        }
    }

    /// Whether the same call can succeed later. It never means that something happened.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Overloaded { .. })
    }
}
