//! Measures a command: what its help offers, and what its calls were seen to do.

mod discover;
mod drive;
mod help;
mod judge;
mod line;
mod seen;

use std::path::PathBuf;
use std::time::Duration;

use crate::probe::Count;
use crate::rubric::CLI;
use crate::{Effects, Error, Report, words};

/// What to measure, and how far to go.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The mutating command, program first. `{n}` stands for a number that is new for every intent, `{key}` for the key.
    pub command: Vec<String>,
    /// How many words name the program itself; worked out where it is `None`.
    pub tool_words: Option<usize>,
    /// The flag that takes a key; found in the help where it is `None`.
    pub key_flag: Option<String>,
    /// The flag for a dry run; found in the help where it is `None`.
    pub dry_run_flag: Option<String>,
    /// The same command with another payload; worked out where it is `None`.
    pub other: Option<Vec<String>>,
    /// Whether the tool is asked for help.
    pub help: Help,
    /// Commands that are known to change nothing.
    pub read_only: Vec<String>,
    /// Counts effects.
    pub count: Option<Count>,
    /// Whether the command may be run at all.
    pub effects: Effects,
    /// How many times two calls race.
    pub races: u32,
    /// How many times a call is killed.
    pub kills: u32,
    /// How long one call may take.
    pub timeout: Duration,
    /// Where it runs; `None` for here.
    pub directory: Option<PathBuf>,
}

/// Whether the tool is asked for help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Help {
    /// It is: `tool --help`.
    Asked,
    /// It is not: a tool that does not know `--help` might act.
    Unasked,
}

/// Measures a command.
pub async fn measure(plan: &Plan) -> Result<Report, Error> {
    check(plan)?;
    let (known, before) = match (plan.effects, &plan.count) {
        (Effects::Allowed, Some(count)) => {
            let before = count.is_steady().await?;
            (discover::discover(plan).await?, Some((count, before)))
        }
        _ => (discover::discover(plan).await?, None),
    };
    let seen = match before {
        Some((count, before)) => Some(drive::drive(plan, &known, count, before).await?),
        None => None,
    };
    let target = words::line(&plan.command, known.key_flag.as_deref());
    let findings = judge::judge(&known, seen.as_ref());
    Ok(CLI.report(target, findings).with_notes(judge::notes(&known, seen.as_ref())))
}

fn check(plan: &Plan) -> Result<(), Error> {
    if plan.command.first().is_none_or(String::is_empty) {
        return Err(Error::asked("no command is given; nothing ran"));
    }
    if plan.effects == Effects::Allowed && plan.count.is_none() {
        return Err(Error::asked(
            "--allow-effects needs --count: without a number from outside nobody can tell what a call has changed; \
             nothing ran. Give a command that prints how many effects there are: --count 'tool list-orders | wc -l'",
        ));
    }
    Ok(())
}
