//! The handle of a task in place of a result: only a client that knows of tasks can do anything with it, and the one that
//! repeats a call need not be the one that made it.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use oncely::Replay;
use serde_json::json;

use super::call::ToolCall;
use super::json::Members;
use super::message;
use super::reply::{self, ENVELOPE, Era, Form};
use crate::envelope::Envelope;
use crate::tell;

/// The extension of the protocol that has tasks.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// The protocol's code for a request whose client does not declare what its answer needs.
pub(super) const MISSING_CAPABILITY: i32 = -32021;

/// A task, as the handle that was stored has it.
struct Handle {
    task: String,
    /// Whether it is of the era in which results name their type.
    era: Era,
    /// For how long the server keeps the task, in milliseconds, if it says so.
    ttl_ms: Option<u64>,
}

/// Part of every handle, and of hardly any other result.
static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"task"));

fn read(stored: &[u8]) -> Option<Handle> {
    MARK.find(stored)?;
    let result = Members::parse(std::str::from_utf8(stored).ok()?).ok()?;
    let inner = result.object("task");
    let era = match result.text("resultType").as_deref() {
        Some("task") => Era::Modern,
        None if inner.is_some() && !result.has("content") => Era::Legacy,
        _ => return None,
    };
    let id = |members: &Members<'_>| members.text("taskId").map(|id| id.into_owned());
    let task = id(&result).or_else(|| inner.as_ref().and_then(id)).unwrap_or_default();
    let ttl_ms =
        |members: &Members<'_>| ["ttlMs", "ttl"].iter().find_map(|name| members.get(name)?.parse().ok());
    let ttl_ms = ttl_ms(&result).or_else(|| inner.as_ref().and_then(ttl_ms));
    Some(Handle { task, era, ttl_ms })
}

/// For how long a stored result may stand for a task that is still at work: as long as its server keeps it, which may be for
/// ever. Nobody tells us of its end.
pub(super) fn holds(stored: &[u8]) -> Option<u64> {
    Some(read(stored)?.ttl_ms.unwrap_or(u64::MAX))
}

/// Why a call cannot take the handle of a task; `None` if it can.
fn objection(call: &ToolCall<'_>, era: Era, handle: &Handle) -> Option<Objection> {
    match (era, handle.era) {
        (Era::Modern, Era::Modern) if call.declares_extension(TASKS) => None,
        (Era::Modern, Era::Modern) => Some(Objection::NotDeclared),
        (Era::Legacy, Era::Legacy) if call.asks_for_task() => None,
        (Era::Legacy, Era::Legacy) => Some(Objection::NotAsked),
        (Era::Legacy, Era::Modern) if call.client_knows_tasks => None,
        // To declare it now, or to ask for a task, would not help.
        (Era::Legacy, Era::Modern) | (Era::Modern, Era::Legacy) => Some(Objection::OtherEra),
    }
}

/// Why a call cannot take the handle of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Objection {
    /// Its client does not say that it knows of tasks.
    NotDeclared,
    /// It does not ask for one.
    NotAsked,
    /// The task is one of the other generation of the protocol, in which its client does not speak.
    OtherEra,
}

/// The answer to a call whose first one was answered with the handle of a task, where its client cannot take that; `None`
/// where there is nothing to object to. A client of the era with `initialize` may have declared there what it knows.
pub(super) fn refusal(call: &ToolCall<'_>, form: Form, replay: &Replay) -> Option<Vec<u8>> {
    let handle = read(replay.result()?)?;
    let objection = objection(call, form.era, &handle)?;
    let record = &replay.record;
    let (why, next) = match objection {
        Objection::NotDeclared => {
            (format!("it does not declare {TASKS}"), "Ask for the task with tasks/get.")
        }
        Objection::NotAsked => ("it does not ask for a task".to_owned(), "Ask for the task with tasks/get."),
        Objection::OtherEra => (
            "the task belongs to another generation of the protocol than this call".to_owned(),
            "Ask for the task with the client that began it.",
        ),
    };
    let text = format!(
        "Already begun: attempt {} of this call began the task {:?} {}; nothing ran now. Its answer is the handle of that \
         task, and this call cannot take one: {why}. {next} {}",
        record.body.attempts,
        handle.task,
        tell::ago(replay.age_ms()),
        reply::again(record)
    );
    if objection != Objection::NotDeclared {
        return Some(message::result(&call.id, &reply::refused(form, "TASK_BEGUN", &text, false)));
    }
    let envelope = tell::with_record(Envelope::failed("TASK_BEGUN", &text, false), record);
    let needed = json!({ "extensions": { TASKS: {} } });
    let error = json!({ "code": MISSING_CAPABILITY, "message": text,
        "data": { "requiredCapabilities": needed, ENVELOPE: envelope } });
    Some(message::line(format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, call.id)))
}

#[cfg(test)]
mod tests {
    use super::{Era, holds, read};

    #[test]
    fn handles_of_both_eras_are_told_from_results() {
        let of = |stored: &str| read(stored.as_bytes()).map(|handle| (handle.task, handle.era));
        let modern = r#"{"resultType":"task","taskId":"t","status":"working"}"#;
        assert_eq!(of(modern), Some(("t".into(), Era::Modern)));
        assert_eq!(of(r#"{"task":{"taskId":"t","status":"working"}}"#), Some(("t".into(), Era::Legacy)));
        for result in [
            r#"{"content":[]}"#,
            r#"{"content":[],"task":{"taskId":"t"}}"#,
            r#"{"resultType":"complete","task":{"taskId":"t"}}"#,
            r#"{"structuredContent":{"task":{"taskId":"t"}},"content":[]}"#,
            r#"{"task":"t"}"#,
            "a task",
            "",
        ] {
            assert_eq!(of(result), None, "{result}");
        }
    }

    #[test]
    fn a_task_may_be_at_work_for_as_long_as_its_server_keeps_it() {
        let of = |stored: &str| holds(stored.as_bytes());
        assert_eq!(of(r#"{"resultType":"task","taskId":"t","ttlMs":60000}"#), Some(60_000));
        assert_eq!(of(r#"{"resultType":"task","task":{"taskId":"t","ttlMs":5}}"#), Some(5));
        assert_eq!(of(r#"{"task":{"taskId":"t","ttl":7}}"#), Some(7));
        for forever in ["", r#","ttl":null"#, r#","ttl":-1"#, r#","ttl":"x""#, r#","ttl":1e3"#] {
            assert_eq!(of(&format!(r#"{{"task":{{"taskId":"t"{forever}}}}}"#)), Some(u64::MAX), "{forever}");
        }
        assert_eq!(of(r#"{"content":[],"ttl":7}"#), None);
    }
}
