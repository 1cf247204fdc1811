//! How long a waiting duplicate waits on after the first has finished.

use std::time::{Duration, Instant};

use oncely::{Answer, Attempt, Begun, Effect, Oncely, Outcome};

use crate::bench::Bench;
use crate::report::{Row, Target};
use crate::stats::{Series, Unit, p50_p99};
use crate::worker::Worker;
use crate::{Result, monotonic_ns, ours, progress, workload};

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let path = bench.fresh();
    let oncely = bench.runtime.block_on(ours::open(&path))?;
    let mut waiter = Worker::start_waiter(&path)?;
    let mut p50: [Series; 2] = Default::default();
    let mut p99: [Series; 2] = Default::default();
    for round in 1..=bench.rounds {
        progress(&format!("waiting duplicates, round {round} of {}", bench.rounds));
        let first = bench.keys();
        let numbers = first..first + bench.sizes.wakes as u64;
        let mut delays: [Vec<Duration>; 2] = Default::default();
        // In turns: the same process, another process.
        for number in numbers {
            delays[0].push(bench.runtime.block_on(same_process(&oncely, 2 * number))?);
            delays[1].push(bench.runtime.block_on(across(&oncely, &mut waiter, 2 * number + 1))?);
        }
        for (at, delays) in delays.into_iter().enumerate() {
            let (middle, tail) = p50_p99(delays);
            p50[at].push(middle);
            p99[at].push(tail);
        }
    }
    waiter.end()?;
    drop(oncely);
    bench.remove(&path)?;
    let names = ["in the same process", "in another process"];
    let targets = [1e-3, 20e-3];
    let rows = names.iter().zip(targets).enumerate().map(|(at, (name, target))| {
        Row::new(format!("a waiting duplicate {name} is answered, p99"), &p99[at], Unit::Time)
            .against("its p50", &p50[at], Unit::Time)
            .target(Target::AtMost(target, Unit::Time), &p99[at])
    });
    let how = "From the moment the first caller's completion was acknowledged to the moment the duplicate holds the \
               answer (0 if it had it before). The first finishes at a random moment after the duplicate began to wait."
        .to_owned();
    Ok((rows.collect(), how))
}

async fn same_process(oncely: &Oncely, number: u64) -> Result<Duration> {
    let attempt = begin(oncely, number).await?;
    let caller = oncely.clone();
    let duplicate = tokio::spawn(async move {
        let payload = workload::small_payload(number);
        let begun =
            caller.tool(workload::TOOL).key(&workload::key(number)).payload_json(payload).begin().await;
        (begun, Instant::now())
    });
    while oncely.waiting() == 0 && !duplicate.is_finished() {
        tokio::task::yield_now().await;
    }
    random_pause(number).await;
    let finished = complete(attempt, number).await?;
    match duplicate.await? {
        (Ok(Begun::Answered(Answer::Replayed(_))), at) => Ok(at.saturating_duration_since(finished.0)),
        (Ok(Begun::Answered(other)), _) => Err(format!("the duplicate was answered {other:?}").into()),
        (Ok(Begun::Run(_)), _) => Err("the duplicate was told to run".into()),
        (Err(error), _) => Err(error.into()),
    }
}

async fn across(oncely: &Oncely, waiter: &mut Worker, number: u64) -> Result<Duration> {
    let attempt = begin(oncely, number).await?;
    waiter.say(&number.to_string())?;
    match waiter.hear()?.as_str() {
        "waiting" => {}
        other => return Err(format!("the waiter said {other:?}").into()),
    }
    random_pause(number).await;
    let finished = complete(attempt, number).await?;
    let answered: u64 = waiter.hear()?.parse()?;
    Ok(Duration::from_nanos(answered.saturating_sub(finished.1)))
}

async fn begin(oncely: &Oncely, number: u64) -> Result<Attempt> {
    let payload = workload::small_payload(number);
    match oncely.tool(workload::TOOL).key(&workload::key(number)).payload_json(payload).begin().await? {
        Begun::Run(attempt) => Ok(attempt),
        Begun::Answered(answer) => Err(format!("a new key was answered {answer:?}").into()),
    }
}

/// Completes, and says when that was acknowledged: by this process's clock and by the machine's.
async fn complete(attempt: Attempt, number: u64) -> Result<(Instant, u64)> {
    let outcome = Outcome::succeeded(Effect::Created, workload::result(number).to_vec());
    match attempt.complete(outcome).await {
        None => Ok((Instant::now(), monotonic_ns())),
        Some(unrecorded) => Err(format!("the end was not recorded: {unrecorded:?}").into()),
    }
}

/// Up to 30 ms, so that no period of a waiter's own lines up with the end.
async fn random_pause(number: u64) {
    tokio::time::sleep(Duration::from_micros(workload::mix(number) % 30_000)).await;
}
