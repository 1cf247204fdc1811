//! Records and events as the admin API shows them. Times are ages: the ledger's clock does not follow the wall clock.

use oncely_core::name::hex;
use oncely_core::{KeyOrigin, LoggedEvent, Record, Settled, State, StateName, Store, Stored};
use serde::Serialize;
use serde_json::{Value, json};

use crate::command::{Captured, base64};
use crate::tell::state_now;

/// A record.
#[derive(Debug, Serialize)]
pub(super) struct RecordView {
    id: String,
    version: u64,
    state: &'static str,
    /// As the ledger has it, where that differs: running by an owner that is gone.
    recorded_state: Option<&'static str>,
    tool: String,
    key: String,
    key_origin: &'static str,
    scope: Option<String>,
    namespace: String,
    fingerprint: String,
    generation: u32,
    attempts: u32,
    rejections: u32,
    effect: Option<&'static str>,
    settled_by: Option<String>,
    error: Option<Value>,
    doubt: Option<Value>,
    owner: Option<Value>,
    result_bytes: Option<usize>,
    created_age_ms: u64,
    age_ms: u64,
}

impl RecordView {
    pub(super) fn of(store: &dyn Store, stored: &Stored) -> Self {
        let record = &*stored.record;
        let body = &record.body;
        let (recorded, now) = (body.state.name(), state_now(store, stored));
        let mut view = Self {
            id: record.intent.to_string(),
            version: record.version.0,
            state: now.as_str(),
            recorded_state: (recorded != now).then_some(recorded.as_str()),
            tool: body.name.tool.as_str().to_owned(),
            key: body.name.key.as_str().to_owned(),
            key_origin: match body.name.key.origin() {
                KeyOrigin::Explicit => "explicit",
                KeyOrigin::Derived => "derived",
            },
            scope: body.name.scope.is_named().then(|| body.name.scope.as_str().to_owned()),
            namespace: body.name.namespace.as_str().to_owned(),
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
            created_age_ms: stored.now.since(record.created_at),
            age_ms: stored.now.since(record.changed_at),
        };
        view.describe(record, now);
        view
    }

    fn describe(&mut self, record: &Record, now: StateName) {
        match &record.body.state {
            State::Running { owner, lease_ms } => {
                let alive = now == StateName::Running;
                let by_lease = owner.is_remote();
                self.owner = Some(json!({
                    "host": owner.host, "pid": owner.process.pid, "by_lease": by_lease, "alive": alive,
                    "lease_ms": lease_ms,
                }));
                if !alive {
                    let message = "whoever ran it is gone and left no word";
                    self.doubt = Some(json!({ "cause": "owner_lost", "message": message }));
                }
            }
            State::Succeeded { effect, result, settled } => {
                self.effect = Some(effect.as_str());
                self.result_bytes = result.as_ref().map(|result| result.len());
                self.settled_by = Some(settled_by(settled));
            }
            State::Rejected { failure, settled } => {
                self.error = Some(json!({ "code": failure.code, "message": failure.message }));
                self.settled_by = Some(settled_by(settled));
            }
            State::InDoubt { owner, doubt } => {
                self.owner = Some(json!({
                    "host": owner.host, "pid": owner.process.pid, "by_lease": owner.is_remote(), "alive": null,
                    "lease_ms": null,
                }));
                self.doubt = Some(json!({ "cause": doubt.cause.as_str(), "message": doubt.message }));
            }
        }
    }
}

fn settled_by(settled: &Settled) -> String {
    match settled {
        Settled::Attempt => "attempt".to_owned(),
        Settled::Probe => "probe".to_owned(),
        Settled::Person(who) => who.clone(),
    }
}

/// What a record keeps beside its state: the result, the detail of a rejection, the evidence of a doubt.
pub(super) fn kept(record: &Record) -> Option<Value> {
    let bytes = match &record.body.state {
        State::Succeeded { result, .. } => result.as_deref(),
        State::Rejected { failure, .. } => failure.detail.as_deref(),
        State::InDoubt { doubt, .. } => doubt.evidence.as_deref(),
        State::Running { .. } => None,
    };
    bytes.map(content)
}

/// Stored bytes: what a command wrote, JSON, text, or base64.
pub(super) fn content(bytes: &[u8]) -> Value {
    let mut view =
        match (Captured::decode(bytes), serde_json::from_slice::<Value>(bytes), std::str::from_utf8(bytes)) {
            (Some(captured), ..) => json!({ "command": captured.to_json() }),
            (None, Ok(json), _) => json!({ "json": json }),
            (None, Err(_), Ok(text)) => json!({ "text": text }),
            (None, Err(_), Err(_)) => json!({ "base64": base64(bytes) }),
        };
    view["bytes"] = bytes.len().into();
    view
}

/// An event of the audit log.
pub(super) fn event(logged: &LoggedEvent, now: oncely_core::Millis) -> Value {
    let event = &logged.event;
    json!({
        "seq": logged.seq,
        "age_ms": now.since(logged.at),
        "id": event.intent.to_string(),
        "attempt": event.attempt,
        "event": event.kind.as_str(),
        "actor": event.actor,
        "note": event.note,
    })
}

/// A token as it travels.
pub(super) fn token_text(token: oncely_core::AttemptToken) -> String {
    hex(&token.0)
}
