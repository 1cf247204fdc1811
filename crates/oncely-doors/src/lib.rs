//! Doors: what turns the bytes of the world into calls, and answers into bytes. Nothing about idempotency is decided
//! here.
//!
//! - [`envelope`]: the answer as JSON, the same for every door. [`exit`]: exit codes, likewise.
//! - [`tell`]: answers in words. [`command`]: any command line. [`mcp`]: any MCP server. [`gateway`]: HTTP.
//! - [`admin`]: the admin API.
//! - [`view`]: records as programs are shown them.
//! - [`stats`]: what was called, executed and prevented. [`telemetry`]: traces and metrics over OTLP.
//! - [`providers`]: how third-party APIs take an idempotency key.
//! - [`settings`]: everything that a server reads from `oncely.toml`, checked as a whole.
//!
//! Without the feature `full` only the envelope, the exit codes, the words and the figures are there: what a program needs
//! that is its own door.

#[cfg(feature = "full")]
pub mod admin;
#[cfg(feature = "full")]
pub mod command;
pub mod envelope;
pub mod exit;
#[cfg(feature = "full")]
pub mod gateway;
#[cfg(feature = "full")]
pub mod mcp;
#[cfg(feature = "full")]
pub mod providers;
#[cfg(feature = "full")]
pub mod settings;
pub mod stats;
#[cfg(feature = "full")]
pub mod telemetry;
pub mod tell;
#[cfg(feature = "full")]
pub mod view;

pub use oncely::redact;
