//! `oncely store`, run as a user runs it: the real binary on real ledgers, effects counted in a file of their own.

// A test that cannot get what it needs has failed, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::disallowed_methods)]

mod checking;
mod copying;
mod killing;
mod serving;
mod world;
