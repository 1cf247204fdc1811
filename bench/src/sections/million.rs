//! The same with a million records in the ledger: throughput, the tail at moderate load, and the size of the file.

use crate::bench::{Bench, TURNS, bytes};
use crate::ours::{self, Style};
use crate::report::{Row, Target};
use crate::sections::faster_textbook;
use crate::stats::{Series, Turns, Unit};
use crate::textbook::{Pattern, Textbook};
use crate::{Result, progress};

const CALLERS: usize = 64;
/// Callers at moderate load.
const MODERATE: usize = 16;

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let records = bench.sizes.large;
    let (ledger, table) = (bench.ledger(records)?, bench.large_textbook()?);
    // Before the rounds add to them.
    let ours_bytes: Series = [bytes(&ledger)? as f64].into_iter().collect();
    let table_bytes: Series = [bytes(&table)? as f64].into_iter().collect();

    let connections = faster_textbook(bench, Pattern::Safe, CALLERS)?;
    let (mut ours, mut safe) = (Series::default(), Series::default());
    for round in 1..=bench.rounds {
        progress(&format!("{CALLERS} callers, {records} records, round {round} of {}", bench.rounds));
        let oncely = bench.runtime.block_on(ours::open(&ledger))?;
        let textbook = Textbook::open(&table, Pattern::Safe, connections, CALLERS, bench.keys())?;
        let (mut of_ours, mut of_safe) = (Turns::default(), Turns::default());
        for _ in 0..TURNS {
            let (keys, turn) = (bench.keys(), bench.turn());
            let work = ours::closed_loop(&oncely, Style::BeginComplete, CALLERS, turn, keys);
            of_ours.push(bench.runtime.block_on(work)?);
            of_safe.push(textbook.run(turn)?);
        }
        ours.push(of_ours.rate());
        safe.push(of_safe.rate());
    }
    let ratio = ours.over(&safe);
    let mut rows = vec![
        Row::new(format!("begin + complete, {CALLERS} callers, {records} records"), &ours, Unit::PerSecond)
            .against("safe textbook", &safe, Unit::PerSecond)
            .ratio(&ratio, Unit::Times)
            .target(Target::AtLeast(4.0, Unit::Times), &ratio),
    ];
    rows.extend(moderate(bench)?);
    rows.push(
        Row::new(format!("size on disk, {records} records with 1 KiB results"), &ours_bytes, Unit::Megabytes)
            .against("textbook table, bare", &table_bytes, Unit::Megabytes)
            .ratio(&ours_bytes.over(&table_bytes), Unit::Times),
    );
    let how = format!(
        "Textbook with {}. Moderate load: {MODERATE} callers start calls at random moments, together half of what \
         {MODERATE} callers in a closed loop reach in the same round.",
        connections.as_str()
    );
    Ok((rows, how))
}

/// The tail at half of what so many callers can reach.
fn moderate(bench: &mut Bench) -> Result<Vec<Row>> {
    let records = bench.sizes.large;
    let ledger = bench.ledger(records)?;
    let (mut pair, mut begin, mut p50) = (Series::default(), Series::default(), Series::default());
    let mut rate = Series::default();
    for round in 1..=bench.rounds {
        progress(&format!("moderate load, round {round} of {}", bench.rounds));
        let (capacity_keys, keys, duration) = (bench.keys(), bench.keys(), bench.duration);
        let sample = bench.runtime.block_on(async {
            let oncely = ours::open(&ledger).await?;
            let style = Style::BeginComplete;
            let capacity =
                ours::closed_loop(&oncely, style, MODERATE, duration / 2, capacity_keys).await?.rate();
            ours::paced_for(&oncely, MODERATE, capacity / 2.0, duration, keys).await
        })?;
        pair.push(sample.p99);
        begin.push(sample.begin_p99);
        p50.push(sample.p50);
        rate.push(sample.rate());
    }
    let name = |what: &str| format!("{what}, {MODERATE} callers at moderate load, {records} records");
    Ok(vec![
        Row::new(name("begin + complete, p99"), &pair, Unit::Time)
            .against("its p50", &p50, Unit::Time)
            .target(Target::AtMost(3e-3, Unit::Time), &pair),
        Row::new(name("begin alone, p99"), &begin, Unit::Time).against("at", &rate, Unit::PerSecond),
    ])
}
