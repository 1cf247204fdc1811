//! Proof for ledgers: the conformance suite that every [`oncely_core::Store`] passes, and a model to compare with.
//!
//! - [`conformance`]: one named case for each promise of the store contract. [`conformance_suite!`] makes each a
//!   test of its own, so that a failing ledger names the promise that it breaks.
//! - [`mod@reference`]: the smallest ledger that keeps every promise, to read before writing one.
//! - [`sim`]: a world with faults for engines to run in, everything from one seed; [`auditor`]: watches it from outside.
//! - [`histories`]: what several clients of a ledger asked and were answered, and whether it can have happened one after the
//!   other.
//! - `servers`, with the feature of that name: real servers, started and stopped by the tests that need them.
//!
//! ```
//! mod reference_ledger {
//!     use oncely_testkit::conformance::Ledger;
//!     use oncely_testkit::reference::Reference;
//!
//!     // Expands to one #[test] per promise; each gets a ledger of its own.
//!     oncely_testkit::conformance_suite!(|| async { Ledger::volatile(Reference::new()) });
//! }
//! ```

pub mod auditor;
pub mod conformance;
pub mod histories;
pub mod reference;
#[cfg(all(feature = "servers", unix))]
pub mod servers;
pub mod sim;
