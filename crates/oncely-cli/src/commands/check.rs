//! `oncely check`: what each tool declares, what it leaves out, and whether a server would start with the file.

use std::process::ExitCode;

use clap::Args;
use oncely::policy_file::{CheckCommand, FILE_NAME, ToolPolicy};
use oncely_core::Kind;
use serde::Serialize;

use super::serve::settings::{self, Findings};
use crate::args::Global;
use crate::context::Context;
use crate::exit::{Failure, PRECONDITION};
use crate::output::{self, Tone};

/// Check the policy file: what each tool declares, and what oncely serve would refuse
///
/// Names the tools that write and leave out idempotent, max_retries or when_unknown; the exit code is then 4.
///
/// The tables of the server, its routes, providers, tokens and keys are read as oncely serve reads them; nothing is started.
/// Secrets that are missing on this machine are only warned about.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {}

/// Runs the command.
pub(crate) async fn run(global: &Global, _args: CheckArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let Some(path) = &context.policy_path else { return Err(no_file()) };
    let tools: Vec<ToolView> =
        context.policy.declared().map(|(name, tool)| ToolView::of(name, tool)).collect();
    let incomplete = tools.iter().filter(|tool| !tool.is_complete()).count();
    let Findings { problems, warnings } = settings::examine(&context)?;
    let report = Report {
        ok: incomplete == 0 && problems.is_empty(),
        problems,
        warnings,
        file: path.display().to_string(),
        strict: context.policy.is_strict(),
        incomplete,
        tools,
    };
    if output::wants_json(global.json) {
        output::print_json(&report);
    } else {
        report.print();
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(PRECONDITION) })
}

fn no_file() -> Failure {
    let message = format!(
        "there is no policy file {FILE_NAME} here or above, so there is nothing to check. Write one with a table for \
         each tool:\n  [tool.\"cmd:charge.sh\"]\n  idempotent = false\n  max_retries = 3\n  when_unknown = \"halt\"\n\
         or name one with --config FILE"
    );
    Failure::new(PRECONDITION, "NO_POLICY_FILE", message)
}

#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    file: String,
    /// Whether write tools that are not declared are refused.
    strict: bool,
    /// Write tools that leave something out.
    incomplete: usize,
    tools: Vec<ToolView>,
    /// What `oncely serve` would refuse.
    problems: Vec<String>,
    /// What somebody should look at.
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ToolView {
    tool: String,
    line: usize,
    kind: &'static str,
    effect: &'static str,
    idempotent: bool,
    max_retries: u32,
    when_unknown: &'static str,
    check: Option<String>,
    require_key: bool,
    /// Which of idempotent, max_retries and when_unknown are not stated.
    left_out: Vec<&'static str>,
}

impl ToolView {
    fn of(name: &str, tool: &ToolPolicy) -> Self {
        let policy = &tool.policy;
        let check = tool.check.as_ref().map(|check| match check {
            CheckCommand::Argv(argv) => argv.join(" "),
            CheckCommand::Shell(line) => line.clone(),
        });
        Self {
            tool: name.to_owned(),
            line: tool.line,
            kind: if policy.kind == Kind::Read { "read" } else { "write" },
            effect: policy.effect.as_str(),
            idempotent: policy.idempotent,
            max_retries: policy.max_retries,
            when_unknown: policy.when_unknown.as_str(),
            check,
            require_key: policy.require_key,
            // A tool that changes nothing owes no word about it.
            left_out: if policy.kind == Kind::Read { Vec::new() } else { tool.left_out.clone() },
        }
    }

    fn is_complete(&self) -> bool {
        self.left_out.is_empty()
    }
}

impl Report {
    fn print(&self) {
        let columns =
            ["TOOL", "KIND", "IDEMPOTENT", "RETRIES", "WHEN UNKNOWN", "CHECK", "NEEDS KEY", "LEAVES OUT"];
        let mut table = output::table(&columns);
        let yes_no = |value: bool| if value { "yes" } else { "no" };
        for tool in &self.tools {
            let tone = if tool.is_complete() { Tone::Good } else { Tone::Loud };
            let left_out = if tool.is_complete() { "-".to_owned() } else { tool.left_out.join(", ") };
            table.add_row([
                output::cell(Tone::Plain, &tool.tool),
                output::cell(Tone::Plain, tool.kind),
                output::cell(Tone::Plain, yes_no(tool.idempotent)),
                output::cell(Tone::Plain, &tool.max_retries.to_string()),
                output::cell(Tone::Plain, tool.when_unknown),
                output::cell(Tone::Plain, tool.check.as_deref().unwrap_or("-")),
                output::cell(Tone::Plain, yes_no(tool.require_key)),
                output::cell(tone, &left_out),
            ]);
        }
        if !self.tools.is_empty() {
            output::print_table(&table);
        }
        let undeclared = if self.strict { "refused (strict)" } else { "run with the defaults" };
        output::say(&format!("{}: {} tools declared; others are {undeclared}", self.file, self.tools.len()));
        for tool in self.tools.iter().filter(|tool| !tool.is_complete()) {
            let (name, left_out) = (output::clean(&tool.tool), tool.left_out.join(", "));
            output::say(&format!("{}:{}: {name} is a write and leaves out {left_out}", self.file, tool.line));
        }
        for problem in &self.problems {
            output::say(&output::clean(problem));
        }
        for warning in &self.warnings {
            output::say(&format!("warning: {}", output::clean(warning)));
        }
    }
}
