//! Succeeded records kept in memory, so that a replay costs no query. What makes an entry current is told in
//! [`super::turnstile`]: it holds for as long as its group's epoch has not moved.

use std::sync::Arc;

use oncely_core::{IntentId, Record, State};
use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};

use super::turnstile::Board;

/// What an entry weighs besides the bytes of its result.
const ENTRY_BYTES: u64 = 768;
/// Parts with a lock each. Named, since counting the processors instead costs several reads of the file system.
const SHARDS: usize = 16;

#[derive(Clone)]
struct Entry {
    record: Arc<Record>,
    epoch: u64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<IntentId, Entry> for ByBytes {
    fn weight(&self, _: &IntentId, entry: &Entry) -> u64 {
        let result = entry.record.body.state.kept().map_or(0, |bytes| bytes.len());
        ENTRY_BYTES + result as u64
    }
}

/// The records that this process remembers.
pub(crate) struct Remembered {
    entries: Cache<IntentId, Entry, ByBytes>,
    board: Board,
}

impl Remembered {
    pub(crate) fn new(bytes: u64, board: Board) -> Self {
        // It grows with what it holds. Room for all of it at once would cost a process that lives for a moment more than
        // all the rest of opening a ledger.
        let items = usize::try_from(bytes / (2 * ENTRY_BYTES)).unwrap_or(usize::MAX).clamp(16, 256);
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(items).weight_capacity(bytes).shards(SHARDS);
        let entries = match options.build() {
            Ok(options) => Cache::with_options(options, ByBytes, Default::default(), Default::default()),
            // It fails only where a part is missing, and then the defaults do.
            Err(_) => Cache::with_weighter(items, bytes, ByBytes),
        };
        Self { entries, board }
    }

    /// The epoch to pass to [`Remembered::keep_read`]: to be asked *before* the row is read.
    pub(crate) fn epoch(&self, intent: &IntentId) -> Option<u64> {
        self.board.settled_epoch(intent)
    }

    /// Keeps a record that was read after its group had this epoch.
    pub(crate) fn keep_read(&self, record: &Arc<Record>, epoch: Option<u64>) {
        if let (State::Succeeded { .. }, Some(epoch)) = (&record.body.state, epoch) {
            self.entries.insert(record.intent, Entry { record: Arc::clone(record), epoch });
        }
    }

    /// Keeps a record that was just committed. To be called in the writer's turn: no epoch moves meanwhile.
    pub(crate) fn keep_written(&self, record: &Arc<Record>) {
        if matches!(record.body.state, State::Succeeded { .. }) {
            self.keep_read(record, self.epoch(&record.intent));
        }
    }

    /// Drops a record.
    pub(crate) fn drop(&self, intent: &IntentId) {
        self.entries.remove(intent);
    }

    /// The record, if what is known of it is current.
    pub(crate) fn get(&self, intent: &IntentId) -> Option<Arc<Record>> {
        let entry = self.entries.get(intent)?;
        (Some(entry.epoch) == self.board.settled_epoch(intent)).then_some(entry.record)
    }
}
