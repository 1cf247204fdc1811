//! `oncely mcp` with a small scripted server: every line of its contract, in both eras, over both transports. Effects are
//! counted in a file that the server appends to.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

mod asking;
mod at_work;
mod bad;
mod careful;
mod connecting;
mod crowds;
mod ending;
mod explaining;
mod guarding;
mod headers;
mod http;
mod installing;
mod limits;
mod passing;
mod policy;
mod renewing;
mod sessions;
mod settling;
mod statuses;
mod streaming;
mod tasks;
mod telling;
mod tying;
mod unsure;
mod web;
mod world;
