//! Prints a reply: one line of JSON for programs, text for people.

use std::fmt::Write as _;
use std::io;

use serde_json::Value;

use crate::reply::Reply;
use crate::surroundings::Surroundings;

/// Who an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Programs.
    Json,
    /// People.
    Text,
}

/// Prints one line of JSON.
pub(crate) fn json(here: &dyn Surroundings, reply: &Reply) -> io::Result<()> {
    here.print(&format!("{}\n", serde_json::to_string(&reply.envelope)?))
}

/// Prints for people: the answer on standard output, what is said about it on standard error.
pub(crate) fn text(
    here: &dyn Surroundings,
    app: &str,
    reply: &Reply,
    shown: Option<String>,
) -> io::Result<()> {
    let envelope = &reply.envelope;
    for warning in &envelope.warnings {
        here.say(&format!("{app}: warning: {}", clean(warning)));
    }
    if let Some(error) = &envelope.error {
        here.say(&format!("{app}: {}", clean(&error.message)));
        if let Some(fix) = &error.fix {
            here.say(&format!("  try: {}", clean(fix)));
        }
        return Ok(());
    }
    let answer = shown.unwrap_or_else(|| fields(&envelope.data));
    if !answer.is_empty() {
        here.print(&format!("{}\n", answer.trim_end_matches('\n')))?;
    }
    for change in envelope.changes.iter().flat_map(Value::as_array).flatten() {
        here.print(&format!("  {}\n", line(change)))?;
    }
    let is_plain_answer = envelope.reason.is_none() && !envelope.meta.contains_key("attempt");
    if !is_plain_answer {
        let effect = envelope.effect.as_deref().unwrap_or("unknown");
        let reason =
            envelope.reason.as_ref().map(|reason| format!(": {}", clean(reason))).unwrap_or_default();
        here.say(&format!("{app}: {effect}{reason}"));
    }
    Ok(())
}

/// The fields of an answer, one per line; each entry of a list on a line of its own.
fn fields(data: &Value) -> String {
    match data {
        Value::Null => String::new(),
        Value::Object(members) => {
            let mut text = String::new();
            for (name, value) in members {
                match value {
                    Value::Array(entries) => entries.iter().for_each(|entry| {
                        let _ = writeln!(text, "{}", line(entry));
                    }),
                    value => {
                        let _ = writeln!(text, "{name}: {}", line(value));
                    }
                }
            }
            text
        }
        Value::Array(entries) => entries.iter().map(line).collect::<Vec<_>>().join("\n"),
        value => line(value),
    }
}

/// A value on one line.
fn line(value: &Value) -> String {
    match value {
        // One line stays one line, whatever is in it.
        Value::String(text) => clean(text).replace('\n', "\u{fffd}"),
        Value::Object(members) => {
            let pair = |(name, value): (&String, &Value)| format!("{name}={}", line(value));
            members.iter().map(pair).collect::<Vec<_>>().join(" ")
        }
        Value::Array(entries) => entries.iter().map(line).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}

/// Text without what could move a terminal's cursor.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}
