//! `oncely store migrate`: makes the ledger's tables, or brings them up to date.

use std::process::ExitCode;

use clap::Args;
use oncely_store::Migrated;
use serde_json::json;

use crate::args::Global;
use crate::context::Context;
use crate::exit::Failure;
use crate::output;

/// Create the ledger's tables, or upgrade them to the version that this program knows
///
/// The ledger is the one that --store names. Safe to repeat, and safe while programs use the ledger. On Redis there are no
/// tables: a ledger is created if there is none, and an existing one is not changed.
#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Print the statements instead, for somebody who runs them by hand; nothing is changed
    #[arg(long)]
    print: bool,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: MigrateArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    if args.print {
        output::print(oncely_store::migration_sql(&context.store_url)?.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let Migrated { from, to } = oncely_store::migrate(&context.store_url).await?;
    if output::wants_json(global.json) {
        output::print_json(&json!({ "from": from, "to": to, "changed": from != Some(to) }));
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&match from {
        None => format!("made the ledger, version {to}"),
        Some(from) if from == to => format!("the ledger has version {to} already; nothing was changed"),
        Some(from) => format!("brought the ledger from version {from} to {to}"),
    });
    Ok(ExitCode::SUCCESS)
}
