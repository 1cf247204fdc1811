//! Questions about a record that have a yes or a no: whether it has run its time, whether its owner is lost, and whether
//! it may run again.

use super::Begin;
use crate::name::KeyOrigin;
use crate::owner::Liveness;
use crate::policy::Policy;
use crate::record::{Millis, Record, Settled, State};

/// Whether starting the tool again is harmless. A downstream remembers a key for so long by its own clock, so ours has
/// to be sure of the time since the key was first used.
pub(super) fn retry_is_harmless(record: &Record, call: &Begin<'_>, now: Millis) -> bool {
    let elapsed_ms = if record.sent_at < call.steady_since { u64::MAX } else { now.since(record.sent_at) };
    call.policy.retry_is_harmless(elapsed_ms)
}

/// Whether the name means a new intent by now: everything is forgotten, or a guessed intent has run its time.
pub(super) fn intent_has_ended(record: &Record, policy: &Policy, now: Millis) -> bool {
    let name = &record.body.name;
    let guessed = name.key.origin() == KeyOrigin::Derived && !name.scope.is_named();
    is_forgotten_by_age(record, now)
        || (guessed
            && record.body.state.has_ended()
            && now.since(record.changed_at) >= policy.repeat_after_ms)
}

pub(super) fn is_forgotten_by_age(record: &Record, now: Millis) -> bool {
    let kept = record.body.retention.remember_for_ms.max(record.body.retention.replay_for_ms);
    record.body.state.has_ended() && now.since(record.changed_at) >= kept
}

pub(super) fn owner_is_lost(record: &Record, liveness: Liveness, now: Millis) -> bool {
    match (liveness, &record.body.state) {
        (Liveness::Alive, _) => false,
        (Liveness::Lost, _) => true,
        (Liveness::ByLease, State::Running { lease_ms, .. }) => now.since(record.changed_at) >= *lease_ms,
        (Liveness::ByLease, _) => false,
    }
}

/// Whether what was rejected may run again. A person who found that nothing happened grants one more attempt, as a probe
/// does; a tool that grants no retry at all is never run a second time. What was never begun is no retry.
pub(super) fn may_retry(record: &Record, settled: &Settled, policy: &Policy) -> bool {
    if record.body.tries == 0 {
        return true;
    }
    let granted = matches!(settled, Settled::Person(_)) || record.body.rejections <= policy.max_retries;
    granted && policy.max_retries > 0
}

pub(super) fn budget_left(record: &Record, policy: &Policy) -> bool {
    record.body.tries <= policy.max_retries
}
