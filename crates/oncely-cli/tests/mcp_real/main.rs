//! `oncely mcp` with servers, clients and a conformance suite that nobody here wrote.
//!
//! Every scenario runs twice: without oncely, where it must show the double effect that it is about, and with it. What
//! is counted lies outside of both: rows of a table, bytes of a file, commits, lines that a tool has appended.
//! `tests/mcp/setup` installs the software; without it the tests say that they were skipped, unless
//! `ONCELY_NO_SKIPS=1` makes that a failure, as the script `test` does.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod clients;
mod conformance;
mod plan;
mod servers;
mod software;
mod world;
