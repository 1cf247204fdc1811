//! The state machine: the only place that knows what may follow what.
//!
//! [`step`] is total and pure: a record (or none), an input and the store's `now` give a [`Transition`]: what to write,
//! which audit events to write with it, and what the caller is told. Something else performs it. The promise that
//! every rule here serves:
//!
//! > For one key, a side effect is never started a second time unless the first is known not to have happened, or the
//! > tool's own policy says that starting it again is harmless.

mod earlier;
mod lease;
mod questions;
mod terms;
mod withdraw;

pub use terms::{
    Because, Begin, Checked, Decision, Execute, Finding, HaltReason, Input, Refusal, Transition, Verdict,
    Write,
};

use questions::{
    budget_left, intent_has_ended, is_forgotten_by_age, may_retry, owner_is_lost, retry_is_harmless,
};

use crate::audit::{Event, EventKind};
use crate::outcome::{Doubt, DoubtCause, Outcome};
use crate::owner::{AttemptToken, Liveness, Owner};
use crate::policy::WhenUnknown;
use crate::record::{Body, Draft, Millis, Record, Settled, Stamp, State};

/// Decides. See the module's documentation.
pub fn step(record: Option<&Record>, input: &Input<'_>, now: Millis) -> Transition {
    match input {
        Input::Begin(call) => begin(record, call, now),
        Input::Complete { token, outcome } => complete(record, *token, outcome),
        Input::Withdraw { claim, over, failure } => withdraw::withdraw(record, claim, *over, failure),
        Input::Renew { token } => renew(record, *token),
        Input::Probed { doubted, finding, call } => probed(record, *doubted, finding, call, now),
        Input::Resolve { by, doubted, verdict, liveness } => {
            // What a person saw of one attempt says nothing of the next.
            if record.is_some_and(|record| record.body.token != *doubted) {
                return Transition::says(Decision::Refused(Refusal::Moved));
            }
            resolve(record, by, verdict, *liveness, now)
        }
        Input::Forget { by, seen, liveness } => {
            if record.is_some_and(|record| record.version != *seen) {
                return Transition::says(Decision::Refused(Refusal::Moved));
            }
            forget(record, by, *liveness, now)
        }
        Input::Expire => expire(record, now),
    }
}

fn begin(record: Option<&Record>, call: &Begin<'_>, now: Millis) -> Transition {
    let Some(record) = record else {
        return fresh(call);
    };
    if intent_has_ended(record, call.policy, now) {
        return execute(record, call, Because::NewGeneration);
    }
    if !record.body.fingerprint.matches(&call.fingerprint) {
        return Transition::says(Decision::Conflict);
    }
    match &record.body.state {
        State::Running { owner, .. } if owner_is_lost(record, call.liveness, now) => {
            put_in_doubt(record, owner.clone(), Decision::Again)
        }
        State::Running { owner, .. } if owner.is_remote() && record.body.token == call.token => {
            lease::asked_again(record, call)
        }
        State::Running { .. } => Transition::says(Decision::Wait),
        State::InDoubt { .. } => in_doubt(record, call, now),
        State::Succeeded { result: Some(_), .. }
            if now.since(record.changed_at) < record.body.retention.replay_for_ms =>
        {
            Transition::says(Decision::Replay)
        }
        State::Succeeded { .. } => Transition::says(Decision::ReplayWithoutResult),
        State::Rejected { settled, .. } if may_retry(record, settled, call.policy) => {
            execute(record, call, Because::Rejected)
        }
        State::Rejected { .. } => Transition::says(Decision::ReplayRejection),
    }
}

fn in_doubt(record: &Record, call: &Begin<'_>, now: Millis) -> Transition {
    if let Some(checked) = call.checked.filter(|checked| checked.doubted == record.body.token) {
        let event = Event::new(record.intent, record.body.attempts, EventKind::RetriedUnknown).by(checked.by);
        return execute(record, call, Because::PersonChecked).with_event(event);
    }
    let halt = |reason| Transition::says(Decision::Halt(reason));
    match call.policy.when_unknown {
        WhenUnknown::Halt => halt(HaltReason::Policy),
        WhenUnknown::Check => Transition::says(Decision::Probe),
        WhenUnknown::Retry if !retry_is_harmless(record, call, now) => halt(HaltReason::DownstreamForgot),
        WhenUnknown::Retry if !budget_left(record, call.policy) => halt(HaltReason::BudgetSpent),
        WhenUnknown::Retry => execute(record, call, Because::Harmless),
    }
}

fn probed(
    record: Option<&Record>,
    doubted: AttemptToken,
    finding: &Finding,
    call: &Begin<'_>,
    now: Millis,
) -> Transition {
    let Some(record) = record.filter(|r| r.body.token == doubted) else {
        return Transition::says(Decision::Again);
    };
    if !matches!(record.body.state, State::InDoubt { .. })
        || !record.body.fingerprint.matches(&call.fingerprint)
    {
        return begin(Some(record), call, now);
    }
    let event = |kind| Event::new(record.intent, record.body.attempts, kind);
    match finding {
        Finding::Happened(result) => {
            let state = State::Succeeded {
                effect: call.policy.effect,
                result: result.clone(),
                settled: Settled::Probe,
            };
            Transition::put(changed(record, state), event(EventKind::ProbeHappened), Decision::Again)
        }
        Finding::NotHappened => {
            execute(record, call, Because::ProbedNotHappened).with_event(event(EventKind::ProbeNotHappened))
        }
        Finding::Unsure(why) => Transition::says(Decision::Halt(HaltReason::Unsure))
            .with_event(event(EventKind::ProbeUnsure).with_note(why.as_str())),
    }
}

fn complete(record: Option<&Record>, token: AttemptToken, outcome: &Outcome) -> Transition {
    let Some(record) = record else {
        return Transition::says(Decision::Superseded);
    };
    let event = |kind| {
        let event = Event::new(record.intent, record.body.attempts, kind);
        match owner_of(record) {
            Some(owner) => lease::by_holder(event, owner),
            None => event,
        }
    };
    if record.body.token != token {
        return Transition::says(Decision::Superseded)
            .with_event(event(EventKind::Superseded).with_note(superseded_note(outcome)));
    }
    if let Some(failure) = outcome.failure()
        && record.body.is_unsettled()
    {
        return earlier::rejected_after_doubt(record, failure);
    }
    let kind = match (&record.body.state, outcome) {
        (State::Running { .. }, Outcome::Succeeded { .. }) => EventKind::Succeeded,
        (State::Running { .. }, Outcome::Rejected(_) | Outcome::NotStarted(_)) => EventKind::Rejected,
        (State::Running { .. }, Outcome::Unknown(_)) => EventKind::InDoubt,
        // The attempt's own word about its doubt adds nothing.
        (_, Outcome::Unknown(_)) => return Transition::says(Decision::Recorded),
        (State::InDoubt { .. }, _) => EventKind::LateTruth,
        // The same end, reported again because the first report's answer was lost.
        (State::Succeeded { settled: Settled::Attempt, .. }, _)
        | (State::Rejected { settled: Settled::Attempt, .. }, _) => {
            return Transition::says(Decision::Recorded);
        }
        // What a probe or a person believed gives way to what the attempt knows.
        (State::Succeeded { .. } | State::Rejected { .. }, _) => EventKind::LateTruth,
    };
    let (mut logged, mut rejections) = (event(kind), record.body.rejections);
    let state = match outcome {
        Outcome::Succeeded { effect, result } => {
            State::Succeeded { effect: *effect, result: result.clone(), settled: Settled::Attempt }
        }
        Outcome::Rejected(failure) | Outcome::NotStarted(failure) => {
            // Counted once per attempt: a person or probe may have counted it before the attempt spoke. What was never
            // started has used neither its downstream key nor a retry.
            if !matches!(
                (&record.body.state, outcome),
                (State::Rejected { .. }, _) | (_, Outcome::NotStarted(_))
            ) {
                rejections = rejections.saturating_add(1);
            }
            logged = logged.with_note(format!("{}: {}", failure.code, failure.message));
            State::Rejected { failure: failure.clone(), settled: Settled::Attempt }
        }
        Outcome::Unknown(doubt) => {
            logged = logged.with_note(doubt.message.as_str());
            State::InDoubt { owner: owner_of(record).cloned().unwrap_or_default(), doubt: doubt.clone() }
        }
    };
    let mut draft = changed(record, state);
    draft.body.rejections = rejections;
    Transition::put(draft, logged, Decision::Recorded)
}

fn superseded_note(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded { .. } => "it had succeeded: the effect may have happened twice",
        Outcome::Rejected(_) | Outcome::NotStarted(_) => "it had been rejected: nothing happened",
        Outcome::Unknown(_) => "its outcome is unknown: the effect may have happened twice",
    }
}

fn renew(record: Option<&Record>, token: AttemptToken) -> Transition {
    match record {
        Some(record) if record.body.token == token && matches!(record.body.state, State::Running { .. }) => {
            let draft = changed(record, record.body.state.clone());
            Transition { write: Write::Put(Box::new(draft)), events: Vec::new(), decision: Decision::Renewed }
        }
        _ => Transition::says(Decision::Superseded),
    }
}

fn resolve(
    record: Option<&Record>,
    by: &str,
    verdict: &Verdict,
    liveness: Liveness,
    now: Millis,
) -> Transition {
    let Some(record) = record else {
        return Transition::says(Decision::Refused(Refusal::NoRecord));
    };
    match &record.body.state {
        State::InDoubt { .. } => {}
        State::Running { owner, .. } if owner_is_lost(record, liveness, now) => {
            return put_in_doubt(record, owner.clone(), Decision::Again);
        }
        State::Running { .. } => return Transition::says(Decision::Refused(Refusal::Running)),
        State::Succeeded { .. } | State::Rejected { .. } => {
            return Transition::says(Decision::Refused(Refusal::NotInDoubt));
        }
    }
    let settled = Settled::Person(crate::limits::clip_to(by.to_owned(), crate::limits::ACTOR_BYTES_MAX));
    let mut draft = changed(record, record.body.state.clone());
    let kind = match verdict {
        Verdict::Succeeded { effect, result } => {
            draft.body.state = State::Succeeded { effect: *effect, result: result.clone(), settled };
            EventKind::ResolvedSucceeded
        }
        Verdict::Rejected(failure) => {
            // The person speaks of the intent: no attempt so far has happened.
            draft.body.rejections = record.body.tries;
            draft.body.state = State::Rejected { failure: failure.clone(), settled };
            EventKind::ResolvedRejected
        }
    };
    let event = Event::new(record.intent, record.body.attempts, kind).by(by);
    Transition::put(draft, event, Decision::Done)
}

fn forget(record: Option<&Record>, by: &str, liveness: Liveness, now: Millis) -> Transition {
    let Some(record) = record else {
        return Transition::says(Decision::Refused(Refusal::NoRecord));
    };
    if matches!(record.body.state, State::Running { .. }) && !owner_is_lost(record, liveness, now) {
        return Transition::says(Decision::Refused(Refusal::Running));
    }
    let was = record.body.state.name();
    let event = Event::new(record.intent, record.body.attempts, EventKind::Forgotten)
        .by(by)
        .with_note(format!("it was {was}"));
    Transition { write: Write::Remove, events: vec![event], decision: Decision::Done }
}

fn expire(record: Option<&Record>, now: Millis) -> Transition {
    let Some(record) = record else {
        return Transition::says(Decision::Keep);
    };
    if is_forgotten_by_age(record, now) {
        return Transition { write: Write::Remove, events: Vec::new(), decision: Decision::Done };
    }
    match &record.body.state {
        State::Succeeded { effect, result: Some(_), settled }
            if now.since(record.changed_at) >= record.body.retention.replay_for_ms =>
        {
            let state = State::Succeeded { effect: *effect, result: None, settled: settled.clone() };
            // Both clocks run from the end, so the time of the end stays.
            let draft = Draft { changed: Stamp::Kept(record.changed_at), ..changed(record, state) };
            Transition { write: Write::Put(Box::new(draft)), events: Vec::new(), decision: Decision::Done }
        }
        _ => Transition::says(Decision::Keep),
    }
}

fn owner_of(record: &Record) -> Option<&Owner> {
    match &record.body.state {
        State::Running { owner, .. } | State::InDoubt { owner, .. } => Some(owner),
        State::Succeeded { .. } | State::Rejected { .. } => None,
    }
}

/// The same record with another state, changed at the moment of the write.
fn changed(record: &Record, state: State) -> Draft {
    Draft {
        created: Stamp::Kept(record.created_at),
        sent: Stamp::Kept(record.sent_at),
        changed: Stamp::OnWrite,
        body: record.body.in_state(state),
    }
}

fn put_in_doubt(record: &Record, owner: Owner, decision: Decision) -> Transition {
    let message = lease::lost_message(record, &owner);
    let event =
        Event::new(record.intent, record.body.attempts, EventKind::InDoubt).with_note(message.as_str());
    let state = State::InDoubt { owner, doubt: Doubt::new(DoubtCause::OwnerLost, message) };
    Transition::put(changed(record, state), event, decision)
}

fn fresh(call: &Begin<'_>) -> Transition {
    let body = Body {
        name: call.name.clone(),
        fingerprint: call.fingerprint,
        generation: 1,
        attempts: 1,
        tries: 1,
        rejections: 0,
        token: call.token,
        retention: call.policy.retention,
        state: running(call),
    };
    let draft = Draft { created: Stamp::OnWrite, sent: Stamp::OnWrite, changed: Stamp::OnWrite, body };
    start(draft, call, Because::Fresh)
}

/// The next attempt on a record that is there.
fn execute(record: &Record, call: &Begin<'_>, because: Because) -> Transition {
    if record.body.token == call.token {
        // An end of the attempt before, told twice, would be taken for this one's.
        return Transition::says(Decision::TokenUsed);
    }
    let mut draft = changed(record, running(call));
    draft.body.attempts = record.body.attempts.saturating_add(1);
    draft.body.tries = record.body.tries.saturating_add(1);
    draft.body.token = call.token;
    draft.body.retention = call.policy.retention;
    match because {
        Because::Fresh | Because::NewGeneration => {
            draft.created = Stamp::OnWrite;
            draft.sent = Stamp::OnWrite;
            draft.body.fingerprint = call.fingerprint;
            draft.body.generation = record.body.generation.saturating_add(1);
            draft.body.tries = 1;
            draft.body.rejections = 0;
        }
        Because::AskedAgain => {}
        Because::Rejected => {
            // A rejection made a new downstream key, which is used now for the first time. An attempt that was never
            // started made none, and the key may have been used before it.
            if record.body.rejections >= record.body.tries {
                draft.sent = Stamp::OnWrite;
            }
            draft.body.tries = record.body.rejections.saturating_add(1);
        }
        // The downstream key is the same, and so is the time of its first use.
        Because::Harmless => {}
        // So too here; and what was found not to have happened casts no doubt on this attempt and costs no budget.
        Because::ProbedNotHappened | Because::PersonChecked => {
            draft.body.tries = record.body.rejections.saturating_add(1);
        }
    }
    start(draft, call, because)
}

fn running(call: &Begin<'_>) -> State {
    State::Running { owner: call.owner.clone(), lease_ms: call.policy.lease_ms }
}

fn start(draft: Draft, call: &Begin<'_>, because: Because) -> Transition {
    let body = &draft.body;
    let execute = Execute {
        token: call.token,
        attempt: body.attempts,
        downstream_key: call.intent.downstream_key(body.generation, body.rejections),
        because,
    };
    let event = lease::by_holder(Event::new(call.intent, body.attempts, EventKind::Began), call.owner);
    Transition::put(draft, event, Decision::Execute(execute))
}
