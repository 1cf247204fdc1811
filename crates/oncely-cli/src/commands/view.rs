//! Records and events as the commands show them: one shape for all of them.

use oncely_core::{EventKind, LoggedEvent, Store, Stored};
use oncely_doors::command::Captured;
pub(crate) use oncely_doors::tell::state_now;
use oncely_doors::view::content;
pub(crate) use oncely_doors::view::{NameView, origin};
use serde::Serialize;
use serde_json::Value;

use crate::output::{Clock, Tone, clean, clean_block, paint, size};

/// A record with its times.
#[derive(Debug, Serialize)]
pub(crate) struct RecordView {
    /// All but those.
    #[serde(flatten)]
    pub(crate) seen: oncely_doors::view::RecordView,
    /// When this generation was first seen.
    pub(crate) created_at: String,
    /// When the state was last written.
    pub(crate) changed_at: String,
    /// Milliseconds since then.
    pub(crate) age_ms: u64,
}

impl RecordView {
    /// From a record as it was read.
    pub(crate) fn of(store: &dyn Store, stored: &Stored, clock: &Clock) -> Self {
        let record = &*stored.record;
        Self {
            seen: oncely_doors::view::RecordView::of(store, stored, "the process that"),
            created_at: clock.rfc3339(record.created_at),
            changed_at: clock.rfc3339(record.changed_at),
            age_ms: clock.age_ms(record.changed_at),
        }
    }
}

/// An audit event for programs.
#[derive(Debug, Serialize)]
pub(crate) struct EventView {
    /// Its place in the log.
    pub(crate) seq: u64,
    /// When.
    pub(crate) at: String,
    /// Milliseconds since then.
    pub(crate) age_ms: u64,
    /// Which record.
    pub(crate) id: String,
    /// Which attempt; 0 for none.
    pub(crate) attempt: u32,
    /// What happened.
    pub(crate) event: &'static str,
    /// The same, for its colour.
    #[serde(skip)]
    pub(crate) kind: EventKind,
    /// Who did it, where a person did.
    pub(crate) actor: Option<String>,
    /// More, in a sentence.
    pub(crate) note: Option<String>,
    /// Whose, while the record is there.
    #[serde(flatten)]
    pub(crate) name: Option<NameView>,
}

impl EventView {
    /// From an event as the log returned it.
    pub(crate) fn of(logged: &LoggedEvent, name: Option<NameView>, clock: &Clock) -> Self {
        let event = &logged.event;
        Self {
            seq: logged.seq,
            at: clock.rfc3339(logged.at),
            age_ms: clock.age_ms(logged.at),
            id: event.intent.to_string(),
            attempt: event.attempt,
            event: event.kind.as_str(),
            kind: event.kind,
            actor: event.actor.clone(),
            note: event.note.clone(),
            name,
        }
    }
}

/// One audit event on a line, for people.
pub(crate) fn event_line(event: &EventView) -> String {
    let kind = paint(tone_of_event(event.kind), &format!("{:<18}", event.event));
    let mut line = format!("{}  {kind}", event.at);
    if event.attempt > 0 {
        line.push_str(&format!("  attempt {}", event.attempt));
    }
    if let Some(name) = &event.name {
        line.push_str(&clean(&format!("  {} {}", name.tool, name.key_short())));
    }
    if let Some(actor) = &event.actor {
        line.push_str(&format!("  by {}", clean(actor)));
    }
    if let Some(note) = &event.note {
        line.push_str(&format!("  {}", clean(note)));
    }
    line
}

/// How an event is coloured: a superseded attempt is the one sign of a possible double effect.
fn tone_of_event(kind: EventKind) -> Tone {
    match kind {
        EventKind::Superseded => Tone::Loud,
        EventKind::InDoubt
        | EventKind::ProbeUnsure
        | EventKind::RetriedUnknown
        | EventKind::Forgotten
        | EventKind::Rejected
        | EventKind::ResolvedRejected => Tone::Warn,
        EventKind::Succeeded
        | EventKind::LateTruth
        | EventKind::ProbeHappened
        | EventKind::ResolvedSucceeded => Tone::Good,
        EventKind::Began | EventKind::ProbeNotHappened | EventKind::Purged => Tone::Plain,
    }
}

/// Stored bytes for programs.
pub(crate) fn bytes_json(bytes: &[u8]) -> Value {
    content(bytes, |command| command)
}

/// Stored bytes for people, line by line; never anything that a terminal would obey.
pub(crate) fn bytes_lines(bytes: &[u8]) -> Vec<String> {
    let Some(captured) = Captured::decode(bytes) else { return text_lines(bytes) };
    let mut lines = vec![format!("exit code {}", captured.exit_code)];
    for (name, stream) in [("stdout", &captured.stdout), ("stderr", &captured.stderr)] {
        if !stream.is_empty() {
            lines.push(format!("{name} ({}):", size(stream.len() as u64)));
            lines.extend(text_lines(stream).into_iter().map(|line| format!("  {line}")));
        }
    }
    lines
}

fn text_lines(bytes: &[u8]) -> Vec<String> {
    const HEX_BYTES_MAX: usize = 64;
    match std::str::from_utf8(bytes) {
        Ok(text) => clean_block(text).lines().map(str::to_owned).collect(),
        Err(_) => {
            let start = &bytes[..bytes.len().min(HEX_BYTES_MAX)];
            let more = if bytes.len() > HEX_BYTES_MAX { "…" } else { "" };
            vec![format!(
                "{} that are not text: {}{more}",
                size(bytes.len() as u64),
                oncely_core::name::hex(start)
            )]
        }
    }
}

/// One line that says which record this is.
pub(crate) fn headline(view: &RecordView) -> String {
    let view = &view.seen;
    let scope = view.name.scope.as_ref().map(|scope| format!(" in scope {scope}")).unwrap_or_default();
    clean(&format!("{} {} {}{scope}: {}", view.short_id(), view.name.tool, view.name.key_short(), view.state))
}
