//! The framework, line by line: a program of its own in surroundings of its own, effects counted in a file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "a test fails by panicking and exports nothing"
)]

mod lines;
mod outcomes;
mod room;
mod shapes;
mod shop;
