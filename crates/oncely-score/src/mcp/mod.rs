//! Measures an MCP server: what its tools say about themselves, and, in a sandbox that the user names, whether it is true.

mod client;
mod drive;
mod judge;
mod text;
mod tool;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::probe::Count;
use crate::rubric::MCP;
use crate::{Effects, Error, Report, words};

/// What to measure, and how far to go.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The command that starts the server on standard input and output. `{sandbox}` stands for the sandbox.
    pub command: Vec<String>,
    /// A folder in which effects may happen. The server starts in it, and its contents are compared.
    pub sandbox: Option<PathBuf>,
    /// Counts effects, instead of comparing the sandbox.
    pub count: Option<Count>,
    /// Tools to call, each with its arguments.
    pub calls: Vec<Call>,
    /// Whether any tool may be called at all.
    pub effects: Effects,
    /// How long one request may take.
    pub timeout: Duration,
}

/// A tool to call twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The tool's name.
    pub tool: String,
    /// Its arguments. `{n}`, `{key}` and `{sandbox}` in texts are replaced.
    pub arguments: Value,
}

/// Measures a server.
pub async fn measure(plan: &Plan) -> Result<Report, Error> {
    check(plan)?;
    let seen = drive::drive(plan).await?;
    let target = words::line(&plan.command, None);
    Ok(MCP.report(target, judge::judge(plan.effects, &seen)).with_notes(judge::notes(plan.effects, &seen)))
}

fn check(plan: &Plan) -> Result<(), Error> {
    if plan.command.first().is_none_or(String::is_empty) {
        return Err(Error::asked("no command is given; nothing ran"));
    }
    if plan.effects == Effects::Forbidden && !plan.calls.is_empty() {
        return Err(Error::asked(
            "--call needs --allow-effects: a tool may do other than it says; nothing ran",
        ));
    }
    if !plan.calls.is_empty() && plan.sandbox.is_none() && plan.count.is_none() {
        return Err(Error::asked(
            "--call needs --sandbox or --count: without a look from outside nobody can tell what a call has changed; \
             nothing ran",
        ));
    }
    Ok(())
}
