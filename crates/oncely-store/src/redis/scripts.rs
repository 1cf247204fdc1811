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
    /// Puts the entries of a record right.
    Reindex,
    /// Adds to counters.
    Tally,
}

const COMMON: &str = include_str!("scripts/common.lua");
/// In the order of [`Script`]; whether each uses what they have in common.
const SOURCES: [(&str, bool); 6] = [
    (include_str!("scripts/create.lua"), true),
    (include_str!("scripts/replace.lua"), true),
    (include_str!("scripts/note.lua"), true),
    (include_str!("scripts/due.lua"), false),
    (include_str!("scripts/reindex.lua"), true),
    (include_str!("scripts/tally.lua"), false),
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

/// Teaches a server the scripts.
pub(crate) async fn load(
    wire: &mut Wire,
    options: &RedisOptions,
    server: &RedisServer,
) -> Result<Names, StoreError> {
    let commands = SOURCES.map(|(source, common)| {
        let text = if common { [COMMON, source].concat() } else { source.to_owned() };
        command(&[b"SCRIPT", b"LOAD", text.as_bytes()])
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
