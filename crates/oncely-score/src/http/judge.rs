//! From what was seen of an endpoint to one finding per criterion. Pure.

use serde_json::Value;

use super::client::Answer;
use super::dialect::Dialect;
use super::drive::{Race, Seen, Step};
use crate::report::{Finding, Status};
use crate::words::clip;

/// One finding per criterion.
pub(super) fn judge(dialect: Dialect, seen: &Seen) -> Vec<Finding> {
    if let Some(why) = broken_off(seen) {
        return absent(dialect, &why);
    }
    vec![
        repeat(seen),
        same_answer(seen),
        mismatch(dialect, seen),
        at_once(seen),
        missing_key(dialect, seen),
        malformed_key(seen),
        replay_told(dialect, seen),
        problem(dialect, seen),
    ]
}

/// Without sending the request nothing can be judged.
pub(super) fn unseen(dialect: Dialect) -> Vec<Finding> {
    absent(dialect, "needs --allow-effects")
}

/// What OPTIONS told.
pub(super) fn notes_of_options(options: &Answer, key_header: &str) -> Vec<String> {
    let (methods, headers) = &options.allow;
    let known = headers.split(',').any(|header| header.trim().eq_ignore_ascii_case(key_header));
    vec![
        format!(
            "OPTIONS was answered with {}{}",
            options.status,
            if methods.is_empty() { String::new() } else { format!(", Allow: {}", clip(methods)) }
        ),
        format!("a browser {} send {key_header}", if known { "may" } else { "is not told that it may" }),
        "the request itself was not sent: it is measured with --allow-effects".to_owned(),
    ]
}

/// What else was seen on the way.
pub(super) fn notes(seen: &Seen) -> Vec<String> {
    match seen.first.moved {
        Some(_) => Vec::new(),
        None => vec![
            "nothing was counted: effects were judged by comparing answers, which is enough for 2 at most; --count CMD \
             counts them"
                .to_owned(),
        ],
    }
}

fn absent(dialect: Dialect, why: &str) -> Vec<Finding> {
    let ids = [
        "repeat",
        "same_answer",
        "mismatch",
        "at_once",
        "missing_key",
        "malformed_key",
        "replay_told",
        "problem",
    ];
    ids.into_iter()
        .map(|id| match (id, dialect.requires_key(), dialect.marks_replays()) {
            ("missing_key", false, _) => key_is_optional(),
            ("replay_told", _, false) => no_mark_is_asked_for(),
            _ => Finding::new(id, Status::NotMeasured, why).advise(
                "measure it: a request that succeeds, --allow-effects, and a --count that sees its effect",
            ),
        })
        .collect()
}

fn broken_off(seen: &Seen) -> Option<String> {
    let first = &seen.first;
    if !(200..300).contains(&first.answer.status) {
        return Some(format!("the first request did not succeed: {}", told(first)));
    }
    (first.moved == Some(0))
        .then(|| format!("the first request changed nothing that --count sees: {}", told(first)))
}

fn told(step: &Step) -> String {
    let moved = step.moved.map_or_else(String::new, |moved| format!(", count moved by {moved}"));
    format!("{}{moved}", told_answer(&step.answer))
}

fn told_answer(answer: &Answer) -> String {
    if answer.status == 0 {
        return format!("no answer ({})", clip(&answer.content_type));
    }
    let replayed = if answer.replayed { ", marked as a replay" } else { "" };
    let media = answer.content_type.split(';').next().unwrap_or_default().trim();
    let space = if media.is_empty() { "" } else { " " };
    format!("{}{space}{media}{replayed}", answer.status)
}

/// Whether answers to different intents differ, so that equal ones tell something.
fn answers_tell_intents_apart(seen: &Seen) -> bool {
    let bodies =
        seen.races.iter().flat_map(|race| &race.answers).filter(|a| a.status == seen.first.answer.status);
    bodies.map(|answer| &answer.body).any(|body| *body != seen.first.answer.body)
}

fn repeat(seen: &Seen) -> Finding {
    let advice = "remember each key before acting, and answer a repeat with the first result";
    let Some(repeat) = &seen.repeat else {
        return Finding::new("repeat", Status::NotMeasured, "it was not sent");
    };
    let same = repeat.answer.body == seen.first.answer.body;
    let status = match repeat.moved {
        Some(0) => Status::Holds,
        Some(_) => Status::Fails,
        None if !answers_tell_intents_apart(seen) => Status::NotMeasured,
        None if same || (400..500).contains(&repeat.answer.status) => Status::Holds,
        None => Status::Fails,
    };
    let evidence = vec![format!("first: {}", told(&seen.first)), format!("repeat: {}", told(repeat))];
    Finding::with_all("repeat", status, evidence).advise(match status {
        Status::NotMeasured => "measure it with --count: all answers are alike, so they do not tell",
        _ => advice,
    })
}

fn same_answer(seen: &Seen) -> Finding {
    let Some(repeat) = &seen.repeat else {
        return Finding::new("same_answer", Status::NotMeasured, "it was not sent");
    };
    let (a, b) = (&seen.first.answer, &repeat.answer);
    let same = a.status == b.status && a.body == b.body && a.content_type == b.content_type;
    let what = if a.body == b.body { "the same body" } else { "another body" };
    let evidence = format!("first {}, repeat {}, {what}", a.status, b.status);
    Finding::new("same_answer", if same { Status::Holds } else { Status::Fails }, evidence)
        .advise("keep status, content type and body of the first answer, and send them again")
}

/// How a refusal was met: by the wanted status, by another refusal, or not at all.
fn refused(step: &Step, wanted: u16) -> Status {
    match step.answer.status {
        _ if step.moved.is_some_and(|moved| moved != 0) => Status::Fails,
        // Without a count, nobody has seen that nothing happened.
        status if status == wanted && step.moved.is_some() => Status::Holds,
        400..500 => Status::Partly,
        _ => Status::Fails,
    }
}

/// Whether a refusal is as it should be, and only a count is missing to prove it.
fn only_uncounted(step: &Step, wanted: u16) -> bool {
    step.answer.status == wanted && step.moved.is_none()
}

/// What to do where answers are as they should be and nothing was counted.
const COUNT: &str = "measure it with --count: the answers are right, but nobody has counted the effects";

fn mismatch(dialect: Dialect, seen: &Seen) -> Finding {
    let Some(other) = &seen.other else {
        return Finding::new("mismatch", Status::NotMeasured, "no other payload is known")
            .advise("measure it: put {n} into the request, or a second request after ### into the file");
    };
    let wanted = dialect.mismatch();
    let good = |control: &Step| (200..300).contains(&control.answer.status) && control.moved != Some(0);
    if let Some(control) = seen.control.as_ref().filter(|control| !good(control)) {
        let told = format!("the other payload is refused with a new key as well: {}", told(control));
        return Finding::new("mismatch", Status::NotMeasured, told)
            .advise("measure it: give after ### a payload that is good in itself");
    }
    let advice =
        format!("keep a fingerprint of the payload beside the key, and refuse another one with {wanted}");
    Finding::new("mismatch", refused(other, wanted), format!("{}; wanted {wanted}", told(other)))
        .advise(if only_uncounted(other, wanted) { COUNT.to_owned() } else { advice })
}

fn at_once(seen: &Seen) -> Finding {
    let unit = seen.first.moved;
    let telling = answers_tell_intents_apart(seen);
    let ok = |answer: &Answer| answer.status == seen.first.answer.status;
    let answered = |race: &Race| -> Status {
        let [a, b] = &race.answers;
        match (ok(a), ok(b)) {
            // Where all answers are alike, two equal ones do not show that there was one effect.
            (true, true) if a.body == b.body && race.moved.is_none() && !telling => Status::NotMeasured,
            (true, true) if a.body == b.body => Status::Holds,
            // Two successes with different bodies: two results, whatever was counted.
            (true, true) => Status::Fails,
            (true, false) | (false, true) => {
                let refused = if ok(a) { b.status } else { a.status };
                if refused == 409 { Status::Holds } else { Status::Partly }
            }
            (false, false) => Status::Fails,
        }
    };
    let one = |race: &Race| -> Status {
        let counted = race.moved.is_none() || race.moved == unit;
        match (counted, answered(race)) {
            (false, _) => Status::Fails,
            (true, Status::Holds) if race.moved.is_none() => Status::Partly,
            (true, pair) => pair,
        }
    };
    let statuses: Vec<Status> = seen.races.iter().map(one).collect();
    let status = [Status::Fails, Status::NotMeasured, Status::Partly, Status::Holds]
        .into_iter()
        .find(|wanted| statuses.contains(wanted))
        .unwrap_or(Status::NotMeasured);
    let told = |race: &Race| {
        let [a, b] = &race.answers;
        let moved = race.moved.map_or_else(String::new, |moved| format!(", count moved by {moved}"));
        let alike = if ok(a) && ok(b) && a.body != b.body { ", different bodies" } else { "" };
        format!("two at once: {} and {}{alike}{moved}", told_answer(a), told_answer(b))
    };
    let right = unit.is_none()
        && !seen.races.is_empty()
        && seen.races.iter().all(|race| answered(race) == Status::Holds);
    Finding::with_all("at_once", status, seen.races.iter().map(told).collect()).advise(if right {
        COUNT
    } else {
        "claim the key with one atomic write before acting; let the second wait, or answer it with 409"
    })
}

fn key_is_optional() -> Finding {
    Finding::new("missing_key", Status::NotApplicable, "in this dialect the key is optional")
}

fn no_mark_is_asked_for() -> Finding {
    Finding::new("replay_told", Status::NotApplicable, "this dialect asks for no mark")
}

fn missing_key(dialect: Dialect, seen: &Seen) -> Finding {
    if !dialect.requires_key() {
        return key_is_optional();
    }
    match &seen.missing {
        None => Finding::new("missing_key", Status::NotMeasured, "it was not sent"),
        Some(step) => {
            Finding::new("missing_key", refused(step, 400), format!("{}; wanted 400", told(step))).advise(
                if only_uncounted(step, 400) { COUNT } else { "refuse a request without a key with 400" },
            )
        }
    }
}

fn malformed_key(seen: &Seen) -> Finding {
    let statuses: Vec<Status> = seen.malformed.iter().map(|(_, step)| refused(step, 400)).collect();
    let status = [Status::Fails, Status::Partly, Status::Holds]
        .into_iter()
        .find(|wanted| statuses.contains(wanted))
        .unwrap_or(Status::NotMeasured);
    let evidence = seen.malformed.iter().map(|(what, step)| format!("{what}: {}", told(step))).collect();
    let right =
        !seen.malformed.is_empty() && seen.malformed.iter().all(|(_, step)| only_uncounted(step, 400));
    Finding::with_all("malformed_key", status, evidence).advise(if right {
        COUNT
    } else {
        "check the key before anything else, and refuse with 400"
    })
}

fn replay_told(dialect: Dialect, seen: &Seen) -> Finding {
    if !dialect.marks_replays() {
        return no_mark_is_asked_for();
    }
    let Some(repeat) = &seen.repeat else {
        return Finding::new("replay_told", Status::NotMeasured, "it was not sent");
    };
    let holds = repeat.answer.replayed && !seen.first.answer.replayed;
    let evidence = format!("first: {}; repeat: {}", told(&seen.first), told(repeat));
    Finding::new("replay_told", if holds { Status::Holds } else { Status::Fails }, evidence)
        .advise("send `Idempotent-Replayed: true` with a replay, and only with one")
}

fn problem(dialect: Dialect, seen: &Seen) -> Finding {
    let mut refusals: Vec<(&str, &Answer)> = Vec::new();
    refusals.extend(seen.other.iter().map(|step| ("key reused", &step.answer)));
    refusals.extend(seen.missing.iter().map(|step| ("no key", &step.answer)));
    refusals.extend(seen.malformed.iter().map(|(what, step)| (*what, &step.answer)));
    refusals.extend(seen.races.iter().flat_map(|race| &race.answers).map(|answer| ("in flight", answer)));
    refusals.retain(|(_, answer)| (400..500).contains(&answer.status));
    if refusals.is_empty() {
        return Finding::new("problem", Status::NotMeasured, "nothing was refused")
            .advise("refuse what is wrong, in a form that programs can read");
    }
    let bad: Vec<String> = refusals
        .iter()
        .filter(|(_, answer)| !is_readable(dialect, answer))
        .map(|(what, answer)| format!("{what}: {}", told_answer(answer)))
        .collect();
    let status = match bad.len() {
        0 => Status::Holds,
        all if all == refusals.len() => Status::Fails,
        _ => Status::Partly,
    };
    let mut evidence =
        vec![format!("{} of {} refusals can be read", refusals.len() - bad.len(), refusals.len())];
    evidence.extend(bad.into_iter().take(8));
    Finding::with_all("problem", status, evidence).advise(match dialect {
        Dialect::Stripe => "refuse with JSON that has `error.type`",
        _ => "refuse with application/problem+json that has `type` and `title`",
    })
}

fn is_readable(dialect: Dialect, answer: &Answer) -> bool {
    let media = answer.content_type.split(';').next().unwrap_or_default().trim();
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    match dialect {
        Dialect::Stripe => media == "application/json" && body["error"]["type"].is_string(),
        _ => media == "application/problem+json" && body["type"].is_string() && body["title"].is_string(),
    }
}
