//! The inspecting commands, run as a user runs them: the real binary on a ledger that the library filled.

// A test that cannot get what it needs has failed, in its helpers too.
#![allow(clippy::unwrap_used)]

mod files;
mod ledger;
mod reading;
mod serving;
mod settling;
mod terminal;
