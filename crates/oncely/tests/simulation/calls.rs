//! What callers, effects, probes and people do in a simulated world.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncely::core::machine::Verdict;
use oncely::core::{AttemptToken, Failure, State};
use oncely::{
    Answer, AttemptInfo, Begun, Call, Effect, Error, Execution, Finding, IntentId, Oncely, Outcome,
};
use oncely_testkit::sim::{Rng, World};

use super::keys::{Family, KeySpec, Lie, fingerprint_of};
use super::tally::Answers;

/// Which payload a call brings, and who vouches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Same,
    Respelled,
    Other,
    /// Begins and completes by itself: an attempt that is dropped in a living process.
    ByHand,
    /// A person has looked and wants the attempt in doubt run again.
    Checked(AttemptToken),
}

/// Makes a call and tells the auditor what came of it.
pub(crate) async fn call(
    world: World,
    oncely: Oncely,
    key: Arc<(usize, KeySpec)>,
    variant: Variant,
    lie: Option<Lie>,
    answers: Answers,
) {
    let (number, spec) = (key.0, &key.1);
    let mut call = match variant {
        Variant::Same | Variant::ByHand | Variant::Checked(_) => spec.call.clone(),
        Variant::Respelled => spec.respelled(number),
        Variant::Other => spec.with_another_payload(number).unwrap_or_else(|| spec.call.clone()),
    };
    if let Variant::Checked(token) = variant {
        call.checked = Some(("a person".to_owned(), token));
    }
    if spec.family == Family::Checked {
        let (world, intent) = (world.clone(), spec.intent);
        call.probe = Some(Arc::new(move || Box::pin(probe(world.clone(), intent, lie))));
    }
    let started = Arc::new(Mutex::new(None));
    let act = {
        let (world, started) = (world.clone(), started.clone());
        move |attempt: AttemptInfo| {
            *started.lock().unwrap() = Some(attempt.token());
            effect(world, attempt.intent(), attempt.token(), attempt.downstream_key().to_string())
        }
    };
    let result = match variant {
        Variant::ByHand => by_hand(&oncely, &call, act).await,
        _ => oncely.run(&call, act).await,
    };
    let started = *started.lock().unwrap();
    answers.count(&result);
    report(&world, spec.intent, &call, started, result);
}

async fn by_hand(
    oncely: &Oncely,
    call: &Call,
    act: impl FnOnce(AttemptInfo) -> Running,
) -> Result<Answer, Error> {
    let attempt = match oncely.begin(call).await? {
        Begun::Run(attempt) => attempt,
        Begun::Answered(answer) => return Ok(answer),
    };
    let (intent, number) = (attempt.info().intent(), attempt.info().number());
    let outcome = act(attempt.info().clone()).await;
    let unrecorded = attempt.complete(outcome.clone()).await;
    Ok(Answer::Executed(Execution { intent, attempt: number, outcome, unrecorded }))
}

fn report(
    world: &World,
    intent: IntentId,
    call: &Call,
    started: Option<AttemptToken>,
    result: Result<Answer, Error>,
) {
    let asked = fingerprint_of(call);
    let answer = match result {
        Ok(answer) => answer,
        Err(_) => return world.audit(|a| a.failed_call(intent, started)),
    };
    let record = world.record(&intent);
    world.audit(|auditor| match &answer {
        Answer::Executed(execution) => {
            if let (Outcome::Succeeded { result: Some(result), .. }, None, Some(token)) =
                (&execution.outcome, &execution.unrecorded, started)
            {
                auditor.told_success(intent, token, result, record.as_deref());
            }
        }
        Answer::Replayed(replay) => {
            auditor.answered_from(&replay.record, &asked);
            auditor.replayed(&replay.record, replay.result());
        }
        Answer::Refused(replay) => auditor.answered_from(&replay.record, &asked),
        Answer::InProgress(there) => auditor.answered_from(&there.record, &asked),
        Answer::Unknown(there) => auditor.answered_from(&there.record, &asked),
        Answer::Conflict { .. } => {}
    });
    if !matches!(answer, Answer::Executed(_)) && started.is_some() {
        world.audit(|a| a.driver_found(format!("an effect ran, but its caller was answered {answer:?}")));
    }
}

/// How an effect goes, drawn when it starts.
struct Script {
    before_ticks: u64,
    before_ms: u64,
    acts: bool,
    after_ticks: u64,
    ending: Ending,
}

enum Ending {
    Says,
    Unknown,
    Panics,
}

impl Script {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            before_ticks: if rng.chance(100) { rng.below(200) } else { rng.below(6) },
            before_ms: if rng.chance(150) { rng.below(45_000) } else { 0 },
            acts: rng.chance(700),
            after_ticks: if rng.chance(100) { rng.below(200) } else { rng.below(6) },
            ending: match rng.below(10) {
                0 => Ending::Panics,
                1 | 2 => Ending::Unknown,
                _ => Ending::Says,
            },
        }
    }
}

/// Tells the auditor that an effect can no longer act, however it ended.
struct EndsWith(World, AttemptToken);

impl Drop for EndsWith {
    fn drop(&mut self) {
        self.0.audit(|a| a.ended(self.1));
    }
}

type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

fn effect(world: World, intent: IntentId, token: AttemptToken, downstream: String) -> Running {
    world.audit(|a| a.began(intent, token));
    let ends = EndsWith(world.clone(), token);
    Box::pin(async move {
        let _ends = ends;
        let script = world.random(Script::draw);
        ticks(&world, script.before_ticks).await;
        if script.before_ms > 0 {
            tokio::time::sleep(Duration::from_millis(script.before_ms)).await;
        }
        let result = script.acts.then(|| world.act(intent, token, &downstream));
        ticks(&world, script.after_ticks).await;
        match (script.ending, result) {
            (Ending::Panics, _) => resume_unwind(Box::new("a simulated panic")),
            (Ending::Unknown, _) => Outcome::unknown("a simulated timeout"),
            (Ending::Says, Some(result)) => Outcome::succeeded(Effect::Executed, result),
            (Ending::Says, None) => {
                let failure = Failure::new("DECLINED", "nothing happened").with_detail(token.0.to_vec());
                if token.0[0].is_multiple_of(2) {
                    Outcome::Rejected(failure)
                } else {
                    Outcome::NotStarted(failure)
                }
            }
        }
    })
}

/// A truthful probe: it sees the outside, and says that it is unsure while the attempt in doubt may still act.
async fn probe(world: World, intent: IntentId, lie: Option<Lie>) -> Finding {
    let (before, after) = world.random(|rng| (rng.below(4), rng.below(4)));
    ticks(&world, before).await;
    let finding = look(&world, intent, lie);
    ticks(&world, after).await;
    finding
}

fn look(world: &World, intent: IntentId, lie: Option<Lie>) -> Finding {
    if lie == Some(Lie::Probe) {
        return Finding::NotHappened;
    }
    if world.random(|rng| rng.chance(100)) {
        return Finding::Unsure("a simulated failure of the probe".into());
    }
    if let Some(result) = world.audit(|a| a.happened(&intent)) {
        return Finding::Happened(Some(result.into()));
    }
    let open = world
        .record(&intent)
        .is_some_and(|r| matches!(r.body.state, State::InDoubt { .. }) && !world.is_over(&r));
    if open { Finding::Unsure("the attempt may still act".into()) } else { Finding::NotHappened }
}

async fn ticks(world: &World, count: u64) {
    let until = world.ticks() + count;
    while world.ticks() < until {
        tokio::task::yield_now().await;
    }
}

/// What a person makes of a record in doubt whose attempt is over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wish {
    Resolve,
    Forget,
}

/// A person who looks into the outside ledger first.
pub(crate) async fn person(
    world: World,
    oncely: Oncely,
    seen: Arc<oncely::Record>,
    wish: Wish,
    lie: Option<Lie>,
) {
    let intent = seen.intent;
    let happened = world.audit(|a| a.happened(&intent)).filter(|_| lie != Some(Lie::Person));
    match wish {
        Wish::Forget => drop(oncely.forget(&seen, "a person").await),
        Wish::Resolve => {
            let verdict = match happened {
                Some(result) => Verdict::Succeeded { effect: Effect::Executed, result: Some(result.into()) },
                None => Verdict::Rejected(Failure::new("CHECKED", "a person saw that nothing happened")),
            };
            drop(oncely.resolve(&seen, "a person", verdict).await);
        }
    }
}

/// Somebody reports the end of an attempt, or its life, long after another took its place.
pub(crate) async fn stale(oncely: Oncely, intent: IntentId, token: AttemptToken, draw: u64) {
    let outcome = match draw % 4 {
        0 => Outcome::succeeded(Effect::Executed, b"stale".to_vec()),
        1 => Outcome::Rejected(Failure::new("STALE", "stale").with_detail(b"stale".to_vec())),
        2 => Outcome::unknown("stale"),
        _ => return drop(oncely.renew(intent, token).await),
    };
    drop(oncely.complete(intent, token, outcome).await);
}
