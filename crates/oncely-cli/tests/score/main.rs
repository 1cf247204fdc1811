//! `oncely score` against real tools, small shops made for the purpose, servers and bad input. Effects are counted in files
//! that the measured tools write to, never by the score itself.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod formats;
mod http;
mod made;
mod mcp;
mod orders;
mod page;
mod place;
mod real;
mod safety;
