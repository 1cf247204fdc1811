//! The scripts that the server runs: each reads, compares a version, and writes all or nothing. No state rule is in them.

use oncely_core::StoreError;

use super::connect::Wire;
use super::errors::odd;
use super::options::{RedisOptions, RedisServer};
use super::resp::{Value, command};

/// What a script does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    /// Writes a record if there is none.
    Create,
    /// Changes one by its version.
    Replace,
    /// Writes events.
    Note,
    /// Lists what is due.
    Due,
    /// Cuts the end of the log.
    Cut,
    /// Puts the entries of a record right.
    Reindex,
    /// Adds to counters.
    Tally,
    /// Reads a record so that what was read is confirmed.
    Confirm,
    /// Turns the gate of a shard.
    Turn,
    /// Remembers what a move is about to bring.
    Plan,
    /// Adds events that a move brings.
    Bring,
    /// Raises counters to what a move brings.
    Raise,
    /// Puts off the next look at a record that cannot be read.
    Postpone,
}

const ADD: &str = include_str!("scripts/common.lua");
const JOIN: &str = include_str!("scripts/join.lua");
const REMEMBER: &str = include_str!("scripts/remember.lua");
const GATE: &str = include_str!("scripts/gate.lua");
/// Lets a script write though the memory is full: ends have to fit where claims no longer do.
const ALLOW_OOM: &str = "#!lua flags=allow-oom\n";

/// In the order of [`Script`]: what comes before it, itself, and whether it is to be run when memory is full.
const SOURCES: [(&[&str], &str, bool); 13] = [
    (&[ADD, GATE], include_str!("scripts/create.lua"), false),
    (&[ADD, GATE, JOIN], include_str!("scripts/replace.lua"), true),
    (&[ADD, GATE, JOIN, REMEMBER], include_str!("scripts/note.lua"), true),
    (&[GATE], include_str!("scripts/due.lua"), true),
    (&[GATE], include_str!("scripts/cut.lua"), true),
    (&[], include_str!("scripts/reindex.lua"), true),
    (&[], include_str!("scripts/tally.lua"), true),
    (&[], include_str!("scripts/confirm.lua"), true),
    (&[GATE], include_str!("scripts/turn.lua"), true),
    (&[GATE], include_str!("scripts/plan.lua"), false),
    (&[GATE, JOIN, REMEMBER], include_str!("scripts/bring.lua"), false),
    (&[GATE], include_str!("scripts/raise.lua"), false),
    (&[], include_str!("scripts/postpone.lua"), true),
];

/// The names that servers give to the scripts: the same everywhere, since they are digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names([String; SOURCES.len()]);

impl Names {
    /// A script's name.
    pub(crate) fn get(&self, script: Script) -> &[u8] {
        self.0[script as usize].as_bytes()
    }
}

/// Whether all servers know flags of scripts. Those before Redis 7 do not, and then nothing is written to a full memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flags {
    /// They do.
    Known,
    /// They do not.
    Unknown,
}

/// Teaches a server the scripts.
pub(crate) async fn load(
    wire: &mut Wire,
    options: &RedisOptions,
    server: &RedisServer,
    flags: Flags,
) -> Result<Names, StoreError> {
    let commands = SOURCES.map(|(before, source, when_full)| {
        let flag = if when_full && flags == Flags::Known { ALLOW_OOM } else { "" };
        command(&[b"SCRIPT", b"LOAD", [flag, &before.concat(), source].concat().as_bytes()])
    });
    let mut names: [String; SOURCES.len()] = Default::default();
    let replies = wire.ask(&commands, options.timeout, server).await?;
    for (name, reply) in names.iter_mut().zip(&replies) {
        match reply.text() {
            Some(text) => *name = text.to_owned(),
            None => {
                let Value::Error(words) = reply else { return Err(odd(reply, &server.to_string())) };
                let mut error = super::errors::refused(words, &server.to_string());
                error.wrote = oncely_core::Wrote::No;
                return Err(error);
            }
        }
    }
    Ok(Names(names))
}
