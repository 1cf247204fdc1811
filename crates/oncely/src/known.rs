//! Who a call is: its name, its fingerprint, and what its ledger has of it already.

use oncely_core::fingerprint::{Identity, identify, identify_digested};
use oncely_core::limits::PAYLOAD_BYTES_MAX;
use oncely_core::{Digest, Fingerprint, IntentId, IntentName, Key, Stored};

use crate::call::Call;
use crate::claim::bounded;
use crate::engine::Oncely;
use crate::error::Error;
use crate::remote::Claimant;

/// A call with its identity worked out.
pub(crate) struct Known<'a> {
    pub(crate) call: &'a Call,
    pub(crate) name: IntentName,
    pub(crate) intent: IntentId,
    pub(crate) fingerprint: Fingerprint,
    /// Whether the fingerprint is the record's, which has the very same bytes: enough to compare, but a record that is
    /// written anew has one as the policy counts now.
    pub(crate) is_borrowed: bool,
    pub(crate) claimant: Claimant<'a>,
}

impl Oncely {
    /// The full name of the intent that a call means, with its key derived if the call gives none.
    pub fn name_of(&self, call: &Call) -> Result<IntentName, Error> {
        call.validate()?;
        Ok(self.know(call)?.name)
    }

    /// Works out who the call is.
    pub(crate) fn know<'a>(&'a self, call: &'a Call) -> Result<Known<'a>, Error> {
        know(call, Claimant::this_process(&self.inner.owner))
    }

    /// Works out who the call is, and looks for its record where that is done at once or likely worth it. A retry with the
    /// very bytes of a call whose record is found needs no parsing.
    pub(crate) async fn meet<'a>(
        &'a self,
        call: &'a Call,
        claimant: Claimant<'a>,
    ) -> Result<(Known<'a>, Option<Stored>), Error> {
        let Some(key) = call.key.as_ref().filter(|_| call.payload.len() <= PAYLOAD_BYTES_MAX) else {
            let known = know(call, claimant)?;
            let seen = self.look(&known.intent).await?;
            return Ok((known, seen));
        };
        let name = name_with(call, key.clone());
        let (intent, raw) = (name.intent_id(), Digest::of(&call.payload));
        let seen = self.look(&intent).await?;
        let theirs = seen.as_ref().map(|stored| stored.record.body.fingerprint);
        let (fingerprint, is_borrowed) = match theirs.filter(|theirs| theirs.raw == raw) {
            Some(theirs) => (theirs, true),
            None => {
                (identify_digested(Some(key.clone()), &call.payload, raw, &call.policy)?.fingerprint, false)
            }
        };
        Ok((Known { call, name, intent, fingerprint, is_borrowed, claimant }, seen))
    }

    async fn look(&self, intent: &IntentId) -> Result<Option<Stored>, Error> {
        let store = &self.inner.store;
        match store.peek(intent) {
            None if store.expects(intent) => Ok(bounded(store.load(*intent)).await?),
            seen => Ok(seen),
        }
    }
}

impl Known<'_> {
    /// Works the fingerprint out, where it was only borrowed.
    pub(crate) fn own_fingerprint(&mut self) -> Result<(), Error> {
        if self.is_borrowed {
            let Call { key, payload, policy, .. } = self.call;
            self.fingerprint = identify(key.clone(), payload, policy)?.fingerprint;
            self.is_borrowed = false;
        }
        Ok(())
    }
}

fn know<'a>(call: &'a Call, claimant: Claimant<'a>) -> Result<Known<'a>, Error> {
    let Identity { key, fingerprint } = identify(call.key.clone(), &call.payload, &call.policy)?;
    let name = name_with(call, key);
    Ok(Known { call, intent: name.intent_id(), name, fingerprint, is_borrowed: false, claimant })
}

fn name_with(call: &Call, key: Key) -> IntentName {
    IntentName { namespace: call.namespace.clone(), scope: call.scope.clone(), tool: call.tool.clone(), key }
}
