//! What the caller of a tool was told.

use std::process::Output;

use serde_json::Value;

/// What a caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The result of the tool, and whether it is a replay.
    Succeeded { text: String, replayed: bool },
    /// It may have happened.
    Unknown,
    /// It certainly has not.
    Rejected,
    /// It has not reached the server, which was dead by then.
    NotSent,
    /// Nothing: the connection broke.
    Nothing,
    /// Something else.
    Odd(String),
}

impl Answer {
    /// Reads what the client printed.
    pub(super) fn of(output: &Output) -> Self {
        let Ok(message) = serde_json::from_slice::<Value>(&output.stdout) else {
            return Self::Nothing;
        };
        let (result, meta) = (&message["result"], &message["result"]["_meta"]);
        let code = &meta["dev.oncely/envelope"]["error"]["code"];
        match (code.as_str(), message["error"]["code"].as_i64(), result["isError"].as_bool()) {
            (Some("OUTCOME_UNKNOWN"), ..) => Self::Unknown,
            (Some("NOT_SENT"), ..) => Self::NotSent,
            (Some("REJECTED"), ..) | (None, Some(-32602), _) => Self::Rejected,
            // The tool's own words, in the call that ran it.
            (None, None, Some(true)) => Self::Unknown,
            (None, None, _) => Self::Succeeded {
                text: result["content"][0]["text"].as_str().unwrap_or_default().to_owned(),
                replayed: meta.get("dev.oncely/replayed").is_some(),
            },
            _ => Self::Odd(message.to_string()),
        }
    }
}
