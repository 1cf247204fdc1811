//! Starts a server so that it ends with us, even if we are killed: the kernel then sends it SIGTERM.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::Args;

use super::not_started;
use crate::exit::Failure;

/// What is left to do between our start of a process and the server's own first step.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// The process that the server ends with
    parent: i32,
    /// The server's command line
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Our own file, whatever has become of its name since we started.
const US: &str = "/proc/self/exe";

/// The command line that starts a server; empty where the system cannot tie it to us.
pub fn launcher() -> Vec<OsString> {
    let us = rustix::process::getpid().as_raw_nonzero().to_string();
    of_ours(&["mcp-server", &us, "--"])
}

/// The command line that ends a server if we are killed; empty in the same places.
pub fn watcher() -> Vec<OsString> {
    of_ours(&["mcp-watch"])
}

fn of_ours(arguments: &[&str]) -> Vec<OsString> {
    if !cfg!(target_os = "linux") || !std::path::Path::new(US).exists() {
        return Vec::new();
    }
    [US].iter().chain(arguments).map(OsString::from).collect()
}

/// Becomes the server.
pub fn run(args: &LaunchArgs) -> Result<ExitCode, Failure> {
    #[cfg(target_os = "linux")]
    {
        let asked = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
        asked.map_err(|e| Failure::internal(format!("the server cannot be tied to us: {e}; nothing ran")))?;
        // We may have been killed before that was asked for.
        let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
        if parent != Some(args.parent) {
            return Ok(ExitCode::FAILURE);
        }
    }
    let Some((program, arguments)) = args.command.split_first() else { return Ok(ExitCode::FAILURE) };
    let error = std::process::Command::new(program).args(arguments).exec();
    Err(not_started(&args.command, &error))
}
