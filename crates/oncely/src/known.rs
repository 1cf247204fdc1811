//! Who a call is: its name, its fingerprint, and what its ledger has of it already.

use oncely_core::fingerprint::{Identity, identify, identify_digested};
use oncely_core::limits::PAYLOAD_BYTES_MAX;
use oncely_core::{Digest, Fingerprint, IntentId, IntentName, Key, Stored};

use crate::call::Call;
use crate::engine::Oncely;
use crate::error::Error;
use crate::remote::Claimant;

/// A call with its identity worked out.
pub(crate) struct Known<'a> {
    pub(crate) call: &'a Call,
    pub(crate) name: IntentName,
    pub(crate) intent: IntentId,
    pub(crate) fingerprint: Fingerprint,
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
        let Identity { key, fingerprint } = identify(call.key.clone(), &call.payload, &call.policy)?;
        let (name, claimant) = (name_with(call, key), Claimant::this_process(&self.inner.owner));
        Ok(Known { call, intent: name.intent_id(), name, fingerprint, claimant })
    }

    /// Works out who the call is, and looks for its record where that is done at once or likely worth it. A retry with the
    /// very bytes of a call whose record is found needs no parsing.
    pub(crate) async fn meet<'a>(
        &'a self,
        call: &'a Call,
        claimant: Claimant<'a>,
    ) -> Result<(Known<'a>, Option<Stored>), Error> {
        let Some(key) = call.key.as_ref().filter(|_| call.payload.len() <= PAYLOAD_BYTES_MAX) else {
            let known = Known { claimant, ..self.know(call)? };
            let seen = self.look(&known.intent).await?;
            return Ok((known, seen));
        };
        let name = name_with(call, key.clone());
        let (intent, raw) = (name.intent_id(), Digest::of(&call.payload));
        let seen = self.look(&intent).await?;
        let fingerprint = match &seen {
            Some(stored) if stored.record.body.fingerprint.raw == raw => stored.record.body.fingerprint,
            _ => identify_digested(Some(key.clone()), &call.payload, raw, &call.policy)?.fingerprint,
        };
        Ok((Known { call, name, intent, fingerprint, claimant }, seen))
    }

    async fn look(&self, intent: &IntentId) -> Result<Option<Stored>, Error> {
        let store = &self.inner.store;
        match store.peek(intent) {
            None if store.expects(intent) => Ok(store.load(*intent).await?),
            seen => Ok(seen),
        }
    }
}

fn name_with(call: &Call, key: Key) -> IntentName {
    IntentName { namespace: call.namespace.clone(), scope: call.scope.clone(), tool: call.tool.clone(), key }
}
