//! The HTTP door, driven through a real `oncely serve` process against an upstream that counts effects outside of it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a random test prints its seed")]

mod checks;
mod client;
mod connecting;
mod faults;
mod gateway;
mod grpc;
mod hygiene;
mod kills;
mod operating;
mod parallel;
mod passing;
mod providers;
mod scenarios;
#[path = "../../../oncely/tests/grpc/shop.rs"]
mod shop;
mod silence;
mod starting;
mod telling;
mod tracing;
mod upstream;
