//! The proof with real processes: kills them, cuts their power, starves them, and counts their effects from outside.
//!
//! A map:
//!
//! - [`outside`]: the outside ledger, a process of its own that counts effects per key.
//! - [`programs`]: where the binaries under test are; [`ledger`]: what a ledger says through its command line.
//! - [`kills`]: many processes on one ledger, killed at random moments.
//! - [`mcp_kills`]: MCP clients, proxies and servers, killed at random moments.
//! - [`failovers`]: processes on one ledger whose server is killed and replaced under them.
//! - `landings`: where kills landed, and whether that is enough; `judge`: what a key is judged by after any of these;
//!   `tellings`: what callers were told.
//! - [`syscalls`]: one run, killed or failed at each of its system calls in turn.
//! - [`cuts`]: power cuts under many writers, on the mounts of [`mounts`].
//! - [`clock`]: one run whose wall clock is somewhere else; [`hosts`]: runs on other machines; [`mod@bench`]: what a test of
//!   single runs needs.
//!
//! Every driver is used twice: bounded by the tests, and at length by the `campaign` binary.

pub mod bench;
pub mod clock;
pub mod cuts;
pub mod failovers;
pub mod hosts;
mod judge;
pub mod kills;
mod landings;
pub mod ledger;
pub mod mcp_kills;
pub mod mounts;
pub mod outside;
pub mod programs;
pub mod syscalls;
mod tellings;

/// What can go wrong in the harness itself, in words.
pub type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// A result of the harness.
pub type Checked<T> = Result<T, Trouble>;
