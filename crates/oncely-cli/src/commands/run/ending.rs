//! Waits until the ledger has taken the end of a command: for as long as is useful, or until we are asked to end.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use oncely::{AttemptInfo, Execution, Oncely, Outcome, Unrecorded};
use oncely_core::{Settled, State, StoreError, StoreErrorKind};
use oncely_doors::command::child::PassedSignals;
use tokio::sync::oneshot;

use super::guarded::{DRAIN, FLUSH};
use super::hurry::Hurry;
use super::report::{self, Recorded};

/// How long the ledger has for the end of a command once we are asked to end.
const LAST_CHANCE: Duration = Duration::from_secs(2);

/// What is said of a command when it is over, before the ledger knows.
pub struct Over {
    pub outcome: Outcome,
    /// Whether we were asked to end since.
    pub asked: bool,
}

/// Waits for the command, and then for the ledger to take its end: for that only until somebody asks for our own end. The end
/// is tried to be recorded for as long as we live, whether it is awaited here or not.
pub async fn attend(
    execution: impl Future<Output = Execution>,
    over: oneshot::Receiver<Over>,
    info: &AttemptInfo,
) -> (Execution, Hurry) {
    let mut execution = pin!(execution);
    let over = tokio::select! {
        biased;
        // None: the check before it has decided and no command ran, or it cannot be said how it ended.
        over = over => Err(over.ok()),
        execution = &mut execution => Ok(execution),
    };
    // What was sent before was meant for the command.
    let hurry = Hurry::heard_by(PassedSignals::catch().unwrap_or_else(|_| PassedSignals::none()));
    let over = match over {
        Ok(execution) => return (execution, hurry),
        Err(over) => over,
    };
    let mut hurry = hurry.or_asked(over.as_ref().is_some_and(|over| over.asked));
    if let Some(execution) = hurry.unless_asked(&mut execution).await {
        return (execution, hurry);
    }
    // Whoever was impatient with the command should not leave it in doubt where the ledger is quick.
    let execution = tokio::time::timeout(LAST_CHANCE, execution).await.unwrap_or_else(|_| {
        let message = "the ledger had not answered yet when we were asked to end";
        let unrecorded = StoreError::ambiguous(StoreErrorKind::Unavailable, message);
        let outcome = over.map_or_else(|| Outcome::unknown(message), |over| over.outcome);
        Execution {
            intent: info.intent(),
            attempt: info.number(),
            outcome,
            unrecorded: Some(Unrecorded::StoreFailed(unrecorded)),
        }
    });
    (execution, hurry)
}

/// The ledger may be away for longer than the end of an attempt waits for it. What is said of that is said when it is known:
/// the end is tried on until we leave, and most often it comes through.
pub async fn record_late(
    oncely: &Oncely,
    execution: &mut Execution,
    info: &AttemptInfo,
    hurry: &mut Hurry,
) -> Recorded {
    let Some(Unrecorded::StoreFailed(failed)) = &execution.unrecorded else {
        hurry.unless_asked(oncely.drain(DRAIN)).await;
        return Recorded::AsUsual;
    };
    if !hurry.is_asked() {
        report::still_trying(execution.attempt, failed, DRAIN);
    }
    if hurry.unless_asked(oncely.drain(DRAIN)).await != Some(0) {
        return Recorded::AsUsual;
    }
    // Only what the ledger says now counts: it may also have moved, and never take this end.
    let there = hurry.unless_asked(tokio::time::timeout(FLUSH, oncely.store().load(info.intent()))).await;
    let Some(Ok(Ok(there))) = there else { return Recorded::AsUsual };
    let body = there.as_ref().map(|there| &there.record.body);
    let ours = body.filter(|body| body.token == info.token()).map(|body| &body.state);
    match found_later(ours, &execution.outcome) {
        Found::Recorded => execution.unrecorded = None,
        Found::EarlierUnknown => execution.unrecorded = Some(Unrecorded::EarlierUnknown),
        Found::Superseded => {
            execution.unrecorded = Some(Unrecorded::Superseded);
            return Recorded::AsUsual;
        }
        Found::Nothing => return Recorded::AsUsual,
    }
    Recorded::Late
}

/// What the ledger says of an end that was handed in late.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// What we said.
    Recorded,
    /// That; but an attempt before it is in doubt.
    EarlierUnknown,
    /// Another attempt has the record, or nobody has: it was forgotten.
    Superseded,
    /// Something else: the end was not taken.
    Nothing,
}

/// `ours` is the record's state, if its latest attempt is this one.
fn found_later(ours: Option<&State>, outcome: &Outcome) -> Found {
    match (ours, outcome) {
        (Some(State::Succeeded { settled: Settled::Attempt, .. }), Outcome::Succeeded { .. })
        | (
            Some(State::Rejected { settled: Settled::Attempt, .. }),
            Outcome::Rejected(_) | Outcome::NotStarted(_),
        )
        | (Some(State::InDoubt { .. }), Outcome::Unknown(_)) => Found::Recorded,
        (Some(State::InDoubt { .. }), Outcome::Rejected(_) | Outcome::NotStarted(_)) => Found::EarlierUnknown,
        (Some(_), _) => Found::Nothing,
        // Where nothing happened the next in line has begun, or nothing is lost.
        (None, Outcome::Rejected(_) | Outcome::NotStarted(_)) => Found::Recorded,
        (None, Outcome::Succeeded { .. } | Outcome::Unknown(_)) => Found::Superseded,
    }
}

#[cfg(test)]
mod tests {
    use oncely::{Effect, Outcome};
    use oncely_core::{Doubt, DoubtCause, Failure as Rejection, Settled, State, Store as _};

    use super::{Found, found_later};

    #[test]
    fn an_end_is_called_recorded_only_where_the_ledger_says_the_same() {
        let rejection = || Rejection::new("NO", "no");
        let succeeded = |settled| State::Succeeded { effect: Effect::Created, result: None, settled };
        let rejected = |settled| State::Rejected { failure: rejection(), settled };
        let owner = oncely_store::MemoryStore::new().owner();
        let doubted = State::InDoubt { owner, doubt: Doubt::new(DoubtCause::Reported, "who knows") };
        let done = Outcome::Succeeded { effect: Effect::Created, result: None };
        let (refused, unstarted) = (Outcome::Rejected(rejection()), Outcome::NotStarted(rejection()));
        let unknown = Outcome::unknown("who knows");
        let person = || Settled::Person("somebody".into());
        for (ours, outcome, found) in [
            (Some(succeeded(Settled::Attempt)), &done, Found::Recorded),
            (Some(rejected(Settled::Attempt)), &refused, Found::Recorded),
            (Some(rejected(Settled::Attempt)), &unstarted, Found::Recorded),
            (Some(doubted.clone()), &unknown, Found::Recorded),
            (Some(doubted.clone()), &refused, Found::EarlierUnknown),
            (Some(doubted.clone()), &unstarted, Found::EarlierUnknown),
            // A ledger that has moved takes no end any more, and what a person said is not what we said.
            (Some(doubted), &done, Found::Nothing),
            (Some(succeeded(person())), &done, Found::Nothing),
            (Some(rejected(person())), &done, Found::Nothing),
            (None, &done, Found::Superseded),
            (None, &unknown, Found::Superseded),
            // Nothing happened, and the next in line has begun: no reason for an alarm.
            (None, &refused, Found::Recorded),
        ] {
            assert_eq!(found_later(ours.as_ref(), outcome), found, "{ours:?} {outcome:?}");
        }
    }
}
