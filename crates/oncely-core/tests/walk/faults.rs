//! Machines with one fault each. A walk that does not catch them proves nothing.

use oncely_core::machine::{Because, Decision, Input, Transition, Write, step};
use oncely_core::{Failure, Millis, Outcome, Record, Settled, Stamp, State};

use crate::setup::{LEASE, REMEMBER};
use crate::world::Step;

/// Every fault, by what it does.
pub(crate) const FAULTS: &[(&str, Step)] = &[
    ("a lost owner's attempt is free to run again", lost_is_free),
    ("a doubt ends with time", doubt_ends_with_time),
    ("the end of an older attempt is taken", stale_tokens_count),
    ("the state is looked at before the payload", payload_is_not_compared),
    ("in-doubt records expire", doubts_expire),
    ("a downstream remembers for ever", downstream_never_forgets),
    ("a rejection hides the doubt before it", rejection_hides_doubt),
    ("what was never started counts as the first use of its downstream key", never_started_is_a_first_use),
    ("attempt numbers start again", attempts_restart),
    ("a timeout means that nothing happened", unknown_is_rejected),
    ("a guessed intent ends while it is in doubt", doubt_is_a_new_generation),
    ("a claim that never came ends the doubt that it was decided on", withdrawn_ends_doubt),
    ("a withdrawn claim stands above what a person has settled", withdrawn_is_the_last_word),
    ("the holder of a token may begin again although its attempt is in doubt", doubt_is_asked_again),
];

/// The record as if its latest attempt had been rejected: the next call may run.
fn as_rejected(record: &Record) -> Record {
    let mut free = record.clone();
    free.body.state = State::Rejected { failure: Failure::new("GONE", "gone"), settled: Settled::Attempt };
    free
}

fn lost_is_free(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Begin(call))
            if matches!(r.body.state, State::Running { .. })
                && call.liveness == oncely_core::Liveness::Lost =>
        {
            step(Some(&as_rejected(r)), input, now)
        }
        _ => step(record, input, now),
    }
}

fn doubt_ends_with_time(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Begin(_))
            if matches!(r.body.state, State::InDoubt { .. }) && now.since(r.changed_at) >= LEASE =>
        {
            step(Some(&as_rejected(r)), input, now)
        }
        _ => step(record, input, now),
    }
}

fn stale_tokens_count(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Complete { outcome, .. }) => {
            step(record, &Input::Complete { token: r.body.token, outcome: outcome.clone() }, now)
        }
        _ => step(record, input, now),
    }
}

fn payload_is_not_compared(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Begin(call)) => {
            let call = oncely_core::machine::Begin { fingerprint: r.body.fingerprint, ..*call };
            step(record, &Input::Begin(call), now)
        }
        _ => step(record, input, now),
    }
}

fn doubts_expire(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Expire) if now.since(r.changed_at) >= REMEMBER => {
            Transition { write: Write::Remove, events: Vec::new(), decision: Decision::Done }
        }
        _ => step(record, input, now),
    }
}

fn downstream_never_forgets(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    let fresh = record.map(|r| Record { sent_at: now, ..r.clone() });
    step(fresh.as_ref(), input, now)
}

fn rejection_hides_doubt(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Complete { outcome, .. }) if outcome.failure().is_some() => {
            let mut alone = r.clone();
            alone.body.tries = alone.body.rejections + 1;
            let mut transition = step(Some(&alone), input, now);
            if let Write::Put(draft) = &mut transition.write {
                draft.body.tries = r.body.tries;
            }
            transition
        }
        _ => step(record, input, now),
    }
}

fn never_started_is_a_first_use(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    let mut transition = step(record, input, now);
    if let (Write::Put(draft), Decision::Execute(run)) = (&mut transition.write, &transition.decision)
        && run.because == Because::Rejected
    {
        draft.sent = Stamp::OnWrite;
    }
    transition
}

fn attempts_restart(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    let mut transition = step(record, input, now);
    if let (Write::Put(draft), Decision::Execute(run)) = (&mut transition.write, &mut transition.decision) {
        draft.body.attempts = 1;
        run.attempt = 1;
    }
    transition
}

fn unknown_is_rejected(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match input {
        Input::Complete { token, outcome: Outcome::Unknown(doubt) } => {
            let outcome = Outcome::Rejected(Failure::new("TIMED_OUT", doubt.message.clone()));
            step(record, &Input::Complete { token: *token, outcome }, now)
        }
        _ => step(record, input, now),
    }
}

fn doubt_is_a_new_generation(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Begin(_)) if now.since(r.changed_at) >= REMEMBER => {
            step(Some(&as_rejected(r)), input, now)
        }
        _ => step(record, input, now),
    }
}

fn doubt_is_asked_again(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Begin(call)) if r.body.token == call.token => match &r.body.state {
            State::InDoubt { owner, .. } => {
                let mut running = r.clone();
                running.changed_at = now;
                running.body.state = State::Running { owner: owner.clone(), lease_ms: LEASE };
                step(Some(&running), input, now)
            }
            _ => step(record, input, now),
        },
        _ => step(record, input, now),
    }
}

fn withdrawn_ends_doubt(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Withdraw { over: Some(_), failure, .. })
            if matches!(r.body.state, State::InDoubt { .. }) =>
        {
            let outcome = Outcome::NotStarted(failure.clone());
            step(record, &Input::Complete { token: r.body.token, outcome }, now)
        }
        _ => step(record, input, now),
    }
}

fn withdrawn_is_the_last_word(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match (record, input) {
        (Some(r), Input::Withdraw { claim, failure, .. }) if r.body.token == claim.token => {
            let outcome = Outcome::NotStarted(failure.clone());
            step(record, &Input::Complete { token: claim.token, outcome }, now)
        }
        _ => step(record, input, now),
    }
}
