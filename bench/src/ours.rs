//! Oncely on its SQLite ledger: single calls, callers in a closed loop, and callers at a set pace.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use oncely::core::Retention;
use oncely::{Answer, Begun, Effect, Oncely, Outcome, Policy};

use crate::Result;
use crate::stats::Sample;
use crate::workload;

/// How a caller says its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `begin`, then `complete`.
    BeginComplete,
    /// `run` with a closure, which runs in a task of its own.
    Run,
    /// Keys that have ended, called again: so many from a first one on, in turn.
    Duplicate { first: u64, keys: u64 },
}

/// Opens the ledger.
pub(crate) async fn open(path: &Path) -> Result<Oncely> {
    open_at(&format!("sqlite:{}", path.display())).await
}

/// Opens the ledger at an address.
pub(crate) async fn open_at(address: &str) -> Result<Oncely> {
    Ok(Oncely::new(oncely_store::open(address).await?))
}

/// One durable begin + complete; says when each was acknowledged.
pub(crate) async fn begin_complete(
    oncely: &Oncely,
    number: u64,
    payload: String,
) -> Result<(Instant, Instant)> {
    call(oncely, number, payload, Arc::new(Policy::default())).await
}

async fn call(
    oncely: &Oncely,
    number: u64,
    payload: String,
    policy: Arc<Policy>,
) -> Result<(Instant, Instant)> {
    let key = workload::key(number);
    let begun = oncely.tool(workload::TOOL).key(&key).payload_json(payload).policy(policy).begin().await?;
    let attempt = match begun {
        Begun::Run(attempt) => attempt,
        Begun::Answered(answer) => return Err(format!("key {key} was new, but: {answer:?}").into()),
    };
    let begun = Instant::now();
    let outcome = Outcome::succeeded(Effect::Created, workload::result(number).to_vec());
    if let Some(unrecorded) = attempt.complete(outcome).await {
        return Err(format!("the end of {key} was not recorded: {unrecorded:?}").into());
    }
    Ok((begun, Instant::now()))
}

async fn duplicate(oncely: &Oncely, number: u64) -> Result<(Instant, Instant)> {
    let (key, payload) = (workload::key(number), workload::small_payload(number));
    match oncely.tool(workload::TOOL).key(&key).payload_json(payload).begin().await? {
        Begun::Answered(Answer::Replayed(replay)) if replay.result() == Some(workload::result(number)) => {
            Ok((Instant::now(), Instant::now()))
        }
        _ => Err(format!("key {key} was not replayed").into()),
    }
}

async fn run_closure(oncely: &Oncely, number: u64) -> Result<(Instant, Instant)> {
    let call =
        oncely.tool(workload::TOOL).key(&workload::key(number)).payload_json(workload::small_payload(number));
    let effect =
        move |_| async move { Outcome::succeeded(Effect::Created, workload::result(number).to_vec()) };
    match call.run(effect).await? {
        Answer::Executed(execution) if execution.unrecorded.is_none() => Ok((Instant::now(), Instant::now())),
        other => Err(format!("a new call was answered with {other:?}").into()),
    }
}

/// Callers, each in its own task, one call after the other for a while.
pub(crate) async fn closed_loop(
    oncely: &Oncely,
    style: Style,
    callers: usize,
    duration: Duration,
    first_key: u64,
) -> Result<Sample> {
    let next = Arc::new(AtomicU64::new(first_key));
    let start = Instant::now();
    let tasks = (0..callers).map(|_| {
        let (oncely, next) = (oncely.clone(), next.clone());
        tokio::spawn(async move {
            let mut seen = Latencies::default();
            while start.elapsed() < duration {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let from = Instant::now();
                let (begun, ended) = match style {
                    Style::BeginComplete => {
                        begin_complete(&oncely, number, workload::small_payload(number)).await?
                    }
                    Style::Run => run_closure(&oncely, number).await?,
                    Style::Duplicate { first, keys } => duplicate(&oncely, first + number % keys).await?,
                };
                seen.add(from, begun, ended);
            }
            Ok(seen)
        })
    });
    let seen = gather(tasks.collect()).await?;
    Ok(Sample::of(start.elapsed(), seen.pairs, seen.begins))
}

/// Callers that together start so many calls per second, whatever the answers take, until told to stop.
///
/// A call that could not start in time because its caller was still busy counts from when it should have started, so
/// that a stall is seen by every call that it held up. The timer's own lateness is not the ledger's and is not counted.
pub(crate) async fn paced(
    oncely: &Oncely,
    callers: usize,
    per_second: f64,
    stop: Arc<AtomicBool>,
    first_key: u64,
) -> Result<Sample> {
    let next = Arc::new(AtomicU64::new(first_key));
    let start = Instant::now();
    let interval = callers as f64 / per_second.max(1.0);
    let tasks = (0..callers).map(|caller| {
        let (oncely, next, stop) = (oncely.clone(), next.clone(), stop.clone());
        tokio::spawn(async move {
            let mut seen = Latencies::default();
            let mut due = start + Duration::from_secs_f64(interval * caller as f64 / callers as f64);
            while !stop.load(Ordering::Relaxed) {
                let mut from = due;
                if Instant::now() < due {
                    tokio::time::sleep_until(due.into()).await;
                    from = Instant::now();
                }
                let number = next.fetch_add(1, Ordering::Relaxed);
                let (begun, ended) = begin_complete(&oncely, number, workload::small_payload(number)).await?;
                seen.add(from, begun, ended);
                // Between half and one and a half of the interval, so that callers do not march in step.
                let share = 0.5 + (workload::mix(number) >> 11) as f64 / (1_u64 << 53) as f64;
                due += Duration::from_secs_f64(interval * share);
            }
            Ok(seen)
        })
    });
    let seen = gather(tasks.collect()).await?;
    Ok(Sample::of(start.elapsed(), seen.pairs, seen.begins))
}

/// [`paced`] for a while.
pub(crate) async fn paced_for(
    oncely: &Oncely,
    callers: usize,
    per_second: f64,
    duration: Duration,
    first_key: u64,
) -> Result<Sample> {
    let stop = Arc::new(AtomicBool::new(false));
    let alarm = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(duration).await;
        alarm.store(true, Ordering::Relaxed);
    });
    paced(oncely, callers, per_second, stop, first_key).await
}

/// Result and key are due this long after the end.
pub(crate) fn expiring(after: Duration) -> Policy {
    let ms = after.as_millis() as u64;
    Policy { retention: Retention { replay_for_ms: ms, remember_for_ms: ms }, ..Policy::default() }
}

/// Fills a ledger with ended records of the 1 KiB payload, through begin and complete like everybody else.
pub(crate) async fn fill(path: &Path, policy: Policy, first_key: u64, records: u64) -> Result<()> {
    const CALLERS: u64 = 512;
    let oncely = open(path).await?;
    let policy = Arc::new(policy);
    let next = Arc::new(AtomicU64::new(first_key));
    let end = first_key + records;
    let tasks = (0..CALLERS.min(records)).map(|_| {
        let (oncely, next, policy) = (oncely.clone(), next.clone(), policy.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return Ok(Latencies::default());
                }
                call(&oncely, number, workload::large_payload(number), policy.clone()).await?;
                let done = number - first_key + 1;
                if done.is_multiple_of(50_000) {
                    crate::progress(&format!("filling the ledger: {done} of {records}"));
                }
            }
        })
    });
    gather(tasks.collect()).await?;
    oncely.store().flush().await?;
    Ok(())
}

#[derive(Default)]
struct Latencies {
    pairs: Vec<Duration>,
    begins: Vec<Duration>,
}

impl Latencies {
    fn add(&mut self, from: Instant, begun: Instant, ended: Instant) {
        self.begins.push(begun - from);
        self.pairs.push(ended - from);
    }
}

async fn gather(tasks: Vec<tokio::task::JoinHandle<Result<Latencies>>>) -> Result<Latencies> {
    let mut all = Latencies::default();
    for task in tasks {
        let seen = task.await??;
        all.pairs.extend(seen.pairs);
        all.begins.extend(seen.begins);
    }
    Ok(all)
}
