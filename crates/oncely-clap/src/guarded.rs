//! Runs a command that is not safe under the ledger's protection. Nothing about idempotency is decided here: the engine
//! does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncely::{Attempt, AttemptInfo, Begun, Call, Finding, Forecast, Oncely, Outcome, Probe};
use oncely_core::{AttemptToken, IntentId, IntentName, State, StoreError};
use oncely_store::SqliteOptions;

use crate::answer::{Check, Fault, rejected};
use crate::commands::{App, Commands};
use crate::declare::Strategy;
use crate::handler::Cx;
use crate::job::{Done, Ended, ErasedHandler, Job};
use crate::panics;
use crate::plan::Planned;
use crate::reply::{self, Place, Reply, file_of};

/// How long the end of an attempt is tried to be recorded when the ledger fails, before we give up and exit.
const DRAIN: Duration = Duration::from_secs(30);
/// How long the counters may take to be written.
const FLUSH: Duration = Duration::from_secs(5);

/// How long a call waits silently before it says what it waits for.
const QUIET: Duration = Duration::from_millis(300);

/// A command that is about to run.
pub(crate) struct Errand<A> {
    pub(crate) app: Arc<A>,
    pub(crate) call: Call,
    pub(crate) strategy: Strategy,
    pub(crate) place: Place,
    /// Who has checked that an attempt in doubt did not happen.
    pub(crate) checked_by: Option<String>,
}

impl<A: App> Errand<A> {
    /// Runs the command unless an earlier call answers for it. Says so before what is left is tidied up, and says what it
    /// waits for if that takes long.
    pub(crate) async fn run(mut self, tell: &dyn Fn(&Reply), say: &dyn Fn(&str)) -> u8 {
        let oncely = match oncely_store::open(&self.place.address).await {
            Ok(store) => Oncely::new(store),
            Err(error) => return told(tell, Reply::of_store(&error)),
        };
        let reply = match self.begin(&oncely, say).await {
            Ok(Begun::Answered(answer)) => reply::answered(&answer, &self.place),
            Ok(Begun::Run(attempt)) => self.execute(&oncely, attempt).await,
            Err(error) => Reply::of_error(&error),
        };
        let exit = told(tell, reply);
        panics::told();
        oncely.drain(DRAIN).await;
        flush(oncely).await;
        exit
    }

    async fn begin(&mut self, oncely: &Oncely, say: &dyn Fn(&str)) -> Result<Begun, oncely::Error> {
        let name = oncely.name_of(&self.call)?;
        let intent = name.intent_id();
        if let Some(person) = self.checked_by.take() {
            self.call.checked = vouch(oncely, intent, person).await?;
        }
        if self.strategy == Strategy::Check {
            self.call.probe = Some(probe(oncely, &self.app, name));
        }
        let mut begin = std::pin::pin!(oncely.begin(&self.call));
        if let Ok(begun) = tokio::time::timeout(QUIET, &mut begin).await {
            return begun;
        }
        if let Ok(Some(stored)) = oncely.store().load(intent).await
            && let State::Running { owner, .. } = &stored.record.body.state
        {
            let (attempt, pid) = (stored.record.body.attempts, owner.process.pid);
            say(&format!("waiting for attempt {attempt} with the same key (pid {pid} on {})", owner.host));
        }
        begin.await
    }

    async fn execute(&mut self, oncely: &Oncely, attempt: Attempt) -> Reply {
        let (info, probe) = (attempt.info().clone(), self.call.probe.take());
        let kept: Arc<Mutex<Option<Done>>> = Arc::default();
        let (app, keep) = (self.app.clone(), kept.clone());
        let effect = move |info: AttemptInfo| async move {
            panics::acting();
            let ended = act(Cx::of_attempt(app.clone(), &info), app).await;
            outcome_of(ended, &keep)
        };
        let execution = oncely.execute(attempt, probe, effect).await;
        let done = kept.lock().ok().and_then(|mut kept| kept.take());
        reply::executed(&execution, &info, done, &self.place)
    }

    /// Says what the command would do now. Runs nothing, writes nothing.
    pub(crate) async fn dry_run(self, tell: &dyn Fn(&Reply)) -> u8 {
        let store = match oncely_store::open(readable(&self.place.address)).await {
            Ok(store) => store,
            Err(error) => return told(tell, Reply::of_store(&error)),
        };
        let oncely = Oncely::new(store);
        let tool = self.call.tool.as_str().to_owned();
        let reply = match oncely.dry_run(&self.call).await {
            Err(error) => Reply::of_error(&error),
            Ok(forecast @ Forecast::WouldRun { .. }) => match plan(self.app).await {
                Ok(plan) => reply::forecast(&forecast, &tool, plan, &self.place),
                Err(failure) => Reply::of_query(Err(failure)),
            },
            Ok(forecast) => reply::forecast(&forecast, &tool, None, &self.place),
        };
        told(tell, reply)
    }
}

fn told(tell: &dyn Fn(&Reply), reply: Reply) -> u8 {
    tell(&reply);
    reply.exit
}

/// A ledger that is not there yet remembers nothing; asking it must not make it.
fn readable(address: &str) -> &str {
    let file = file_of(address).and_then(|file| SqliteOptions::parse(file).ok());
    if file.is_some_and(|options| !options.path.exists()) { "memory:" } else { address }
}

/// Writes the counters and closes the ledger, unless somebody holds it up: counters are no reason to hang.
async fn flush(oncely: Oncely) {
    if tokio::time::timeout(FLUSH, oncely.store().flush()).await.is_err() {
        // Closing it would wait, too.
        std::mem::forget(oncely);
    }
}

/// The attempt that a person speaks of: the latest, if it is not under way any more.
async fn vouch(
    oncely: &Oncely,
    intent: IntentId,
    person: String,
) -> Result<Option<(String, AttemptToken)>, StoreError> {
    let Some(stored) = oncely.store().load(intent).await? else { return Ok(None) };
    let settled = stored.record.body.state.has_ended() || oncely.is_under_way(&stored.record);
    Ok((!settled).then(|| (person, stored.record.body.token)))
}

/// Asks the handler's own check.
fn probe<A: App>(oncely: &Oncely, app: &Arc<A>, name: IntentName) -> Probe {
    let (oncely, app) = (oncely.clone(), app.clone());
    Arc::new(move || {
        let (oncely, app, name) = (oncely.clone(), app.clone(), name.clone());
        Box::pin(async move {
            let intent = name.intent_id();
            // Which attempt is asked about decides under which key it would have left its traces.
            let (attempt, generation, rejections) = match oncely.store().load(intent).await {
                Ok(Some(there)) => {
                    let body = &there.record.body;
                    (body.attempts, body.generation, body.rejections)
                }
                Ok(None) => (1, 1, 0),
                Err(error) => return Finding::Unsure(format!("the record cannot be read: {error}")),
            };
            let key = intent.downstream_key(generation, rejections);
            match check(Cx::of_check(app.clone(), &name, attempt, key), app).await {
                Check::Holds(data) => Finding::Happened(Some(data.to_string().into_bytes().into())),
                Check::Missing => Finding::NotHappened,
                Check::Unsure(why) => Finding::Unsure(why),
            }
        })
    })
}

async fn act<A: App>(cx: Cx<A>, app: Arc<A>) -> Ended {
    if let Some(Job::AsyncHandler(job)) = Commands::<A>::job(&*app) {
        return job.run(&cx).await;
    }
    let ended = blocking(move || with_handler(&*app, |job| job.run(&cx))).await;
    ended.unwrap_or_else(|| Err(rejected("NO_HANDLER", "the command has no handler; nothing ran")))
}

async fn plan<A: App>(app: Arc<A>) -> Planned {
    if let Some(Job::AsyncHandler(job)) = Commands::<A>::job(&*app) {
        return job.plan(&app).await;
    }
    blocking(move || with_handler(&*app, |job| job.plan(&app))).await.unwrap_or(Ok(None))
}

async fn check<A: App>(cx: Cx<A>, app: Arc<A>) -> Check<serde_json::Value> {
    if let Some(Job::AsyncHandler(job)) = Commands::<A>::job(&*app) {
        return job.check(&cx).await;
    }
    let found = blocking(move || with_handler(&*app, |job| job.check(&cx))).await;
    found.unwrap_or_else(|| Check::Unsure("the command has no handler".to_owned()))
}

fn with_handler<A: App, T>(app: &A, use_it: impl FnOnce(&dyn ErasedHandler<A>) -> T) -> Option<T> {
    match Commands::<A>::job(app) {
        Some(Job::Handler(job)) => Some(use_it(job)),
        _ => None,
    }
}

/// Runs what blocks on a thread of its own, so that the lease is renewed meanwhile. Its panic is passed on.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and everybody who waits with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// What the ledger is told; what the handler said besides is kept for the answer.
fn outcome_of(ended: Ended, keep: &Mutex<Option<Done>>) -> Outcome {
    match ended {
        Ok(done) => {
            let result = done.data.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string);
            let outcome = Outcome::succeeded(done.effect, result.into_bytes());
            if let Ok(mut keep) = keep.lock() {
                *keep = Some(done);
            }
            outcome
        }
        Err(Fault::Rejected { code, message }) => Outcome::rejected(code, message),
        Err(Fault::Unknown { message }) => Outcome::unknown(message),
    }
}
