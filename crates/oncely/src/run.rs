//! Running an effect: in a task of its own, so that a caller that hangs up does not cancel it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use oncely_core::limits::{HEARTBEAT_MS, PROBE_MS_MAX};
use oncely_core::machine::{Because, Execute, Finding};
use oncely_core::{AttemptToken, Doubt, DoubtCause, Effect, Failure, IntentName, Key, Kind, Outcome};

use crate::answer::{Answer, Execution};
use crate::attempt::{Attempt, AttemptInfo};
use crate::call::{Call, CallBuilder, Probe};
use crate::engine::{Begun, Oncely};
use crate::error::Error;

impl CallBuilder<'_> {
    /// Runs the effect unless an earlier call with the same intent answers for it.
    ///
    /// The closure gets its attempt and returns how it went. It runs in its own task: dropping the returned future does
    /// not cancel it, and its end is recorded all the same, so that a retry replays it. A panic, or the runtime being
    /// shut down around it, is an unknown outcome.
    pub async fn run<F, Fut>(self, effect: F) -> Result<Answer, Error>
    where
        F: FnOnce(AttemptInfo) -> Fut + Send + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.oncely.run(&self.call?, effect).await
    }
}

impl Oncely {
    /// Runs the effect of a call; see [`CallBuilder::run`].
    pub async fn run<F, Fut>(&self, call: &Call, effect: F) -> Result<Answer, Error>
    where
        F: FnOnce(AttemptInfo) -> Fut + Send + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        if call.policy.kind == Kind::Read {
            return Ok(Answer::Executed(run_read(call, effect).await?));
        }
        let attempt = match self.begin(call).await? {
            Begun::Run(attempt) => attempt,
            Begun::Answered(answer) => return Ok(answer),
        };
        Ok(Answer::Executed(self.execute(attempt, call.probe.clone(), effect).await))
    }

    /// Runs the effect of an attempt in a task of its own: asks the probe first, renews the lease, records the end.
    pub async fn execute<F, Fut>(&self, attempt: Attempt, probe: Option<Probe>, effect: F) -> Execution
    where
        F: FnOnce(AttemptInfo) -> Fut + Send + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let (intent, number) = (attempt.info().intent(), attempt.info().number());
        // A probe that has just found that nothing happened need not be asked again.
        let probe = probe.filter(|_| attempt.info().because() != Because::ProbedNotHappened);
        match tokio::spawn(attend(attempt, probe, effect)).await {
            Ok(execution) => execution,
            // The runtime is going down; the dropped attempt handed in that it does not know.
            Err(_) => {
                Execution { intent, attempt: number, outcome: abandoned("was stopped"), unrecorded: None }
            }
        }
    }
}

/// Runs an effect to its end, renewing the lease, and records the end.
async fn attend<F, Fut>(mut attempt: Attempt, probe: Option<Probe>, effect: F) -> Execution
where
    F: FnOnce(AttemptInfo) -> Fut + Send + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let info = attempt.info().clone();
    let (intent, number) = (info.intent(), info.number());
    let mut effect = pin!(checked(probe, || caught(move || effect(info))));
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut effect => break outcome,
            () = heartbeat(&mut attempt) => {}
        }
    };
    let unrecorded = attempt.ending().record(outcome.clone()).await;
    Execution { intent, attempt: number, outcome, unrecorded }
}

/// Waits for its time and renews the lease. The effect goes on meanwhile, also while the ledger hangs.
async fn heartbeat(attempt: &mut Attempt) {
    let pause = Duration::from_millis(HEARTBEAT_MS);
    tokio::time::sleep(pause).await;
    // A lost heartbeat is no reason to stop: the lease outlasts several, and the end decides.
    let _ = tokio::time::timeout(pause, attempt.renew()).await;
}

/// Check-then-act: asks the probe first, if there is one.
async fn checked<Fut>(probe: Option<Probe>, act: impl FnOnce() -> Fut) -> Outcome
where
    Fut: Future<Output = Outcome>,
{
    let Some(probe) = probe else { return act().await };
    match ask(probe).await {
        Finding::NotHappened => act().await,
        Finding::Happened(result) => Outcome::Succeeded { effect: Effect::Noop, result },
        Finding::Unsure(why) => Outcome::NotStarted(Failure::new(
            "CHECK_UNSURE",
            format!("the check before acting could not tell whether it has happened: {why}"),
        )),
    }
}

/// Asks a probe; one that panics or takes too long cannot tell.
pub(crate) async fn ask(probe: Probe) -> Finding {
    let asked = Caught(Some(Box::pin(async move { probe().await })));
    match tokio::time::timeout(Duration::from_millis(PROBE_MS_MAX), asked).await {
        Ok(Ok(finding)) => finding,
        Ok(Err(panic)) => Finding::Unsure(format!("the check panicked: {panic}")),
        Err(_) => Finding::Unsure(format!("the check took longer than {} s", PROBE_MS_MAX / 1_000)),
    }
}

/// Runs an effect so that a panic becomes an unknown outcome.
async fn caught<Fut>(effect: impl FnOnce() -> Fut + Send + 'static) -> Outcome
where
    Fut: Future<Output = Outcome> + Send + 'static,
{
    // The closure itself may panic before it returns a future, so it is called inside.
    match Caught(Some(Box::pin(async move { effect().await }))).await {
        Ok(outcome) => outcome,
        Err(panic) => abandoned(&format!("panicked: {panic}")),
    }
}

fn abandoned(how: &str) -> Outcome {
    Outcome::Unknown(Doubt::new(DoubtCause::Abandoned, format!("the effect {how}; what it did is not known")))
}

/// A future that catches panics of the one inside.
struct Caught<T>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> Future for Caught<T> {
    type Output = Result<T, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let Some(inner) = self.0.as_mut() else {
            return Poll::Ready(Err("it was polled after its end".into()));
        };
        // The future is dropped right after a panic, so no broken state is seen again.
        match catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => {
                self.0 = None;
                Poll::Ready(Ok(value))
            }
            Err(panic) => {
                self.0 = None;
                let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Poll::Ready(Err(text.unwrap_or_else(|| "no message".into())))
            }
        }
    }
}

/// A read is never recorded and never replayed: a repeated read must not see a stale answer.
async fn run_read<F, Fut>(call: &Call, effect: F) -> Result<Execution, Error>
where
    F: FnOnce(AttemptInfo) -> Fut + Send + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    call.validate()?;
    let key = call.key.clone().unwrap_or_else(|| Key::derived(&[0; 32]));
    let name = IntentName {
        namespace: call.namespace.clone(),
        scope: call.scope.clone(),
        tool: call.tool.clone(),
        key,
    };
    let intent = name.intent_id();
    let execute = Execute {
        token: AttemptToken([0; 16]),
        attempt: 0,
        downstream_key: intent.downstream_key(0, 0),
        because: Because::Fresh,
    };
    let info = AttemptInfo { intent, name, execute, key_age_ms: 0 };
    let outcome = caught(move || effect(info)).await;
    Ok(Execution { intent, attempt: 0, outcome, unrecorded: None })
}
