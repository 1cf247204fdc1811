//! What was said on the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, FromArgMatches, Parser, Subcommand};

use crate::commands;

/// Makes side effects safe to retry: of commands, MCP servers and HTTP APIs.
///
/// A timeout does not prove that nothing happened. oncely remembers each intent durably before it acts, replays the
/// first result to duplicates, refuses a key reused for something else, and says "unknown" where others guess.
#[derive(Debug, Parser)]
#[command(name = "oncely", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line.
    ///
    /// To describe every command with its options and their help takes longer than all else before the first line of one
    /// of them. So where the command can only be `run`, that one alone is described first; whatever does not fit is read
    /// again in full, and told so.
    pub fn read(line: &[OsString]) -> Result<Self, clap::Error> {
        if line.iter().any(|word| word == "run")
            && let Ok(cli) = Self::read_run(line)
        {
            return Ok(cli);
        }
        if line.iter().skip(1).map(OsString::as_os_str).eq(["--version"]) {
            bare().try_get_matches_from(line)?;
        }
        Self::try_parse_from(line)
    }

    fn read_run(line: &[OsString]) -> Result<Self, clap::Error> {
        let run = commands::run::RunArgs::augment_args(clap::Command::new("run"));
        let mut matches = bare().subcommand(run).try_get_matches_from(line)?;
        let global = Global::from_arg_matches_mut(&mut matches)?;
        Ok(Self { global, command: Command::from_arg_matches_mut(&mut matches)? })
    }
}

/// The program without its commands.
fn bare() -> clap::Command {
    let bare = clap::Command::new("oncely").version(env!("CARGO_PKG_VERSION"));
    // What would be read in full otherwise must not be taken for a part of the command that is run.
    Global::augment_args(bare.propagate_version(true).subcommand_required(true))
}

/// What holds for every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// The ledger: sqlite:PATH, a path, postgres://HOST/DATABASE, redis://HOST, or memory: [default: the policy file's,
    /// else a file in the user's state directory]
    #[arg(long, global = true, env = "ONCELY_STORE", value_name = "URL", hide_env_values = true)]
    pub store: Option<String>,
    /// The policy file [default: oncely.toml, found upward from the working directory]
    #[arg(long, global = true, env = "ONCELY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The tenant: keys and results never cross it [default: the policy file's, else "default"]
    #[arg(long, global = true, env = "ONCELY_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

/// What to do. The help of a command is what its own arguments say: a line here would take its place.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(commands::run::RunArgs),
    Mcp(Box<commands::mcp::McpArgs>),
    /// Start a server so that it ends with us; used by `oncely mcp`
    #[command(hide = true)]
    McpServer(commands::mcp::launch::LaunchArgs),
    /// End a server if we are killed; used by `oncely mcp`
    #[command(hide = true)]
    McpWatch,
    Serve(Box<commands::serve::ServeArgs>),
    Ls(commands::ls::LsArgs),
    Show(commands::show::ShowArgs),
    Log(commands::log::LogArgs),
    Stats(commands::stats::StatsArgs),
    Resolve(commands::resolve::ResolveArgs),
    Forget(commands::forget::ForgetArgs),
    Purge(commands::purge::PurgeArgs),
    Key(commands::key::KeyArgs),
    Check(commands::check::CheckArgs),
    Doctor(commands::doctor::DoctorArgs),
    Store(commands::store::StoreArgs),
    Score(commands::score::ScoreArgs),
    Providers(commands::providers::ProvidersArgs),
    Demo(commands::demo::DemoArgs),
    Completions(commands::generate::CompletionsArgs),
    Man(commands::generate::ManArgs),
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::Cli;

    #[test]
    fn a_line_means_the_same_whether_it_is_read_in_full_or_not() {
        for line in [
            "",
            "--version",
            "-V",
            "--help",
            "run",
            "run --version",
            "run -V",
            "run --help",
            "run -h",
            "help run",
            "run -- true",
            "run true",
            "run --key a -- true --help",
            "run --key a true --version",
            "run -- run",
            "--store a.db run --key a -- true",
            "--store run run -- run",
            "--store run ls",
            "run --store a.db --json --namespace n --config c -- true",
            "run --stdin --env A --env B --effect sent --rejected-on 3,4 --timeout 3s --wait 1m -- sh -c run",
            "run --key",
            "run --effect nonsense -- true",
            "run --timeout nonsense -- true",
            "run --no-such -- true",
            "run --retry-unknown --dry-run -- a {downstream_key}",
            "show run",
            "ls --tool run",
            "ru -- true",
            "--json --version",
        ] {
            let words = std::iter::once("oncely").chain(line.split_whitespace());
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let told = |read: Result<Cli, clap::Error>| match read {
                Ok(cli) => format!("{cli:?}"),
                Err(error) => format!("{:?} {error}", error.kind()),
            };
            assert_eq!(told(Cli::read(&words)), told(Cli::try_parse_from(&words)), "{line:?}");
        }
    }
}
