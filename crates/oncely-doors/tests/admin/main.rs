//! The admin API through a real listener on a real ledger.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod claims;
mod document;
mod looking;
mod server;
