//! From what was seen of a server to one finding per criterion. Pure.

use super::client::Era;
use super::drive::{Called, Seen};
use super::text::mints_new_keys;
use super::tool::Tool;
use crate::Effects;
use crate::report::{Finding, Status};
use crate::words::clip;

/// One finding per criterion.
pub(super) fn judge(effects: Effects, seen: &Seen) -> Vec<Finding> {
    vec![
        annotated(seen),
        kept(effects, seen, &READ_ONLY),
        kept(effects, seen, &IDEMPOTENT),
        key(seen),
        kept(effects, seen, &KEYED),
        description(seen),
    ]
}

/// What else was seen on the way.
pub(super) fn notes(effects: Effects, seen: &Seen) -> Vec<String> {
    let era = match seen.era {
        Era::Legacy => "begins with initialize",
        Era::Modern => "needs no initialize",
    };
    let mut notes = vec![format!("{} tools; the server {era}", seen.tools.len())];
    if effects == Effects::Forbidden {
        notes.push(
            "no tool was called: what they do is measured with --allow-effects, --sandbox and --call".into(),
        );
    }
    notes.extend(seen.called.iter().map(told));
    notes
}

fn names<'a>(tools: impl Iterator<Item = &'a Tool>) -> String {
    clip(&tools.map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", "))
}

/// How many of all, as a status.
fn share(part: usize, all: usize) -> Status {
    match part {
        _ if all == 0 => Status::NotApplicable,
        0 => Status::Fails,
        part if part == all => Status::Holds,
        _ => Status::Partly,
    }
}

fn annotated(seen: &Seen) -> Finding {
    let good = seen.tools.iter().filter(|tool| tool.is_annotated()).count();
    let mut evidence = vec![format!("{good} of {} tools say what a client has to know", seen.tools.len())];
    if good < seen.tools.len() {
        evidence.push(format!("silent: {}", names(seen.tools.iter().filter(|tool| !tool.is_annotated()))));
    }
    Finding::with_all("annotated", share(good, seen.tools.len()), evidence)
        .advise("set readOnlyHint, or both destructiveHint and idempotentHint, on every tool")
}

/// Something that tools say about themselves and that calls can bear out.
struct Promise {
    id: &'static str,
    /// Which tools make it.
    made_by: fn(&Tool) -> bool,
    /// Whether two calls bore it out.
    kept: fn(&Called) -> bool,
    /// Whether two calls could have shown the opposite.
    tested: fn(&Called) -> bool,
    advice: &'static str,
}

const READ_ONLY: Promise = Promise {
    id: "read_only",
    made_by: Tool::says_read_only,
    kept: |called| called.states[0] == called.states[1] && called.states[1] == called.states[2],
    tested: |called| called.answers[0].is_ok(),
    advice: "say readOnlyHint only where nothing changes",
};

const IDEMPOTENT: Promise = Promise {
    id: "idempotent",
    made_by: |tool| tool.says_idempotent() && tool.key.is_none(),
    kept: |called| called.states[1] == called.states[2],
    tested: |called| called.answers[0].is_ok() && called.states[0] != called.states[1],
    advice: "say idempotentHint only where the same call again changes nothing",
};

const KEYED: Promise = Promise {
    id: "keyed",
    made_by: |tool| tool.key.is_some() && !tool.says_read_only(),
    kept: |called| called.states[1] == called.states[2],
    tested: |called| called.answers[0].is_ok() && called.states[0] != called.states[1],
    advice: "remember each key before acting, and answer a repeat with the first result",
};

fn kept(effects: Effects, seen: &Seen, promise: &Promise) -> Finding {
    let makers: Vec<&Tool> = seen.tools.iter().filter(|tool| (promise.made_by)(tool)).collect();
    if makers.is_empty() {
        return Finding::new(promise.id, Status::NotApplicable, "no tool says so");
    }
    let calls = seen.called.iter().filter(|called| makers.iter().any(|tool| tool.name == called.tool));
    let (mut held, mut broken, mut mute) = (Vec::new(), Vec::new(), Vec::new());
    for called in calls {
        match ((promise.kept)(called), (promise.tested)(called)) {
            (false, _) => broken.push(called),
            (true, true) => held.push(called),
            (true, false) => mute.push(called),
        }
    }
    let covered = makers.iter().filter(|tool| held.iter().any(|called| called.tool == tool.name)).count();
    let status = match (broken.is_empty(), covered) {
        (false, _) => Status::Fails,
        (true, 0) => Status::NotMeasured,
        (true, covered) if covered == makers.len() => Status::Holds,
        _ => Status::Partly,
    };
    let mut evidence =
        vec![format!("{covered} of {} tools that say so were called and bore it out", makers.len())];
    evidence.extend(broken.iter().map(|called| format!("broken: {}", told(called))));
    evidence.extend(mute.iter().map(|called| format!("shows nothing: {}", told(called))));
    let uncalled = || makers.iter().filter(|tool| seen.called.iter().all(|called| called.tool != tool.name));
    if uncalled().next().is_some() {
        evidence.push(format!("not called: {}", names(uncalled().copied())));
    }
    let advice = match (status, effects) {
        (Status::Fails, _) => promise.advice.to_owned(),
        (_, Effects::Forbidden) => "measure it: --allow-effects --sandbox DIR --call 'NAME {…}'".to_owned(),
        _ => format!("measure them: --call 'NAME {{…}}' for {}", names(uncalled().copied())),
    };
    Finding::with_all(promise.id, status, evidence).advise(advice)
}

fn told(called: &Called) -> String {
    let [before, between, after] = &called.states;
    let answer = |answer: &Result<(), String>| match answer {
        Ok(()) => "ok".to_owned(),
        Err(message) => format!("error ({message})"),
    };
    let [first, second] = &called.answers;
    let change = |a, b| if a == b { "as it was" } else { "changed" };
    format!(
        "`{}` called twice: {} ({before} -> {between}, {}), {} ({after}, {})",
        called.tool,
        answer(first),
        change(before, between),
        answer(second),
        change(between, after)
    )
}

fn key(seen: &Seen) -> Finding {
    let needing: Vec<&Tool> =
        seen.tools.iter().filter(|tool| !tool.says_read_only() && !tool.says_idempotent()).collect();
    let without: Vec<&Tool> = needing.iter().filter(|tool| tool.key.is_none()).copied().collect();
    let having = needing.len() - without.len();
    let mut evidence =
        vec![format!("{having} of {} writes that are not idempotent take a key", needing.len())];
    if !without.is_empty() {
        evidence.push(format!("without: {}", names(without.into_iter())));
    }
    Finding::with_all("key", share(having, needing.len()), evidence)
        .advise("give every write that is not idempotent a property `idempotency_key`")
}

fn description(seen: &Seen) -> Finding {
    let minting: Vec<String> = seen
        .tools
        .iter()
        .filter_map(|tool| {
            let (name, about) = tool.key.as_ref()?;
            let clause = mints_new_keys(about).or_else(|| {
                // A tool's own text counts only where it speaks of its key.
                let speaks = tool.description.to_ascii_lowercase().contains(&name.to_ascii_lowercase());
                speaks.then(|| mints_new_keys(&tool.description)).flatten()
            })?;
            Some(format!("`{}`, {name}: \"{}\"", tool.name, clip(clause)))
        })
        .collect();
    if seen.tools.iter().all(|tool| tool.key.is_none()) {
        return Finding::new("description", Status::NotApplicable, "no tool takes a key");
    }
    if minting.is_empty() {
        return Finding::new(
            "description",
            Status::Holds,
            "no description asks for a new key for every call",
        );
    }
    Finding::with_all("description", Status::Fails, minting)
        .advise("say: the same for every retry of one intent; a new one only for a new intent")
}
