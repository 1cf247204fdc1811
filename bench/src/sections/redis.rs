//! The ledger on Redis, every write synced: against a bare script with the same writes, and against `SET NX` and `SET`.

use oncely_testkit::servers::Redis;

use crate::bench::{Bench, TURNS};
use crate::plain_redis::{Pattern, Plain, Sharing};
use crate::report::{Row, Target};
use crate::stats::{Series, Turns, Unit};
use crate::{Result, ours, progress};

/// Keys that duplicates go round among.
const HOT: u64 = 1_000;

#[derive(Default)]
struct Seen {
    ours: Series,
    ours_p50: Series,
    duplicates: Series,
    script: Series,
    script_p50: Series,
    set_nx: Series,
}

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let folder = bench.fresh();
    std::fs::create_dir(&folder)?;
    let place = folder.to_string_lossy().into_owned();
    // Rewriting the append-only file would fall on one side only.
    let server =
        Redis::builder().setting("dir", &place).setting("auto-aof-rewrite-percentage", "0").start()?;
    let mut rows = Vec::new();
    let mut how = format!("{}, `appendfsync always`. ", version(&server)?);
    for callers in [1, 64] {
        let script = faster(bench, &server, Pattern::Script, callers)?;
        let set_nx = faster(bench, &server, Pattern::SetNx, callers)?;
        if callers > 1 {
            how.push_str(&format!(
                "At {callers} callers the script was faster with {}, `SET` with {}. ",
                script.as_str(),
                set_nx.as_str()
            ));
        }
        let mut seen = Seen::default();
        for round in 1..=bench.rounds {
            progress(&format!("{callers} callers, round {round} of {}", bench.rounds));
            one_round(bench, &server, callers, [script, set_nx], &mut seen)?;
        }
        rows.extend(rows_of(callers, &seen));
    }
    drop(server);
    std::fs::remove_dir_all(&folder)?;
    Ok((rows, how.trim_end().to_owned()))
}

fn rows_of(callers: usize, seen: &Seen) -> Vec<Row> {
    let what = format!("begin + complete, {callers} callers");
    let of_script = seen.ours.over(&seen.script);
    let of_set_nx = seen.ours.over(&seen.set_nx);
    let of_fresh = seen.duplicates.over(&seen.ours);
    let mut script = Row::new(format!("{what}, against a bare script"), &seen.ours, Unit::PerSecond)
        .against("the same writes in a script", &seen.script, Unit::PerSecond)
        .ratio(&of_script, Unit::Times);
    let mut set_nx = Row::new(format!("{what}, against `SET NX` and `SET`"), &seen.ours, Unit::PerSecond)
        .against("`SET NX` and `SET`, unsafe", &seen.set_nx, Unit::PerSecond)
        .ratio(&of_set_nx, Unit::Times);
    if callers > 1 {
        script = script.target(Target::AtLeast(0.95, Unit::Times), &of_script);
        set_nx = set_nx.target(Target::AtLeast(0.55, Unit::Times), &of_set_nx);
    }
    let mut rows = vec![script, set_nx];
    if callers == 1 {
        let ratio = seen.ours_p50.over(&seen.script_p50);
        rows.push(
            Row::new("begin + complete, one caller alone, p50", &seen.ours_p50, Unit::Time)
                .against("the same writes in a script", &seen.script_p50, Unit::Time)
                .ratio(&ratio, Unit::Times)
                .target(Target::AtMost(1.15, Unit::Times), &ratio),
        );
    }
    rows.push(
        Row::new(format!("duplicates, {callers} callers"), &seen.duplicates, Unit::PerSecond)
            .against("fresh keys", &seen.ours, Unit::PerSecond)
            .ratio(&of_fresh, Unit::Times)
            .target(Target::AtLeast(3.0, Unit::Times), &of_fresh),
    );
    rows
}

/// An empty server, and then short turns on it.
fn one_round(
    bench: &mut Bench,
    server: &Redis,
    callers: usize,
    [script, set_nx]: [Sharing; 2],
    seen: &mut Seen,
) -> Result<()> {
    server.cli(&["FLUSHALL"])?;
    let url = server.url();
    let turn = bench.turn();
    let [hot, ours, of_script, of_set_nx] = std::array::from_fn(|_| bench.keys());
    let runtime = crate::runtime()?;
    let [mut fresh, mut duplicates, mut scripted, mut set]: [Turns; 4] = Default::default();
    runtime.block_on(async {
        let oncely = ours::open_at(&url).await?;
        let script = Plain::open(&url, Pattern::Script, script, callers).await?;
        let set_nx = Plain::open(&url, Pattern::SetNx, set_nx, callers).await?;
        for number in 0..HOT {
            let payload = crate::workload::small_payload(hot + number);
            ours::begin_complete(&oncely, hot + number, payload).await?;
        }
        for at in 0..u64::from(TURNS) {
            let block = at << 32;
            let style = ours::Style::BeginComplete;
            fresh.push(ours::closed_loop(&oncely, style, callers, turn, ours + block).await?);
            scripted.push(script.run(turn, of_script + block).await?);
            set.push(set_nx.run(turn, of_set_nx + block).await?);
            let style = ours::Style::Duplicate { first: hot, keys: HOT };
            duplicates.push(ours::closed_loop(&oncely, style, callers, turn, 0).await?);
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    seen.ours.push(fresh.rate());
    seen.ours_p50.push(fresh.p50());
    seen.duplicates.push(duplicates.rate());
    seen.script.push(scripted.rate());
    seen.script_p50.push(scripted.p50());
    seen.set_nx.push(set.rate());
    Ok(())
}

/// Which way of sharing connections suits a baseline best: tried, not assumed.
fn faster(bench: &mut Bench, server: &Redis, pattern: Pattern, callers: usize) -> Result<Sharing> {
    let duration = bench.duration.max(std::time::Duration::from_millis(500)) / 2;
    let mut best = (Sharing::Own, 0.0);
    if callers == 1 {
        return Ok(best.0);
    }
    for sharing in Sharing::ALL {
        server.cli(&["FLUSHALL"])?;
        let keys = bench.keys();
        let rate = bench.runtime.block_on(async {
            let plain = Plain::open(&server.url(), pattern, sharing, callers).await?;
            plain.run(duration, keys).await
        })?;
        if rate.rate() > best.1 {
            best = (sharing, rate.rate());
        }
    }
    progress(&format!("{pattern:?}, {callers} callers: {} is faster", best.0.as_str()));
    Ok(best.0)
}

fn version(server: &Redis) -> Result<String> {
    let info = server.cli(&["INFO", "server"])?;
    let version = info.lines().find_map(|line| line.trim().strip_prefix("redis_version:"));
    Ok(format!("Redis {}", version.unwrap_or("of an unknown version")))
}
