//! What one table of the file says about a tool, laid over what `[defaults]` says, and checked against itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use oncely_core::select::Selector;
use oncely_core::{Cost, Effect, Kind, Matching, Policy, Retention, WhenUnknown};
use toml::de::DeTable;

use super::mcp::{self, McpLayer};
use super::problem::{Problems, allowed, quote};
use super::values::{self, Read, Value};
use super::{CheckCommand, ToolPolicy};

/// The fields of `[defaults]` and of a tool's table, in the order in which they are documented.
pub(super) const FIELDS: [&str; 23] = [
    "kind",
    "effect",
    "key",
    "ignore",
    "match",
    "idempotent",
    "forwards_key_for",
    "when_unknown",
    "check",
    "max_retries",
    "rejected_on",
    "replay_for",
    "remember_for",
    "repeat_after",
    "wait_for",
    "require_key",
    "cost",
    mcp::FIELDS[0],
    mcp::FIELDS[1],
    mcp::FIELDS[2],
    mcp::FIELDS[3],
    mcp::FIELDS[4],
    mcp::FIELDS[5],
];

/// What every write tool should say for itself.
const EXPECTED_OF_A_TOOL: [&str; 3] = ["idempotent", "max_retries", "when_unknown"];

/// What one table says; a field that it leaves out is `None`.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer {
    kind: Option<Kind>,
    effect: Option<Effect>,
    key: Option<Vec<Selector>>,
    ignore: Option<Vec<Selector>>,
    matching: Option<Matching>,
    idempotent: Option<bool>,
    forwards_key_for_ms: Option<u64>,
    when_unknown: Option<WhenUnknown>,
    check: Option<CheckCommand>,
    max_retries: Option<u32>,
    rejected_on: Option<Vec<RangeInclusive<u8>>>,
    replay_for_ms: Option<u64>,
    remember_for_ms: Option<u64>,
    repeat_after_ms: Option<u64>,
    wait_for_ms: Option<u64>,
    require_key: Option<bool>,
    cost: Option<Cost>,
    mcp: McpLayer,
    /// Where each field is stated.
    stated: BTreeMap<&'static str, usize>,
    /// Fields that are stated, but cannot be read: nothing is concluded from their absence.
    bad: BTreeSet<&'static str>,
}

impl Layer {
    /// Reads a table, noting every problem; `place` names the table in messages.
    pub(super) fn read(table: &DeTable<'_>, place: &str, problems: &mut Problems) -> Self {
        let mut layer = Self::default();
        for (name, value) in table {
            let offset = name.span().start;
            let Some(field) = FIELDS.into_iter().find(|field| *field == name.get_ref().as_ref()) else {
                problems.add(offset, place, unknown_field(name.get_ref(), value));
                continue;
            };
            match layer.set(field, value) {
                Ok(()) => {
                    layer.stated.insert(field, value.span().start);
                }
                Err(faults) => {
                    layer.bad.insert(field);
                    for fault in faults {
                        problems.add(fault.offset, format!("{place}.{field}"), fault.message);
                    }
                }
            }
        }
        layer.imply_when_unknown();
        layer
    }

    fn set(&mut self, field: &str, value: &Value<'_>) -> Read<()> {
        match field {
            "kind" => {
                self.kind = Some(values::one_of(value, &[("read", Kind::Read), ("write", Kind::Write)])?)
            }
            "effect" => self.effect = Some(values::one_of(value, &Effect::ALL.map(|e| (e.as_str(), e)))?),
            "key" => self.key = Some(values::selectors(value)?),
            "ignore" => self.ignore = Some(values::selectors(value)?),
            "match" => {
                let choices = [("payload", Matching::Payload), ("key", Matching::KeyFields)];
                self.matching = Some(values::one_of(value, &choices)?);
            }
            "idempotent" => self.idempotent = Some(values::boolean(value)?),
            "forwards_key_for" => self.forwards_key_for_ms = Some(values::duration(value)?),
            "when_unknown" => {
                let choices =
                    [WhenUnknown::Halt, WhenUnknown::Retry, WhenUnknown::Check].map(|w| (w.as_str(), w));
                self.when_unknown = Some(values::one_of(value, &choices)?);
            }
            "check" => self.check = Some(values::check(value)?),
            "max_retries" => self.max_retries = Some(values::retries(value)?),
            "rejected_on" => self.rejected_on = Some(values::exit_codes(value)?),
            "replay_for" => self.replay_for_ms = Some(values::duration(value)?),
            "remember_for" => self.remember_for_ms = Some(values::duration(value)?),
            "repeat_after" => self.repeat_after_ms = Some(values::duration(value)?),
            "wait_for" => self.wait_for_ms = Some(values::duration(value)?),
            "require_key" => self.require_key = Some(values::boolean(value)?),
            "cost" => self.cost = Some(values::cost(value)?),
            _ => self.mcp.set(field, value)?,
        }
        Ok(())
    }

    /// A table that brings a probe means it to be asked, unless the same table says otherwise.
    fn imply_when_unknown(&mut self) {
        if let Some(offset) = self.stated.get("check").copied()
            && self.when_unknown.is_none()
            && !self.bad.contains("when_unknown")
        {
            self.when_unknown = Some(WhenUnknown::Check);
            self.stated.insert("when_unknown", offset);
        }
    }

    /// This table over the defaults: what it states wins.
    pub(super) fn over(&self, defaults: &Self) -> Self {
        let own = self.clone();
        let below = defaults.clone();
        Self {
            kind: own.kind.or(below.kind),
            effect: own.effect.or(below.effect),
            key: own.key.or(below.key),
            ignore: own.ignore.or(below.ignore),
            matching: own.matching.or(below.matching),
            idempotent: own.idempotent.or(below.idempotent),
            forwards_key_for_ms: own.forwards_key_for_ms.or(below.forwards_key_for_ms),
            when_unknown: own.when_unknown.or(below.when_unknown),
            check: own.check.or(below.check),
            max_retries: own.max_retries.or(below.max_retries),
            rejected_on: own.rejected_on.or(below.rejected_on),
            replay_for_ms: own.replay_for_ms.or(below.replay_for_ms),
            remember_for_ms: own.remember_for_ms.or(below.remember_for_ms),
            repeat_after_ms: own.repeat_after_ms.or(below.repeat_after_ms),
            wait_for_ms: own.wait_for_ms.or(below.wait_for_ms),
            require_key: own.require_key.or(below.require_key),
            cost: own.cost.or(below.cost),
            mcp: own.mcp.over(below.mcp),
            stated: below.stated.into_iter().chain(own.stated).collect(),
            bad: below.bad.into_iter().chain(own.bad).collect(),
        }
    }

    /// The core's policy: what is stated here, and the core's defaults for the rest.
    fn policy(&self) -> Policy {
        let base = Policy::default();
        let remember_for_ms = self.remember_for_ms.unwrap_or(base.retention.remember_for_ms);
        Policy {
            kind: self.kind.unwrap_or(base.kind),
            effect: self.effect.unwrap_or(base.effect),
            key: self.key.clone().unwrap_or(base.key),
            ignore: self.ignore.clone().unwrap_or(base.ignore),
            matching: self.matching.unwrap_or(base.matching),
            idempotent: self.idempotent.unwrap_or(base.idempotent),
            forwards_key_for_ms: self.forwards_key_for_ms.or(base.forwards_key_for_ms),
            when_unknown: self.when_unknown.unwrap_or(base.when_unknown),
            max_retries: self.max_retries.unwrap_or(base.max_retries),
            retention: Retention {
                // A short memory for keys means a short one for results, without saying it twice.
                replay_for_ms: self
                    .replay_for_ms
                    .unwrap_or_else(|| base.retention.replay_for_ms.min(remember_for_ms)),
                remember_for_ms,
            },
            repeat_after_ms: self.repeat_after_ms.unwrap_or(base.repeat_after_ms),
            wait_for_ms: self.wait_for_ms.unwrap_or(base.wait_for_ms),
            lease_ms: base.lease_ms,
            require_key: self.require_key.unwrap_or(base.require_key),
            cost: self.cost.clone().or(base.cost),
        }
    }

    /// What callers get.
    pub(super) fn tool_policy(&self, declared: Option<String>, line: usize) -> ToolPolicy {
        ToolPolicy {
            policy: self.policy(),
            check: self.check.clone(),
            rejected_on: self.rejected_on.clone(),
            stated_kind: self.kind,
            mcp: self.mcp.policy(),
            declared,
            left_out: EXPECTED_OF_A_TOOL.into_iter().filter(|f| !self.stated.contains_key(f)).collect(),
            line,
        }
    }

    /// Notes every contradiction of this table laid over the defaults, at a field that this table itself states. Where
    /// it states none of the fields involved, the contradiction is the defaults' own and noted there.
    pub(super) fn note_contradictions(&self, defaults: &Self, place: &str, problems: &mut Problems) {
        let whole = self.over(defaults);
        for (field, message) in whole.contradictions() {
            let involved = || std::iter::once(&field).chain(involved_with(field));
            if involved().any(|f| whole.bad.contains(f)) {
                continue;
            }
            let own = involved().find_map(|f| Some((*f, *self.stated.get(f)?)));
            match own {
                Some((at, offset)) if at == field => problems.add(offset, format!("{place}.{at}"), message),
                Some((at, offset)) => {
                    problems.add(offset, format!("{place}.{at}"), format!("contradicts {field}: {message}"));
                }
                None => {}
            }
        }
    }

    /// Every contradiction: the core names the first, so each is set right in a copy and the core asked again.
    fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut policy = self.policy();
        let mut found = Vec::new();
        if policy.when_unknown == WhenUnknown::Check && self.check.is_none() {
            let message =
                "\"check\" needs a probe to ask: set check = [\"./probe\", \"{key}\"]; else use \"halt\"";
            found.push(("when_unknown", message.to_owned()));
        }
        while let Err(error) = policy.validate() {
            found.push((error.field, error.message));
            match error.field {
                "when_unknown" => policy.when_unknown = WhenUnknown::Halt,
                "replay_for" => policy.retention.replay_for_ms = policy.retention.remember_for_ms,
                "key" => policy.key.clear(),
                "ignore" => policy.ignore.clear(),
                _ => break,
            }
        }
        found
    }
}

/// The other fields that decide whether a field contradicts.
fn involved_with(field: &str) -> &'static [&'static str] {
    match field {
        "when_unknown" => &["idempotent", "forwards_key_for", "check"],
        "replay_for" => &["remember_for"],
        _ => &[],
    }
}

fn unknown_field(name: &str, value: &Value<'_>) -> String {
    let message = format!("unknown field {}; {}", quote(name), allowed(name, &FIELDS));
    if value.get_ref().is_table() {
        return format!("{message}; a tool's name with a dot in it needs quotes: [tool.\"a.b\"]");
    }
    message
}
