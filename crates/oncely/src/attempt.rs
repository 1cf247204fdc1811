//! An attempt: permission to run one effect, and the duty to say how it ended.

use std::time::Duration;

use oncely_core::machine::{Because, Decision, Execute, Input, Transition, Write, step};
use oncely_core::{
    AttemptToken, Change, Counter, Doubt, DoubtCause, DownstreamKey, Event, EventKind, IntentId, IntentName,
    Millis, Outcome, Record, Replaced, State, StoreError, StoreErrorKind, Stored,
};

use crate::answer::Unrecorded;
use crate::claim::{OpenPlace, forget_live};
use crate::engine::Oncely;
use crate::unstoppable::Unstoppable;

/// How long a completion is tried before the caller gets the result with a warning; it is tried on after that.
const COMPLETE_PATIENCE: Duration = Duration::from_secs(2);
/// First pause between tries, doubled up to the last.
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(10);
pub(crate) const RETRY_LAST: Duration = Duration::from_secs(5);

/// What an effect may know of its attempt.
#[derive(Debug, Clone)]
pub struct AttemptInfo {
    pub(crate) intent: IntentId,
    pub(crate) name: IntentName,
    pub(crate) execute: Execute,
    pub(crate) key_age_ms: u64,
}

impl AttemptInfo {
    /// Counts from 1 and is never reused.
    pub fn number(&self) -> u32 {
        self.execute.attempt
    }

    /// The key for a downstream that de-duplicates: the same for every attempt after an unknown outcome.
    pub fn downstream_key(&self) -> DownstreamKey {
        self.execute.downstream_key
    }

    /// How long ago that key was first used, by the ledger's clock: some providers want to be told.
    pub fn key_age_ms(&self) -> u64 {
        self.key_age_ms
    }

    /// The intent.
    pub fn intent(&self) -> IntentId {
        self.intent
    }

    /// The intent's full name.
    pub fn name(&self) -> &IntentName {
        &self.name
    }

    /// Names this attempt and no other.
    pub fn token(&self) -> AttemptToken {
        self.execute.token
    }

    /// Why it may run.
    pub fn because(&self) -> Because {
        self.execute.because
    }
}

/// Permission to run one effect. The claim is durable. Say how it ended with [`complete`](Self::complete); an attempt
/// that is dropped without is recorded as unknown.
pub struct Attempt {
    oncely: Oncely,
    info: AttemptInfo,
    seen: Stored,
    /// Given back when the end is recorded.
    place: Option<OpenPlace>,
}

impl Attempt {
    pub(crate) fn new(oncely: Oncely, place: OpenPlace, execute: Execute, seen: Stored) -> Self {
        let (intent, name) = (seen.record.intent, seen.record.body.name.clone());
        let key_age_ms = seen.now.since(seen.record.sent_at);
        let info = AttemptInfo { intent, name, execute, key_age_ms };
        Self { oncely, info, seen, place: Some(place) }
    }

    /// What the effect may know.
    pub fn info(&self) -> &AttemptInfo {
        &self.info
    }

    /// Says that the owner lives. Needed every few seconds where machines share the ledger, since only the lease tells
    /// others so there; [`CallBuilder::run`](crate::CallBuilder::run) does it by itself.
    pub async fn renew(&mut self) -> Result<(), StoreError> {
        let input = Input::Renew { token: self.info.token() };
        let settled =
            self.oncely.settle(self.info.intent, Some(self.seen.clone()), |_| input.clone()).await?;
        if let (_, Some(seen)) = settled {
            self.seen = seen;
        }
        Ok(())
    }

    /// Leaves the attempt to somebody outside of this process, who has to say how it ended.
    pub(crate) fn hand_over(mut self) -> AttemptInfo {
        // Without its place it is no longer ours to give up when dropped.
        self.place = None;
        forget_live(self.info.token());
        self.info.clone()
    }

    /// Records how the attempt ended. If the store fails, it is tried for a while; after that the caller gets the
    /// reason, and it is tried on in the background for as long as the process lives.
    pub async fn complete(self, outcome: Outcome) -> Option<Unrecorded> {
        // A caller that goes away must not stop the recording.
        Unstoppable::new(self.ending().record(outcome)).await
    }

    /// The end of the attempt, for a task that no caller can stop.
    pub(crate) fn ending(mut self) -> Ending {
        let held = Held { _place: self.place.take(), _living: Living(self.info.token()) };
        let (oncely, seen) = (self.oncely.clone(), self.seen.clone());
        Ending { oncely, intent: self.info.intent, token: self.info.token(), seen, held }
    }
}

/// An attempt that is over, on its way into the ledger.
pub(crate) struct Ending {
    oncely: Oncely,
    intent: IntentId,
    token: AttemptToken,
    seen: Stored,
    /// Held by whoever records, and by nobody else: if the runtime is stopped around it, the attempt is no longer alive.
    held: Held,
}

impl Ending {
    /// See [`Attempt::complete`].
    pub(crate) async fn record(self, outcome: Outcome) -> Option<Unrecorded> {
        let Self { oncely, intent, token, seen, held } = self;
        let unrecorded = oncely.complete_patiently(intent, token, seen, outcome, held).await;
        oncely.tidy_after(token);
        unrecorded
    }
}

/// What an attempt holds until its end is recorded.
struct Held {
    _place: Option<OpenPlace>,
    _living: Living,
}

/// An attempt is alive for as long as this is.
struct Living(AttemptToken);

impl Drop for Living {
    fn drop(&mut self) {
        forget_live(self.0);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Without its place the end is being recorded by somebody else.
        let Some(_place) = self.place.take() else { return };
        let message = format!("attempt {} was dropped before it said how it ended", self.info.number());
        let outcome = Outcome::Unknown(Doubt::new(DoubtCause::Abandoned, message));
        let input = Input::Complete { token: self.info.token(), outcome: outcome.clone() };
        let transition = step(Some(&self.seen.record), &input, self.seen.now);
        forget_live(self.info.token());
        if let Write::Put(draft) = transition.write {
            let version = self.seen.record.version;
            let store = self.oncely.store();
            // Handed in by the call itself; nobody can wait for it here.
            drop(store.replace(self.info.intent, version, Change::Put(draft), transition.events));
        }
        // In case that was refused, or the version had moved on.
        self.oncely.disown_in_background(self.info.intent, self.info.token(), outcome);
    }
}

impl Oncely {
    /// Records how an attempt ended, by its token: the lower level for bindings and doors. An older attempt's end
    /// changes nothing and is logged as superseded.
    pub async fn complete(
        &self,
        intent: IntentId,
        token: AttemptToken,
        outcome: Outcome,
    ) -> Result<Decision, StoreError> {
        let input = Input::Complete { token, outcome };
        let (decision, _) = self.settle(intent, None, |_| input.clone()).await?;
        Ok(decision)
    }

    /// Says that the owner of an attempt lives, by its token.
    pub async fn renew(&self, intent: IntentId, token: AttemptToken) -> Result<Decision, StoreError> {
        let (decision, _) = self.settle(intent, None, |_| Input::Renew { token }).await?;
        Ok(decision)
    }

    async fn complete_patiently(
        &self,
        intent: IntentId,
        token: AttemptToken,
        seen: Stored,
        outcome: Outcome,
        held: Held,
    ) -> Option<Unrecorded> {
        let rejected = outcome.failure().is_some();
        let input = Input::Complete { token, outcome };
        let patience = tokio::time::Instant::now() + COMPLETE_PATIENCE;
        let mut pause = RETRY_FIRST;
        let mut seen = Some(seen);
        loop {
            let error = match self.settle(intent, seen.take(), |_| input.clone()).await {
                Ok((_, Some(there)))
                    if rejected && matches!(there.record.body.state, State::InDoubt { .. }) =>
                {
                    return Some(Unrecorded::EarlierUnknown);
                }
                // Nothing happened in it: whoever took its place did nothing twice. Mostly it is its own end, recorded before
                // the answer to that was lost, after which another attempt was allowed to begin. That speaks for an attempt
                // before it no more than it would have in its place.
                Ok((Decision::Superseded, Some(there))) if rejected => {
                    return there.record.body.is_unsettled().then_some(Unrecorded::EarlierUnknown);
                }
                Ok((decision, there)) => return self.unrecorded(intent, decision, there).await,
                Err(error) => error,
            };
            if error.kind == StoreErrorKind::Moved {
                return Some(Unrecorded::StoreFailed(error));
            }
            if tokio::time::Instant::now() >= patience {
                self.complete_in_background(intent, input, pause, held);
                return Some(Unrecorded::StoreFailed(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_LAST);
        }
    }

    /// Goes on trying for as long as the process lives. A drain waits for it.
    fn complete_in_background(
        &self,
        intent: IntentId,
        input: Input<'static>,
        mut pause: Duration,
        held: Held,
    ) {
        let oncely = self.clone();
        tokio::spawn(async move {
            let _held = held;
            while let Err(error) = oncely.settle(intent, None, |_| input.clone()).await {
                if error.kind == StoreErrorKind::Moved {
                    // It stays so: nobody will ever take this end here.
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_LAST);
            }
        });
    }

    /// Makes the end of an attempt that lost its place loud: it is the one sign of a possible double effect.
    pub(crate) async fn unrecorded(
        &self,
        intent: IntentId,
        decision: Decision,
        there: Option<Stored>,
    ) -> Option<Unrecorded> {
        if decision != Decision::Superseded {
            return None;
        }
        match there {
            Some(stored) => {
                let name = &stored.record.body.name;
                self.store().tally(&name.namespace, &name.tool, &[(Counter::Superseded, 1)]);
            }
            None => {
                let event = Event::new(intent, 0, EventKind::Superseded);
                let event = event.with_note("it ended after its record was forgotten");
                // A log that cannot be written now must not hide from the caller what it is told next.
                let _ = self.store().note(vec![event]).await;
            }
        }
        Some(Unrecorded::Superseded)
    }

    /// Steps a record until the store takes it. The input is made anew for every look at the record, since what can be
    /// seen of one owner says nothing of the next.
    pub(crate) async fn settle<'i>(
        &self,
        intent: IntentId,
        seen: Option<Stored>,
        input: impl Fn(Option<&Record>) -> Input<'i>,
    ) -> Result<(Decision, Option<Stored>), StoreError> {
        let store = self.store();
        let mut seen = match seen {
            Some(seen) => Some(seen),
            None => store.load(intent).await?,
        };
        loop {
            let now = seen.as_ref().map_or(Millis(0), |s| s.now);
            let record = seen.as_ref().map(|s| s.record.as_ref());
            let Transition { write, events, decision } = step(record, &input(record), now);
            let change = match write {
                Write::Nothing => {
                    if !events.is_empty() {
                        store.note(events).await?;
                    }
                    return Ok((decision, seen));
                }
                Write::Put(draft) => Change::Put(draft),
                Write::Remove => Change::Remove,
            };
            let Some(expected) = seen.as_ref().map(|s| s.record.version) else {
                return Ok((decision, None));
            };
            match store.replace(intent, expected, change, events).await? {
                Replaced::Done(there) if decision == Decision::Again => seen = there,
                Replaced::Done(there) => return Ok((decision, there)),
                Replaced::Stale(there) => seen = there,
            }
        }
    }
}
