//! Tells an answer: as an envelope, in words that say what happened, whether anything ran, and what to do next.

use oncely::{Answer, Replay, Unresolved};
use oncely_core::machine::{Decision, HaltReason, Input, Refusal, Verdict, step};
use oncely_core::{Failure, KeyOrigin, Record, State, StateName, Store, Stored};

use crate::envelope::Envelope;

/// How long ago, for people.
pub fn ago(ms: u64) -> String {
    let (value, unit) = match ms / 1_000 {
        0 => (ms, "ms"),
        s @ 1..60 => (s, "s"),
        s @ 60..3_600 => (s / 60, "min"),
        s @ 3_600..172_800 => (s / 3_600, "h"),
        s => (s / 86_400, "d"),
    };
    format!("{value} {unit} ago")
}

/// The state as the next call would find it: a running attempt whose owner is gone is in doubt, although nobody has
/// written that yet. The machine itself is asked, so that this can never differ from what a call decides.
pub fn state_now(store: &dyn Store, stored: &Stored) -> StateName {
    let State::Running { owner, .. } = &stored.record.body.state else {
        return stored.record.body.state.name();
    };
    let verdict = Verdict::Rejected(Failure::new("ASKED", "asked, not settled"));
    let input = Input::Resolve {
        by: "nobody",
        doubted: stored.record.body.token,
        verdict,
        liveness: store.liveness(owner),
    };
    match step(Some(&stored.record), &input, stored.now).decision {
        Decision::Refused(Refusal::Running) => StateName::Running,
        _ => StateName::InDoubt,
    }
}

/// How to say that an equal call is meant as a new intent.
pub fn how_to_run_it_anew(record: &Record) -> &'static str {
    match record.body.name.key.origin() {
        KeyOrigin::Explicit => "to run it anew, use another key",
        KeyOrigin::Derived => "to run it anew, pass a key: --key NAME",
    }
}

/// One line about a replay.
pub fn replay_line(replay: &Replay) -> String {
    let record = &replay.record;
    let kept = if replay.kept { "replayed" } else { "already done, no result is kept" };
    format!(
        "{kept}: attempt {} ran {}; nothing ran now; {}",
        record.body.attempts,
        ago(replay.age_ms()),
        how_to_run_it_anew(record)
    )
}

/// The envelope of an answer for which nothing ran; `None` for an execution or a replay, which have data of their own.
pub fn without_running(answer: &Answer) -> Option<Envelope> {
    let envelope = match answer {
        Answer::Executed(_) | Answer::Replayed(_) => return None,
        Answer::Conflict { intent } => Envelope::failed(
            "KEY_REUSED",
            "the key was used for another payload; nothing ran. Repeat the first call exactly to get its result, or \
             use another key for another intent",
            false,
        )
        .with_meta("id", intent.to_string()),
        Answer::InProgress(there) => {
            let mut envelope = Envelope::failed(
                "IN_PROGRESS",
                format!(
                    "attempt {} is running{}; nothing ran here. Ask again with the same key to get its result",
                    there.record.body.attempts,
                    owner_of(&there.record)
                ),
                false,
            );
            if let Some(error) = &mut envelope.error {
                error.retry_after_ms = Some(there.retry_after_ms);
            }
            with_record(envelope, &there.record)
        }
        Answer::Refused(replay) => with_record(refused(replay), &replay.record),
        Answer::Unknown(there) => with_record(unknown(there), &there.record),
    };
    Some(envelope)
}

/// Adds what names the record.
pub fn with_record(envelope: Envelope, record: &Record) -> Envelope {
    let name = &record.body.name;
    let envelope = envelope
        .with_meta("id", record.intent.to_string())
        .with_meta("tool", name.tool.as_str())
        .with_meta("key", name.key.as_str())
        .with_meta("attempt", record.body.attempts)
        .with_meta("state", record.body.state.name().as_str());
    if name.scope.is_named() { envelope.with_meta("scope", name.scope.as_str()) } else { envelope }
}

fn refused(replay: &Replay) -> Envelope {
    let (code, message) = match &replay.record.body.state {
        State::Rejected { failure, .. } => (failure.code.as_str(), failure.message.as_str()),
        _ => ("REJECTED", "rejected"),
    };
    Envelope::failed(
        code,
        format!(
            "{message}. It was tried {} times and its retry budget is spent; nothing ran now. Raise max_retries in the \
             policy, or use another key",
            replay.record.body.tries
        ),
        false,
    )
}

fn unknown(there: &Unresolved) -> Envelope {
    let id = there.record.intent.short();
    let known = match &there.record.body.state {
        State::InDoubt { doubt, .. } => doubt.message.clone(),
        _ => "its end is not known".to_owned(),
    };
    let why = match there.reason {
        HaltReason::Policy => "",
        HaltReason::Unsure => " The check could not tell.",
        HaltReason::DownstreamForgot => {
            " The downstream no longer remembers the key, so running it again would not be harmless."
        }
        HaltReason::BudgetSpent => " The retry budget is spent.",
    };
    let message = format!(
        "outcome unknown: attempt {} ({}) may have happened: {known}.{why} Nothing ran now. Find out whether it \
         happened, then settle it:\n  oncely resolve {id} --succeeded [--result FILE]   it happened\n  oncely resolve \
         {id} --rejected                     it did not\n  oncely run --retry-unknown …                       you have \
         checked: run it now",
        there.record.body.attempts,
        ago(there.now.since(there.record.changed_at)),
    );
    Envelope::failed("OUTCOME_UNKNOWN", message, false).with_fix(format!("oncely show {id}"))
}

fn owner_of(record: &Record) -> String {
    match &record.body.state {
        State::Running { owner, .. } if owner.is_remote() => format!(" (held by {})", owner.host),
        State::Running { owner, .. } => format!(" (pid {} on {})", owner.process.pid, owner.host),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::ago;

    #[test]
    fn an_age_is_said_in_its_own_unit() {
        for (ms, text) in [
            (999, "999 ms ago"),
            (1_000, "1 s ago"),
            (119_000, "1 min ago"),
            (7_200_000, "2 h ago"),
            (200_000_000, "2 d ago"),
        ] {
            assert_eq!(ago(ms), text);
        }
    }
}
