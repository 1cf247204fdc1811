//! Records and events as the admin API shows them. Times are ages: the ledger's clock does not follow the wall clock.

use oncely_core::name::hex;
use oncely_core::{LoggedEvent, Record, State, Store, Stored, Unreadable};
use serde_json::{Value, json};

use crate::view::{RecordView, content};

/// What the shape that all share leaves out where there is nothing to say, and is `null` here.
const NULLABLE: [&str; 5] = ["recorded_state", "settled_by", "error", "doubt", "owner"];

/// A record, with its version and its ages, and with the lease of its owner.
pub(super) fn record(store: &dyn Store, stored: &Stored) -> Value {
    let record = &*stored.record;
    let mut view = json!(RecordView::of(store, stored, "whoever"));
    view["version"] = record.version.0.into();
    view["created_age_ms"] = stored.now.since(record.created_at).into();
    view["age_ms"] = stored.now.since(record.changed_at).into();
    for name in NULLABLE {
        if view.get(name).is_none() {
            view[name] = Value::Null;
        }
    }
    let (owner, alive, lease_ms) = match &record.body.state {
        State::Running { owner, lease_ms } => (owner, view["owner"]["alive"].clone(), Some(*lease_ms)),
        State::InDoubt { owner, .. } => (owner, Value::Null, None),
        State::Succeeded { .. } | State::Rejected { .. } => return view,
    };
    view["owner"] = json!({
        "host": owner.host, "pid": owner.process.pid, "by_lease": owner.is_remote(), "alive": alive, "lease_ms": lease_ms,
    });
    view
}

/// A record that cannot be read.
pub(super) fn unreadable(found: &Unreadable) -> Value {
    json!({ "id": found.intent.to_string(), "state": found.state.as_str(), "why": found.why })
}

/// What a record keeps beside its state: the result, the detail of a rejection, the evidence of a doubt.
pub(super) fn kept(record: &Record) -> Option<Value> {
    let bytes = match &record.body.state {
        State::Succeeded { result, .. } => result.as_deref(),
        State::Rejected { failure, .. } => failure.detail.as_deref(),
        State::InDoubt { doubt, .. } => doubt.evidence.as_deref(),
        State::Running { .. } => None,
    };
    bytes.map(|bytes| content(bytes, |command| json!({ "command": command })))
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
