//! A claim whose answer was lost, and whose effect was not started: what makes sure that it comes to nothing, wherever it is.

use super::{Decision, Transition, Write, complete};
use crate::audit::{Event, EventKind};
use crate::outcome::{Failure, Outcome};
use crate::record::{Body, Draft, Record, Settled, Stamp, State, Version};

/// `claim` is what was to be written, over the record with the version `over`, or where there was none.
///
/// It may be there, may still come, or may never do. It comes only to what it was decided on. So if that is there still, it
/// is changed in nothing but its version; and where there was no record, one is made that says that no attempt was begun.
pub(super) fn withdraw(
    record: Option<&Record>,
    claim: &Body,
    over: Option<Version>,
    failure: &Failure,
) -> Transition {
    let Some(record) = record else {
        // What it was decided on is gone, and so it cannot come any more.
        return if over.is_some() { Transition::says(Decision::Keep) } else { never_begun(claim, failure) };
    };
    if record.body.token == claim.token {
        return landed(record, failure);
    }
    if over != Some(record.version) {
        return Transition::says(Decision::Keep);
    }
    let draft = Draft {
        created: Stamp::Kept(record.created_at),
        sent: Stamp::Kept(record.sent_at),
        changed: Stamp::Kept(record.changed_at),
        body: record.body.clone(),
    };
    Transition { write: Write::Put(Box::new(draft)), events: Vec::new(), decision: Decision::Done }
}

/// It was written. Whatever was settled since, by a person say, stands above what an attempt knows that was never made.
fn landed(record: &Record, failure: &Failure) -> Transition {
    if record.body.state.has_ended() {
        return Transition::says(Decision::Keep);
    }
    let outcome = Outcome::NotStarted(failure.clone());
    let mut transition = complete(Some(record), record.body.token, &outcome);
    if let Write::Put(draft) = &mut transition.write
        && draft.body.attempts == 1
    {
        draft.body.tries = 0;
    }
    transition
}

fn never_begun(claim: &Body, failure: &Failure) -> Transition {
    let event = Event::new(claim.name.intent_id(), 0, EventKind::Rejected)
        .with_note(format!("{}: {}", failure.code, failure.message));
    let state = State::Rejected { failure: failure.clone(), settled: Settled::Attempt };
    let body = Body { attempts: 0, tries: 0, rejections: 0, state, ..claim.clone() };
    let draft = Draft { created: Stamp::OnWrite, sent: Stamp::OnWrite, changed: Stamp::OnWrite, body };
    Transition::put(draft, event, Decision::Done)
}
