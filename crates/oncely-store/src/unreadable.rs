//! What all ledgers do alike with a record that is there and cannot be read.

use oncely_core::{IntentId, StoreError, StoreErrorKind};

/// How much later a purge looks again at a record that it could not read (1 h): a newer version that can may be about to
/// take over.
pub(crate) const LOOK_AGAIN_MS: u64 = 3_600_000;

/// The error of whoever wants this very record.
pub(crate) fn refusal(intent: &IntentId, why: &str, ledger: &str) -> StoreError {
    let message = format!(
        "the record {intent} in the ledger {ledger} cannot be read: {why}; nothing was written; restore it from a backup, \
         do not delete it. Once you know what became of its call: oncely forget {intent}"
    );
    StoreError::before(StoreErrorKind::Corrupt, message)
}
