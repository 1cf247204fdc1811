//! Attempts that nobody attends any more, and what the ledger is told of them: claims that were not answered, and attempts
//! that were dropped.

use oncely_core::machine::Input;
use oncely_core::{
    AttemptToken, Change, Created, Draft, Event, Failure, IntentId, Outcome, Replaced, StoreError,
    StoreErrorKind, Stored, Version, Wrote,
};

use crate::attempt::{RETRY_FIRST, RETRY_LAST};
use crate::claim::{Disowned, remember_never_started};
use crate::engine::Oncely;

/// A claim as it is sent.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) intent: IntentId,
    /// The record that it replaces: written only where that is still there, and where there was none, only where none is.
    pub(crate) over: Option<Version>,
    pub(crate) draft: Box<Draft>,
    pub(crate) events: Vec<Event>,
}

impl Sent {
    pub(crate) fn token(&self) -> AttemptToken {
        self.draft.body.token
    }
}

/// What the ledger has to be told.
enum Word {
    /// How an attempt ended.
    Ended { intent: IntentId, token: AttemptToken, outcome: Outcome },
    /// That a claim started nothing.
    NotStarted(Unanswered),
}

/// A claim that was not answered.
struct Unanswered {
    sent: Sent,
    /// The names under which it may be there, or may come to be.
    names: Vec<AttemptToken>,
}

pub(crate) fn not_started() -> Failure {
    Failure::new("NOT_STARTED", "the claim was not acknowledged, so the effect was not started")
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
            Some(expected) => {
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
    pub(crate) fn take_back_in_background(&self, sent: Sent) {
        let names = vec![sent.token()];
        self.insist(Word::NotStarted(Unanswered { sent, names }));
    }

    /// Tries until the ledger has heard it, for as long as the process lives. A drain waits for it.
    fn insist(&self, mut word: Word) {
        // Where no runtime is left the next call from here does it, and after our end the record is in doubt: careful,
        // never wrong.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (oncely, counted) = (self.clone(), Disowned::count(&self.inner));
        runtime.spawn(async move {
            let _counted = counted;
            let mut pause = RETRY_FIRST;
            while let Err(error) = oncely.tell(&mut word).await {
                if error.kind == StoreErrorKind::Moved {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_LAST);
            }
        });
    }

    async fn tell(&self, word: &mut Word) -> Result<(), StoreError> {
        match word {
            Word::Ended { intent, token, outcome } => {
                // What is still on its way lands first.
                self.store().flush().await?;
                let there = self.store().load(*intent).await?;
                self.end_if_named(there, &[*token], outcome).await
            }
            Word::NotStarted(claim) => self.take_back(claim).await,
        }
    }

    /// To look whether the claim is there would not do: its connection may be lost while the server still has it before it,
    /// and it would be written after we had looked and left. So the intent is claimed once more. Either this finds the first
    /// claim, or that one finds this, or somebody else's; and what is ours is ended.
    async fn take_back(&self, claim: &mut Unanswered) -> Result<(), StoreError> {
        let Unanswered { sent, names } = claim;
        if names.contains(&sent.token()) {
            // By the time this is written the other may have come, ended, and been forgotten: a name is never given twice.
            sent.draft.body.token = self.name_unstarted()?;
        }
        let there = match self.send(sent.clone()).await {
            Err(error) => {
                if error.wrote == Wrote::Maybe {
                    names.push(sent.token());
                }
                return Err(error);
            }
            Ok(Ok(won)) => {
                names.push(sent.token());
                Some(won)
            }
            Ok(Err(there)) => there,
        };
        self.end_if_named(there, names, &Outcome::NotStarted(not_started())).await
    }

    async fn end_if_named(
        &self,
        there: Option<Stored>,
        names: &[AttemptToken],
        outcome: &Outcome,
    ) -> Result<(), StoreError> {
        let Some(there) = there.filter(|there| names.contains(&there.record.body.token)) else {
            return Ok(());
        };
        let input = Input::Complete { token: there.record.body.token, outcome: outcome.clone() };
        self.settle(there.record.intent, Some(there), |_| input.clone()).await.map(drop)
    }

    /// A name for a claim that will start nothing.
    fn name_unstarted(&self) -> Result<AttemptToken, StoreError> {
        let named = self.new_name();
        let token = named.map_err(|e| StoreError::before(StoreErrorKind::Unavailable, e.to_string()))?;
        remember_never_started(token);
        Ok(token)
    }
}
