//! The baseline of the section clap: ten commands with plain clap, one of which prints a line.

mod arguments;

use std::io::Write;

use arguments::{Cancel, Create, Deploy, Label, List, Pack, Refund, Send, Ship, Update};
use clap::{Parser, Subcommand};

/// Ten commands
#[derive(Debug, Parser)]
#[command(name = "shop", version)]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Create
    Create(Create),
    /// Update
    Update(Update),
    /// Send
    Send(Send),
    /// Deploy
    Deploy(Deploy),
    /// Cancel
    Cancel(Cancel),
    /// Refund
    Refund(Refund),
    /// Ship
    Ship(Ship),
    /// Pack
    Pack(Pack),
    /// Label
    Label(Label),
    /// List
    List(List),
}

fn main() -> std::io::Result<()> {
    let cli = Cli::parse();
    match cli.command {
        Commands::List(List {}) => writeln!(std::io::stdout(), "[]"),
        // So that no argument goes unread.
        other => writeln!(std::io::stdout(), "{other:?}"),
    }
}
