//! `oncely run`: any command line, safe to retry.

mod ending;
mod guarded;
mod hurry;
mod report;

use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use oncely::policy_file::{self, CheckCommand, ToolPolicy};
use oncely::{Call, Effect};
use oncely_core::limits::PAYLOAD_BYTES_MAX;
use oncely_core::{Digest, Key, Kind, Scope, ToolName, WhenUnknown};
use oncely_doors::command::classify::{REJECTED_BY_CONVENTION, Rules};
use oncely_doors::command::{CommandLine, tool_name};

use crate::args::Global;
use crate::context::Context;
use crate::exit::{self, Failure};

/// Run a command once per intent; replay its result to duplicates.
///
/// Exit codes: the command's own; 2 bad arguments, 4 precondition, 6 key reused for another payload, 12 ledger
/// unavailable, 15 in progress elsewhere, 16 outcome unknown.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The name of the intent: the same for every retry, a new one only for a new intent [default: derived from scope,
    /// directory, command and arguments]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// What the key is unique within: a session, task or run
    #[arg(long, value_name = "NAME", env = "ONCELY_SCOPE")]
    scope: Option<String>,
    /// The name of the operation [default: cmd: and the command's file name]
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// An environment variable that is part of what the call means; may be repeated
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Standard input is part of what the call means; it is read to its end first
    #[arg(long)]
    stdin: bool,
    /// What a success changes: created, updated, deleted, sent, executed or noop
    #[arg(long, value_name = "EFFECT")]
    effect: Option<Effect>,
    /// The exit codes that prove that nothing happened, such as 3,4,65-69 [default: 2,64,126,127, or as the policy says]
    #[arg(long, value_name = "CODES")]
    rejected_on: Option<String>,
    /// A command that tells whether it has happened: exit 0 yes (its output is the result), 1 no, else unsure; run
    /// before acting and to settle an unknown outcome
    #[arg(long, value_name = "CMD")]
    check: Option<String>,
    /// Stop the command and all that it started after this long; its outcome is then unknown
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// How long to wait for a running attempt with the same key [default: 30s, or as the policy says]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// You have checked that the attempt in doubt did not happen: run it
    #[arg(long)]
    retry_unknown: bool,
    /// Say what would happen; run nothing, write nothing
    #[arg(long)]
    dry_run: bool,
    /// The command and its arguments; {downstream_key} in them is replaced
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn duration(text: &str) -> Result<Duration, String> {
    policy_file::parse_duration(text).map(Duration::from_millis)
}

/// A command line with all that is declared about it.
struct Prepared {
    call: Call,
    argv: Vec<OsString>,
    stdin: Option<Vec<u8>>,
    rules: Rules,
    check: Option<CheckCommand>,
    timeout: Option<Duration>,
    retry_unknown: bool,
    json: bool,
}

/// Runs the command.
pub async fn run(global: &Global, args: RunArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let dry_run = args.dry_run;
    let prepared = prepare(&context, args, global.json)?;
    if prepared.call.policy.kind == Kind::Read && !dry_run {
        return guarded::run_read(prepared).await;
    }
    let oncely = context.open_briefly().await?;
    if dry_run { report::dry_run(&oncely, prepared).await } else { guarded::run(oncely, prepared).await }
}

fn prepare(context: &Context, args: RunArgs, json: bool) -> Result<Prepared, Failure> {
    let bad = |e: &dyn std::fmt::Display| Failure::usage(format!("{e}; nothing ran"));
    let program = args.command.first().ok_or_else(|| Failure::usage("no command is given; nothing ran"))?;
    let tool = match &args.tool {
        Some(name) => ToolName::parse(name),
        None => tool_name(program),
    };
    let tool = tool.map_err(|e| bad(&e))?;
    let declared = context.policy.tool(tool.as_str());
    if context.policy.is_strict() && declared.declared.is_none() {
        return Err(undeclared(&tool));
    }
    let key = args.key.as_deref().map(Key::explicit).transpose().map_err(|e| bad(&e))?;
    let scope =
        args.scope.as_deref().filter(|s| !s.is_empty()).map(Scope::parse).transpose().map_err(|e| bad(&e))?;
    let stdin = if args.stdin { Some(read_stdin()?) } else { None };
    let line = CommandLine {
        env: args.env.iter().map(|name| (name.clone(), std::env::var_os(name))).collect(),
        stdin: stdin.as_deref().map(Digest::of),
        directory: if key.is_none() { std::env::current_dir().ok() } else { None },
        argv: args.command,
    };
    let ToolPolicy { mut policy, check, rejected_on, .. } = declared;
    let rejected_on = match &args.rejected_on {
        Some(codes) => {
            policy_file::parse_exit_codes(codes).map_err(|e| bad(&format!("--rejected-on: {e}")))?
        }
        None => rejected_on.unwrap_or_else(|| REJECTED_BY_CONVENTION.to_vec()),
    };
    policy.effect = args.effect.unwrap_or(policy.effect);
    let check = match args.check {
        Some(command) => Some(CheckCommand::Shell(command)),
        None => check,
    };
    if check.is_some() {
        policy.when_unknown = WhenUnknown::Check;
    }
    let call = Call {
        namespace: context.namespace.clone(),
        scope: scope.unwrap_or_default(),
        key,
        wait_for: args.wait,
        policy: Arc::new(policy.clone()),
        ..Call::new(tool, line.payload())
    };
    Ok(Prepared {
        call,
        argv: line.argv,
        stdin,
        rules: Rules { effect: policy.effect, rejected_on },
        check,
        timeout: args.timeout,
        retry_unknown: args.retry_unknown,
        json,
    })
}

fn undeclared(tool: &ToolName) -> Failure {
    Failure::new(
        exit::PRECONDITION,
        "TOOL_UNDECLARED",
        format!(
            "the policy is strict and does not declare the tool {:?}; nothing ran. Declare it in oncely.toml: \
             [tool.{:?}] with idempotent, max_retries and when_unknown",
            tool.as_str(),
            tool.as_str()
        ),
    )
}

fn read_stdin() -> Result<Vec<u8>, Failure> {
    let mut input = Vec::new();
    let limit = PAYLOAD_BYTES_MAX as u64 + 1;
    std::io::stdin()
        .lock()
        .take(limit)
        .read_to_end(&mut input)
        .map_err(|e| Failure::usage(format!("standard input cannot be read: {e}; nothing ran")))?;
    if input.len() > PAYLOAD_BYTES_MAX {
        return Err(Failure::usage(format!(
            "standard input has more than {PAYLOAD_BYTES_MAX} bytes; nothing ran"
        )));
    }
    Ok(input)
}
