//! `oncely score mcp`: measures an MCP server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use oncely_score::mcp::{Call, Plan, measure};
use oncely_score::rubric::MCP;
use serde_json::Value;

use super::{Common, finish};
use crate::args::Global;
use crate::exit::Failure;

/// Measure an MCP server: what its tools say about themselves, and whether it is true.
///
/// Each tool that is named with --call is called twice with the same arguments, and the sandbox (or
/// --count) is compared before, between and after. In commands and arguments, {sandbox} is replaced
/// by the sandbox; in arguments, an n in braces is replaced by a number that is new for every tool.
///
///   oncely score mcp --allow-effects --sandbox ./tmp --call 'write_file {"path": "{sandbox}/a", "content": "x"}' -- server
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct McpArgs {
    #[command(flatten)]
    common: Common,
    /// A folder in which effects may happen: the server starts in it, and its contents are compared
    #[arg(long, value_name = "DIR")]
    sandbox: Option<PathBuf>,
    /// A tool to call twice, and its arguments as JSON; may be repeated
    #[arg(long, value_name = "NAME {…}", value_parser = call)]
    call: Vec<Call>,
    /// The command that starts the server on standard input and output
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command.
pub(super) async fn run(global: &Global, args: McpArgs) -> Result<ExitCode, Failure> {
    let plan = Plan {
        count: args.common.count(),
        effects: args.common.effects(),
        timeout: args.common.timeout,
        command: args.command,
        sandbox: args.sandbox,
        calls: args.call,
    };
    finish(global, &args.common, &MCP, measure(&plan)).await
}

fn call(text: &str) -> Result<Call, String> {
    let (tool, arguments) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), "{}"));
    let arguments: Value =
        serde_json::from_str(arguments).map_err(|e| format!("the arguments are no JSON: {e}"))?;
    if tool.is_empty() || !arguments.is_object() {
        return Err(
            "write the tool's name and a JSON object, such as 'write_file {\"path\": \"a\"}'".to_owned()
        );
    }
    Ok(Call { tool: tool.to_owned(), arguments })
}
