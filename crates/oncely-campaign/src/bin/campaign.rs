//! Long campaigns by one command: `cargo run --release -p oncely-campaign -- kills --count 100000 --seed 1`.
#![allow(clippy::print_stdout, reason = "it prints figures")]

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use oncely_campaign::failovers::{self, Cluster, Demand, PostgresPair, Restarted, Service, Wait};
use oncely_campaign::ledger::Runner;
use oncely_campaign::outside::Outside;
use oncely_campaign::programs::Programs;
use oncely_campaign::{Checked, cuts, kills, mcp_kills};

/// Kills per ledger: then its keys are judged and a new one is begun.
const ROUND: u64 = 2_000;

/// Calls at a time of each process, for failovers.
const CALLERS: u64 = 6;

/// Kills real oncely processes, cuts their power, or takes their servers away, at random moments, and counts their effects from outside.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to do to them
    campaign: Kind,
    /// How many kills must land, or how many cuts, failovers or restarts to make
    #[arg(long, default_value_t = 2_000)]
    count: u64,
    /// What the random moments follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes at a time
    #[arg(long, default_value_t = 6)]
    workers: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// kill -9 at random moments
    Kills,
    /// kill -9 of MCP clients, proxies and servers at random moments
    McpKills,
    /// Power cuts on a loop-mounted disk (needs root)
    Cuts,
    /// kill -9 of a PostgreSQL primary whose synchronous standby takes over
    PostgresFailovers,
    /// The same with a standby that is not waited for: this loses
    PostgresAsyncFailovers,
    /// kill -9 of the primaries of a Redis Cluster, with WAIT 1
    RedisFailovers,
    /// The same without WAIT: this loses
    RedisAsyncFailovers,
    /// A PostgreSQL server that is stopped or killed, and started again
    PostgresRestarts,
    /// A Redis server that is stopped or killed, and started again
    RedisRestarts,
}

fn main() -> Checked<ExitCode> {
    let arguments = Arguments::parse();
    let programs = Programs::find()?;
    let started = Instant::now();
    let broken = match arguments.campaign {
        Kind::Kills => kill(&programs, &arguments)?,
        Kind::McpKills => kill_mcp(&programs, &arguments)?,
        Kind::Cuts => cut(&programs, &arguments)?,
        kind => fail_over(&programs, &arguments, &mut *service(kind)?)?,
    };
    println!("seconds: {:.0}", started.elapsed().as_secs_f64());
    println!("broken promises: {}", broken.len());
    for line in broken.iter().take(50) {
        println!("  {line}");
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn kill(programs: &Programs, arguments: &Arguments) -> Checked<Vec<String>> {
    let mut total = kills::Report::default();
    let mut round = 0;
    while total.landed() < arguments.count {
        let directory = tempfile::tempdir()?;
        let outside = Outside::start(programs, directory.path())?;
        let runner = Runner::oncely(programs, &directory.path().join("ledger.db"));
        let seed = arguments.seed + round;
        let left = arguments.count - total.landed();
        let plan = kills::Plan { kills: left.min(ROUND), phases: &[], seed, workers: arguments.workers };
        total.add(kills::run(programs, &runner, &outside, plan)?);
        println!(
            "round {round}, seed {seed}: {} kills landed, {} broken promises",
            total.landed(),
            total.broken.len()
        );
        round += 1;
    }
    println!("seeds: {} to {}", arguments.seed, arguments.seed + round - 1);
    println!("kills landed: {}", total.landed());
    for (phase, kills) in &total.kills {
        println!("  {phase:?}: {kills}");
    }
    println!("runs: {}, keys: {}, effects: {}", total.runs, total.keys, total.effects);
    println!("in doubt: {}, of those with an effect: {}", total.in_doubt, total.in_doubt_with_effect);
    println!("acknowledged results compared: {}", total.compared);
    println!("double effects: {}", total.double_effects);
    Ok(total.broken)
}

fn kill_mcp(programs: &Programs, arguments: &Arguments) -> Checked<Vec<String>> {
    let (mut landed, mut round, mut broken) = (0, 0, Vec::new());
    while landed < arguments.count {
        let directory = tempfile::tempdir()?;
        let outside = Outside::start(programs, directory.path())?;
        let runner = Runner::oncely(programs, &directory.path().join("ledger.db"));
        let (seed, kills) = (arguments.seed + round, (arguments.count - landed).min(ROUND / 4));
        let between = if round % 2 == 0 { mcp_kills::Between::Oncely } else { mcp_kills::Between::Listening };
        let plan = mcp_kills::Plan { kills, phases: &[], seed, workers: arguments.workers, between };
        let mut report = mcp_kills::run(programs, &runner, &outside, plan)?;
        landed += report.landed();
        broken.append(&mut report.broken);
        println!("round {round}, seed {seed}: {report:#?}");
        round += 1;
    }
    println!("kills landed: {landed}");
    Ok(broken)
}

fn cut(programs: &Programs, arguments: &Arguments) -> Checked<Vec<String>> {
    let directory = tempfile::tempdir()?;
    let plan = cuts::Plan { cuts: arguments.count, seed: arguments.seed, way: cuts::Way::Oncely };
    let report = cuts::run(programs, directory.path(), plan)?;
    println!("seed: {}", arguments.seed);
    println!(
        "power cuts: {}, of those while the ledger was being opened: {}",
        report.cuts, report.cuts_while_opening
    );
    println!("acknowledged claims: {}, acknowledged ends: {}", report.claims, report.ends);
    println!("lost: {}", report.lost);
    Ok(report.broken)
}

fn service(kind: Kind) -> Checked<Box<dyn Service>> {
    Ok(match kind {
        Kind::PostgresFailovers => Box::new(PostgresPair::start(Demand::Synchronous)?),
        Kind::PostgresAsyncFailovers => Box::new(PostgresPair::start(Demand::Asynchronous)?),
        Kind::RedisFailovers => Box::new(Cluster::start(Wait::One)?),
        Kind::RedisAsyncFailovers => Box::new(Cluster::start(Wait::None)?),
        Kind::PostgresRestarts => Box::new(Restarted::postgres()?),
        Kind::RedisRestarts => Box::new(Restarted::redis()?),
        Kind::Kills | Kind::McpKills | Kind::Cuts => return Err("it needs no server".into()),
    })
}

fn fail_over(programs: &Programs, arguments: &Arguments, service: &mut dyn Service) -> Checked<Vec<String>> {
    let directory = tempfile::tempdir()?;
    let outside = Outside::start(programs, directory.path())?;
    let plan = failovers::Plan {
        failovers: arguments.count,
        seed: arguments.seed,
        workers: arguments.workers,
        callers: CALLERS,
    };
    let report = failovers::run(programs, service, &outside, plan, |failover, answers| {
        println!("failover {failover} after {answers} answers");
    })?;
    println!("seed {}: {report:#?}", arguments.seed);
    Ok(report.broken)
}
