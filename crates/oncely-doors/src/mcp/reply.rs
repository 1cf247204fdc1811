//! Answers as tool results: what happened, whether anything ran, and what to do next, in words for a model.

use std::borrow::Cow;

use oncely::policy_file::Annotate;
use oncely::{Answer, Execution, Forecast, Outcome, Replay, Unrecorded};
use oncely_core::{KeyOrigin, Record, State};
use serde_json::{Value, json};

use super::json::{self, Members};
use super::stored;
use crate::envelope::Envelope;
use crate::tell;

/// Where the envelope of an answer is put under `_meta`.
pub const ENVELOPE: &str = "dev.oncely/envelope";
/// What a server said in place of an answer is kept under this name.
const SAID: &str = "dev.oncely/said";
/// Where a replay says under `_meta` that it is one.
pub const REPLAYED: &str = "dev.oncely/replayed";

/// What has to be known of the caller to word a result.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// How a replay says that it is one.
    pub annotate: Annotate,
    /// Whether results of this era name their type.
    pub era: Era,
    /// Whether good results of the tool have to follow a schema.
    pub schema: Schema,
}

/// Which protocol a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With `initialize`.
    Legacy,
    /// Requests describe themselves.
    Modern,
}

/// Whether good results of a tool have to follow a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// They are free.
    Free,
    /// They are bound.
    Bound,
}

/// Whether a result is marked as an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Good,
    Error,
}

/// A result of our own, with a text for the model and the envelope for programs.
fn own(form: Form, mark: Mark, text: &str, envelope: &Envelope) -> String {
    let mut result = Members::default();
    if form.era == Era::Modern {
        result.set("resultType", json::raw(&"complete"));
    }
    result.set("content", json::raw(&json!([{ "type": "text", "text": text }])));
    if mark == Mark::Error {
        result.set("isError", json::raw(&true));
    }
    result.set("_meta", json::raw(&json!({ ENVELOPE: envelope })));
    result.render()
}

/// A call that was refused before anything ran.
pub fn refused(form: Form, code: &str, message: &str, retryable: bool) -> String {
    own(form, Mark::Error, message, &Envelope::failed(code, message, retryable))
}

/// The answer to a call for which nothing ran now.
pub fn answered(form: Form, answer: &Answer) -> String {
    match answer {
        Answer::Replayed(replay) => replayed(form, replay),
        Answer::Refused(replay) => spent(form, replay, answer),
        other => {
            let mut envelope =
                tell::without_running(other).unwrap_or_else(|| Envelope::done("noop", Value::Null));
            let text = words(other);
            if let Some(error) = &mut envelope.error {
                error.message.clone_from(&text);
            }
            own(form, Mark::Error, &text, &envelope)
        }
    }
}

fn words(answer: &Answer) -> String {
    match answer {
        Answer::Conflict { .. } => "Refused: this idempotency_key was used before for a call with other arguments, or \
             with other answers to what the server asked. Nothing ran. To retry the first call, repeat it exactly; for \
             another intent, use another idempotency_key."
            .to_owned(),
        Answer::InProgress(there) => format!(
            "In progress: attempt {} of this very call is still running. Nothing ran now. Call again with the same \
             arguments in {} ms or later to get its result; do not change the idempotency_key.",
            there.record.body.attempts, there.retry_after_ms
        ),
        Answer::Unknown(there) => unknown_words(
            " Nothing ran now.",
            there.record.body.attempts,
            &match &there.record.body.state {
                State::InDoubt { doubt, .. } => with_page(&doubt.message, doubt.evidence.as_deref()),
                _ => "its end is not known".to_owned(),
            },
            &there.record.intent.short(),
        ),
        Answer::Executed(_) | Answer::Replayed(_) | Answer::Refused(_) => String::new(),
    }
}

/// What a server said in place of an answer, in the form in which it is kept: nobody can take it for a result.
pub(super) fn kept_as_said(said: &str) -> Vec<u8> {
    format!(r#"{{"{SAID}":{}}}"#, json::quote(said)).into_bytes()
}

/// What a server said in place of an answer, if that is what was kept.
fn said_in(kept: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(kept).ok()?;
    Members::parse(text).ok()?.text(SAID).map(Cow::into_owned)
}

/// A message of ours, with what the server said in place of an answer: a page, most likely.
fn with_page(message: &str, kept: Option<&[u8]>) -> String {
    match kept.and_then(said_in) {
        Some(said) => format!("{message}; it says: {said}"),
        None => message.to_owned(),
    }
}

/// What a model is told of an unknown outcome; `now` is what this very call did.
fn unknown_words(now: &str, attempt: u32, why: &str, id: &str) -> String {
    format!(
        "Outcome unknown: attempt {attempt} of this call may have happened: {why}.{now} Calling again will not run it; do \
         not work around that with another idempotency_key. Find out whether it happened, for example with a tool that \
         reads, and tell the user. A person settles it with: oncely resolve {id} --succeeded | --rejected"
    )
}

pub(super) fn again(record: &Record) -> &'static str {
    match record.body.name.key.origin() {
        KeyOrigin::Explicit => "For a new call, use another idempotency_key.",
        KeyOrigin::Derived => "For a new call, pass an idempotency_key of its own.",
    }
}

fn replayed(form: Form, replay: &Replay) -> String {
    let record = &replay.record;
    let when = tell::ago(replay.age_ms());
    let Some(result) = replay.result() else {
        let text = format!(
            "Already done: attempt {} of this call succeeded {when}; nothing ran now. Its result is no longer kept. {}",
            record.body.attempts,
            again(record)
        );
        let mut envelope = tell::with_record(Envelope::done("noop", Value::Null), record);
        envelope.reason = Some(text.clone());
        // A client that checks results against a schema would take one without data for a broken server.
        let mark = if form.schema == Schema::Bound { Mark::Error } else { Mark::Good };
        return own(form, mark, &text, &envelope);
    };
    // Hardly anything that was stored is no text, and to find that out takes less than to mend it.
    let kept = std::str::from_utf8(result).map_or_else(|_| String::from_utf8_lossy(result), Cow::Borrowed);
    // Words of ours, which need no escapes.
    let item = format!(
        r#"{{"type":"text","text":"Replayed by oncely: attempt {} of this call succeeded {when}, and this is its result; nothing ran now. {}"}}"#,
        record.body.attempts,
        again(record)
    );
    let meta = format!(
        r#"{{"at":{},"age_ms":{},"key":{},"attempt":{},"id":"{}"}}"#,
        when_of(record),
        replay.age_ms(),
        json::quote(record.body.name.key.as_str()),
        record.body.attempts,
        record.intent
    );
    annotated(form, stored::result_of(&kept, &record.body.state), &item, REPLAYED, meta)
}

/// A stored result as the caller's era has it: one that was stored in the other era may lack its type.
fn of_era(era: Era, mut result: Members<'_>) -> Members<'_> {
    if era == Era::Modern && !result.has("resultType") {
        result.set("resultType", json::quote("complete"));
    }
    result
}

fn when_of(record: &Record) -> u64 {
    record.changed_at.0
}

/// A result with one more item of its content and one more entry under `_meta`; everything else, `structuredContent` above all, stays
/// as it is.
fn annotated(form: Form, result: Members<'_>, item: &str, name: &str, meta: String) -> String {
    let result = of_era(form.era, result);
    if form.annotate == Annotate::Off {
        return result.render();
    }
    let length: usize = result.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let mut json = String::with_capacity(length + item.len() + name.len() + meta.len() + 20);
    json.push('{');
    for (member, value) in result.iter().filter(|(member, _)| *member != "_meta") {
        json::push_name(&mut json, member);
        let takes_item = member == "content" && form.annotate == Annotate::Text;
        if !takes_item || json::push_with_item(&mut json, value, item).is_none() {
            json.push_str(value);
        }
    }
    let mut under = result.object("_meta").unwrap_or_default();
    under.set(name, meta);
    json::push_name(&mut json, "_meta");
    json.push_str(&under.render());
    json.push('}');
    json
}

/// A rejection whose retry budget is spent: the server's own words again, and ours.
fn spent(form: Form, replay: &Replay, answer: &Answer) -> String {
    let envelope = tell::without_running(answer).unwrap_or_else(|| Envelope::done("noop", Value::Null));
    let text = envelope.error.as_ref().map_or_else(String::new, |error| error.message.clone());
    let kept = match &replay.record.body.state {
        State::Rejected { failure, .. } => failure.detail.clone(),
        _ => None,
    };
    match kept {
        // No result of the tool: it never got the call.
        Some(raw) if said_in(&raw).is_some() => {
            own(form, Mark::Error, &with_page(&text, Some(&raw)), &envelope)
        }
        Some(raw) => {
            let raw = String::from_utf8_lossy(&raw);
            annotated(form, stored::as_it_is(&raw), &stored::text_item(&text), ENVELOPE, json::raw(&envelope))
        }
        None => own(form, Mark::Error, &text, &envelope),
    }
}

/// The answer to a call that ran now; `raw` is the server's own result, if there is one. `None` where that says it all.
pub fn executed(form: Form, execution: &Execution, record: &RecordName, raw: Option<&str>) -> Option<String> {
    if let (Some(failure), None) = (execution.outcome.failure(), raw) {
        let message = with_page(&failure.message, failure.detail.as_deref());
        return Some(refused(form, &failure.code, &message, execution.unrecorded.is_none()));
    }
    let (text, envelope) = what_is_left_to_say(execution, record)?;
    Some(match raw {
        // However quiet replays are meant to be: this has to be said.
        Some(raw) => {
            let form = Form { annotate: Annotate::Text, era: Era::Legacy, ..form };
            annotated(form, stored::as_it_is(raw), &stored::text_item(&text), ENVELOPE, json::raw(&envelope))
        }
        None => own(form, Mark::Error, &text, &envelope),
    })
}

/// The answer to a call that ran now and to which the server did not answer, or nothing that can be read.
pub fn without_answer(form: Form, execution: &Execution, record: &RecordName) -> String {
    match (&execution.outcome, executed(form, execution, record, None)) {
        (_, Some(ours)) => ours,
        // The check found it done: what it printed is the result.
        (Outcome::Succeeded { result: Some(found), .. }, None) => {
            of_era(form.era, stored::as_it_is(&String::from_utf8_lossy(found))).render()
        }
        _ => refused(form, "NO_RESULT", "it has happened already; the check gave no result", false),
    }
}

/// The same where the server answered with a JSON-RPC error: that error, with what is left to say in its message and its
/// data.
pub fn executed_with_error(
    execution: &Execution,
    record: &RecordName,
    error: &Members<'_>,
) -> Option<String> {
    let (text, envelope) = what_is_left_to_say(execution, record)?;
    let mut error = error.clone();
    let message = error.text("message").unwrap_or_default();
    let message = json::raw(&format!("{message}\n{text}"));
    error.set("message", message);
    let data = error.get("data").filter(|raw| *raw != "null");
    // What is no object stays as it is.
    if let Ok(mut data) = Members::parse(data.unwrap_or("{}")) {
        data.set(ENVELOPE, json::raw(&envelope));
        let data = data.render();
        error.set("data", data);
    }
    Some(error.render())
}

/// What has to be said of a call that ran besides what the server says: that its outcome is unknown, or not recorded.
fn what_is_left_to_say(execution: &Execution, record: &RecordName) -> Option<(String, Envelope)> {
    let id = execution.intent.short();
    let warning = execution.unrecorded.as_ref().map(|unrecorded| warning(unrecorded, execution.attempt, &id));
    let text = match &execution.outcome {
        Outcome::Succeeded { .. } | Outcome::Rejected(_) | Outcome::NotStarted(_) => warning.clone()?,
        Outcome::Unknown(doubt) => {
            let why = with_page(&doubt.message, doubt.evidence.as_deref());
            unknown_words("", execution.attempt, &why, &id)
        }
    };
    let mut envelope = match &execution.outcome {
        Outcome::Succeeded { effect, .. } => Envelope::done(effect.as_str(), Value::Null),
        Outcome::Rejected(failure) | Outcome::NotStarted(failure) => {
            Envelope::failed(&failure.code, &failure.message, warning.is_none())
        }
        Outcome::Unknown(doubt) => {
            Envelope::failed("OUTCOME_UNKNOWN", &doubt.message, false).with_fix(format!("oncely show {id}"))
        }
    };
    envelope.warnings.extend(warning);
    let envelope = envelope
        .with_meta("id", execution.intent.to_string())
        .with_meta("tool", record.tool.as_str())
        .with_meta("key", record.key.as_str())
        .with_meta("attempt", execution.attempt);
    Some((text, envelope))
}

/// What names the record of a call that ran now.
#[derive(Debug, Clone)]
pub struct RecordName {
    /// The tool, in full.
    pub tool: String,
    /// The key.
    pub key: String,
}

fn warning(unrecorded: &Unrecorded, attempt: u32, id: &str) -> String {
    match unrecorded {
        Unrecorded::StoreFailed(error) => format!(
            "Warning: this call ran, but its end could not be recorded ({error}). A retry will not run it again until \
             it is settled: oncely show {id}"
        ),
        Unrecorded::Superseded => format!(
            "Warning: another attempt had taken the place of attempt {attempt}: the effect may have happened twice; see \
             oncely log --id {id}"
        ),
        Unrecorded::EarlierUnknown => format!(
            "Warning: attempt {attempt} did nothing, but what an attempt before it did is not known; settle it: oncely \
             show {id}"
        ),
    }
}

/// What a call would do now.
pub fn forecast(form: Form, tool: &str, forecast: &Forecast) -> String {
    let (text, envelope) = match forecast {
        Forecast::WouldRun { attempt, effect } => (
            format!("Dry run: a call now would run {tool} (attempt {attempt}). Nothing ran."),
            Envelope::done(effect.would(), Value::Null).with_meta("attempt", *attempt),
        ),
        Forecast::WouldCheck { record } => (
            "Dry run: a call now would ask the check about an attempt whose outcome is unknown, and then run or not. \
             Nothing ran."
                .to_owned(),
            tell::with_record(Envelope::done("noop", Value::Null), record),
        ),
        Forecast::WouldAnswer(Answer::Replayed(replay)) => (
            format!(
                "Dry run: a call now would get the result of attempt {}, which succeeded {}. Nothing ran.",
                replay.record.body.attempts,
                tell::ago(replay.age_ms())
            ),
            tell::with_record(Envelope::done("noop", Value::Null), &replay.record),
        ),
        Forecast::WouldAnswer(answer) => {
            let envelope = tell::without_running(answer).unwrap_or_else(|| Envelope::done("noop", Value::Null));
            let said = words(answer);
            let said = if said.is_empty() {
                envelope.error.as_ref().map_or_else(String::new, |e| e.message.clone())
            } else {
                said
            };
            (format!("Dry run: a call now would be answered: {said}"), envelope)
        }
    };
    let mut envelope = envelope.with_meta("dry_run", true);
    envelope.reason.get_or_insert_with(|| text.clone());
    // Without the data that a schema asks for, only an error is a valid answer.
    let mark = if form.schema == Schema::Bound || !envelope.ok { Mark::Error } else { Mark::Good };
    own(form, mark, &text, &envelope)
}
