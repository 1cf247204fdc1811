//! `oncely store`: what is done to a ledger as a whole.

mod check;
mod copy;
mod migrate;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::args::Global;
use crate::exit::Failure;

/// Look at a ledger, bring its tables up to date, or move it to another place
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say what the checks at start say of the ledger, and whether it takes calls
    Check(check::CheckArgs),
    /// Make the ledger's tables, or bring them to the version that this program knows
    Migrate(migrate::MigrateArgs),
    /// Move a ledger to another place: every record, event and counter, compared one by one
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
