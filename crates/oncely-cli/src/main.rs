//! `oncely`: makes any command line safe to retry. The only crate that reads arguments and the environment, or prints.

// Nothing is exported from a binary: `pub` here means the rest of the program.
#![allow(unreachable_pub)]

mod args;
mod commands;
mod context;
mod exit;
mod output;

use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::exit::Failure;

/// Gives back what is not needed any more: the memory of ten thousand connections that have come to rest, say.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().collect();
    let cli = match Cli::read(&line) {
        Ok(cli) => cli,
        Err(error) => return exit::of_usage(&error),
    };
    let json = cli.global.json;
    match run(cli) {
        Ok(code) => code,
        Err(failure) => output::print_failure(&failure, json),
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let global = cli.global;
    // One thread is enough for a command, and starts faster than a pool. A server has threads of its own for requests, and
    // one for the admin API: here it accepts connections and hears signals, whatever the others do.
    let runtime = tokio::runtime::Builder::new_current_thread()
        // Those who stay awake to read messages always have something to do: answers of the ledger, which come from a
        // thread of its own, do not wait until they sleep.
        .global_queue_interval(4)
        .enable_all()
        .build()
        .map_err(|e| Failure::internal(format!("the runtime could not be started: {e}")))?;
    let done = runtime.block_on(async {
        match cli.command {
            Command::Run(args) => commands::run::run(&global, args).await,
            Command::Mcp(args) => commands::mcp::run(&global, *args).await,
            Command::McpServer(args) => commands::mcp::launch::run(&args),
            Command::McpWatch => commands::mcp::watch::run(),
            Command::Serve(args) => commands::serve::run(&global, *args).await,
            Command::Ls(args) => commands::ls::run(&global, args).await,
            Command::Show(args) => commands::show::run(&global, args).await,
            Command::Log(args) => commands::log::run(&global, args).await,
            Command::Stats(args) => commands::stats::run(&global, args).await,
            Command::Resolve(args) => commands::resolve::run(&global, args).await,
            Command::Forget(args) => commands::forget::run(&global, args).await,
            Command::Purge(args) => commands::purge::run(&global, args).await,
            Command::Key(args) => commands::key::run(&global, args).await,
            Command::Check(args) => commands::check::run(&global, args).await,
            Command::Doctor(args) => commands::doctor::run(&global, args).await,
            Command::Store(args) => commands::store::run(&global, args).await,
            Command::Score(args) => commands::score::run(&global, args).await,
            Command::Providers(args) => commands::providers::run(&global, args),
            Command::Demo(args) => commands::demo::run(&global, args).await,
            Command::Completions(args) => commands::generate::completions(&args),
            Command::Man(args) => commands::generate::man(&args),
        }
    });
    // A read of standard input that nobody waits for any more must not keep the process.
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_unwinds_in_a_program_that_is_linked_like_this() {
        let panicked = std::panic::catch_unwind(|| {
            let none: Option<u8> = std::hint::black_box(None);
            none.expect("nothing is there")
        });
        assert!(panicked.is_err());
    }
}
