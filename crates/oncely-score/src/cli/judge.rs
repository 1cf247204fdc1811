//! From what was seen of a command to one finding per criterion. Pure.

use super::discover::Known;
use super::seen::{Answer, Killed, Race, Says, Seen, Step};
use crate::exec::Exit;
use crate::report::{Finding, Status};

/// How much of what each finding rests on is shown.
const SHOWN_MAX: usize = 8;

/// One finding per criterion.
pub(super) fn judge(known: &Known, seen: Option<&Seen>) -> Vec<Finding> {
    let Some(seen) = seen else { return unseen(known) };
    vec![
        dry_run(known, seen),
        repeat(seen),
        effect(seen),
        replay_told(seen),
        key(known, seen),
        mismatch(seen),
        at_once(seen),
        killed(seen),
        every_command(known),
    ]
}

/// What else was seen on the way.
pub(super) fn notes(known: &Known, seen: Option<&Seen>) -> Vec<String> {
    let mut notes = vec![format!(
        "asked for help {} times: key flag {}, dry-run flag {}, manifest {}",
        known.helps,
        known.key_flag.as_deref().unwrap_or(if known.key_in_place { "in place" } else { "none" }),
        known.dry_run_flag.as_deref().unwrap_or("none"),
        if known.manifest { "read" } else { "none" },
    )];
    match seen {
        None => notes.push(
            "nothing was run but the tool's help: what a call does is measured with --allow-effects and --count".into(),
        ),
        Some(Seen { help: (before, after), .. }) if before != after => notes.push(format!(
            "asking for help changed something (count {before} -> {after}); the command was not run"
        )),
        Some(_) => {}
    }
    notes
}

/// Without running anything: what is not there cannot hold; the rest is open.
fn unseen(known: &Known) -> Vec<Finding> {
    let open = |id| {
        Finding::new(id, Status::NotMeasured, "needs --allow-effects")
            .advise("measure it: --allow-effects --count CMD, in a place where effects may happen")
    };
    let mut findings: Vec<Finding> =
        ["repeat", "effect", "replay_told", "at_once", "killed"].map(open).to_vec();
    findings.push(match &known.dry_run_flag {
        None => no_dry_run(),
        Some(_) => open("dry_run"),
    });
    if known.key_flag.is_none() && !known.key_in_place {
        findings.extend([no_key(), no_key_to_misuse()]);
    } else {
        findings.extend([open("key"), open("mismatch")]);
    }
    findings.push(every_command(known));
    findings
}

fn no_dry_run() -> Finding {
    Finding::new("dry_run", Status::Fails, "the help names no flag for a dry run")
        .advise("give the command a --dry-run that changes nothing (or name its flag: --dry-run-flag)")
}

fn no_key() -> Finding {
    Finding::new("key", Status::Fails, "the help names no flag for a key")
        .advise("give the command an --idempotency-key (or name its flag: --key-flag)")
}

fn no_key_to_misuse() -> Finding {
    Finding::new("mismatch", Status::NotApplicable, "there is no key that could be reused")
}

fn not_measured(id: &'static str, why: &str) -> Finding {
    Finding::new(id, Status::NotMeasured, why)
}

/// Why the sequence ended before the repeat, if it did.
fn broken_off(seen: &Seen) -> Option<String> {
    if seen.help.0 != seen.help.1 {
        return Some("the tool acts when it is asked for help, and was not called any further".into());
    }
    let first = seen.first.as_ref()?;
    if !first.answer.exit.is_ok() {
        return Some(format!("the first call did not succeed: {}", first.told()));
    }
    (first.moved() == 0)
        .then(|| format!("the first call changed nothing that --count sees: {}", first.told()))
}

fn dry_run(known: &Known, seen: &Seen) -> Finding {
    if known.dry_run_flag.is_none() {
        return no_dry_run();
    }
    let Some(step) = &seen.dry_run else {
        return not_measured("dry_run", &broken_off(seen).unwrap_or_else(|| "it was not run".into()));
    };
    if let Some(spent) = &seen.spent {
        let told = format!("the real call after it, with the same key, did nothing: {}", spent.told());
        return Finding::with_all("dry_run", Status::Fails, vec![step.told(), told])
            .advise("let the dry run leave the key alone");
    }
    let status = if step.moved() == 0 && step.answer.exit.is_ok() { Status::Holds } else { Status::Fails };
    // A count that does not see the effect of a real call has not shown that a dry run has none.
    if let (Status::Holds, Some(why)) = (status, broken_off(seen)) {
        return Finding::with_all("dry_run", Status::NotMeasured, vec![step.told(), why])
            .advise("give a command that succeeds, and a --count that sees its effect");
    }
    Finding::new("dry_run", status, step.told()).advise("let the dry run exit 0 and change nothing")
}

fn repeat(seen: &Seen) -> Finding {
    let (Some(first), Some(repeat)) = (&seen.first, &seen.repeat) else {
        return not_measured("repeat", &broken_off(seen).unwrap_or_else(|| "it was not run".into()))
            .advise("give a command that succeeds, and a --count that sees its effect");
    };
    let status = match (repeat.moved(), repeat.answer.exit) {
        (0, Exit::Code(0)) => Status::Holds,
        (0, Exit::Code(_)) => Status::Partly,
        // A repeat that hangs or crashes is no answer.
        _ => Status::Fails,
    };
    let advice = match status {
        Status::Partly => "let a repeat of what has happened exit 0 and say that it is done",
        _ => "remember each key before acting, and answer a repeat with the first result",
    };
    Finding::with_all("repeat", status, vec![first.told(), repeat.told()]).advise(advice)
}

fn effect(seen: &Seen) -> Finding {
    let steps = [&seen.dry_run, &seen.first, &seen.repeat, &seen.other, &seen.control].into_iter().flatten();
    let mut answers: Vec<&Answer> = steps.map(|step| &step.answer).collect();
    answers.extend(seen.races.iter().flat_map(|race| &race.answers));
    answers.extend(seen.kills.iter().map(|kill| &kill.retry));
    answers.retain(|answer| answer.exit.is_ok());
    let total = answers.len();
    if total == 0 {
        return not_measured("effect", "no call succeeded");
    }
    let whole = answers.iter().filter(|answer| matches!(answer.says, Says::Effect(_))).count();
    let some = answers.iter().filter(|answer| answer.says != Says::Nothing).count();
    let untrue = untrue(seen);
    let status = match (whole, some) {
        _ if !untrue.is_empty() => Status::Fails,
        (_, 0) => Status::Fails,
        (whole, _) if whole == total => Status::Holds,
        _ => Status::Partly,
    };
    let told = format!("{whole} of {total} answers with exit 0 have an `effect`, {some} say anything");
    let mut evidence = vec![told];
    evidence.extend(untrue.into_iter().take(SHOWN_MAX).map(|told| format!("untrue: {told}")));
    Finding::with_all("effect", status, evidence)
        .advise("answer in JSON with the true `effect`: created, updated, deleted, noop, would_create, …")
}

/// Answers that say other than what was counted.
fn untrue(seen: &Seen) -> Vec<String> {
    let acted = |step: &&Step| step.moved() != 0 && step.answer.says.nothing_happened();
    let real = [&seen.first, &seen.repeat, &seen.other, &seen.control].into_iter().flatten();
    let mut untrue: Vec<String> = real.filter(acted).map(Step::told).collect();
    untrue.extend(seen.dry_run.iter().filter(|step| step.answer.says.something_happened()).map(Step::told));
    let silent_race = |race: &&Race| {
        let [one, two] = &race.answers;
        race.after != race.before && one.says.nothing_happened() && two.says.nothing_happened()
    };
    untrue.extend(seen.races.iter().filter(silent_race).map(told_race));
    let silent_retry = |kill: &&Killed| kill.after != kill.between && kill.retry.says.nothing_happened();
    untrue.extend(seen.kills.iter().filter(silent_retry).map(told_kill));
    untrue
}

fn told_race(race: &Race) -> String {
    let [one, two] = &race.answers;
    format!("two at once: {} and {}, count {} -> {}", one.told(), two.told(), race.before, race.after)
}

fn told_kill(kill: &Killed) -> String {
    let Killed { moment, before, between, retry, after, .. } = kill;
    format!("killed {moment}: count {before} -> {between}; retry: {}, count {after}", retry.told())
}

fn replay_told(seen: &Seen) -> Finding {
    let (Some(first), Some(repeat)) = (&seen.first, &seen.repeat) else {
        return not_measured("replay_told", &broken_off(seen).unwrap_or_else(|| "it was not run".into()));
    };
    let told =
        repeat.answer.says == Says::Effect("noop".into()) || repeat.answer.says == Says::Changed(false);
    // What is said to every call tells nothing of this one.
    let constant = first.answer.says == repeat.answer.says;
    let status = if told && !constant && repeat.answer.exit.is_ok() { Status::Holds } else { Status::Fails };
    Finding::with_all("replay_told", status, vec![first.told(), repeat.told()])
        .advise("answer a repeat with exit 0 and `effect` = `noop`, and only a repeat")
}

fn key(known: &Known, seen: &Seen) -> Finding {
    if known.key_flag.is_none() && !known.key_in_place {
        return no_key();
    }
    if let Some(refused) = &seen.key_refused {
        return Finding::new("key", Status::Fails, format!("the key was refused: {}", refused.told()))
            .advise("take the key that the help names");
    }
    match (&seen.first, broken_off(seen)) {
        (Some(first), None) if seen.keyed => Finding::new("key", Status::Holds, first.told()),
        (_, why) => not_measured("key", &why.unwrap_or_else(|| "it was not run".into())),
    }
}

fn mismatch(seen: &Seen) -> Finding {
    if let Some(why) = broken_off(seen) {
        return not_measured("mismatch", &why);
    }
    if !seen.keyed {
        return no_key_to_misuse();
    }
    let Some(other) = &seen.other else {
        return not_measured(
            "mismatch",
            "no other payload is known: put {n} into the command, or give --other",
        )
        .advise("measure it: give the same command with another payload with --other");
    };
    // To hang or to crash is not to refuse.
    let refused = matches!(other.answer.exit, Exit::Code(1..)) && other.moved() == 0;
    let status = if refused { Status::Holds } else { Status::Fails };
    let control = seen.control.as_ref().filter(|_| refused);
    if let Some(control) = control.filter(|control| !control.answer.exit.is_ok() || control.moved() == 0) {
        let told = format!("the other payload is refused with a new key as well: {}", control.told());
        return Finding::with_all("mismatch", Status::NotMeasured, vec![other.told(), told])
            .advise("measure it: give with --other a payload that is good in itself");
    }
    let evidence = [Some(other), control].into_iter().flatten().map(Step::told).collect();
    Finding::with_all("mismatch", status, evidence).advise(
        "keep a fingerprint of the payload beside the key, and refuse a key that comes with another one",
    )
}

/// By how much one call moves the count.
fn unit(seen: &Seen) -> i64 {
    seen.first.as_ref().map_or(0, Step::moved)
}

/// Why races and kills were not run.
fn not_fresh(id: &'static str, seen: &Seen) -> Finding {
    if let Some(why) = broken_off(seen) {
        return not_measured(id, &why);
    }
    match &seen.repeat {
        Some(repeat) if repeat.moved() != 0 => second_effect(id, seen),
        _ => not_measured(
            id,
            "without a key, and without {n} in the command, there is no new intent to try it with",
        )
        .advise("measure it: put {n} into the command"),
    }
}

/// Without a kill or a race, a repeat has acted again.
fn second_effect(id: &'static str, seen: &Seen) -> Finding {
    let told = seen.repeat.as_ref().map_or_else(String::new, Step::told);
    Finding::new(id, Status::Fails, format!("a plain repeat already had a second effect: {told}"))
        .advise("first let a repeat have no second effect")
}

fn at_once(seen: &Seen) -> Finding {
    if !seen.can_be_fresh {
        return not_fresh("at_once", seen);
    }
    let unit = unit(seen);
    let evidence: Vec<String> = seen.races.iter().take(SHOWN_MAX).map(told_race).collect();
    let any_ok = |race: &Race| race.answers.iter().any(|answer| answer.exit.is_ok());
    let answered = |race: &Race| race.answers.iter().all(|answer| matches!(answer.exit, Exit::Code(_)));
    let wrong = |race: &Race| race.after - race.before != unit || !answered(race);
    let status = if seen.races.is_empty()
        || seen.races.iter().all(|race| !any_ok(race) && race.after == race.before)
    {
        Status::NotMeasured
    } else if seen.races.iter().any(|race| wrong(race) || !any_ok(race)) {
        Status::Fails
    } else {
        Status::Holds
    };
    Finding::with_all("at_once", status, evidence).advise(match status {
        Status::NotMeasured => {
            "measure it: put {n} into the command, so that a new key comes with a new payload"
        }
        _ => "claim the key with one atomic write before acting, and let the second call wait or refuse it",
    })
}

fn killed(seen: &Seen) -> Finding {
    if !seen.can_be_fresh {
        return not_fresh("killed", seen);
    }
    if seen.repeat.as_ref().is_some_and(|repeat| repeat.moved() != 0) {
        // A kill that came too early to do harm would look like a virtue.
        return second_effect("killed", seen);
    }
    let unit = unit(seen);
    let landed: Vec<&Killed> = seen.kills.iter().filter(|kill| kill.landed).collect();
    let double = |kill: &&Killed| (kill.after - kill.before).abs() > unit.abs();
    let hollow = |kill: &&Killed| kill.retry.exit.is_ok() && kill.after == kill.before;
    let mute = |kill: &&Killed| !matches!(kill.retry.exit, Exit::Code(_));
    let wrong: Vec<&Killed> =
        landed.iter().filter(|kill| double(kill) || hollow(kill) || mute(kill)).copied().collect();
    let late = landed.iter().filter(|kill| kill.between != kill.before).count();
    let mut evidence = vec![format!(
        "{} of {} kills met the command alive, {late} of them after its effect was seen; {} retries went wrong",
        landed.len(),
        seen.kills.len(),
        wrong.len()
    )];
    let shown = if wrong.is_empty() { &landed } else { &wrong };
    evidence.extend(shown.iter().take(SHOWN_MAX).map(|kill| told_kill(kill)));
    let status = match (landed.is_empty(), wrong.is_empty(), late) {
        (true, ..) => Status::NotMeasured,
        (_, false, _) => Status::Fails,
        // Kills that came before the effect do not show what happens after it.
        (_, true, 0) => Status::Partly,
        _ => Status::Holds,
    };
    Finding::with_all("killed", status, evidence).advise(match status {
        Status::NotMeasured => "measure it with more --kills: none met the command alive",
        Status::Partly => "measure it with more --kills: none met the command after its effect",
        _ => "make the key durable before the effect, and answer a retry of what was cut off with `unknown`",
    })
}

fn every_command(known: &Known) -> Finding {
    let advice = "give every mutating command both flags; framework-wide is easiest";
    let and_more = if known.more { ", and others were not asked" } else { "" };
    let reading = match known.reading.is_empty() {
        true => Vec::new(),
        false => vec![format!("taken for read-only: {}", known.reading.join(", "))],
    };
    if known.lacking.is_empty() && !known.more {
        let told = format!("by their help, both flags are there: {}", known.equipped.join(", "));
        return Finding::with_all("every_command", Status::Holds, [vec![told], reading].concat());
    }
    if known.lacking.is_empty() {
        let told = format!("both flags are there: {}{and_more}", known.equipped.join(", "));
        return Finding::new("every_command", Status::NotMeasured, told)
            .advise("name those that read with --read-only");
    }
    let told = format!("by their help, a flag is missing: {}{and_more}", known.lacking.join(", "));
    Finding::new("every_command", Status::Fails, told).advise(advice)
}

#[cfg(test)]
mod tests;
