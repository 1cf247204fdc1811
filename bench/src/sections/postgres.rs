//! The ledger on PostgreSQL against the plain pattern on the same server: `INSERT … ON CONFLICT DO NOTHING`, then `UPDATE`,
//! with prepared statements on a pool of as many connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use oncely::{Begun, Oncely};
use oncely_testkit::servers::Postgres;

use super::plain_postgres::{BARE, Many, PLAIN, Pattern};
use super::postgres_growth::{self, COPIED_RESULT};
use crate::bench::{Bench, TURNS};
use crate::report::{Row, Target};
use crate::stats::{Sample, Series, Turns, Unit};
use crate::{Result, ours, progress, workload};

/// Connections of either side.
pub(super) const POOL: usize = 8;
/// Most callers at once.
const MOST: usize = 256;
/// How much log is written before its files are needed a second time: more than one round writes.
const WAL_READY_MB: u32 = 3072;
/// Ended calls that are asked for again.
const REPLAYED: u64 = 10_000;

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let folder = bench.fresh();
    let server = Postgres::builder()
        .data_folder(&folder)
        .setting("shared_buffers", "512MB")
        .setting("max_wal_size", postgres_growth::MAX_WAL)
        .setting("min_wal_size", &format!("{WAL_READY_MB}MB"))
        .setting("checkpoint_timeout", "30min")
        .start()?;
    season(&server)?;
    let mut rows = Vec::new();
    for (callers, least) in [(1, None), (64, Some(2.5)), (MOST, Some(4.0))] {
        let seen = rounds(bench, &server, callers)?;
        let ratio = seen.ours.over(&seen.plain);
        let mut row = Row::new(format!("begin + complete, {callers} callers"), &seen.ours, Unit::PerSecond)
            .against("plain pattern", &seen.plain, Unit::PerSecond)
            .ratio(&ratio, Unit::Times);
        if let Some(least) = least {
            row = row.target(Target::AtLeast(least, Unit::Times), &ratio);
        }
        rows.push(row);
        if callers == 1 {
            let ratio = seen.ours_p50.over(&seen.plain_p50);
            rows.push(
                Row::new("begin + complete, one caller alone, p50", &seen.ours_p50, Unit::Time)
                    .against("plain pattern", &seen.plain_p50, Unit::Time)
                    .ratio(&ratio, Unit::Times)
                    .target(Target::AtMost(1.15, Unit::Times), &ratio),
            );
            let ratio = seen.bare_p50.over(&seen.plain_p50);
            rows.push(
                Row::new(
                    "the same rows by bare statements, one caller alone, p50",
                    &seen.bare_p50,
                    Unit::Time,
                )
                .against("plain pattern", &seen.plain_p50, Unit::Time)
                .ratio(&ratio, Unit::Times),
            );
        }
        if let Some((at_a_time, at_once)) = shared(callers) {
            let ratio = seen.many.over(&seen.plain);
            let name = format!("the same rows by bare statements for {at_a_time}, {at_once} at once");
            rows.push(
                Row::new(name, &seen.many, Unit::PerSecond)
                    .against("plain pattern", &seen.plain, Unit::PerSecond)
                    .ratio(&ratio, Unit::Times),
            );
        }
        let ratio = seen.replays.over(&seen.ours);
        rows.push(
            Row::new(format!("duplicates, {callers} callers"), &seen.replays, Unit::PerSecond)
                .against("fresh keys", &seen.ours, Unit::PerSecond)
                .ratio(&ratio, Unit::Times)
                .target(Target::AtLeast(3.0, Unit::Times), &ratio),
        );
    }
    rows.extend(postgres_growth::measure(bench, &server, POOL)?);
    drop(server);
    let how = format!(
        "PostgreSQL 15, fsync on, on the same machine and disk; {POOL} connections on either side, prepared statements. \
         Rows about history: how many times slower than with little, turn by turn; what was loaded keeps {COPIED_RESULT} bytes \
         of result and has scattered ids."
    );
    Ok((rows, how))
}

/// How many rows at a time a program may write that has as many under way as these callers, and on how many connections.
fn shared(callers: usize) -> Option<(usize, usize)> {
    match callers {
        64 => Some((32, 2)),
        MOST => Some((64, 4)),
        _ => None,
    }
}

#[derive(Default)]
struct Seen {
    ours: Series,
    ours_p50: Series,
    plain: Series,
    plain_p50: Series,
    bare_p50: Series,
    many: Series,
    replays: Series,
}

/// Makes the files that the server's log is written to. A server that has run for some time writes to those of before; a new one has
/// to make and fill each, for which everybody waits, and most who write most.
fn season(server: &Postgres) -> Result<()> {
    progress(&format!("making {WAL_READY_MB} MB of log files"));
    let written = format!(
        "SELECT count(pg_logical_emit_message(false, '', repeat('x', 1 << 20))) FROM generate_series(1, {WAL_READY_MB})"
    );
    server.psql(&written)?;
    Ok(())
}

fn rounds(bench: &mut Bench, server: &Postgres, callers: usize) -> Result<Seen> {
    let mut seen = Seen::default();
    for round in 1..=bench.rounds {
        progress(&format!("{callers} callers, round {round} of {}", bench.rounds));
        // The log files of the round before can be written to again, and no checkpoint falls into this one.
        server.psql("CHECKPOINT")?;
        let address = server.fresh_database()?;
        let (turn, first) = (bench.turn(), bench.keys());
        let blocks: Vec<u64> = (0..3 * TURNS).map(|_| bench.keys()).collect();
        let work = one_round(&address, callers, turn, first, &blocks, &mut seen);
        bench.runtime.block_on(work)?;
    }
    Ok(seen)
}

/// New tables, and then short turns on each.
async fn one_round(
    address: &str,
    callers: usize,
    turn: Duration,
    replayed: u64,
    blocks: &[u64],
    seen: &mut Seen,
) -> Result<()> {
    let oncely = Oncely::new(oncely_store::open(&format!("{address}?pool={POOL}&sslmode=disable")).await?);
    let plain = Arc::new(Pattern::open(address, &PLAIN).await?);
    // What the rows cost by themselves is of interest where nobody shares a statement, and where most do.
    let bare = if callers == 1 { Some(Arc::new(Pattern::open(address, &BARE).await?)) } else { None };
    let many = match shared(callers) {
        Some((at_a_time, at_once)) => Some(Many::open(address, at_a_time, at_once).await?),
        None => None,
    };
    fill(&oncely, replayed).await?;
    let [mut of_ours, mut of_plain, mut of_bare, mut of_many, mut of_replays]: [Turns; 5] =
        Default::default();
    for keys in blocks.chunks(3) {
        of_ours.push(ours::closed_loop(&oncely, ours::Style::BeginComplete, callers, turn, keys[0]).await?);
        of_plain.push(plain.run(callers, turn, keys[1]).await?);
        if let Some(bare) = &bare {
            of_bare.push(bare.run(callers, turn, keys[2]).await?);
        }
        if let Some(many) = &many {
            of_many.push(many.run(turn, keys[2]).await?);
        }
        of_replays.push(replay(&oncely, callers, turn, replayed).await?);
    }
    seen.ours.push(of_ours.rate());
    seen.ours_p50.push(of_ours.p50());
    seen.plain.push(of_plain.rate());
    seen.plain_p50.push(of_plain.p50());
    if bare.is_some() {
        seen.bare_p50.push(of_bare.p50());
    }
    if many.is_some() {
        seen.many.push(of_many.rate());
    }
    seen.replays.push(of_replays.rate());
    Ok(())
}

/// Ended calls to be asked for again.
async fn fill(oncely: &Oncely, first: u64) -> Result<()> {
    let next = Arc::new(AtomicU64::new(first));
    let tasks: Vec<_> = (0..256)
        .map(|_| {
            let (oncely, next) = (oncely.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first + REPLAYED {
                        return Ok::<_, Box<dyn std::error::Error + Send + Sync>>(());
                    }
                    ours::begin_complete(&oncely, number, workload::small_payload(number)).await?;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Callers that ask for what has ended.
async fn replay(oncely: &Oncely, callers: usize, duration: Duration, first: u64) -> Result<Sample> {
    let next = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (oncely, next) = (oncely.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while start.elapsed() < duration {
                    let number = first + workload::mix(next.fetch_add(1, Ordering::Relaxed)) % REPLAYED;
                    let from = Instant::now();
                    let call = oncely.tool(workload::TOOL).key(&workload::key(number));
                    match call.payload_json(workload::small_payload(number)).begin().await? {
                        Begun::Answered(_) => latencies.push(from.elapsed()),
                        Begun::Run(_) => return Err("a duplicate was told to run".into()),
                    }
                }
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(latencies)
            })
        })
        .collect();
    gather(start, tasks).await
}

pub(super) async fn gather(
    start: Instant,
    tasks: Vec<tokio::task::JoinHandle<Result<Vec<Duration>>>>,
) -> Result<Sample> {
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    Ok(Sample::of(start.elapsed(), all, Vec::new()))
}
