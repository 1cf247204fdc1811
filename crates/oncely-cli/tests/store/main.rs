//! `oncely store`, run as a user runs it: the real binary on real ledgers, effects counted in a file of their own.

// A test that cannot get what it needs has failed, in its helpers too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a random one prints its seed"
)]

mod checking;
mod copying;
mod healing;
mod hostile;
mod killing;
mod leaving;
mod migrating;
mod serving;
mod unreadable;
mod world;
