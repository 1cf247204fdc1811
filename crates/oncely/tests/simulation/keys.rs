//! The keys of a simulated world: what each tool declares, and what the auditor is told of it.

use std::sync::Arc;
use std::time::Duration;

use oncely::core::{Fingerprint, Retention, WhenUnknown};
use oncely::{Call, IntentId, Key, Policy, Scope, ToolName};
use oncely_testkit::auditor::{Repetition, Rules};
use oncely_testkit::sim::Rng;

const MINUTE_MS: u64 = 60_000;
pub(crate) const REPEAT_AFTER_MS: u64 = 10 * MINUTE_MS;
pub(crate) const REPLAY_FOR_MS: u64 = 60 * MINUTE_MS;
pub(crate) const REMEMBER_FOR_MS: u64 = 240 * MINUTE_MS;

/// What a key's tool declares and how its key comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Explicit,
    DerivedInScope,
    DerivedAlone,
    Idempotent,
    ForwardsKey,
    Checked,
}

/// A lie that somebody tells: what the harness must catch although the ledger is sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// A probe says that nothing happened, whatever is true.
    Probe,
    /// A tool is declared idempotent and is not.
    Idempotent,
    /// A person says that nothing happened, whatever is true.
    Person,
}

#[derive(Clone)]
pub(crate) struct KeySpec {
    pub(crate) family: Family,
    pub(crate) call: Call,
    pub(crate) intent: IntentId,
    pub(crate) rules: Rules,
}

impl KeySpec {
    /// The key with this number, of a family that the seed chooses.
    pub(crate) fn draw(number: usize, rng: &mut Rng, lie: Option<Lie>) -> Self {
        let families = [
            Family::Explicit,
            Family::Explicit,
            Family::DerivedInScope,
            Family::DerivedAlone,
            Family::Idempotent,
            Family::ForwardsKey,
            Family::Checked,
        ];
        let family = match lie {
            Some(Lie::Probe) => Family::Checked,
            Some(Lie::Idempotent) => Family::Idempotent,
            Some(Lie::Person) => Family::Explicit,
            None => *rng.pick(&families).unwrap(),
        };
        let mut call = Call::new(ToolName::parse("pay").unwrap(), payload(number, Payload::Same));
        call.policy = Arc::new(policy(family, rng));
        call.wait_for = Some(Duration::from_millis(*rng.pick(&[0, 200, 5_000, 60_000]).unwrap()));
        match family {
            Family::DerivedAlone => {}
            Family::DerivedInScope => call.scope = Scope::parse("task").unwrap(),
            _ => call.key = Some(Key::explicit(&format!("key-{number}")).unwrap()),
        }
        let rules = Rules {
            repetition: match family {
                Family::Idempotent if lie.is_none() => Repetition::Harmless,
                Family::ForwardsKey => Repetition::Deduplicated,
                _ => Repetition::Harmful,
            },
            probed: family == Family::Checked,
            repeat_after_ms: (family == Family::DerivedAlone).then_some(REPEAT_AFTER_MS),
            replay_for_ms: REPLAY_FOR_MS,
            remember_for_ms: REMEMBER_FOR_MS,
        };
        let intent = intent_of(&call);
        Self { family, call, intent, rules }
    }

    /// The same call with another payload; under a derived key that would be another intent.
    pub(crate) fn with_another_payload(&self, number: usize) -> Option<Call> {
        self.call.key.as_ref()?;
        Some(Call { payload: payload(number, Payload::Other), ..self.call.clone() })
    }

    /// The same call, spelled differently.
    pub(crate) fn respelled(&self, number: usize) -> Call {
        Call { payload: payload(number, Payload::Respelled), ..self.call.clone() }
    }
}

pub(crate) fn fingerprint_of(call: &Call) -> Fingerprint {
    Fingerprint::of_json(&call.payload).unwrap()
}

#[derive(Debug, Clone, Copy)]
enum Payload {
    Same,
    Respelled,
    Other,
}

fn payload(number: usize, payload: Payload) -> Vec<u8> {
    match payload {
        Payload::Same => format!("{{\"order\":{number},\"amount\":1}}"),
        Payload::Respelled => format!("{{ \"amount\": 1.0, \"order\": {number} }}"),
        Payload::Other => format!("{{\"order\":{number},\"amount\":2}}"),
    }
    .into_bytes()
}

fn policy(family: Family, rng: &mut Rng) -> Policy {
    let when_unknown = match family {
        Family::Idempotent | Family::ForwardsKey => WhenUnknown::Retry,
        Family::Checked => WhenUnknown::Check,
        _ => WhenUnknown::Halt,
    };
    Policy {
        when_unknown,
        idempotent: family == Family::Idempotent,
        forwards_key_for_ms: (family == Family::ForwardsKey).then_some(30 * MINUTE_MS),
        max_retries: *rng.pick(&[0, 1, 5, 50]).unwrap(),
        retention: Retention { replay_for_ms: REPLAY_FOR_MS, remember_for_ms: REMEMBER_FOR_MS },
        repeat_after_ms: REPEAT_AFTER_MS,
        ..Policy::default()
    }
}

fn intent_of(call: &Call) -> IntentId {
    let identity =
        oncely::core::fingerprint::identify(call.key.clone(), &call.payload, &call.policy).unwrap();
    let name = oncely::core::IntentName {
        namespace: call.namespace.clone(),
        scope: call.scope.clone(),
        tool: call.tool.clone(),
        key: identity.key,
    };
    name.intent_id()
}
