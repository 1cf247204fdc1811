//! A replay inside one process: 1 KiB payload and result, a million records, everything counted.

use std::time::{Duration, Instant};

use oncely::{Answer, Begun, Oncely};

use crate::bench::Bench;
use crate::report::{Row, Target};
use crate::stats::{Series, Unit, p50_p99};
use crate::{Result, ours, progress, workload};

/// Keys that are called again and again, and so are cached.
const HOT: u64 = 1_000;

#[derive(Default)]
struct Seen {
    p50: Series,
    p99: Series,
}

impl Seen {
    fn push(&mut self, latencies: Vec<Duration>) {
        let (p50, p99) = p50_p99(latencies);
        self.p50.push(p50);
        self.p99.push(p99);
    }
}

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let records = bench.sizes.large;
    let ledger = bench.ledger(records)?;
    let replays = bench.sizes.replays as u64;
    let mut seen: [Seen; 3] = Default::default();
    for round in 1..=bench.rounds {
        progress(&format!("replays among {records} records, round {round} of {}", bench.rounds));
        let start = bench.keys();
        let measured = bench.runtime.block_on(async {
            let oncely = ours::open(&ledger).await?;
            // On a runtime thread, where real callers are.
            tokio::spawn(async move { one_round(&oncely, records, replays, start).await }).await?
        })?;
        for (seen, latencies) in seen.iter_mut().zip(measured) {
            seen.push(latencies);
        }
    }
    let names = ["byte for byte the same", "spelled differently", "not cached"];
    let targets = [3e-6, 12e-6, 30e-6];
    let rows = names.iter().zip(targets).zip(&seen).map(|((name, target), seen)| {
        Row::new(format!("replay, {name}, p50, {records} records"), &seen.p50, Unit::Time)
            .against("its p99", &seen.p99, Unit::Time)
            .target(Target::AtMost(target, Unit::Time), &seen.p50)
    });
    let how = format!(
        "One caller; from handing over key and payload to holding the result. Cached: {HOT} keys in turn. Not cached: \
         random keys, each called for the first time since the ledger was opened."
    );
    Ok((rows.collect(), how))
}

async fn one_round(oncely: &Oncely, records: u64, replays: u64, seed: u64) -> Result<[Vec<Duration>; 3]> {
    // Not cached first, while nothing is. A stride that shares no factor with the size visits each key once.
    let cold = (replays / 5).clamp(1, records);
    let stride = coprime(records);
    let mut not_cached = Vec::new();
    for visit in 0..cold {
        let number = (seed.wrapping_add(visit) % records).wrapping_mul(stride) % records;
        not_cached.push(replay(oncely, number, workload::large_payload(number)).await?);
    }
    let hot = HOT.min(records);
    for number in 0..hot {
        replay(oncely, number, workload::large_payload(number)).await?;
    }
    let (mut same, mut respelled) = (Vec::new(), Vec::new());
    for visit in 0..replays {
        let number = visit % hot;
        same.push(replay(oncely, number, workload::large_payload(number)).await?);
        respelled.push(replay(oncely, number, workload::large_payload_respelled(number)).await?);
    }
    Ok([same, respelled, not_cached])
}

/// One replay; the payload is made before the clock starts.
pub(crate) async fn replay(oncely: &Oncely, number: u64, payload: String) -> Result<Duration> {
    let key = workload::key(number);
    let expected = workload::result(number);
    let start = Instant::now();
    let begun = oncely.tool(workload::TOOL).key(&key).payload_json(payload).begin().await?;
    match &begun {
        Begun::Answered(Answer::Replayed(replay))
            if replay.result().is_some_and(|r| r.len() == expected.len()) =>
        {
            let took = start.elapsed();
            if replay.result() != Some(expected) {
                return Err(format!("key {key} replayed another result").into());
            }
            Ok(took)
        }
        Begun::Answered(other) => Err(format!("key {key} was answered {other:?}").into()),
        Begun::Run(_) => Err(format!("key {key} was to be run again").into()),
    }
}

/// About six tenths of the size, sharing no factor with it.
fn coprime(size: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let from = (size as f64 * 0.618) as u64;
    (from.max(1)..).find(|n| gcd(*n, size) == 1).unwrap_or(1)
}
