//! Finds processes that outlived their runner: a probe's "it has not happened" means little while they still work. A
//! command carries the token of its attempt; an MCP server serves many, and carries the mark of the process that guards it.

use oncely_core::name::hex;
use oncely_core::{DoubtCause, Owner, ProcessId, Record, State};

use super::TOKEN_VARIABLE;
use crate::mcp::probe::{OWNER_VARIABLE, mark_of};

/// What can be seen of the processes that an attempt started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// None is to be seen. What has dropped its environment is not recognised.
    Nobody,
    /// This one still lives.
    Running(u32),
    /// They cannot be looked for from here.
    CannotTell,
}

/// Looks for processes that carry the token of a record's latest attempt in their environment.
pub fn look(record: &Record, this: &Owner) -> Left {
    let owner = match &record.body.state {
        State::Running { owner, .. } | State::InDoubt { owner, .. } => &owner.process,
        State::Succeeded { .. } | State::Rejected { .. } => return Left::Nobody,
    };
    if record.body.name.tool.as_str().starts_with("mcp:") {
        return match &record.body.state {
            // Its server answered, or ended: it is not at work on this any more.
            State::InDoubt { doubt, .. } if doubt.cause == DoubtCause::Reported => Left::Nobody,
            _ => look_for(owner, this, &format!("{OWNER_VARIABLE}={}", mark_of(owner))),
        };
    }
    look_for(owner, this, &format!("{TOKEN_VARIABLE}={}", hex(&record.body.token.0)))
}

/// Looks for processes that carry a variable in their environment which a process gave to all that it started.
fn look_for(owner: &ProcessId, this: &Owner, wanted: &str) -> Left {
    // With the machine's restart everything of before is gone.
    if owner.boot != this.process.boot {
        return Left::Nobody;
    }
    if owner.pid_namespace != this.process.pid_namespace {
        return Left::CannotTell;
    }
    let Ok(processes) = std::fs::read_dir("/proc") else { return Left::CannotTell };
    let found = processes.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        // Another user's process cannot be read, and is none that this user's runner started.
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        let carries = environment.split(|b| *b == 0).any(|variable| variable == wanted.as_bytes());
        (carries && pid != this.process.pid).then_some(pid)
    });
    found.map_or(Left::Nobody, Left::Running)
}

impl Left {
    /// Why nobody can say what became of the attempt; `None` if nothing stands against it.
    pub fn objection(self) -> Option<String> {
        match self {
            Self::Nobody => None,
            Self::Running(pid) => Some(format!("what the attempt started is still running as pid {pid}")),
            Self::CannotTell => Some(
                "what the attempt started cannot be looked for from here, and may still be running".into(),
            ),
        }
    }
}
