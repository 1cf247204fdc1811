//! Housekeeping in the way of calls: the tail of begin while expired records are purged.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::ours::{self, Style};
use crate::report::{Row, Target};
use crate::stats::{Series, Unit};
use crate::{Result, progress};

/// Callers while records are purged.
const CALLERS: usize = 16;

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let (large, expired) = (bench.sizes.large, bench.sizes.expired);
    let ledger = bench.ledger(large)?;
    let (mut during, mut without, mut took) = (Series::default(), Series::default(), Series::default());
    for round in 1..=bench.rounds {
        progress(&format!("purging {expired} expired records, round {round}"));
        let (due, keys, duration) =
            (bench.keys(), [bench.keys(), bench.keys(), bench.keys()], bench.duration);
        let (calm, busy) = bench.runtime.block_on(async {
            let oncely = ours::open(&ledger).await?;
            let style = Style::BeginComplete;
            let rate = ours::closed_loop(&oncely, style, CALLERS, duration / 2, keys[0]).await?.rate() / 2.0;
            drop(oncely);
            let_expire(&ledger, due, expired).await?;
            let oncely = ours::open(&ledger).await?;
            let stop = Arc::new(AtomicBool::new(false));
            let (caller, told) = (oncely.clone(), stop.clone());
            let load = tokio::spawn(async move { ours::paced(&caller, CALLERS, rate, told, keys[2]).await });
            let purged = oncely.purge(|_| {}).await;
            stop.store(true, Ordering::Relaxed);
            let busy = load.await??;
            progress(&format!(
                "{:?} in {:.1} s; the calls' own housekeeping did the rest",
                purged?, busy.seconds
            ));
            // For as long, at the same rate: a tail can only be compared with one of the same length.
            let window = Duration::from_secs_f64(busy.seconds);
            let calm = ours::paced_for(&oncely, CALLERS, rate, window, keys[1]).await?;
            Result::Ok((calm, busy))
        })?;
        during.push(busy.begin_p99);
        without.push(calm.begin_p99);
        took.push(busy.seconds);
    }
    let rows = vec![
        Row::new(format!("begin while {expired} expired records are purged, p99"), &during, Unit::Time)
            .against("right after, for as long", &without, Unit::Time)
            .ratio(&during.over(&without), Unit::Times)
            .target(Target::AtMost(3e-3, Unit::Time), &during),
        Row::new("the purge, from its start to its end".to_owned(), &took, Unit::Time),
    ];
    let how = format!(
        "{CALLERS} callers at half of what they reach in a closed loop, for as long as the ledger of {large} records \
         takes to drop {expired} expired ones, and then for as long again with nothing to drop."
    );
    Ok((rows, how))
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
