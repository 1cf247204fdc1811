//! `oncely score cli`: measures a command.

use std::process::ExitCode;

use clap::Args;
use oncely_score::cli::{Help, Plan, measure};
use oncely_score::rubric::CLI;
use oncely_score::{limits, split};

use super::{Common, failure, finish};
use crate::args::Global;
use crate::exit::Failure;

/// Measure a command: dry run, repeat, reused key, race, kill and retry.
///
/// Give a mutating command as you would run it, in a place where its effects may happen. In it, an
/// n in braces is replaced by a number that is new for every intent (so that names do not clash),
/// and {key} by the key, if no flag takes it.
///
///   oncely score cli --allow-effects --count 'tool list-orders | wc -l' -- tool create-order --amount 100
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct CliArgs {
    #[command(flatten)]
    common: Common,
    /// The flag that takes a key [default: found in the help]
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    key_flag: Option<String>,
    /// The flag for a dry run [default: found in the help]
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    dry_run_flag: Option<String>,
    /// The same command with another payload [default: with another number for an n in
    /// braces, or with a quantity such as --amount plus one]
    #[arg(long, value_name = "CMD")]
    other: Option<String>,
    /// A command of the tool that changes nothing, though its name does not say so; may be repeated
    #[arg(long, value_name = "NAME")]
    read_only: Vec<String>,
    /// Do not ask the tool for help: one that does not know --help might act. Flags have to be named then
    #[arg(long)]
    no_help: bool,
    /// How many words name the tool itself, as 2 in `python tool.py` [default: 1, or 2 after an interpreter]
    #[arg(long, value_name = "N")]
    tool_words: Option<usize>,
    /// How many times two calls race
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=limits::RACES_MAX as i64))]
    races: u32,
    /// How many times a call is killed and retried
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=limits::KILLS_MAX as i64))]
    kills: u32,
    /// The mutating command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command.
pub(super) async fn run(global: &Global, args: CliArgs) -> Result<ExitCode, Failure> {
    let other = args.other.as_deref().map(split).transpose().map_err(failure)?;
    let plan = Plan {
        count: args.common.count(),
        effects: args.common.effects(),
        timeout: args.common.timeout,
        command: args.command,
        tool_words: args.tool_words,
        key_flag: args.key_flag,
        dry_run_flag: args.dry_run_flag,
        other,
        help: if args.no_help { Help::Unasked } else { Help::Asked },
        read_only: args.read_only,
        races: args.races,
        kills: args.kills,
        directory: None,
    };
    finish(global, &args.common, &CLI, measure(&plan)).await
}
