//! Finds processes that outlived their runner: a probe's "it has not happened" means little while they still work. A
//! command carries the token of its attempt; an MCP server serves many, and carries the mark of the process that guards it.

use oncely_core::name::hex;
use oncely_core::{DoubtCause, Liveness, Owner, Record, State, Store};

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
pub fn look(record: &Record, store: &dyn Store) -> Left {
    let owner = match &record.body.state {
        State::Running { owner, .. } | State::InDoubt { owner, .. } => owner,
        State::Succeeded { .. } | State::Rejected { .. } => return Left::Nobody,
    };
    if record.body.name.tool.as_str().starts_with("mcp:") {
        return match &record.body.state {
            // Its server answered: it is not at work on this any more.
            State::InDoubt { doubt, .. } if doubt.cause == DoubtCause::Reported => Left::Nobody,
            _ => look_for(owner, store, &format!("{OWNER_VARIABLE}={}", mark_of(&owner.process))),
        };
    }
    look_for(owner, store, &format!("{TOKEN_VARIABLE}={}", hex(&record.body.token.0)))
}

/// Looks for processes that carry a variable in their environment which a process gave to all that it started.
fn look_for(owner: &Owner, store: &dyn Store, wanted: &str) -> Left {
    let this = store.owner();
    if owner.process.boot != this.process.boot {
        // With a machine's restart everything of before is gone; where machines share the ledger, another boot is another
        // machine, and only the ledger knows which of the two it is.
        return match store.liveness(owner) {
            Liveness::Lost => Left::Nobody,
            Liveness::Alive | Liveness::ByLease => Left::CannotTell,
        };
    }
    if owner.process.pid_namespace != this.process.pid_namespace || owner.host != this.host {
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
