//! A claim whose answer was lost, and whose effect was not started: what makes sure that it comes to nothing, wherever it is.

use super::{Decision, Transition, Write, complete};
use crate::audit::{Event, EventKind};
use crate::outcome::{Failure, Outcome};
use crate::record::{Body, Draft, Record, Settled, Stamp, State};

/// `claim` is what was to be written in place of `over`, or where there was no record.
///
/// It may be there, may still come, or may never do. It comes only to what it was decided on. So if that is there still, it
/// is changed in nothing but its version; where there was no record, one is made that says that no attempt was begun; and
/// if it came, what was there before comes back.
pub(super) fn withdraw(
    record: Option<&Record>,
    claim: &Body,
    over: Option<&Record>,
    failure: &Failure,
) -> Transition {
    match (record, over) {
        (None, None) => never_begun(claim, failure),
        // Whatever was settled since, by a person say, stands above what an attempt knows that was never made.
        (Some(record), _) if record.body.token == claim.token && record.body.state.has_ended() => {
            Transition::says(Decision::Keep)
        }
        (Some(record), None) if record.body.token == claim.token => first(record, failure),
        (Some(record), Some(over)) if record.body.token == claim.token => {
            let attempts = record.body.attempts;
            let event = rejected(claim, attempts, failure);
            Transition::put(as_it_was(over, attempts), event, Decision::Done)
        }
        (Some(record), Some(over)) if record.version == over.version => {
            let draft = as_it_was(record, record.body.attempts);
            Transition { write: Write::Put(Box::new(draft)), events: Vec::new(), decision: Decision::Done }
        }
        // What it was decided on is gone, and so it cannot come any more.
        _ => Transition::says(Decision::Keep),
    }
}

fn rejected(claim: &Body, attempt: u32, failure: &Failure) -> Event {
    Event::new(claim.name.intent_id(), attempt, EventKind::Rejected)
        .with_note(format!("{}: {}", failure.code, failure.message))
}

fn never_begun(claim: &Body, failure: &Failure) -> Transition {
    let state = State::Rejected { failure: failure.clone(), settled: Settled::Attempt };
    let body = Body { attempts: 0, tries: 0, rejections: 0, ..claim.in_state(state) };
    let draft = Draft { created: Stamp::OnWrite, sent: Stamp::OnWrite, changed: Stamp::OnWrite, body };
    Transition::put(draft, rejected(claim, 0, failure), Decision::Done)
}

/// It came, and there was nothing before, as far as is known: it was no retry of anything if it is the first of all.
fn first(record: &Record, failure: &Failure) -> Transition {
    let outcome = Outcome::NotStarted(failure.clone());
    let mut transition = complete(Some(record), record.body.token, &outcome);
    if let Write::Put(draft) = &mut transition.write
        && draft.body.attempts == 1
    {
        draft.body.tries = 0;
    }
    transition
}

/// All of a record, and its times; only the numbers of attempts are never given twice.
fn as_it_was(record: &Record, attempts: u32) -> Draft {
    Draft {
        created: Stamp::Kept(record.created_at),
        sent: Stamp::Kept(record.sent_at),
        changed: Stamp::Kept(record.changed_at),
        body: Body { attempts, ..record.body.clone() },
    }
}
