//! The sealed ledger as a store: everything is handed on, what is kept of results is sealed on its way in and opened on
//! its way out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use oncely_core::{
    Change, Created, Draft, Event, Filter, IntentId, Page, Replaced, Store, StoreError, StoreFuture, Stored,
    Version,
};

use super::{MARK, Sealed};
use crate::requests::ready;

impl Sealed {
    pub(super) fn opened(&self, stored: Stored) -> Result<Stored, StoreError> {
        // What is not sealed is shared as it is: a replay from memory copies nothing.
        if !stored.record.body.state.kept().is_some_and(|bytes| bytes.starts_with(MARK)) {
            return Ok(stored);
        }
        self.met.store(true, Ordering::Relaxed);
        let mut body = stored.record.body.clone();
        self.open_body(stored.record.intent, &mut body)?;
        let record = oncely_core::Record { body, ..(*stored.record).clone() };
        Ok(Stored { record: Arc::new(record), now: stored.now })
    }

    pub(super) fn opened_if_any(&self, stored: Option<Stored>) -> Result<Option<Stored>, StoreError> {
        stored.map(|stored| self.opened(stored)).transpose()
    }
}

impl Store for Sealed {
    fn peek(&self, intent: &IntentId) -> Option<Stored> {
        // What cannot be opened says nothing here; the load that follows says why.
        self.store.peek(intent).and_then(|stored| self.opened(stored).ok())
    }

    fn create(&self, intent: IntentId, mut draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        if let Err(error) = self.seal_body(intent, &mut draft.body) {
            return ready(Err(error));
        }
        let created = self.store.create(intent, draft, events);
        Box::pin(async move {
            Ok(match created.await? {
                Created::New(stored) => Created::New(self.opened(stored)?),
                Created::Exists(stored) => Created::Exists(self.opened(stored)?),
            })
        })
    }

    fn load(&self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        let loaded = self.store.load(intent);
        Box::pin(async move { self.opened_if_any(loaded.await?) })
    }

    fn replace(
        &self,
        intent: IntentId,
        expected: Version,
        mut change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        if let Change::Put(draft) = &mut change
            && let Err(error) = self.seal_body(intent, &mut draft.body)
        {
            return ready(Err(error));
        }
        let replaced = self.store.replace(intent, expected, change, events);
        Box::pin(async move {
            Ok(match replaced.await? {
                // It is written by now, whatever becomes of its way back.
                Replaced::Done(stored) => Replaced::Done(
                    self.opened_if_any(stored).map_err(|e| StoreError::ambiguous(e.kind, e.message))?,
                ),
                Replaced::Stale(stored) => Replaced::Stale(self.opened_if_any(stored)?),
            })
        })
    }

    /// A listing shows what it can: one record that cannot be opened must not hide the others.
    fn scan(&self, filter: Filter, from: u64, limit: usize) -> StoreFuture<'_, Page<Stored>> {
        let scanned = self.store.scan(filter, from, limit);
        Box::pin(async move {
            let mut page = scanned.await?;
            for stored in &mut page.items {
                if let Ok(opened) = self.opened(stored.clone()) {
                    *stored = opened;
                }
            }
            Ok(page)
        })
    }

    // What is sealed is imported as it is: it stays bound to its record.
    oncely_core::hand_on!(store: describe expects note watch liveness owner now steady_since log purge tally tallies census flush
        health gate turn_gate import);
}
