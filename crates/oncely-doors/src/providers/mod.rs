//! Providers: how the APIs that agents call take an idempotency key, what their answers say of it, and what to look at
//! where there is none.
//!
//! The table is one file, `providers.toml`, in the form in which a configuration adds rows of its own:
//!
//! ```
//! use oncely_doors::providers::{Meaning, Providers};
//!
//! let stripe = Providers::builtin().get("stripe").unwrap();
//! assert_eq!(stripe.retention_ms, Some(24 * 60 * 60 * 1000));
//! assert_eq!(stripe.classify(409, |_| None, b"{}"), Some(Meaning::InFlight));
//!
//! let mine = "[[provider]]\nname = \"ours\"\nkey = { header = \"X-Request-Key\" }\nretention = \"2h\"\n";
//! let providers = Providers::builtin().clone().with_toml(mine)?;
//! assert!(providers.get("ours").is_some());
//! # Ok::<(), oncely_doors::providers::ProviderError>(())
//! ```
//!
//! Rooms: `read` (rows and what is wrong with them), `configured` (those of a configuration, and where), `place` (puts a key into a request), `classify` (what an answer
//! says of the key).

mod classify;
mod configured;
mod place;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use oncely::policy_file::PolicyFileError;
use oncely_core::policy::WhenUnknown;
use oncely_core::{DownstreamKey, Policy, name};
use serde::Serialize;

pub use self::classify::{AnswerRule, Meaning};
pub use self::place::PlaceError;
pub use self::read::{ProviderError, ProviderRow};

/// How much earlier than published a key counts as forgotten, at most.
const MARGIN_MS: u64 = 60_000;

/// Whether a policy says itself what becomes of an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenUnknownSaid {
    /// It does not: the provider's row decides.
    Nothing,
    /// It does, and that stands.
    ByPolicy,
}

/// Most providers that a configuration may add.
pub const OWN_MAX: usize = 1_000;

/// How one API takes an idempotency key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Provider {
    /// What a route says.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// Hosts that serve it, where they are the same for everybody.
    pub hosts: Vec<String>,
    /// How the key travels.
    pub key: Carrier,
    /// What travels with it.
    pub also: Vec<Companion>,
    /// How the key is spelled.
    pub encoder: Encoder,
    /// Fewest characters that it takes.
    pub chars_min: Option<usize>,
    /// Most characters that it takes.
    pub chars_max: Option<usize>,
    /// The characters that it takes, as ranges; `None`: any.
    pub charset: Option<String>,
    /// What a key is unique within, in words.
    pub scope: Option<String>,
    /// Whether it remembers a key for one credential only, such as an API key: under another one the same key is new to it.
    pub per_credential: bool,
    /// How long it remembers a key; `None` where that is not published: then the key is no licence to try again.
    pub retention_ms: Option<u64>,
    /// What a later call does when the outcome is unknown, where the key alone does not make a retry harmless.
    #[serde(serialize_with = "word_of")]
    pub when_unknown: Option<WhenUnknown>,
    /// The methods that take a key; empty: not published.
    pub methods: Vec<String>,
    /// Whether every request of these methods is de-duplicated. Where only some are, a key is no licence to try again:
    /// a route that leads to those alone says so itself, with `when_unknown = "retry"`.
    pub everywhere: bool,
    /// Headers that choose the account: the same request under another one is another request.
    pub account_headers: Vec<String>,
    /// Whether it remembers errors too, and answers with them again.
    pub errors_kept: Option<bool>,
    /// What its answers say of the key; the first that fits counts.
    pub answers: Vec<AnswerRule>,
    /// What to look at when the outcome is unknown.
    pub check: Option<String>,
    /// What else one should know.
    pub notes: Option<String>,
    /// How well this is known.
    pub confidence: Confidence,
    /// Where it is known from.
    pub sources: Vec<String>,
}

/// How a key travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// In a header.
    Header {
        /// Its name.
        name: String,
        /// As a quoted string, after RFC 8941.
        quoted: bool,
    },
    /// In a member of the JSON body.
    Json {
        /// Where, as a JSON pointer.
        pointer: String,
    },
    /// In a field of the form body.
    Form {
        /// Its name.
        field: String,
    },
    /// In the query of the address.
    Query {
        /// Its name.
        name: String,
    },
    /// Only the caller can put it there.
    ByHand {
        /// How.
        how: String,
    },
    /// It takes none.
    None,
}

/// What has to travel with the key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Companion {
    /// How it travels.
    pub carrier: Carrier,
    /// What it is.
    pub value: CompanionValue,
}

/// What a companion of the key is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompanionValue {
    /// Always this.
    Fixed(serde_json::Value),
    /// When the key was first sent, as an HTTP date.
    FirstSent,
}

/// How a downstream key is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoder {
    /// A version 4 UUID in lower case with hyphens: fits nearly everywhere.
    Uuid,
    /// The same 128 bits as 22 characters of base64url.
    Base64Url22,
    /// The same 128 bits as 32 hexadecimal digits.
    Hex32,
}

/// How well a row is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// The provider publishes it.
    Documented,
    /// Read in the provider's SDK or source.
    Sdk,
    /// Others report it.
    Reported,
    /// Not verified: never a licence to try again.
    Uncertain,
    /// The configuration says so.
    Own,
}

impl Encoder {
    /// Spells a key.
    pub fn encode(self, key: &DownstreamKey) -> String {
        match self {
            Self::Uuid => key.to_string(),
            Self::Hex32 => name::hex(&key.0),
            Self::Base64Url22 => {
                let standard = crate::command::base64(&key.0);
                standard.trim_end_matches('=').replace('+', "-").replace('/', "_")
            }
        }
    }

    /// How many characters it makes.
    pub fn chars(self) -> usize {
        match self {
            Self::Uuid => 36,
            Self::Base64Url22 => 22,
            Self::Hex32 => 32,
        }
    }

    /// Every character that it can make.
    pub fn alphabet(self) -> &'static str {
        match self {
            Self::Uuid => "0123456789abcdef-",
            Self::Hex32 => "0123456789abcdef",
            Self::Base64Url22 => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
        }
    }

    /// The word used in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uuid => "uuid",
            Self::Base64Url22 => "base64url22",
            Self::Hex32 => "hex32",
        }
    }
}

impl Carrier {
    /// In a few words, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Header { name, quoted: false } => format!("header {name}"),
            Self::Header { name, quoted: true } => format!("header {name} (quoted)"),
            Self::Json { pointer } => format!("JSON {pointer}"),
            Self::Form { field } => format!("form {field}"),
            Self::Query { name } => format!("query {name}"),
            Self::ByHand { .. } => "by hand".to_owned(),
            Self::None => "none".to_owned(),
        }
    }
}

impl Confidence {
    /// The word used in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Documented => "documented",
            Self::Sdk => "sdk",
            Self::Reported => "reported",
            Self::Uncertain => "uncertain",
            Self::Own => "own",
        }
    }
}

impl Provider {
    /// The key as this provider takes it.
    pub fn encode(&self, key: &DownstreamKey) -> String {
        self.encoder.encode(key)
    }

    /// Whether a key can be put into a request on its way.
    pub fn takes_key(&self) -> bool {
        !matches!(self.key, Carrier::None | Carrier::ByHand { .. })
    }

    /// Whether requests of this method take a key. Where the methods are not published, those that change something.
    pub fn applies_to(&self, method: &str) -> bool {
        if self.methods.is_empty() {
            return self.takes_key() && matches!(method, "POST" | "PUT" | "PATCH" | "DELETE");
        }
        self.takes_key() && self.methods.iter().any(|known| known == method)
    }

    /// For how long a request that takes our key is known to be de-duplicated by it: the published retention, less a
    /// margin for the way there. Nothing where any of that is not certain.
    pub fn harmless_for_ms(&self) -> Option<u64> {
        let certain = self.takes_key()
            && self.confidence != Confidence::Uncertain
            && self.when_unknown != Some(WhenUnknown::Halt);
        self.retention_ms.filter(|_| certain).map(|kept| kept - (kept / 10).min(MARGIN_MS))
    }

    /// Writes what is known of the provider into a tool's policy: for how long a retry under the same key is harmless
    /// (never longer than the policy says itself), and, where the provider de-duplicates every request and the policy
    /// says nothing of its own, that it may be made. After that time the policy halts. Where nothing is certain, a
    /// policy's own word stays as it is.
    pub fn adjust(&self, policy: &mut Policy, said: WhenUnknownSaid) {
        let Some(kept) = self.harmless_for_ms() else { return };
        let own = policy.forwards_key_for_ms.unwrap_or(u64::MAX);
        policy.forwards_key_for_ms = Some(kept.min(own));
        if said == WhenUnknownSaid::Nothing && self.everywhere {
            policy.when_unknown = WhenUnknown::Retry;
        }
    }
}

/// All providers that routes can name.
#[derive(Debug, Clone, PartialEq)]
pub struct Providers {
    by_name: BTreeMap<String, Provider>,
}

impl Providers {
    /// The table that comes with the program.
    pub fn builtin() -> &'static Self {
        static BUILTIN: LazyLock<Providers> = LazyLock::new(|| {
            // A test reads the same text, so this cannot fail in a program that was tested; and if it did, a route
            // that names a provider says that it is not known, before anything runs.
            let empty = Providers { by_name: BTreeMap::new() };
            read::table(include_str!("providers.toml"), empty.clone(), read::Whose::Builtin).unwrap_or(empty)
        });
        &BUILTIN
    }

    /// Adds the rows of a configuration; a row with a known name takes its place.
    pub fn with_own(self, rows: Vec<ProviderRow>) -> Result<Self, ProviderError> {
        read::add(self, rows, read::Whose::Own)
    }

    /// Adds the `[[provider]]` tables of a TOML text that holds nothing else.
    pub fn with_toml(self, text: &str) -> Result<Self, ProviderError> {
        read::table(text, self, read::Whose::Own)
    }

    /// Adds the `[[provider]]` tables of a whole configuration; what else stands in it is for others. `file_name` is what
    /// messages call it.
    pub fn with_config(self, text: &str, file_name: &str) -> Result<Self, PolicyFileError> {
        configured::tables_of(text, file_name, self)
    }

    /// The provider of this name.
    pub fn get(&self, name: &str) -> Option<&Provider> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Provider> {
        self.by_name.values()
    }

    /// Names that look like this one, for a message.
    pub fn similar(&self, name: &str) -> Vec<&str> {
        let wanted = name.to_ascii_lowercase();
        let close =
            |known: &&str| !wanted.is_empty() && (known.contains(wanted.as_str()) || wanted.contains(*known));
        self.by_name.keys().map(String::as_str).filter(close).collect()
    }
}

fn word_of<S: serde::Serializer>(value: &Option<WhenUnknown>, to: S) -> Result<S::Ok, S::Error> {
    value.map(WhenUnknown::as_str).serialize(to)
}
