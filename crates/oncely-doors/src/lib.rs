//! Doors: what turns the bytes of the world into calls, and answers into bytes. Nothing about idempotency is decided
//! here.
//!
//! - [`envelope`]: the answer as JSON, the same for every door.
//! - [`tell`]: answers in words. [`command`]: any command line. [`mcp`]: any MCP server. [`gateway`]: HTTP.
//! - [`admin`]: the admin API.
//! - [`stats`]: what was called, executed and prevented. [`telemetry`]: traces and metrics over OTLP.
//! - [`providers`]: how third-party APIs take an idempotency key.

pub mod admin;
pub mod command;
pub mod envelope;
pub mod gateway;
pub mod mcp;
pub mod providers;
pub mod stats;
pub mod telemetry;
pub mod tell;

pub use oncely::redact;
