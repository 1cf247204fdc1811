//! `oncely completions` and `oncely man`: made from the command line's own definition, so that they cannot drift.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::Failure;
use crate::output;

/// Print shell completions
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Print or write the manual pages
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one page per command into this directory instead of printing the main page
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the completions for a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "oncely", &mut text);
    print_bytes(&text);
    Ok(ExitCode::SUCCESS)
}

/// Prints the main manual page, or writes all of them.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let Some(directory) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command())
            .render(&mut page)
            .map_err(|error| Failure::internal(format!("the manual page could not be made: {error}")))?;
        print_bytes(&page);
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .map_err(|error| {
            Failure::usage(format!("the manual pages cannot be written to {}: {error}", directory.display()))
        })?;
    output::say(&format!("the manual pages are in {}", directory.display()));
    Ok(ExitCode::SUCCESS)
}

/// A reader that went away is no reason to fail.
fn print_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}
