//! Exit codes, the same as everywhere in Oncely.

pub use oncely_doors::exit::{
    CONFLICT, DONE, IN_PROGRESS, INTERNAL, PRECONDITION, STORE_UNAVAILABLE, UNKNOWN, USAGE,
};

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
