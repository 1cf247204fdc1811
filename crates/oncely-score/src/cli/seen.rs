//! What was seen of a command: answers, and counts before and after.

use serde_json::Value;

use crate::exec::{Exit, Ran};
use crate::words::excerpt;

/// Everything that was seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// The count before and after the tool was asked for help.
    pub(super) help: (i64, i64),
    /// A dry run.
    pub(super) dry_run: Option<Step>,
    /// A call with the key flag that was refused, after which the key was left out.
    pub(super) key_refused: Option<Step>,
    /// The first call.
    pub(super) first: Option<Step>,
    /// A first call that did nothing, where the same with another key did: the dry run had used up the key.
    pub(super) spent: Option<Step>,
    /// Whether the first call had a key.
    pub(super) keyed: bool,
    /// The same again.
    pub(super) repeat: Option<Step>,
    /// The same key with another payload.
    pub(super) other: Option<Step>,
    /// The other payload with a key of its own: only if that is good was the key the reason of a refusal.
    pub(super) control: Option<Step>,
    /// Two at once.
    pub(super) races: Vec<Race>,
    /// Kills with their retries.
    pub(super) kills: Vec<Killed>,
    /// Whether a new intent can be made: by a new key, or by `{n}` in the command.
    pub(super) can_be_fresh: bool,
}

/// One call.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// The command line, for people.
    pub(super) line: String,
    /// What it answered.
    pub(super) answer: Answer,
    /// The count before.
    pub(super) before: i64,
    /// The count after.
    pub(super) after: i64,
}

impl Step {
    /// By how much the count moved.
    pub(super) fn moved(&self) -> i64 {
        self.after - self.before
    }

    /// For evidence.
    pub(super) fn told(&self) -> String {
        format!("`{}`: {}, count {} -> {}", self.line, self.answer.told(), self.before, self.after)
    }
}

/// Two calls that were started together with one new intent.
#[derive(Debug, Clone)]
pub(super) struct Race {
    /// What they answered.
    pub(super) answers: [Answer; 2],
    /// The count before.
    pub(super) before: i64,
    /// The count after.
    pub(super) after: i64,
}

/// A call that was killed, and its retry.
#[derive(Debug, Clone)]
pub(super) struct Killed {
    /// When it was killed, for people.
    pub(super) moment: String,
    /// Whether it was still running then.
    pub(super) landed: bool,
    /// The count before.
    pub(super) before: i64,
    /// The count after the kill.
    pub(super) between: i64,
    /// What the retry answered.
    pub(super) retry: Answer,
    /// The count after the retry.
    pub(super) after: i64,
}

/// What a call answered.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// How it ended.
    pub(super) exit: Exit,
    /// What it says of its effect.
    pub(super) says: Says,
    /// The first line of its error output.
    pub(super) complaint: String,
}

/// What an answer says of its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Says {
    /// `"effect": "…"`
    Effect(String),
    /// `"changed": …`
    Changed(bool),
    /// Nothing that a program can read.
    Nothing,
}

impl Says {
    /// Whether it says that nothing was changed.
    pub(super) fn nothing_happened(&self) -> bool {
        match self {
            Self::Effect(effect) => effect == "noop" || effect.starts_with("would_"),
            Self::Changed(changed) => !changed,
            Self::Nothing => false,
        }
    }

    /// Whether it says that something was changed.
    pub(super) fn something_happened(&self) -> bool {
        matches!(self, Self::Effect(_)) && !self.nothing_happened()
    }
}

impl Answer {
    /// Reads what a run left.
    pub(super) fn of(ran: &Ran) -> Self {
        Self { exit: ran.exit, says: says(&ran.stdout), complaint: excerpt(&ran.stderr) }
    }

    /// For evidence.
    pub(super) fn told(&self) -> String {
        let mut told = self.exit.to_string();
        match &self.says {
            Says::Effect(effect) => told.push_str(&format!(", effect `{effect}`")),
            Says::Changed(changed) => told.push_str(&format!(", changed {changed}")),
            Says::Nothing => {}
        }
        if !self.exit.is_ok() && !self.complaint.is_empty() {
            told.push_str(&format!(" ({})", self.complaint));
        }
        told
    }
}

/// The whole output is one JSON object, or its last line is.
fn says(stdout: &[u8]) -> Says {
    let Ok(text) = std::str::from_utf8(stdout) else { return Says::Nothing };
    let text = text.trim();
    let object = |text: &str| serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
    let Some(answer) = object(text).or_else(|| object(text.lines().next_back()?)) else {
        return Says::Nothing;
    };
    match (answer["effect"].as_str(), answer["changed"].as_bool()) {
        (Some(effect), _) => Says::Effect(crate::words::clip(effect)),
        (None, Some(changed)) => Says::Changed(changed),
        (None, None) => Says::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::{Says, says};

    #[test]
    fn an_effect_is_read_from_one_object_or_from_the_last_line() {
        assert_eq!(says(b"{\n \"effect\": \"created\"\n}\n"), Says::Effect("created".into()));
        assert_eq!(says(b"working...\n{\"effect\":\"noop\"}\n"), Says::Effect("noop".into()));
        assert_eq!(says(b"{\"changed\":false}"), Says::Changed(false));
        for nothing in [&b"created order 1"[..], b"", b"[\"effect\"]", b"{\"effect\":null}", b"\xff"] {
            assert_eq!(says(nothing), Says::Nothing);
        }
    }
}
