//! A call: which tool, which intent, which payload, and what the tool declares.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::canonical::PayloadError;
use oncely_core::machine::Finding;
use oncely_core::{AttemptToken, Key, Kind, Namespace, Policy, Record, Scope, State, Stored, ToolName};
use serde::Serialize;

use crate::answer::Forecast;
use crate::engine::{Begun, Oncely};
use crate::error::Error;

/// Asks the world whether an effect has happened.
pub type Probe = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Finding> + Send>> + Send + Sync>;

/// Says of a stored result for how many milliseconds what it speaks of may still be under way: a task that was begun, say.
/// `None` if it is an end.
pub type Holds = fn(&[u8]) -> Option<u64>;

/// A call, parsed and bounded.
#[derive(Clone)]
pub struct Call {
    /// The tenant.
    pub namespace: Namespace,
    /// What the key is unique within.
    pub scope: Scope,
    /// The operation.
    pub tool: ToolName,
    /// The caller's key; without one it is derived.
    pub key: Option<Key>,
    /// The payload, as JSON.
    pub payload: Vec<u8>,
    /// What the tool declares.
    pub policy: Arc<Policy>,
    /// How long to wait for a running attempt, if not as the policy says.
    pub wait_for: Option<Duration>,
    /// A person has checked that an attempt in doubt did not happen, and wants it run: who, and which attempt.
    pub checked: Option<(String, AttemptToken)>,
    /// Asks whether the effect has happened: before acting, and to settle a doubt.
    pub probe: Option<Probe>,
    /// Tells results that are an end from those that only say that something was begun. For as long as that may be under
    /// way, and its result is kept, an equal call is the same intent, whatever the policy's `repeat_after_ms`.
    pub holds: Option<Holds>,
}

impl Call {
    /// A call with the default policy, no scope and no key.
    pub fn new(tool: ToolName, payload: Vec<u8>) -> Self {
        Self {
            namespace: Namespace::default(),
            scope: Scope::none(),
            tool,
            key: None,
            payload,
            policy: Arc::new(Policy::default()),
            wait_for: None,
            checked: None,
            probe: None,
            holds: None,
        }
    }

    /// What the tool declares, for a record with a result that may not be an end.
    pub(crate) fn policy_for(&self, seen: Option<&Stored>) -> Cow<'_, Policy> {
        let declared = Cow::Borrowed(&*self.policy);
        let (Some(holds), Some(Stored { record, now })) = (self.holds, seen) else { return declared };
        // Until then it is the same intent in any case, and a replay need not look.
        if now.since(record.changed_at) < self.policy.repeat_after_ms {
            return declared;
        }
        let State::Succeeded { result: Some(result), .. } = &record.body.state else { return declared };
        match holds(result) {
            Some(held_ms) => {
                let repeat_after_ms = held_ms.min(record.body.retention.replay_for_ms);
                Cow::Owned(Policy { repeat_after_ms, ..Policy::clone(&self.policy) })
            }
            None => declared,
        }
    }

    /// Checks what can be checked without a ledger.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        self.policy.validate()?;
        if self.policy.require_key && self.key.is_none() && self.policy.kind == Kind::Write {
            return Err(Error::KeyRequired { tool: self.tool.as_str().to_owned() });
        }
        Ok(())
    }
}

/// Says a call like a sentence: tool, scope, key, payload, run.
pub struct CallBuilder<'a> {
    pub(crate) oncely: &'a Oncely,
    pub(crate) call: Result<Call, Error>,
}

impl<'a> CallBuilder<'a> {
    pub(crate) fn new(oncely: &'a Oncely, tool: &str) -> Self {
        let call = ToolName::parse(tool).map(|tool| Call::new(tool, b"null".to_vec())).map_err(Error::from);
        Self { oncely, call }
    }

    fn map(mut self, change: impl FnOnce(Call) -> Result<Call, Error>) -> Self {
        self.call = self.call.and_then(change);
        self
    }

    /// The tenant; nothing crosses it.
    pub fn namespace(self, namespace: &str) -> Self {
        self.map(|call| Ok(Call { namespace: Namespace::parse(namespace)?, ..call }))
    }

    /// What the key is unique within: a session, task or run. Inside a scope, equal calls without a key are one intent
    /// for as long as the record is kept.
    pub fn scope(self, scope: &str) -> Self {
        self.map(|call| Ok(Call { scope: Scope::parse(scope)?, ..call }))
    }

    /// The name of the intent: the same for every retry, a new one only for a new intent.
    pub fn key(self, key: &str) -> Self {
        self.map(|call| Ok(Call { key: Some(Key::explicit(key)?), ..call }))
    }

    /// The payload, which a later call with the same key has to equal.
    pub fn payload(self, payload: &(impl Serialize + ?Sized)) -> Self {
        self.map(|call| {
            let malformed = |e: serde_json::Error| PayloadError::Malformed(e.to_string());
            Ok(Call { payload: serde_json::to_vec(payload).map_err(malformed)?, ..call })
        })
    }

    /// The payload as JSON text.
    pub fn payload_json(self, payload: impl Into<Vec<u8>>) -> Self {
        self.map(|call| Ok(Call { payload: payload.into(), ..call }))
    }

    /// What the tool declares.
    pub fn policy(self, policy: impl Into<Arc<Policy>>) -> Self {
        self.map(|call| Ok(Call { policy: policy.into(), ..call }))
    }

    /// How long to wait for a running attempt of the same intent.
    pub fn wait_for(self, duration: Duration) -> Self {
        self.map(|call| Ok(Call { wait_for: Some(duration), ..call }))
    }

    /// Somebody has looked at this record in doubt and checked that its attempt did not happen: let it run again.
    /// Audited with the name. It says nothing of an attempt that has taken its place since.
    pub fn checked_by(self, person: &str, seen: &Record) -> Self {
        let checked = Some((person.to_owned(), seen.body.token));
        self.map(|call| Ok(Call { checked, ..call }))
    }

    /// Asks the world whether the effect has happened: before acting, and, where the policy's `when_unknown` is
    /// `check`, to settle a doubt.
    pub fn check<F, Fut>(self, probe: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Finding> + Send + 'static,
    {
        self.map(|call| Ok(Call { probe: Some(Arc::new(move || Box::pin(probe()))), ..call }))
    }

    /// The call as said so far.
    pub fn into_call(self) -> Result<Call, Error> {
        self.call
    }

    /// Asks for permission to run the effect; the lower level of [`run`](Self::run).
    pub async fn begin(self) -> Result<Begun, Error> {
        self.oncely.begin(&self.call?).await
    }

    /// What the call would do now. Runs nothing, writes nothing, uses up no key.
    pub async fn dry_run(self) -> Result<Forecast, Error> {
        self.oncely.dry_run(&self.call?).await
    }
}
