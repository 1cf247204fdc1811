//! Sealing inside the caller's transaction: what is written there is as closed as anywhere else in the ledger.

use oncely_core::{
    Change, Created, Draft, Event, IntentId, Liveness, Millis, Owner, Replaced, StoreError, StoreFuture,
    Stored, Version, Within,
};

use super::Sealed;

/// A ledger inside a transaction, whose results are sealed. Made by [`Sealed::within`].
pub struct SealedWithin<'a, W> {
    sealed: &'a Sealed,
    within: &'a mut W,
}

impl Sealed {
    /// Seals and opens inside a transaction with the same keys.
    pub fn within<'a, W: Within>(&'a self, within: &'a mut W) -> SealedWithin<'a, W> {
        SealedWithin { sealed: self, within }
    }
}

fn failed<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}

impl<W: Within> Within for SealedWithin<'_, W> {
    fn load(&mut self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        let (sealed, loaded) = (self.sealed, self.within.load(intent));
        Box::pin(async move { sealed.opened_if_any(loaded.await?) })
    }

    fn create(&mut self, intent: IntentId, mut draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        if let Err(error) = self.sealed.seal_body(intent, &mut draft.body) {
            return failed(error);
        }
        let (sealed, created) = (self.sealed, self.within.create(intent, draft, events));
        Box::pin(async move {
            Ok(match created.await? {
                Created::New(stored) => Created::New(sealed.opened(stored)?),
                Created::Exists(stored) => Created::Exists(sealed.opened(stored)?),
            })
        })
    }

    fn replace(
        &mut self,
        intent: IntentId,
        expected: Version,
        mut change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        if let Change::Put(draft) = &mut change
            && let Err(error) = self.sealed.seal_body(intent, &mut draft.body)
        {
            return failed(error);
        }
        let (sealed, replaced) = (self.sealed, self.within.replace(intent, expected, change, events));
        Box::pin(async move {
            Ok(match replaced.await? {
                Replaced::Done(stored) => Replaced::Done(sealed.opened_if_any(stored)?),
                Replaced::Stale(stored) => Replaced::Stale(sealed.opened_if_any(stored)?),
            })
        })
    }

    fn owner(&self) -> Owner {
        self.within.owner()
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        self.within.liveness(owner)
    }

    fn steady_since(&self) -> Millis {
        self.within.steady_since()
    }
}
