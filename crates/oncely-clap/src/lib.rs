//! Makes every command of a clap program safe to retry.
//!
//! Mark each command, write its handler once, and every command that changes something gets `--idempotency-key`,
//! `--dry-run`, `--json`, replays, conflicts, waiting, *unknown*, and one envelope with its `effect` around every answer.
//!
//! ```no_run
//! use clap::{Args, Parser, Subcommand};
//! use oncely_clap::{Answer, Cx, Declaration, Failure, Handler, Planned, Query, created, would_create};
//! use schemars::JsonSchema;
//! use serde::Serialize;
//!
//! /// A shop
//! #[derive(Parser, oncely_clap::Commands)]
//! #[command(name = "shop")]
//! struct Cli {
//!     #[command(subcommand)]
//!     command: Commands,
//! }
//!
//! #[derive(Subcommand, oncely_clap::Commands)]
//! enum Commands {
//!     /// Order something
//!     #[oncely(mutating)]
//!     Order(Order),
//!     /// List what can be ordered
//!     #[oncely(safe)]
//!     Goods(Goods),
//! }
//!
//! #[derive(Args)]
//! struct Order {
//!     /// What
//!     #[arg(long)]
//!     item: String,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Ordered {
//!     order: String,
//! }
//!
//! impl Handler<Cli> for Order {
//!     type Data = Ordered;
//!
//!     fn declare() -> Declaration {
//!         Declaration::creates()
//!     }
//!
//!     fn run(&self, cx: &Cx<Cli>) -> Answer<Ordered> {
//!         // Whatever it does, it does once per intent.
//!         created(Ordered { order: cx.downstream_key() })
//!     }
//!
//!     fn plan(&self, _app: &Cli) -> Planned {
//!         would_create().change(format!("an order of {}", self.item)).into()
//!     }
//! }
//!
//! #[derive(Args)]
//! struct Goods {}
//!
//! impl Query<Cli> for Goods {
//!     type Data = Vec<String>;
//!
//!     fn run(&self, _app: &Cli) -> Result<Vec<String>, Failure> {
//!         Ok(vec!["tea".to_owned()])
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     oncely_clap::main::<Cli>()
//! }
//! ```
//!
//! A map of the rooms:
//!
//! - [`Commands`]: the marks. [`Handler`], [`Query`] and their asynchronous siblings: what a program writes.
//! - [`created`], [`updated`], …, [`noop`]: what changed. [`rejected`], [`unknown`], [`OrFault`]: whether anything did.
//! - [`ensure`]: check, then act. [`would_create`], …: plans for dry runs.
//! - [`Declaration`]: how a command stays safe to retry.
//! - [`main`], [`Runner`]: from the command line to an exit code ([`exit`]). [`debug_assert()`]: a test for all of it.
//!
//! Nothing about idempotency is decided here: the engine of the crate [`oncely`] does, on a ledger of `oncely-store`.

mod answer;
mod assert;
mod commands;
mod declare;
mod deliver;
pub mod exit;
mod flags;
mod guarded;
mod handler;
mod job;
mod manifest;
mod panics;
mod parse;
mod payload;
mod plan;
mod print;
mod reply;
mod runner;
mod schema;
mod surroundings;

use std::process::ExitCode;

pub use answer::{
    Answer, Changed, Check, Failure, Fault, OrFault, created, deleted, ensure, ensure_async, executed, noop,
    noop_with, rejected, sent, unknown, updated,
};
pub use assert::debug_assert;
pub use commands::{App, Commands};
#[doc(hidden)]
pub use commands::{Entry, Shape};
pub use declare::{Danger, Declaration, KeyRule, Strategy};
pub use handler::{AsyncHandler, AsyncQuery, Cx, Handler, Problems, Query};
#[doc(hidden)]
pub use job::{Boxed, Done, Ended, ErasedAsyncHandler, ErasedAsyncQuery, ErasedHandler, ErasedQuery, Job};
pub use oncely::{Effect, Namespace};
pub use oncely_clap_derive::Commands;
pub use plan::{
    Plan, Planned, would_create, would_delete, would_execute, would_noop, would_send, would_update,
};
pub use runner::Runner;
pub use schemars;
pub use surroundings::{Process, Surroundings};

/// Runs a program: reads its command line, runs what it asks for, prints the answer.
pub fn main<A: App>() -> ExitCode {
    Runner::<A>::new().run()
}

/// The program as clap sees it, with the framework's flags: for completions and manual pages.
pub fn command<A: App>() -> clap::Command {
    Runner::<A>::new().command()
}
