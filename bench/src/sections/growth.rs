//! Cost grows with the work, not with history: the same calls on ledgers of different size, and during a purge.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::ours::{self, Style};
use crate::report::{Row, Target};
use crate::sections::replay::replay;
use crate::stats::{Series, Unit, p50_p99};
use crate::{Result, progress, workload};

const CALLERS: usize = 64;
/// Callers while records are purged.
const MODERATE: usize = 16;
/// Opens per size and round.
const OPENS: usize = 5;
/// What "not at all" allows for noise.
const NOISE: f64 = 1.1;

/// The figures of one size.
#[derive(Default)]
struct Seen {
    alone: Series,
    many: Series,
    replay: Series,
    open: Series,
}

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let mut sizes = vec![bench.sizes.small, bench.sizes.large, bench.sizes.largest];
    sizes.dedup();
    let mut seen: Vec<Seen> = sizes.iter().map(|_| Seen::default()).collect();
    for round in 1..=bench.rounds {
        for (records, seen) in sizes.iter().zip(&mut seen) {
            let ledger = bench.ledger(*records)?;
            progress(&format!("{records} records, round {round} of {}", bench.rounds));
            one_round(bench, &ledger, *records, seen)?;
            // The rounds add records: nothing to a large ledger, but a small one would soon not be small.
            if *records == bench.sizes.small {
                bench.drop_ledger(*records)?;
            }
        }
    }
    let mut rows = Vec::new();
    let Some((small, larger)) = seen.split_first() else { return Err("there are no sizes".into()) };
    for (records, seen) in sizes.iter().skip(1).zip(larger) {
        rows.extend(compare(sizes[0], small, *records, seen, Some(*records) == sizes.last().copied()));
    }
    for (records, seen) in sizes.iter().zip(&seen) {
        rows.push(
            Row::new(format!("opening a ledger of {records} records"), &seen.open, Unit::Time)
                .target_by_worst(Target::AtMost(20e-3, Unit::Time), &seen.open),
        );
    }
    rows.extend(purge(bench)?);
    let how = format!(
        "Relation: how many times slower than with {} records, round by round. A replay that is up to {NOISE} × \
         slower counts as noise. Purge: {MODERATE} callers at half of what they reach in a closed loop, while the \
         ledger of {} records drops {} expired ones.",
        sizes[0], bench.sizes.large, bench.sizes.expired
    );
    Ok((rows, how))
}

fn one_round(bench: &mut Bench, ledger: &Path, records: u64, seen: &mut Seen) -> Result<()> {
    let (alone_keys, many_keys, duration) = (bench.keys(), bench.keys(), bench.duration);
    let (replays, hot) = (bench.sizes.replays as u64, records.min(1_000));
    bench.runtime.block_on(async {
        let mut opens = Vec::new();
        for _ in 0..OPENS {
            let start = Instant::now();
            let oncely = ours::open(ledger).await?;
            opens.push(start.elapsed());
            drop(oncely);
        }
        seen.open.push(p50_p99(opens).0);

        let oncely = ours::open(ledger).await?;
        seen.alone
            .push(ours::closed_loop(&oncely, Style::BeginComplete, 1, duration, alone_keys).await?.rate());
        seen.many.push(
            ours::closed_loop(&oncely, Style::BeginComplete, CALLERS, duration, many_keys).await?.rate(),
        );
        let replays = tokio::spawn(async move {
            let mut latencies = Vec::new();
            for visit in 0..hot + replays {
                let number = visit % hot;
                let took = replay(&oncely, number, workload::large_payload(number)).await?;
                if visit >= hot {
                    latencies.push(took);
                }
            }
            Result::Ok(latencies)
        });
        seen.replay.push(p50_p99(replays.await??).0);
        Ok(())
    })
}

/// How much slower the larger ledger is. Targets are for the largest.
fn compare(from: u64, small: &Seen, to: u64, large: &Seen, judged: bool) -> Vec<Row> {
    let lines = [
        ("begin + complete, one caller", &small.alone, &large.alone, Unit::PerSecond, 1.3),
        ("begin + complete, 64 callers", &small.many, &large.many, Unit::PerSecond, 2.0),
        ("cached replay, p50", &small.replay, &large.replay, Unit::Time, NOISE),
    ];
    let rows = lines.into_iter().map(|(what, before, after, unit, target)| {
        let slower = if unit == Unit::Time { after.over(before) } else { before.over(after) };
        let row = Row::new(format!("{what}, {to} records"), after, unit)
            .against(&format!("{from} records"), before, unit)
            .ratio(&slower, Unit::Times);
        if judged { row.target(Target::AtMost(target, Unit::Times), &slower) } else { row }
    });
    rows.collect()
}

/// The tail of begin while expired records are dropped.
fn purge(bench: &mut Bench) -> Result<Vec<Row>> {
    let (large, expired) = (bench.sizes.large, bench.sizes.expired);
    let ledger = bench.ledger(large)?;
    let (mut during, mut before) = (Series::default(), Series::default());
    for round in 1..=bench.rounds.min(3) {
        progress(&format!("purging {expired} expired records, round {round}"));
        let (due, keys, duration) =
            (bench.keys(), [bench.keys(), bench.keys(), bench.keys()], bench.duration);
        let (calm, busy) = bench.runtime.block_on(async {
            let oncely = ours::open(&ledger).await?;
            let style = Style::BeginComplete;
            let rate = ours::closed_loop(&oncely, style, MODERATE, duration / 2, keys[0]).await?.rate() / 2.0;
            let calm = ours::paced_for(&oncely, MODERATE, rate, duration, keys[1]).await?;
            drop(oncely);
            let_expire(&ledger, due, expired).await?;
            let oncely = ours::open(&ledger).await?;
            let stop = Arc::new(AtomicBool::new(false));
            let (caller, told) = (oncely.clone(), stop.clone());
            let load = tokio::spawn(async move { ours::paced(&caller, MODERATE, rate, told, keys[2]).await });
            let purged = oncely.purge(|_| {}).await;
            stop.store(true, Ordering::Relaxed);
            let busy = load.await??;
            progress(&format!(
                "{:?} in {:.1} s; the calls' own housekeeping did the rest",
                purged?, busy.seconds
            ));
            Result::Ok((calm, busy))
        })?;
        during.push(busy.begin_p99);
        before.push(calm.begin_p99);
    }
    Ok(vec![
        Row::new(format!("begin while {expired} expired records are purged, p99"), &during, Unit::Time)
            .against("without a purge", &before, Unit::Time)
            .ratio(&during.over(&before), Unit::Times)
            .target(Target::AtMost(3e-3, Unit::Time), &during),
    ])
}

/// Leaves so many records that are due. Calls tidy up as they go, so the records may fall due only when the last of
/// them is written, and nothing may run until then: else they would be gone before the purge that is to be measured.
async fn let_expire(ledger: &Path, first_key: u64, records: u64) -> Result<()> {
    let retention = Duration::from_secs(2) + Duration::from_millis(records / 2);
    let start = Instant::now();
    ours::fill(ledger, ours::expiring(retention), first_key, records).await?;
    if start.elapsed() >= retention {
        return Err(format!(
            "writing {records} records took {:?}, longer than the {retention:?} after which they expire; the machine is \
             too busy to measure a purge",
            start.elapsed()
        )
        .into());
    }
    tokio::time::sleep(retention).await;
    Ok(())
}
