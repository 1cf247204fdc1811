//! `oncely mcp`: what it adds to a minimal server over stdio.

use crate::bench::{Bench, TURNS};
use crate::echo::{self, Client, Tool};
use crate::ours::{self, Style};
use crate::report::{Row, Target};
use crate::stats::{Series, Turns, Unit};
use crate::{Result, append, copying, progress, sdk};

/// Calls in flight where throughput is measured.
const IN_FLIGHT: usize = 64;
/// Between two subjects.
const SETTLE: std::time::Duration = std::time::Duration::from_millis(20);
/// Keys that are replayed, in turn.
const REPLAYED: u64 = 1_000;
/// Large results before the memory is looked at for the first time, and for the second.
const LARGE: [u64; 2] = [5, 50];

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let oncely =
        bench.oncely.canonicalize().map_err(|e| format!("cannot find {}: {e}", bench.oncely.display()))?;
    let path = bench.fresh();
    let mut clients = Clients {
        direct: Client::start(echo::command()?)?,
        copied: Client::start(copying::command()?)?,
        guarded: Client::start(echo::guarded(&oncely, &path, &echo::command()?))?,
    };
    let replayed = bench.keys();
    prepare(&mut clients, replayed)?;
    let mut seen = Seen::default();
    for round in 1..=bench.rounds {
        progress(&format!("MCP calls, round {round} of {}", bench.rounds));
        seen.push(one_round(bench, &mut clients, replayed)?);
    }
    drop(clients);
    bench.remove(&path)?;
    let mut rows = seen.rows();
    rows.push(on_the_sdk(bench, &oncely)?);
    rows.extend(large(bench, &oncely)?);
    let how = format!(
        "One client over stdio, the server answers at once with 1 KiB; calls one after the other except where {IN_FLIGHT} \
         are in flight. Replays: {REPLAYED} keys in turn. Begin + complete: one caller of the library on a ledger of its own. \
         A bare proxy: one thread that reads and writes up to 64 KiB at a time, looks at nothing, and stays awake for a moment."
    );
    Ok((rows, how))
}

/// Connections to the same server.
struct Clients {
    direct: Client,
    /// Through a proxy that only copies bytes.
    copied: Client,
    /// Through `oncely mcp`.
    guarded: Client,
}

/// Makes the calls that are replayed later, and looks at every kind of answer once: figures of errors are worth nothing.
fn prepare(Clients { direct, copied, guarded }: &mut Clients, replayed: u64) -> Result<()> {
    for number in replayed..replayed + REPLAYED {
        guarded.call(Tool::Write, number)?;
    }
    let again = guarded.call(Tool::Write, replayed)?;
    if again["result"]["_meta"].get("dev.oncely/replayed").is_none() {
        return Err(format!("this is no replay: {again}").into());
    }
    let without = direct.call(Tool::Read, 0)?;
    for with in [guarded.call(Tool::Read, 0)?, copied.call(Tool::Read, 0)?] {
        if with["result"] != without["result"] {
            return Err(format!("a read is not passed through: {with}").into());
        }
    }
    Ok(())
}

/// The turns of one round, all subjects in turn.
#[derive(Default)]
struct Round {
    read_direct: Turns,
    read_copied: Turns,
    read: Turns,
    replay: Turns,
    write_direct: Turns,
    write: Turns,
    pair: Turns,
    append: Turns,
    many_direct: Turns,
    many_copied: Turns,
    many: Turns,
}

/// Lets what was measured before come to rest: a proxy stays awake for a moment, and whoever is measured while it holds a
/// core is placed together with the client on the other one, for the whole turn, where nobody has to be woken.
fn settle() {
    std::thread::sleep(SETTLE);
}

fn one_round(bench: &mut Bench, clients: &mut Clients, replayed: u64) -> Result<Round> {
    let Clients { direct, copied, guarded } = clients;
    let turn = bench.turn();
    let (mut fresh, mut at) = (bench.keys(), 0);
    let mut next = move || {
        fresh += 1;
        fresh
    };
    let mut again = move || {
        at = (at + 1) % REPLAYED;
        replayed + at
    };
    let (ledger, appended, pairs) = (bench.fresh(), bench.fresh(), bench.keys());
    let library = bench.runtime.block_on(ours::open(&ledger))?;
    let mut round = Round::default();
    for number in 0..TURNS {
        settle();
        round.read_direct.push(direct.calls(Tool::Read, 1, turn, &mut next)?);
        settle();
        round.write_direct.push(direct.calls(Tool::Write, 1, turn, &mut next)?);
        settle();
        round.read_copied.push(copied.calls(Tool::Read, 1, turn, &mut next)?);
        settle();
        round.read.push(guarded.calls(Tool::Read, 1, turn, &mut next)?);
        settle();
        round.replay.push(guarded.calls(Tool::Write, 1, turn, &mut again)?);
        settle();
        round.write.push(guarded.calls(Tool::Write, 1, turn, &mut next)?);
        settle();
        let first = pairs + (u64::from(number) << 32);
        round.pair.push(bench.runtime.block_on(ours::closed_loop(
            &library,
            Style::BeginComplete,
            1,
            turn,
            first,
        ))?);
        round.append.push(append::run(&appended, turn)?);
        settle();
        round.many_direct.push(direct.calls(Tool::Read, IN_FLIGHT, turn, &mut next)?);
        settle();
        round.many_copied.push(copied.calls(Tool::Read, IN_FLIGHT, turn, &mut next)?);
        settle();
        round.many.push(guarded.calls(Tool::Read, IN_FLIGHT, turn, &mut next)?);
    }
    drop(library);
    bench.remove(&ledger)?;
    bench.remove(&appended)?;
    Ok(round)
}

/// Medians of latencies and rates, round by round.
#[derive(Default)]
struct Seen {
    read_direct: Series,
    read_copied: Series,
    read: Series,
    replay: Series,
    write_direct: Series,
    write: Series,
    pair: Series,
    append: Series,
    many_direct: Series,
    many_copied: Series,
    many: Series,
}

impl Seen {
    fn push(&mut self, round: Round) {
        self.read_direct.push(round.read_direct.p50());
        self.read_copied.push(round.read_copied.p50());
        self.read.push(round.read.p50());
        self.replay.push(round.replay.p50());
        self.write_direct.push(round.write_direct.p50());
        self.write.push(round.write.p50());
        self.pair.push(round.pair.p50());
        self.append.push(round.append.p50());
        self.many_direct.push(round.many_direct.rate());
        self.many_copied.push(round.many_copied.rate());
        self.many.push(round.many.rate());
    }

    fn rows(&self) -> Vec<Row> {
        let read_more = self.read.less(&self.read_direct);
        let faster = |baseline: &Series| baseline.over(&self.replay);
        let write_more = self.write.less(&self.pair);
        let write_added = write_more.less(&self.write_direct);
        let kept = self.many.over(&self.many_direct);
        let kept_by_copying = self.many_copied.over(&self.many_direct);
        let of_copying = self.many.over(&self.many_copied);
        vec![
            Row::new("a read through `oncely mcp`, p50", &self.read, Unit::Time)
                .against("the server itself", &self.read_direct, Unit::Time)
                .ratio(&read_more, Unit::Time)
                .target(Target::AtMost(60e-6, Unit::Time), &read_more),
            Row::new("a read through a bare proxy, p50", &self.read_copied, Unit::Time)
                .against("the server itself", &self.read_direct, Unit::Time)
                .ratio(&self.read_copied.less(&self.read_direct), Unit::Time),
            Row::new(
                "a replayed write, p50: times faster than a read through `oncely mcp`",
                &self.replay,
                Unit::Time,
            )
            .against("asking the server through `oncely mcp`", &self.read, Unit::Time)
            .ratio(&faster(&self.read), Unit::Times)
            .target(Target::AtLeast(1.0, Unit::Times), &faster(&self.read)),
            Row::new("a replayed write, p50: times faster than the server itself", &self.replay, Unit::Time)
                .against("asking the server without it", &self.write_direct, Unit::Time)
                .ratio(&faster(&self.write_direct), Unit::Times)
                .target(Target::AtLeast(1.0, Unit::Times), &faster(&self.write_direct)),
            Row::new("a fresh write, p50: more than its two durable writes", &self.write, Unit::Time)
                .against("begin + complete", &self.pair, Unit::Time)
                .ratio(&write_more, Unit::Time)
                .target(Target::AtMost(150e-6, Unit::Time), &write_more),
            Row::new(
                "a fresh write, p50: more than its two durable writes and asking the server itself",
                &self.write,
                Unit::Time,
            )
            .against("asking the server without it", &self.write_direct, Unit::Time)
            .ratio(&write_added, Unit::Time)
            .target(Target::AtMost(150e-6, Unit::Time), &write_added),
            Row::new("a fresh write, p50: more than two bare appends", &self.write, Unit::Time)
                .against("two appends of 4 KiB with fdatasync", &self.append, Unit::Time)
                .ratio(&self.write.less(&self.append), Unit::Time),
            Row::new(format!("reads, {IN_FLIGHT} in flight"), &self.many, Unit::PerSecond)
                .against("the server itself", &self.many_direct, Unit::PerSecond)
                .ratio(&kept, Unit::Times)
                .target(Target::AtLeast(0.8, Unit::Times), &kept),
            Row::new(
                format!("reads, {IN_FLIGHT} in flight, through a bare proxy"),
                &self.many_copied,
                Unit::PerSecond,
            )
            .against("the server itself", &self.many_direct, Unit::PerSecond)
            .ratio(&kept_by_copying, Unit::Times),
            Row::new(
                format!("reads, {IN_FLIGHT} in flight: of what a bare proxy carries"),
                &self.many,
                Unit::PerSecond,
            )
            .against("a bare proxy", &self.many_copied, Unit::PerSecond)
            .ratio(&of_copying, Unit::Times),
        ]
    }
}

/// Reads in flight to a server on the official Rust SDK, which has more to do for each than the bare one.
fn on_the_sdk(bench: &mut Bench, oncely: &std::path::Path) -> Result<Row> {
    let path = bench.fresh();
    let mut direct = Client::start(sdk::command()?)?;
    let mut guarded = Client::start(echo::guarded(oncely, &path, &sdk::command()?))?;
    let (without, with) = (direct.call(Tool::Read, 0)?, guarded.call(Tool::Read, 0)?);
    if with["result"]["content"] != without["result"]["content"] || with["result"]["content"].is_null() {
        return Err(format!("a read is not passed through: {with}").into());
    }
    let [mut many, mut many_direct]: [Series; 2] = Default::default();
    let (turn, mut number) = (bench.turn(), bench.keys());
    let mut next = move || {
        number += 1;
        number
    };
    for round in 1..=bench.rounds {
        progress(&format!("a server on the SDK, round {round} of {}", bench.rounds));
        let [mut with, mut without]: [Turns; 2] = Default::default();
        for _ in 0..TURNS {
            settle();
            without.push(direct.calls(Tool::Read, IN_FLIGHT, turn, &mut next)?);
            settle();
            with.push(guarded.calls(Tool::Read, IN_FLIGHT, turn, &mut next)?);
        }
        many.push(with.rate());
        many_direct.push(without.rate());
    }
    drop((direct, guarded));
    bench.remove(&path)?;
    let kept = many.over(&many_direct);
    Ok(Row::new(format!("reads, {IN_FLIGHT} in flight, of a server on the Rust SDK"), &many, Unit::PerSecond)
        .against("the server itself", &many_direct, Unit::PerSecond)
        .ratio(&kept, Unit::Times)
        .target(Target::AtLeast(0.8, Unit::Times), &kept))
}

/// Results of 10 MB: how long they take, and what the proxy's memory comes to.
fn large(bench: &mut Bench, oncely: &std::path::Path) -> Result<Vec<Row>> {
    let [mut took_direct, mut took_copied, mut took, mut few, mut many, mut idle]: [Series; 6] =
        Default::default();
    for round in 1..=bench.rounds {
        progress(&format!("results of 10 MB, round {round} of {}", bench.rounds));
        let path = bench.fresh();
        let mut direct = Client::start(echo::command()?)?;
        let mut copied = Client::start(copying::command()?)?;
        let mut guarded = Client::start(echo::guarded(oncely, &path, &echo::command()?))?;
        guarded.call(Tool::Read, 0)?;
        idle.push(guarded.peak_memory()?);
        let mut asked = 0;
        for (until, peak) in LARGE.into_iter().zip([&mut few, &mut many]) {
            let [mut without, mut copying, mut with]: [Vec<f64>; 3] = Default::default();
            while asked < until {
                asked += 1;
                without.push(direct.timed(Tool::ReadLarge, asked)?);
                copying.push(copied.timed(Tool::ReadLarge, asked)?);
                with.push(guarded.timed(Tool::ReadLarge, asked)?);
            }
            peak.push(guarded.peak_memory()?);
            if until == LARGE[1] {
                took_direct.push(without.into_iter().collect::<Series>().median());
                took_copied.push(copying.into_iter().collect::<Series>().median());
                took.push(with.into_iter().collect::<Series>().median());
            }
        }
        drop(guarded);
        bench.remove(&path)?;
    }
    let growth = many.over(&few);
    Ok(vec![
        Row::new("a read of 10 MB, p50", &took, Unit::Time)
            .against("the server itself", &took_direct, Unit::Time)
            .ratio(&took.over(&took_direct), Unit::Times),
        Row::new("a read of 10 MB through a bare proxy, p50", &took_copied, Unit::Time)
            .against("the server itself", &took_direct, Unit::Time)
            .ratio(&took_copied.over(&took_direct), Unit::Times),
        Row::new(
            format!("peak memory of `oncely mcp` after {} results of 10 MB", LARGE[0]),
            &few,
            Unit::Megabytes,
        )
        .against("before the first", &idle, Unit::Megabytes),
        Row::new(
            format!("peak memory of `oncely mcp` after {} results of 10 MB", LARGE[1]),
            &many,
            Unit::Megabytes,
        )
        .against(&format!("after {}", LARGE[0]), &few, Unit::Megabytes)
        .ratio(&growth, Unit::Times)
        .target(Target::AtMost(1.1, Unit::Times), &growth),
    ])
}
