//! Records and events as they are shown: one shape for every command that prints them.

use oncely_core::{
    EventKind, IntentName, KeyOrigin, LoggedEvent, Record, Settled, State, StateName, Store, Stored,
};
use oncely_doors::command::{Captured, base64};
pub(crate) use oncely_doors::tell::state_now;
use serde::Serialize;
use serde_json::Value;

use crate::output::{Clock, Tone, clean, clean_block, paint, size};

/// A record for programs.
#[derive(Debug, Serialize)]
pub(crate) struct RecordView {
    /// The intent's id.
    pub(crate) id: String,
    /// As the next call would find it.
    pub(crate) state: &'static str,
    /// As the ledger has it, where that differs: running by an owner that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recorded_state: Option<&'static str>,
    /// Whose, in full.
    #[serde(flatten)]
    pub(crate) name: NameView,
    /// Digest of the payload.
    pub(crate) fingerprint: String,
    /// Counts from 1: how often the same name has meant a new intent.
    pub(crate) generation: u32,
    /// Attempts begun so far.
    pub(crate) attempts: u32,
    /// Attempts of this generation that certainly did not happen.
    pub(crate) rejections: u32,
    /// What changed, once it has succeeded.
    pub(crate) effect: Option<&'static str>,
    /// Who says so, once it has ended: attempt, probe or a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settled_by: Option<String>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorView>,
    /// What is known of an attempt in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) doubt: Option<DoubtView>,
    /// Who runs it, or ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<OwnerView>,
    /// Bytes of the stored result; `null` where none is kept.
    pub(crate) result_bytes: Option<usize>,
    /// When this generation was first seen.
    pub(crate) created_at: String,
    /// When the state was last written.
    pub(crate) changed_at: String,
    /// Milliseconds since then.
    pub(crate) age_ms: u64,
}

/// The full name of an intent.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NameView {
    /// The operation.
    pub(crate) tool: String,
    /// The intent's own name.
    pub(crate) key: String,
    /// `explicit` or `derived`.
    pub(crate) key_origin: &'static str,
    /// What the key is unique within.
    pub(crate) scope: Option<String>,
    /// The tenant.
    pub(crate) namespace: String,
}

/// Why an attempt was rejected.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorView {
    /// UPPER_SNAKE.
    pub(crate) code: String,
    /// In a sentence.
    pub(crate) message: String,
}

/// What is known of an attempt in doubt.
#[derive(Debug, Serialize)]
pub(crate) struct DoubtView {
    /// What left it in doubt.
    pub(crate) cause: &'static str,
    /// In a sentence.
    pub(crate) message: String,
}

/// The owner of an attempt.
#[derive(Debug, Serialize)]
pub(crate) struct OwnerView {
    /// The host.
    pub(crate) host: String,
    /// The process number.
    pub(crate) pid: u32,
    /// Whether it lives, while it runs the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alive: Option<bool>,
}

impl OwnerView {
    /// For people. No process has the number 0: then a lease is all that is known.
    pub(crate) fn line(&self) -> String {
        match self.pid {
            0 => format!("{}, by lease", self.host),
            pid => format!("process {pid} on {}", self.host),
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

impl NameView {
    /// From an intent's name.
    pub(crate) fn of(name: &IntentName) -> Self {
        Self {
            tool: name.tool.as_str().to_owned(),
            key: name.key.as_str().to_owned(),
            key_origin: origin(name.key.origin()),
            scope: name.scope.is_named().then(|| name.scope.as_str().to_owned()),
            namespace: name.namespace.as_str().to_owned(),
        }
    }

    /// The key on a line: a derived one is a long digest that nobody types.
    pub(crate) fn key_short(&self) -> String {
        match self.key_origin {
            "derived" => self.key.chars().take("derived ".len() + 12).collect(),
            _ => self.key.clone(),
        }
    }
}

/// The word for where a key came from.
pub(crate) fn origin(origin: KeyOrigin) -> &'static str {
    match origin {
        KeyOrigin::Explicit => "explicit",
        KeyOrigin::Derived => "derived",
    }
}

impl RecordView {
    /// From a record as it was read.
    pub(crate) fn of(store: &dyn Store, stored: &Stored, clock: &Clock) -> Self {
        let record = &*stored.record;
        let body = &record.body;
        let (recorded, now) = (body.state.name(), state_now(store, stored));
        let mut view = Self {
            id: record.intent.to_string(),
            state: now.as_str(),
            recorded_state: (recorded != now).then_some(recorded.as_str()),
            name: NameView::of(&body.name),
            fingerprint: body.fingerprint.canonical.to_string(),
            generation: body.generation,
            attempts: body.attempts,
            rejections: body.rejections,
            effect: None,
            settled_by: None,
            error: None,
            doubt: None,
            owner: None,
            result_bytes: None,
            created_at: clock.rfc3339(record.created_at),
            changed_at: clock.rfc3339(record.changed_at),
            age_ms: clock.age_ms(record.changed_at),
        };
        view.describe(record, now);
        view
    }

    fn describe(&mut self, record: &Record, now: StateName) {
        match &record.body.state {
            State::Running { owner, .. } => {
                let alive = now == StateName::Running;
                self.owner =
                    Some(OwnerView { host: owner.host.clone(), pid: owner.process.pid, alive: Some(alive) });
                if !alive {
                    let message = "the process that ran it is gone and left no word".to_owned();
                    self.doubt = Some(DoubtView { cause: "owner_lost", message });
                }
            }
            State::Succeeded { effect, result, settled } => {
                self.effect = Some(effect.as_str());
                self.result_bytes = result.as_ref().map(|result| result.len());
                self.settled_by = Some(settled_by(settled));
            }
            State::Rejected { failure, settled } => {
                self.error = Some(ErrorView { code: failure.code.clone(), message: failure.message.clone() });
                self.settled_by = Some(settled_by(settled));
            }
            State::InDoubt { owner, doubt } => {
                self.owner =
                    Some(OwnerView { host: owner.host.clone(), pid: owner.process.pid, alive: None });
                self.doubt = Some(DoubtView { cause: doubt.cause.as_str(), message: doubt.message.clone() });
            }
        }
    }

    /// What there is to say beside the state, on one line.
    pub(crate) fn effect_or_why(&self) -> String {
        if let Some(error) = &self.error {
            return format!("{}: {}", error.code, error.message);
        }
        if let Some(doubt) = &self.doubt {
            return format!("{}: {}", doubt.cause, doubt.message);
        }
        match (&self.owner, self.effect) {
            (_, Some(effect)) => effect.to_owned(),
            (Some(owner), None) => owner.line(),
            (None, None) => String::new(),
        }
    }

    /// The first characters of the id.
    pub(crate) fn short_id(&self) -> &str {
        self.id.get(..oncely_core::IntentId::SHORT_CHARS).unwrap_or(&self.id)
    }
}

fn settled_by(settled: &Settled) -> String {
    match settled {
        Settled::Attempt => "attempt".to_owned(),
        Settled::Probe => "probe".to_owned(),
        Settled::Person(who) => who.clone(),
    }
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

/// Stored bytes for programs: what a command wrote, JSON, text, or base64.
pub(crate) fn bytes_json(bytes: &[u8]) -> Value {
    let mut view =
        match (Captured::decode(bytes), serde_json::from_slice::<Value>(bytes), std::str::from_utf8(bytes)) {
            (Some(captured), ..) => captured.to_json(),
            (None, Ok(json), _) => serde_json::json!({ "json": json }),
            (None, Err(_), Ok(text)) => serde_json::json!({ "text": text }),
            (None, Err(_), Err(_)) => serde_json::json!({ "base64": base64(bytes) }),
        };
    view["bytes"] = bytes.len().into();
    view
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
    let scope = view.name.scope.as_ref().map(|scope| format!(" in scope {scope}")).unwrap_or_default();
    clean(&format!("{} {} {}{scope}: {}", view.short_id(), view.name.tool, view.name.key_short(), view.state))
}
