//! `oncely score`: measures from outside how safe somebody else's tool is to retry.

mod cli;
mod http;
mod mcp;
mod show;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use oncely::policy_file;
use oncely_score::probe::Count;
use oncely_score::rubric::Rubric;
use oncely_score::{Effects, Error, Report, exec, limits};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Global;
use crate::exit::{Failure, PRECONDITION};
use crate::output::Spinner;

/// Measure from outside how safe a tool is to retry: 0 to 3, with evidence.
///
/// Reports what it saw, never what the tool claims. Without --allow-effects only help, manifest, tools/list and OPTIONS are
/// asked for (a tool that does not know --help may act on it: see --no-help), and what they cannot prove counts for nothing.
#[derive(Debug, Args)]
pub(crate) struct ScoreArgs {
    /// What to measure.
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Cli(cli::CliArgs),
    Http(http::HttpArgs),
    Mcp(mcp::McpArgs),
}

/// What holds for every measurement.
#[derive(Debug, Args)]
struct Common {
    /// Call what may change state. Only use it where effects may happen
    #[arg(long)]
    allow_effects: bool,
    /// A shell command that prints how many effects there are, such as 'tool list-orders | wc -l'
    #[arg(long, value_name = "CMD")]
    count: Option<String>,
    /// How long to wait before each count, for effects that show only some time after a call has ended
    #[arg(long, value_name = "DURATION", value_parser = wait, default_value = "0s")]
    settle: Duration,
    /// Exit with 4 if the score is below this
    #[arg(long, value_name = "SCORE", value_parser = clap::value_parser!(u8).range(0..=3))]
    min: Option<u8>,
    /// How to print the report [default: table on a terminal, else json]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// How long one call may take
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    timeout: Duration,
}

/// How to print a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people, on a terminal
    Table,
    /// For programs
    Json,
    /// For people, in a page
    Markdown,
    /// For continuous integration: fails where --min fails
    Junit,
}

const _: () =
    assert!(limits::CALL_SECONDS == 30, "the default of --timeout is the limit in the documentation");

fn wait(text: &str) -> Result<Duration, String> {
    policy_file::parse_duration(text).map(Duration::from_millis)
}

fn duration(text: &str) -> Result<Duration, String> {
    let span = wait(text)?;
    if span.is_zero() { Err("a call needs some time".to_owned()) } else { Ok(span) }
}

impl Common {
    fn effects(&self) -> Effects {
        if self.allow_effects { Effects::Allowed } else { Effects::Forbidden }
    }

    fn count(&self) -> Option<Count> {
        let command = self.count.clone()?;
        Some(Count { command, directory: None, timeout: self.timeout, settle: self.settle })
    }
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: ScoreArgs) -> Result<ExitCode, Failure> {
    match args.what {
        What::Cli(args) => cli::run(global, args).await,
        What::Http(args) => http::run(global, args).await,
        What::Mcp(args) => mcp::run(global, args).await,
    }
}

/// Measures, prints, and decides the exit code. Whatever happens, nothing that was started is left running.
async fn finish(
    global: &Global,
    common: &Common,
    rubric: &Rubric,
    measuring: impl Future<Output = Result<Report, Error>>,
) -> Result<ExitCode, Failure> {
    let strays = exec::Strays::adopt();
    let turning = Spinner::start("measuring; this calls the tool a few dozen times");
    let measured = tokio::select! {
        // Signals are caught before anything is started.
        biased;
        number = interrupted() => Err(number?),
        measured = measuring => Ok(measured),
    };
    strays.end();
    drop(turning);
    match measured {
        Ok(report) => {
            let report = report.map_err(failure)?;
            show::print(global, common, rubric, &report);
            let enough = common.min.is_none_or(|min| report.score >= min);
            Ok(if enough { ExitCode::SUCCESS } else { ExitCode::from(PRECONDITION) })
        }
        Err(code) => Ok(ExitCode::from(code)),
    }
}

/// Waits for a signal that asks us to end, and gives the exit code that says so. What runs is in process groups of its own,
/// which a terminal's signal does not reach: it is ended when the measurement is dropped.
async fn interrupted() -> Result<u8, Failure> {
    let cannot = |e: std::io::Error| Failure::internal(format!("signals cannot be caught: {e}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(cannot)?;
    tokio::select! {
        _ = interrupt.recv() => Ok(128 + 2),
        _ = terminate.recv() => Ok(128 + 15),
        _ = hangup.recv() => Ok(128 + 1),
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Asked(message) => Failure::usage(message),
        Error::Measuring(message) => {
            Failure::new(PRECONDITION, "CANNOT_MEASURE", format!("{message}. There is no score"))
        }
    }
}
