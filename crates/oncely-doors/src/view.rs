//! Records for programs: the one shape in which every command and the admin API show them, each with what only it says beside.

use oncely_core::{IntentId, IntentName, KeyOrigin, Record, Settled, State, StateName, Store, Stored};
use serde::Serialize;
use serde_json::{Value, json};

use crate::command::{Captured, base64};
use crate::tell::state_now;

/// A record.
#[derive(Debug, Serialize)]
pub struct RecordView {
    /// The intent's id.
    pub id: String,
    /// As the next call would find it.
    pub state: &'static str,
    /// As the ledger has it, where that differs: running by an owner that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_state: Option<&'static str>,
    /// Whose, in full.
    #[serde(flatten)]
    pub name: NameView,
    /// Digest of the payload.
    pub fingerprint: String,
    /// Counts from 1: how often the same name has meant a new intent.
    pub generation: u32,
    /// Attempts begun so far.
    pub attempts: u32,
    /// Attempts of this generation that certainly did not happen.
    pub rejections: u32,
    /// What changed, once it has succeeded.
    pub effect: Option<&'static str>,
    /// Who says so, once it has ended: attempt, probe or a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<String>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// What is known of an attempt in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<DoubtView>,
    /// Who runs it, or ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerView>,
    /// Bytes of the stored result; `null` where none is kept.
    pub result_bytes: Option<usize>,
}

/// The full name of an intent.
#[derive(Debug, Clone, Serialize)]
pub struct NameView {
    /// The operation.
    pub tool: String,
    /// The intent's own name.
    pub key: String,
    /// `explicit` or `derived`.
    pub key_origin: &'static str,
    /// What the key is unique within.
    pub scope: Option<String>,
    /// The tenant.
    pub namespace: String,
}

/// Why an attempt was rejected.
#[derive(Debug, Serialize)]
pub struct ErrorView {
    /// UPPER_SNAKE.
    pub code: String,
    /// In a sentence.
    pub message: String,
}

/// What is known of an attempt in doubt.
#[derive(Debug, Serialize)]
pub struct DoubtView {
    /// What left it in doubt.
    pub cause: &'static str,
    /// In a sentence.
    pub message: String,
}

/// The owner of an attempt.
#[derive(Debug, Serialize)]
pub struct OwnerView {
    /// The host.
    pub host: String,
    /// The process number.
    pub pid: u32,
    /// Whether it lives, while it runs the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
}

impl OwnerView {
    /// For people. No process has the number 0: then a lease is all that is known.
    pub fn line(&self) -> String {
        match self.pid {
            0 => format!("{}, by lease", self.host),
            pid => format!("process {pid} on {}", self.host),
        }
    }
}

impl NameView {
    /// From an intent's name.
    pub fn of(name: &IntentName) -> Self {
        Self {
            tool: name.tool.as_str().to_owned(),
            key: name.key.as_str().to_owned(),
            key_origin: origin(name.key.origin()),
            scope: name.scope.is_named().then(|| name.scope.as_str().to_owned()),
            namespace: name.namespace.as_str().to_owned(),
        }
    }

    /// The key on a line: a derived one is a long digest that nobody types.
    pub fn key_short(&self) -> String {
        match self.key_origin {
            "derived" => self.key.chars().take("derived ".len() + 12).collect(),
            _ => self.key.clone(),
        }
    }
}

/// The word for where a key came from.
pub fn origin(origin: KeyOrigin) -> &'static str {
    match origin {
        KeyOrigin::Explicit => "explicit",
        KeyOrigin::Derived => "derived",
    }
}

impl RecordView {
    /// From a record as it was read; `who` is what an owner is called that is gone: `the process that`, `whoever`.
    pub fn of(store: &dyn Store, stored: &Stored, who: &str) -> Self {
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
        };
        view.describe(record, now, who);
        view
    }

    fn describe(&mut self, record: &Record, now: StateName, who: &str) {
        match &record.body.state {
            State::Running { owner, .. } => {
                let alive = now == StateName::Running;
                self.owner =
                    Some(OwnerView { host: owner.host.clone(), pid: owner.process.pid, alive: Some(alive) });
                if !alive {
                    let message = format!("{who} ran it is gone and left no word");
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
    pub fn effect_or_why(&self) -> String {
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
    pub fn short_id(&self) -> &str {
        self.id.get(..IntentId::SHORT_CHARS).unwrap_or(&self.id)
    }
}

fn settled_by(settled: &Settled) -> String {
    match settled {
        Settled::Attempt => "attempt".to_owned(),
        Settled::Probe => "probe".to_owned(),
        Settled::Person(who) => who.clone(),
    }
}

/// Stored bytes: what a command wrote, in the form that `command` gives it, JSON, text, or base64.
pub fn content(bytes: &[u8], command: impl FnOnce(Value) -> Value) -> Value {
    let mut view =
        match (Captured::decode(bytes), serde_json::from_slice::<Value>(bytes), std::str::from_utf8(bytes)) {
            (Some(captured), ..) => command(captured.to_json()),
            (None, Ok(json), _) => json!({ "json": json }),
            (None, Err(_), Ok(text)) => json!({ "text": text }),
            (None, Err(_), Err(_)) => json!({ "base64": base64(bytes) }),
        };
    view["bytes"] = bytes.len().into();
    view
}
