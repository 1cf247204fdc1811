//! Four processes on one file.

use std::path::Path;

use crate::bench::Bench;
use crate::report::{Row, Target};
use crate::stats::{Sample, Series, Unit};
use crate::textbook::Connections;
use crate::worker::{Subject, Worker};
use crate::{Result, progress};

const PROCESSES: usize = 4;
const CALLERS: usize = 16;

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let mut best = (Connections::Shared, 0.0);
    for connections in Connections::ALL {
        let rate = total(&fresh(bench, Subject::Textbook(connections))?);
        if rate > best.1 {
            best = (connections, rate);
        }
    }
    let (mut ours, mut safe) = (Series::default(), Series::default());
    let (mut fair, mut safe_fair) = (Series::default(), Series::default());
    let (mut p99, mut safe_p99, mut begin) = (Series::default(), Series::default(), Series::default());
    for round in 1..=bench.rounds {
        progress(&format!("{PROCESSES} processes, round {round} of {}", bench.rounds));
        let seen = fresh(bench, Subject::Ours)?;
        ours.push(total(&seen));
        fair.push(fairness(&seen));
        p99.push(worst(&seen, |s| s.p99));
        begin.push(worst(&seen, |s| s.begin_p99));
        let seen = fresh(bench, Subject::Textbook(best.0))?;
        safe.push(total(&seen));
        safe_fair.push(fairness(&seen));
        safe_p99.push(worst(&seen, |s| s.p99));
    }
    let ratio = ours.over(&safe);
    let rows = vec![
        Row::new("begin + complete, 4 processes of 16 callers", &ours, Unit::PerSecond)
            .against("safe textbook", &safe, Unit::PerSecond)
            .ratio(&ratio, Unit::Times)
            .target(Target::AtLeast(3.0, Unit::Times), &ratio),
        Row::new("slowest process over fastest", &fair, Unit::Times)
            .against("safe textbook", &safe_fair, Unit::Times)
            .target(Target::AtLeast(0.8, Unit::Times), &fair),
        Row::new("begin + complete, p99 of the worst process", &p99, Unit::Time)
            .against("safe textbook", &safe_p99, Unit::Time)
            .target(Target::AtMost(10e-3, Unit::Time), &p99),
        Row::new("begin alone, p99 of the worst process", &begin, Unit::Time),
    ];
    Ok((rows, format!("All callers in a closed loop; textbook with {}.", best.0.as_str())))
}

/// All processes on a new file, at once.
fn fresh(bench: &mut Bench, subject: Subject<'_>) -> Result<Vec<Sample>> {
    let path = bench.fresh();
    let seen = together(bench, subject, &path)?;
    bench.remove(&path)?;
    Ok(seen)
}

fn together(bench: &mut Bench, subject: Subject<'_>, path: &Path) -> Result<Vec<Sample>> {
    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        workers.push(Worker::start(subject, path, CALLERS, bench.duration, bench.keys())?);
    }
    for worker in &mut workers {
        worker.say("go")?;
    }
    workers.into_iter().map(Worker::sample).collect()
}

fn total(seen: &[Sample]) -> f64 {
    seen.iter().map(Sample::rate).sum()
}

fn fairness(seen: &[Sample]) -> f64 {
    let rates = seen.iter().map(|s| s.pairs as f64);
    rates.clone().fold(f64::INFINITY, f64::min) / rates.fold(0.0, f64::max)
}

fn worst(seen: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    seen.iter().map(figure).fold(0.0, f64::max)
}
