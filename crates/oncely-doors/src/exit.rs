//! Exit codes: the same for every program that is a door.

/// Done, or done before and replayed.
pub const DONE: u8 = 0;
/// Bad arguments; nothing ran.
pub const USAGE: u8 = 2;
/// A precondition does not hold, or the command said no; nothing happened.
pub const PRECONDITION: u8 = 4;
/// The key was used for another payload; nothing ran.
pub const CONFLICT: u8 = 6;
/// The ledger cannot be used; nothing ran.
pub const STORE_UNAVAILABLE: u8 = 12;
/// An attempt is under way elsewhere; nothing ran here.
pub const IN_PROGRESS: u8 = 15;
/// The outcome is unknown: it may have happened.
pub const UNKNOWN: u8 = 16;
/// Something is wrong with the program itself.
pub const INTERNAL: u8 = 70;
