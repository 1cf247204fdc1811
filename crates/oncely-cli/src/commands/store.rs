//! `oncely store`: what is done to a ledger as a whole.

mod check;
mod copy;
mod migrate;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::args::Global;
use crate::exit::Failure;

/// Check a ledger, create or upgrade its tables, or move it to another place
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Check(check::CheckArgs),
    Migrate(migrate::MigrateArgs),
    Copy(copy::CopyArgs),
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: StoreArgs) -> Result<ExitCode, Failure> {
    match args.what {
        What::Check(args) => check::run(global, args).await,
        What::Migrate(args) => migrate::run(global, args).await,
        What::Copy(args) => copy::run(global, args).await,
    }
}
