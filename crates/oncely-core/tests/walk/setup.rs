//! What stays the same during one walk: the name of the intent, what the tool declares, and durations.

use oncely_core::{IntentName, Key, Namespace, Owner, Policy, Retention, Scope, ToolName, WhenUnknown};

/// Durations that lie one tick apart, so that every order of their ends is walked.
pub(crate) const LEASE: u64 = 1;
pub(crate) const FORWARDS: u64 = 2;
pub(crate) const REPEAT: u64 = 3;
pub(crate) const REPLAY: u64 = 4;
pub(crate) const REMEMBER: u64 = 5;

/// What stays the same during one walk.
pub(crate) struct Setup {
    pub(crate) name: IntentName,
    pub(crate) policies: Vec<Policy>,
    pub(crate) owner: Owner,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyKind {
    Explicit,
    Derived,
    DerivedInScope,
}

impl Setup {
    pub(crate) fn new(kind: KeyKind, policies: Vec<Policy>) -> Self {
        let name = IntentName {
            namespace: Namespace::default(),
            scope: if kind == KeyKind::DerivedInScope { Scope::parse("s").unwrap() } else { Scope::none() },
            tool: ToolName::parse("t").unwrap(),
            key: if kind == KeyKind::Explicit { Key::explicit("k").unwrap() } else { Key::derived(&[7; 32]) },
        };
        Self { name, policies, owner: Owner::default() }
    }
}

/// A policy with the walk's durations.
pub(crate) fn policy(
    when_unknown: WhenUnknown,
    idempotent: bool,
    forwards_key_for_ms: Option<u64>,
) -> Policy {
    Policy {
        when_unknown,
        idempotent,
        forwards_key_for_ms,
        max_retries: 2,
        retention: Retention { replay_for_ms: REPLAY, remember_for_ms: REMEMBER },
        repeat_after_ms: REPEAT,
        lease_ms: LEASE,
        ..Policy::default()
    }
}
