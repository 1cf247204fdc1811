//! What a provider's answer says of the key that was sent with the request.

use serde::{Deserialize, Serialize};

use super::Provider;

/// Deepest place in an answer that is looked at.
const DEPTH_MAX: usize = 16;
/// Longest answer that is looked into, in bytes: what providers say of a key is short.
const LOOK_BYTES_MAX: usize = 64 * 1024;

/// What an answer says of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// It is the answer to an earlier request under this key.
    Replayed,
    /// An earlier request under this key is still under way: what it did is not known yet.
    InFlight,
    /// The key was used for another payload: this request did nothing.
    Mismatch,
    /// What was asked for is there already.
    AlreadyCreated,
    /// It is certain that this request did nothing.
    Rejected,
}

impl Meaning {
    /// The word used in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::InFlight => "in_flight",
            Self::Mismatch => "mismatch",
            Self::AlreadyCreated => "already_created",
            Self::Rejected => "rejected",
        }
    }
}

/// One rule: every condition that is stated has to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRule {
    /// The status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// A header that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// What that header says, whatever the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
    /// A text or number that stands in the JSON body as a value of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// Where it has to stand, as a JSON pointer in which `*` stands for every member; anywhere if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What it means.
    pub means: Meaning,
}

impl AnswerRule {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.status.is_none() && self.header.is_none() && self.says.is_none() {
            return Err("a rule needs a status, a header or what the body says".to_owned());
        }
        if self.is.is_some() && self.header.is_none() {
            return Err("`is` says what a header has to be; name the header".to_owned());
        }
        if self.status.is_some_and(|status| !(100..=599).contains(&status)) {
            return Err("a status lies between 100 and 599".to_owned());
        }
        if self.at.is_some() && self.says.is_none() {
            return Err("`at` says where the body says something; state what, with `says`".to_owned());
        }
        if self.at.as_ref().is_some_and(|at| !at.starts_with('/')) {
            return Err("`at` is a JSON pointer: /error/type, /errors/*/code".to_owned());
        }
        // Callers choose much of what a provider repeats in its answers: a word alone proves nothing.
        if self.says.is_some() && self.status.is_none() && self.at.is_none() {
            return Err(
                "what the body says needs a status or a place (`at`), or a caller could say it".to_owned()
            );
        }
        if matches!(self.means, Meaning::Mismatch | Meaning::Rejected) && self.status.is_none() {
            return Err(format!("{:?} means that nothing happened: state the status", self.means.as_str()));
        }
        let successful = self.status.is_some_and(|status| (200..300).contains(&status));
        if successful && !matches!(self.means, Meaning::Replayed | Meaning::AlreadyCreated) {
            return Err(format!("{:?} cannot be meant by a success", self.means.as_str()));
        }
        Ok(())
    }

    fn fits<'h>(
        &self,
        status: u16,
        header: &impl Fn(&str) -> Option<&'h str>,
        body: &mut impl FnMut(&str, Option<&str>) -> bool,
    ) -> bool {
        // Whatever a success repeats of what the caller sent, it happened.
        let succeeded = (200..300).contains(&status);
        if succeeded && !matches!(self.means, Meaning::Replayed | Meaning::AlreadyCreated) {
            return false;
        }
        let header_fits = |name: &String| {
            header(name).is_some_and(|value| {
                self.is.as_ref().is_none_or(|wanted| value.trim().eq_ignore_ascii_case(wanted))
            })
        };
        self.status.is_none_or(|wanted| wanted == status)
            && self.header.as_ref().is_none_or(header_fits)
            && self.says.as_ref().is_none_or(|wanted| body(wanted, self.at.as_deref()))
    }
}

impl Provider {
    /// What an answer says of the key; `None`: nothing, the status alone counts.
    pub fn classify<'h>(
        &self,
        status: u16,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &[u8],
    ) -> Option<Meaning> {
        // Parsed at most once, and only if a rule asks.
        let mut parsed: Option<Option<serde_json::Value>> = None;
        let mut says = |wanted: &str, at: Option<&str>| {
            let value = parsed.get_or_insert_with(|| {
                (body.len() <= LOOK_BYTES_MAX).then(|| serde_json::from_slice(body).ok()).flatten()
            });
            let there = |value: &serde_json::Value| match at {
                Some(at) => has_value_at(value, at.split('/').skip(1), wanted),
                None => has_value(value, wanted, DEPTH_MAX),
            };
            value.as_ref().is_some_and(there)
        };
        let means = self.answers.iter().find(|rule| rule.fits(status, &header, &mut says))?.means;
        // Where we did not put the key there, what is there already may be somebody else's.
        let ours = self.takes_key() || means != Meaning::AlreadyCreated;
        Some(if ours { means } else { Meaning::Rejected })
    }
}

fn has_value_at<'s>(
    value: &serde_json::Value,
    mut steps: impl Iterator<Item = &'s str> + Clone,
    wanted: &str,
) -> bool {
    use serde_json::Value;
    let Some(step) = steps.next() else { return has_value(value, wanted, 1) };
    let inside = |member: &Value| has_value_at(member, steps.clone(), wanted);
    match value {
        Value::Object(members) if step == "*" => members.values().any(inside),
        Value::Object(members) => members.get(step).is_some_and(inside),
        Value::Array(items) if step == "*" => items.iter().any(inside),
        _ => false,
    }
}

fn has_value(value: &serde_json::Value, wanted: &str, depth: usize) -> bool {
    use serde_json::Value;
    if depth == 0 {
        return false;
    }
    match value {
        Value::String(text) => text == wanted,
        Value::Number(number) => number.to_string() == wanted,
        Value::Array(items) => items.iter().any(|item| has_value(item, wanted, depth - 1)),
        Value::Object(members) => members.values().any(|member| has_value(member, wanted, depth - 1)),
        Value::Null | Value::Bool(_) => false,
    }
}
