//! Attempts that somebody outside of this process makes: a program in any language that asks for permission, acts, and
//! reports back. Nothing of it can be watched, so it lives by a lease that the store's clock judges; a lapsed lease is
//! *in doubt*, never free to run. The claim is in the ledger alone: this process may be restarted in between.

use oncely_core::machine::{Decision, Input};
use oncely_core::{AttemptToken, IntentId, Outcome, Owner, StoreError, Stored};

use crate::answer::Answer;
use crate::attempt::AttemptInfo;
use crate::call::Call;
use crate::engine::{Begun, Oncely, UNNAMED};
use crate::error::Error;
use crate::unstoppable::Unstoppable;

/// Who wants to run an attempt.
#[derive(Clone, Copy)]
pub(crate) struct Claimant<'a> {
    /// As the record names it.
    pub(crate) owner: &'a Owner,
    /// The token that it chose for the attempt, so that it recognises its own begin.
    pub(crate) token: Option<AttemptToken>,
}

impl<'a> Claimant<'a> {
    /// Effects of this process get their tokens from the engine.
    pub(crate) fn this_process(owner: &'a Owner) -> Self {
        Self { owner, token: None }
    }
}

/// Permission to run one effect outside of this process. The claim is durable.
#[derive(Debug, Clone)]
pub struct RemoteClaim {
    /// What the effect may know.
    pub info: AttemptInfo,
    /// How long the holder is believed alive without a renewal.
    pub lease_ms: u64,
}

/// The answer to [`Oncely::begin_remote`].
#[derive(Debug, Clone)]
pub enum RemoteBegun {
    /// Run the effect, renew the lease, and complete the attempt by its token.
    Run(RemoteClaim),
    /// There is an answer already; run nothing.
    Answered(Answer),
}

/// What became of the end of a remote attempt.
#[derive(Debug, Clone)]
pub enum RemoteEnd {
    /// The record as it is now. After a rejection it may still be in doubt: an attempt before may have happened.
    Recorded(Stored),
    /// Another attempt has taken its place, or the record was forgotten: the effect may have happened twice.
    Superseded,
}

impl Oncely {
    /// Asks for permission for somebody outside of this process, named `holder`. A `token` of its own lets it repeat a
    /// begin whose answer was lost: while the lease lasts it gets the same attempt. It has to be made anew, at random, for
    /// every begin that is not such a repetition, and must not outlive the program that made it.
    ///
    /// A caller that drops this while it waits has claimed nothing. One that drops it while the claim is being written
    /// has started nothing: without a token of its own the claim is taken back, with one it is there to be asked for.
    pub async fn begin_remote(
        &self,
        call: Call,
        holder: &str,
        token: Option<AttemptToken>,
    ) -> Result<RemoteBegun, Error> {
        // Stands for no attempt; see the engine.
        if token == Some(UNNAMED) {
            return Err(Error::TokenUsed);
        }
        let owner = Owner::remote(holder);
        let lease_ms = call.policy.lease_ms;
        let claimant = Claimant { owner: &owner, token };
        Ok(match self.begin_as(&call, claimant).await? {
            Begun::Run(attempt) => RemoteBegun::Run(RemoteClaim { info: attempt.hand_over(), lease_ms }),
            Begun::Answered(answer) => RemoteBegun::Answered(answer),
        })
    }

    /// Records how a remote attempt ended. May be repeated when its answer was lost.
    pub async fn complete_remote(
        &self,
        intent: IntentId,
        token: AttemptToken,
        outcome: Outcome,
    ) -> Result<RemoteEnd, StoreError> {
        let oncely = self.clone();
        let ending = async move {
            let rejected = outcome.failure().is_some();
            let input = Input::Complete { token, outcome };
            let (decision, there) = oncely.settle(intent, None, |_| input.clone()).await?;
            oncely.tidy_after(token);
            match (decision, there) {
                (Decision::Recorded, Some(stored)) => Ok(RemoteEnd::Recorded(stored)),
                // No sign of a second effect: nothing happened in it, and the record is there to say what else did.
                (_, Some(_)) if rejected => Ok(RemoteEnd::Superseded),
                (decision, there) => {
                    oncely.unrecorded(intent, decision, there).await;
                    Ok(RemoteEnd::Superseded)
                }
            }
        };
        // A caller that goes away must not stop the recording.
        Unstoppable::new(ending).await
    }
}
