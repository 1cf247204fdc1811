//! The ledger on PostgreSQL against the plain pattern on the same server: `INSERT … ON CONFLICT DO NOTHING`, then `UPDATE`,
//! with prepared statements on a pool of as many connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use oncely::{Begun, Oncely};
use oncely_testkit::servers::Postgres;
use tokio::sync::{Mutex, Semaphore};
use tokio_postgres::{Client, NoTls, Statement};

use super::postgres_growth::{self, COPIED_RESULT};
use crate::bench::{Bench, TURNS};
use crate::report::{Row, Target};
use crate::stats::{Sample, Series, Turns, Unit};
use crate::{Result, ours, progress, workload};

/// Connections of either side.
const POOL: usize = 8;
/// Ended calls that are asked for again.
const REPLAYED: u64 = 10_000;

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let folder = bench.fresh();
    let server = Postgres::builder()
        .data_folder(&folder)
        .setting("shared_buffers", "512MB")
        .setting("max_wal_size", postgres_growth::MAX_WAL)
        .setting("checkpoint_timeout", "30min")
        .start()?;
    let mut rows = Vec::new();
    for (callers, least) in [(1, None), (64, Some(2.5)), (256, Some(4.0))] {
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

#[derive(Default)]
struct Seen {
    ours: Series,
    ours_p50: Series,
    plain: Series,
    plain_p50: Series,
    replays: Series,
}

fn rounds(bench: &mut Bench, server: &Postgres, callers: usize) -> Result<Seen> {
    let mut seen = Seen::default();
    for round in 1..=bench.rounds {
        progress(&format!("{callers} callers, round {round} of {}", bench.rounds));
        let address = server.fresh_database()?;
        let (turn, first) = (bench.turn(), bench.keys());
        let blocks: Vec<u64> = (0..2 * TURNS).map(|_| bench.keys()).collect();
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
    let plain = Arc::new(Plain::open(address).await?);
    fill(&oncely, replayed).await?;
    let [mut of_ours, mut of_plain, mut of_replays]: [Turns; 3] = Default::default();
    for keys in blocks.chunks(2) {
        of_ours.push(ours::closed_loop(&oncely, ours::Style::BeginComplete, callers, turn, keys[0]).await?);
        of_plain.push(plain.run(callers, turn, keys[1]).await?);
        of_replays.push(replay(&oncely, callers, turn, replayed).await?);
    }
    seen.ours.push(of_ours.rate());
    seen.ours_p50.push(of_ours.p50());
    seen.plain.push(of_plain.rate());
    seen.plain_p50.push(of_plain.p50());
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

async fn gather(
    start: Instant,
    tasks: Vec<tokio::task::JoinHandle<Result<Vec<Duration>>>>,
) -> Result<Sample> {
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    Ok(Sample::of(start.elapsed(), all, Vec::new()))
}

/// What people write: a claim, committed; the effect; its result, committed.
struct Plain {
    free: Semaphore,
    pool: Mutex<Vec<Prepared>>,
}

struct Prepared {
    client: Client,
    begin: Statement,
    complete: Statement,
}

impl Plain {
    async fn open(address: &str) -> Result<Self> {
        let mut pool = Vec::new();
        for at in 0..POOL {
            let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
            tokio::spawn(connection);
            if at == 0 {
                let table = "CREATE TABLE calls (key text PRIMARY KEY, state text NOT NULL, \
                             created_at timestamptz NOT NULL DEFAULT now(), result bytea)";
                client.batch_execute(table).await?;
            }
            let begin = "INSERT INTO calls (key, state) VALUES ($1, 'running') ON CONFLICT (key) DO NOTHING";
            let complete =
                "UPDATE calls SET state = 'succeeded', result = $2 WHERE key = $1 AND state = 'running'";
            pool.push(Prepared {
                begin: client.prepare(begin).await?,
                complete: client.prepare(complete).await?,
                client,
            });
        }
        Ok(Self { free: Semaphore::new(POOL), pool: Mutex::new(pool) })
    }

    async fn call(&self, number: u64) -> Result<()> {
        let (key, result) = (workload::key(number), workload::result(number));
        let connection = self.take().await?;
        let made = connection.client.execute(&connection.begin, &[&key]).await;
        self.give_back(connection).await;
        if made? != 1 {
            return Err("a new key was there already".into());
        }
        let connection = self.take().await?;
        let ended = connection.client.execute(&connection.complete, &[&key, &result]).await;
        self.give_back(connection).await;
        ended?;
        Ok(())
    }

    async fn take(&self) -> Result<Prepared> {
        self.free.acquire().await?.forget();
        self.pool.lock().await.pop().ok_or_else(|| "the pool is empty".into())
    }

    async fn give_back(&self, connection: Prepared) {
        self.pool.lock().await.push(connection);
        self.free.add_permits(1);
    }

    async fn run(self: &Arc<Self>, callers: usize, duration: Duration, first: u64) -> Result<Sample> {
        let next = Arc::new(AtomicU64::new(first));
        let start = Instant::now();
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let (plain, next) = (Arc::clone(self), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    while start.elapsed() < duration {
                        let from = Instant::now();
                        plain.call(next.fetch_add(1, Ordering::Relaxed)).await?;
                        latencies.push(from.elapsed());
                    }
                    Ok(latencies)
                })
            })
            .collect();
        gather(start, tasks).await
    }
}
