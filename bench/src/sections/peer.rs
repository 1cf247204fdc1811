//! The Rust peer `agent-effects` with its SQLite store: same work, same run, each in a process of its own.

use crate::bench::Bench;
use crate::report::{Row, Target};
use crate::stats::{Sample, Series, Unit};
use crate::worker::{Subject, alone};
use crate::{Result, progress};

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let program = bench.peer.clone();
    let mut rows = Vec::new();
    for (callers, target) in [(64, 5.0), (1, 1.0)] {
        let (mut ours, mut peer) = (Series::default(), Series::default());
        for round in 1..=bench.rounds {
            progress(&format!("peer, {callers} callers, round {round} of {}", bench.rounds));
            ours.push(fresh(bench, Subject::OursRun, callers)?.rate());
            peer.push(fresh(bench, Subject::Peer(&program), callers)?.rate());
        }
        let ratio = ours.over(&peer);
        rows.push(
            Row::new(format!("run a closure, {callers} callers"), &ours, Unit::PerSecond)
                .against("agent-effects 0.2", &peer, Unit::PerSecond)
                .ratio(&ratio, Unit::Times)
                .target(Target::AtLeast(target, Unit::Times), &ratio),
        );
    }
    let how = "Both run a closure that returns 1 KiB at once, on a new file; the peer as its `open` sets it up (WAL, \
               full sync, 8 connections), on the SQLite that its own driver bundles."
        .to_owned();
    Ok((rows, how))
}

fn fresh(bench: &mut Bench, subject: Subject<'_>, callers: usize) -> Result<Sample> {
    let (path, keys) = (bench.fresh(), bench.keys());
    let sample = alone(subject, &path, callers, bench.duration, keys)?;
    bench.remove(&path)?;
    Ok(sample)
}
