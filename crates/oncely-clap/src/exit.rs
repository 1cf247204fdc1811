//! Exit codes, the same as everywhere in Oncely.

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
/// The program itself is broken: it panicked where nothing is changed.
pub const INTERNAL: u8 = 70;

/// What each of them means, for the manifest.
pub(crate) const MEANINGS: [(u8, &str); 8] = [
    (DONE, "done, or done before and replayed"),
    (USAGE, "bad arguments; nothing ran"),
    (PRECONDITION, "a precondition does not hold or the command said no; nothing happened"),
    (CONFLICT, "the key was used for another payload; nothing ran"),
    (STORE_UNAVAILABLE, "the ledger cannot be used; nothing ran"),
    (IN_PROGRESS, "an attempt with the same key is under way elsewhere; nothing ran here"),
    (UNKNOWN, "the outcome is unknown: it may have happened"),
    (INTERNAL, "the program is broken; nothing was changed"),
];

/// Those that a safe command can end with.
pub(crate) const OF_SAFE: [u8; 4] = [DONE, USAGE, PRECONDITION, INTERNAL];
