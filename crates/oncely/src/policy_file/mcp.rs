//! What a tool declares about the MCP door: how its errors are read, and what is added to its answers.

use super::pattern::Pattern;
use super::values::{self, Read, Value};

/// The fields that only the MCP door reads, in the order in which they are documented.
pub(super) const FIELDS: [&str; 6] =
    ["is_error", "rejected_when", "annotate", "forward_cancel", "dry_run", "advertise_idempotent"];

/// What a tool declares about the MCP door, with the defaults filled in.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpPolicy {
    /// What a result that is marked as an error proves.
    pub is_error: IsError,
    /// Texts of error results that prove that nothing happened.
    pub rejected_when: Vec<TextPattern>,
    /// How a replay says that it is one.
    pub annotate: Annotate,
    /// Whether a client's cancellation of a write reaches the server.
    pub forward_cancel: ForwardCancel,
    /// Whether the tool gets a `dry_run` argument.
    pub dry_run: DryRun,
    /// Whether the tool is listed as idempotent.
    pub advertise_idempotent: Advertise,
}

/// What a result that is marked as an error proves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IsError {
    /// Nothing: the effect may have happened.
    #[default]
    Unknown,
    /// That nothing happened.
    Rejected,
}

/// How a replay says that it is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Annotate {
    /// In one more text, which a model reads, and under `_meta`.
    #[default]
    Text,
    /// Under `_meta`.
    Meta,
    /// Not at all.
    Off,
}

/// Whether a client's cancellation of a write reaches the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ForwardCancel {
    /// It is kept back: the write finishes, is recorded, and a retry gets its result.
    #[default]
    No,
    /// It is passed on.
    Yes,
}

/// Whether a tool gets a `dry_run` argument.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DryRun {
    /// It is offered and understood.
    #[default]
    Offered,
    /// It is not.
    Off,
}

/// Whether a guarded write tool is listed as idempotent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Advertise {
    /// As the server lists it.
    #[default]
    AsListed,
    /// With `idempotentHint: true`: some clients then repeat a lost call by themselves.
    Idempotent,
}

/// A text in which `*` stands for any characters, also none.
#[derive(Debug, Clone, PartialEq)]
pub struct TextPattern(Pattern);

impl TextPattern {
    /// Whether a whole text fits.
    pub fn matches(&self, text: &str) -> bool {
        self.0.matches(text)
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// What one table says; a field that it leaves out is `None`.
#[derive(Debug, Clone, Default)]
pub(super) struct McpLayer {
    is_error: Option<IsError>,
    rejected_when: Option<Vec<TextPattern>>,
    annotate: Option<Annotate>,
    forward_cancel: Option<ForwardCancel>,
    dry_run: Option<DryRun>,
    advertise_idempotent: Option<Advertise>,
}

impl McpLayer {
    /// Reads one of [`FIELDS`].
    pub(super) fn set(&mut self, field: &str, value: &Value<'_>) -> Read<()> {
        match field {
            "is_error" => {
                let choices = [("unknown", IsError::Unknown), ("rejected", IsError::Rejected)];
                self.is_error = Some(values::one_of(value, &choices)?);
            }
            "rejected_when" => {
                let texts = values::texts(value, "a list of texts such as [\"Insufficient funds*\"]")?;
                self.rejected_when = Some(texts.iter().map(|t| TextPattern(Pattern::new(t))).collect());
            }
            "annotate" => {
                let choices = [("text", Annotate::Text), ("meta", Annotate::Meta), ("off", Annotate::Off)];
                self.annotate = Some(values::one_of(value, &choices)?);
            }
            "forward_cancel" => {
                let yes = values::boolean(value)?;
                self.forward_cancel = Some(if yes { ForwardCancel::Yes } else { ForwardCancel::No });
            }
            "dry_run" => {
                let offered = values::boolean(value)?;
                self.dry_run = Some(if offered { DryRun::Offered } else { DryRun::Off });
            }
            "advertise_idempotent" => {
                let yes = values::boolean(value)?;
                self.advertise_idempotent =
                    Some(if yes { Advertise::Idempotent } else { Advertise::AsListed });
            }
            _ => {}
        }
        Ok(())
    }

    /// This table over the defaults: what it states wins.
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            is_error: self.is_error.or(below.is_error),
            rejected_when: self.rejected_when.or(below.rejected_when),
            annotate: self.annotate.or(below.annotate),
            forward_cancel: self.forward_cancel.or(below.forward_cancel),
            dry_run: self.dry_run.or(below.dry_run),
            advertise_idempotent: self.advertise_idempotent.or(below.advertise_idempotent),
        }
    }

    /// With the defaults filled in.
    pub(super) fn policy(&self) -> McpPolicy {
        McpPolicy {
            is_error: self.is_error.unwrap_or_default(),
            rejected_when: self.rejected_when.clone().unwrap_or_default(),
            annotate: self.annotate.unwrap_or_default(),
            forward_cancel: self.forward_cancel.unwrap_or_default(),
            dry_run: self.dry_run.unwrap_or_default(),
            advertise_idempotent: self.advertise_idempotent.unwrap_or_default(),
        }
    }
}
