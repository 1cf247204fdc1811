//! What all ledgers do alike with a record that is there and cannot be read.

use oncely_core::{IntentId, StoreError, StoreErrorKind};

/// How much later a purge looks again at a record that it could not read (1 h): a newer version that can may be about to
/// take over.
pub(crate) const LOOK_AGAIN_MS: u64 = 3_600_000;

/// The error of whoever wants this very record. It reaches callers, so it names nothing that would free the key.
pub(crate) fn refusal(intent: &IntentId, why: &str, ledger: &str) -> StoreError {
    let message = format!(
        "the record {intent} in the ledger {ledger} cannot be read: {why}; nothing was written. Ask a person to look at \
         it: its effect may have happened, so restore it from a backup, do not delete it; oncely doctor says more"
    );
    StoreError::before(StoreErrorKind::Corrupt, message)
}
