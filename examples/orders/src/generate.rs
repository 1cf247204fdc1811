//! Completions and the manual page: made as with plain clap, and left to the program's own code.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use crate::Cli;

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Prints the completions for a shell.
pub fn completions(args: &Completions) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut oncely_clap::command::<Cli>(), "orders", &mut text);
    print(&text)
}

/// Prints the manual page.
pub fn man() -> ExitCode {
    let mut page = Vec::new();
    match clap_mangen::Man::new(oncely_clap::command::<Cli>()).render(&mut page) {
        Ok(()) => print(&page),
        Err(_) => ExitCode::FAILURE,
    }
}

fn print(bytes: &[u8]) -> ExitCode {
    match std::io::stdout().lock().write_all(bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
