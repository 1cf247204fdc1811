//! A rejection speaks for its own attempt only: what it means while an attempt before it is still unknown.

use super::{Decision, Transition, changed};
use crate::audit::{Event, EventKind};
use crate::outcome::{Doubt, DoubtCause, Failure};
use crate::record::{Record, State};

/// The latest attempt certainly did nothing, which says nothing of the one before it: the intent stays in doubt, and its
/// downstream key the same. A new key here would have the downstream do it twice.
pub(super) fn rejected_after_doubt(record: &Record, failure: &Failure) -> Transition {
    let event = |kind| Event::new(record.intent, record.body.attempts, kind);
    let reason = format!("{}: {}", failure.code, failure.message);
    let rejected = event(EventKind::Rejected).with_note(reason.as_str());
    match &record.body.state {
        State::Running { owner, .. } => {
            let message = format!(
                "attempt {} was rejected, but what an attempt before it did is not known ({reason})",
                record.body.attempts
            );
            let doubt =
                Doubt { evidence: failure.detail.clone(), ..Doubt::new(DoubtCause::Reported, message) };
            let in_doubt = event(EventKind::InDoubt).with_note(doubt.message.as_str());
            let state = State::InDoubt { owner: owner.clone(), doubt };
            Transition::put(changed(record, state), rejected, Decision::Recorded).with_event(in_doubt)
        }
        State::InDoubt { .. } => Transition::says(Decision::Recorded).with_event(rejected),
        State::Succeeded { .. } | State::Rejected { .. } => Transition::says(Decision::Recorded),
    }
}
