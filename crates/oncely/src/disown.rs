//! Attempts that nobody attends any more, and what the ledger is told of them: claims that were not answered, and attempts
//! that were dropped.

use oncely_core::machine::{Input, Transition, Write, step};
use oncely_core::{
    AttemptToken, Body, Change, Created, Draft, Event, Failure, IntentId, Millis, Outcome, Record, Replaced,
    StoreError, StoreErrorKind, Stored, Wrote,
};

use crate::attempt::{RETRY_FIRST, RETRY_LAST};
use crate::claim::{Disowned, forget_never_started};
use crate::engine::Oncely;

/// A claim as it is sent.
pub(crate) struct Sent {
    pub(crate) intent: IntentId,
    /// The record that it replaces: written only where that is still there, and where there was none, only where none is.
    pub(crate) over: Option<Stored>,
    pub(crate) draft: Box<Draft>,
    pub(crate) events: Vec<Event>,
}

/// What is kept of a claim until it is answered: enough to take it back.
pub(crate) struct Unanswered {
    intent: IntentId,
    pub(crate) over: Option<Stored>,
    claim: Box<Body>,
}

impl Unanswered {
    pub(crate) fn of(sent: &Sent) -> Self {
        Self { intent: sent.intent, over: sent.over.clone(), claim: Box::new(sent.draft.body.clone()) }
    }

    pub(crate) fn token(&self) -> AttemptToken {
        self.claim.token
    }
}

/// What the ledger has to be told.
enum Word {
    /// How an attempt ended.
    Ended { intent: IntentId, token: AttemptToken, outcome: Outcome },
    /// That a claim started nothing.
    NotStarted(Unanswered),
}

/// What takes a claim of ours back that was not answered.
pub(crate) fn withdrawing<'a>(claim: &'a Body, over: Option<&'a Record>) -> Input<'a> {
    let failure =
        Failure::new("NOT_STARTED", "the claim was not acknowledged, so the effect was not started");
    Input::Withdraw { claim, over, failure }
}

impl Oncely {
    /// Sends a claim: what it won, or what is there instead.
    pub(crate) async fn send(&self, sent: Sent) -> Result<Result<Stored, Option<Stored>>, StoreError> {
        let Sent { intent, over, draft, events } = sent;
        Ok(match over {
            None => match self.store().create(intent, *draft, events).await? {
                Created::New(stored) => Ok(stored),
                Created::Exists(stored) => Err(Some(stored)),
            },
            Some(seen) => {
                let expected = seen.record.version;
                match self.store().replace(intent, expected, Change::Put(draft), events).await? {
                    Replaced::Done(Some(stored)) => Ok(stored),
                    Replaced::Done(None) => Err(None),
                    Replaced::Stale(there) => Err(there),
                }
            }
        })
    }

    /// Sees to it that an attempt of ours which is over does not look alive to others, however long the store fails.
    pub(crate) fn disown_in_background(&self, intent: IntentId, token: AttemptToken, outcome: Outcome) {
        self.insist(Word::Ended { intent, token, outcome });
    }

    /// Takes back a claim that was not answered: others would wait for us as long as this process lives.
    pub(crate) fn take_back_in_background(&self, unanswered: Unanswered) {
        self.insist(Word::NotStarted(unanswered));
    }

    /// Tries until the ledger has heard it, for as long as the process lives. A drain waits for it.
    fn insist(&self, word: Word) {
        // Where no runtime is left the next call from here does it, and after our end the record is in doubt: careful,
        // never wrong.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (oncely, counted) = (self.clone(), Disowned::count(&self.inner));
        runtime.spawn(async move {
            let _counted = counted;
            let mut pause = RETRY_FIRST;
            while let Err(error) = oncely.tell(&word).await {
                if error.kind == StoreErrorKind::Moved {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_LAST);
            }
        });
    }

    async fn tell(&self, word: &Word) -> Result<(), StoreError> {
        match word {
            Word::Ended { intent, token, outcome } => {
                // What is still on its way lands first.
                self.store().flush().await?;
                match self.store().load(*intent).await? {
                    Some(there) if there.record.body.token == *token => {
                        let input = Input::Complete { token: *token, outcome: outcome.clone() };
                        self.settle(*intent, Some(there), |_| input.clone()).await.map(drop)
                    }
                    _ => Ok(()),
                }
            }
            Word::NotStarted(unanswered) => self.take_back(unanswered).await,
        }
    }

    /// To look whether the claim is there would not do: its connection may be lost while the server still has it before it,
    /// and it would be written after we had looked and left. So what it was decided on is changed first.
    async fn take_back(&self, unanswered: &Unanswered) -> Result<(), StoreError> {
        let over = unanswered.over.as_ref().map(|seen| seen.record.as_ref());
        let mut seen = unanswered.over.clone();
        loop {
            let now = seen.as_ref().map_or(Millis(0), |seen| seen.now);
            let record = seen.as_ref().map(|seen| seen.record.as_ref());
            let Transition { write, events, .. } = step(record, &withdrawing(&unanswered.claim, over), now);
            let Write::Put(draft) = write else {
                if !events.is_empty() {
                    self.store().note(events).await?;
                }
                break;
            };
            let is_new = seen.is_none();
            match self.send(Sent { intent: unanswered.intent, over: seen, draft, events }).await {
                Ok(Ok(_)) => break,
                Ok(Err(there)) => seen = there,
                // It takes no new record, and so not the claim either. One that is there can be ended.
                Err(error) if is_new && error.wrote == Wrote::No && takes_nothing_new(error.kind) => {
                    seen = self.store().load(unanswered.intent).await?;
                    if seen.is_none() {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        // What others find there holds only once a store with replicas has had it confirmed, which a look does.
        self.store().load(unanswered.intent).await?;
        forget_never_started(unanswered.token());
        Ok(())
    }
}

/// Whether a ledger in this trouble goes on to end what is there.
fn takes_nothing_new(kind: StoreErrorKind) -> bool {
    matches!(kind, StoreErrorKind::Moved | StoreErrorKind::Full | StoreErrorKind::ReadOnly)
}
