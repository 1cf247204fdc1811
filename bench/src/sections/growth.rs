//! Cost grows with the work, not with history: the same calls on ledgers of different size.

use std::path::Path;
use std::time::Instant;

use crate::bench::Bench;
use crate::ours::{self, Style};
use crate::report::{Row, Target};
use crate::sections::replay::replay;
use crate::stats::{Series, Unit, p50_p99};
use crate::{Result, progress, workload};

const CALLERS: usize = 64;
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
    let how = format!(
        "Relation: how many times slower than with {} records, round by round. A replay that is up to {NOISE} × \
         slower counts as noise.",
        sizes[0]
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
