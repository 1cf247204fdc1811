//! Asks a tool's check command whether a call has happened.

use std::ffi::OsString;

use oncely::policy_file::CheckCommand;
use oncely::{Finding, Oncely, Probe};
use oncely_core::{IntentName, ProcessId, Record};

use super::stored;
use crate::command::{Captured, DOWNSTREAM_KEY_PLACE, DOWNSTREAM_KEY_VARIABLE, KEY_VARIABLE, orphans};

/// Names the process that guards a server, in the server's environment: how one that outlived its guard is found.
pub const OWNER_VARIABLE: &str = "ONCELY_MCP_OWNER";

/// What can be seen of a server that may still be at work on a lost call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It is a process that we start.
    Here,
    /// It is somewhere else: nobody can look.
    Elsewhere,
}

/// How a server is marked as that of a process.
pub fn mark_of(owner: &ProcessId) -> String {
    format!("{}-{}", owner.pid, owner.started_ticks)
}

/// The probe of a call.
pub fn of(oncely: &Oncely, name: IntentName, check: &CheckCommand, place: Place) -> Probe {
    let (oncely, check) = (oncely.clone(), check.clone());
    std::sync::Arc::new(move || {
        let (oncely, name, check) = (oncely.clone(), name.clone(), check.clone());
        Box::pin(async move {
            let intent = name.intent_id();
            let Ok(stored) = oncely.store().load(intent).await else {
                return Finding::Unsure("the record could not be read".into());
            };
            let record = stored.as_ref().map(|stored| &stored.record);
            let objection = record.and_then(|record| objection(&oncely, record, place));
            let (generation, rejections) = record.map_or((1, 0), |r| (r.body.generation, r.body.rejections));
            let downstream_key = intent.downstream_key(generation, rejections).to_string();
            let argv = argv_of(&check, name.key.as_str(), &downstream_key);
            let env = vec![
                (KEY_VARIABLE.to_owned(), name.key.as_str().to_owned()),
                (DOWNSTREAM_KEY_VARIABLE.to_owned(), downstream_key),
            ];
            match (crate::command::probe::ask(&argv, &env).await, objection) {
                // What has happened has happened; what has not may still.
                (Finding::NotHappened, Some(objection)) => Finding::Unsure(objection),
                (Finding::Happened(output), _) => Finding::Happened(output.and_then(|o| as_result(&o))),
                (finding, _) => finding,
            }
        })
    })
}

/// Why "it has not happened" could stop being true right after it was said.
fn objection(oncely: &Oncely, record: &Record, place: Place) -> Option<String> {
    if record.body.state.has_ended() || oncely.is_under_way(record) {
        return None;
    }
    match place {
        Place::Elsewhere => {
            Some("the server is not ours to look at, and may still be at work on the lost call".into())
        }
        Place::Here => orphans::look(record, &**oncely.store()).objection(),
    }
}

/// The check's arguments. Nothing is put into a shell's text: there the environment carries the keys.
fn argv_of(check: &CheckCommand, key: &str, downstream_key: &str) -> Vec<OsString> {
    match check {
        CheckCommand::Shell(line) => ["sh", "-c", line].iter().map(OsString::from).collect(),
        CheckCommand::Argv(argv) => argv
            .iter()
            .map(|arg| arg.replace("{key}", key).replace(DOWNSTREAM_KEY_PLACE, downstream_key).into())
            .collect(),
    }
}

/// What a check printed as a tool result: as it is if it is one, else as text.
fn as_result(output: &[u8]) -> Option<oncely_core::outcome::Payload> {
    let stdout = Captured::decode(output)?.stdout;
    Some(stored::given(&String::from_utf8_lossy(&stdout)).render().into_bytes().into())
}
