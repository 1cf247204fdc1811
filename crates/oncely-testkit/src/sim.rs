//! A simulated ledger in a simulated world: everything that happens is a function of one seed.
//!
//! - [`World`]: the records, the clock, the processes, writes under way, and the [`Auditor`](crate::auditor::Auditor)
//!   that watches every write. Time in the world is counted in ticks: the driver calls [`World::tick`], and whatever is
//!   due happens.
//! - [`SimStore`]: one process's handle on the world's ledger. Its calls take some ticks, and fail as the world's
//!   [`Faults`] say: before the write, after it, or with a write that lands much later or never.
//! - [`Flaw`]: promises that a ledger can be told to break, so that the auditor can be seen to notice.
//! - [`Rng`]: small, and the same on every machine.
//!
//! A driver lets several processes with their own engines work on one world, ends some of them at any tick with
//! [`World::kill`], and reads the auditor's findings.

mod faults;
mod rng;
mod store;
mod world;
mod writes;

pub use faults::{Counts, Faults, Flaw};
pub use rng::Rng;
pub use store::SimStore;
pub use world::{ProcessNumber, World};
