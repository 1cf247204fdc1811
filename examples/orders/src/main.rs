//! `orders`: a small program in which every command is safe to retry. The walk-through is in docs/clap.md.

// Nothing is exported from a binary: `pub` here means the rest of the program.
#![allow(unreachable_pub)]

mod counters;
mod database;
mod deployments;
mod emails;
mod generate;
mod orders;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use oncely_clap::Runner;

/// Takes orders, sends emails, counts and deploys: each of them once
#[derive(Debug, Parser, oncely_clap::Commands)]
#[command(name = "orders", version, max_term_width = 100)]
pub struct Cli {
    /// The database
    #[arg(long, global = true, env = "ORDERS_DB", value_name = "FILE", default_value = "orders.db")]
    db: PathBuf,
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand, oncely_clap::Commands)]
enum Commands {
    /// Create an order
    #[oncely(mutating)]
    CreateOrder(orders::CreateOrder),
    /// List the orders
    #[oncely(safe)]
    ListOrders(orders::ListOrders),
    /// Delete an order
    #[oncely(destructive)]
    CancelOrder(orders::CancelOrder),
    /// Put an email into the outbox
    #[oncely(mutating)]
    SendEmail(emails::SendEmail),
    /// List the outbox
    #[oncely(safe)]
    ListEmails(emails::ListEmails),
    /// Add to a counter
    #[oncely(mutating)]
    IncrementCounter(counters::IncrementCounter),
    /// List the counters
    #[oncely(safe)]
    Counters(counters::Counters),
    /// Bring a release of a service into being; nothing happens if it is there
    #[oncely(mutating)]
    Deploy(deployments::Deploy),
    /// List what is deployed
    #[oncely(safe)]
    Status(deployments::Status),
    /// Print shell completions
    #[oncely(safe, by_hand)]
    Completions(generate::Completions),
    /// Print the manual page
    #[oncely(safe, by_hand)]
    Man,
}

fn main() -> ExitCode {
    Runner::<Cli>::new().run_or(|cli| match cli.command {
        Commands::Completions(args) => generate::completions(&args),
        Commands::Man => generate::man(),
        _ => ExitCode::FAILURE,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_commands_hold_together() {
        oncely_clap::debug_assert::<super::Cli>();
    }
}
