//! What a tool declares about its side effects.

use crate::limits;
use crate::outcome::Effect;
use crate::record::Retention;
use crate::select::Selector;

/// Whether a tool changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It changes nothing: it is never recorded and never replayed.
    Read,
    /// It may change something.
    Write,
}

/// What a later call does when the latest attempt is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhenUnknown {
    /// Answer *outcome unknown*; somebody has to look.
    Halt,
    /// Run again: only for tools where that is harmless.
    Retry,
    /// Ask the tool's probe.
    Check,
}

impl WhenUnknown {
    /// The word used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Halt => "halt",
            Self::Retry => "retry",
            Self::Check => "check",
        }
    }
}

/// What has to be equal for two calls under one derived key to be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Matching {
    /// The fields that the key is derived from.
    KeyFields,
    /// The whole payload, less the ignored fields.
    Payload,
}

/// What one execution costs, so that a prevented duplicate has a price.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// How much.
    pub amount: f64,
    /// Of what: `USD`, `tokens`, `emails`.
    pub unit: String,
}

/// What a tool declares. The default is the careful one: a write, not idempotent, halting on an unknown outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Whether it changes anything.
    pub kind: Kind,
    /// What it changes, unless an attempt says otherwise.
    pub effect: Effect,
    /// Fields of the payload that identify the intent when the caller gives no key; empty: the whole payload.
    pub key: Vec<Selector>,
    /// Fields of the payload that never matter.
    pub ignore: Vec<Selector>,
    /// What has to be equal under a derived key.
    pub matching: Matching,
    /// Running it twice is harmless.
    pub idempotent: bool,
    /// It passes our downstream key to something that de-duplicates for this long.
    pub forwards_key_for_ms: Option<u64>,
    /// What a later call does when the latest attempt is in doubt.
    pub when_unknown: WhenUnknown,
    /// How many more attempts a generation may have after the first.
    pub max_retries: u32,
    /// How long the result and the key are kept.
    pub retention: Retention,
    /// For how long two equal calls without a key and a scope are one intent, once ended.
    pub repeat_after_ms: u64,
    /// How long a duplicate waits for a running attempt.
    pub wait_for_ms: u64,
    /// How long an owner that cannot be looked at is believed alive without a heartbeat.
    pub lease_ms: u64,
    /// Whether a call without an explicit key is refused.
    pub require_key: bool,
    /// What a prevented duplicate saves.
    pub cost: Option<Cost>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            kind: Kind::Write,
            effect: Effect::Executed,
            key: Vec::new(),
            ignore: Vec::new(),
            matching: Matching::KeyFields,
            idempotent: false,
            forwards_key_for_ms: None,
            when_unknown: WhenUnknown::Halt,
            max_retries: limits::RETRIES,
            retention: Retention {
                replay_for_ms: limits::REPLAY_FOR_MS,
                remember_for_ms: limits::REMEMBER_FOR_MS,
            },
            repeat_after_ms: limits::REPEAT_AFTER_MS,
            wait_for_ms: limits::WAIT_FOR_MS,
            lease_ms: limits::LEASE_MS,
            require_key: false,
            cost: None,
        }
    }
}

/// A contradiction or an overstepped limit in a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct PolicyError {
    /// The field to change.
    pub field: &'static str,
    /// What is wrong with it and what is allowed.
    pub message: String,
}

impl Policy {
    /// Whether starting the tool again after an unknown outcome is harmless `elapsed_ms` after its downstream key was
    /// first used.
    pub fn retry_is_harmless(&self, elapsed_ms: u64) -> bool {
        self.idempotent || self.forwards_key_for_ms.is_some_and(|kept| elapsed_ms < kept)
    }

    /// Checks the policy against itself and the limits.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let fail = |field, message: String| Err(PolicyError { field, message });
        if self.when_unknown == WhenUnknown::Retry && !self.idempotent && self.forwards_key_for_ms.is_none() {
            return fail(
                "when_unknown",
                "\"retry\" needs a tool whose repetition is harmless: set idempotent = true, or forwards_key_for \
                 to how long the downstream de-duplicates by our key; else use \"halt\" or \"check\""
                    .into(),
            );
        }
        if self.retention.replay_for_ms > self.retention.remember_for_ms {
            return fail(
                "replay_for",
                format!(
                    "a result cannot be kept longer ({} ms) than its key (remember_for, {} ms)",
                    self.retention.replay_for_ms, self.retention.remember_for_ms
                ),
            );
        }
        if self.max_retries > limits::RETRIES_MAX {
            return fail("max_retries", format!("{} is more than {}", self.max_retries, limits::RETRIES_MAX));
        }
        if self.lease_ms < 3 * limits::HEARTBEAT_MS {
            return fail("lease", format!("must be at least {} ms", 3 * limits::HEARTBEAT_MS));
        }
        for (field, value) in [
            ("remember_for", self.retention.remember_for_ms),
            ("repeat_after", self.repeat_after_ms),
            ("wait_for", self.wait_for_ms),
            ("forwards_key_for", self.forwards_key_for_ms.unwrap_or(0)),
        ] {
            if value > limits::DURATION_MS_MAX {
                return fail(field, format!("{value} ms is longer than ten years"));
            }
        }
        for (field, list) in [("key", &self.key), ("ignore", &self.ignore)] {
            if list.len() > limits::SELECTORS_MAX {
                return fail(field, format!("{} selectors; at most {}", list.len(), limits::SELECTORS_MAX));
            }
        }
        if let Some(cost) = &self.cost
            && !(cost.amount.is_finite() && cost.amount >= 0.0)
        {
            return fail("cost", format!("the amount must be a number of 0 or more, not {}", cost.amount));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Cost, Policy, WhenUnknown};

    #[test]
    fn the_default_is_valid_and_contradictions_name_their_field() {
        assert_eq!(Policy::default().validate(), Ok(()));
        let field = |p: Policy| p.validate().unwrap_err().field;
        let base = Policy::default;
        assert_eq!(field(Policy { when_unknown: WhenUnknown::Retry, ..base() }), "when_unknown");
        assert_eq!(field(Policy { max_retries: 1_001, ..base() }), "max_retries");
        assert_eq!(field(Policy { lease_ms: 1, ..base() }), "lease");
        assert_eq!(field(Policy { wait_for_ms: u64::MAX, ..base() }), "wait_for");
        let cost = Some(Cost { amount: f64::NAN, unit: "USD".into() });
        assert_eq!(field(Policy { cost, ..base() }), "cost");
        let mut long = base();
        long.retention.replay_for_ms = long.retention.remember_for_ms + 1;
        assert_eq!(field(long), "replay_for");
    }

    #[test]
    fn a_forwarded_key_protects_only_while_the_downstream_remembers_it() {
        let policy = Policy { forwards_key_for_ms: Some(1_000), ..Policy::default() };
        assert!(policy.retry_is_harmless(999));
        assert!(!policy.retry_is_harmless(1_000));
    }
}
