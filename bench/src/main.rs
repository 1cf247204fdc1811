//! Measures every promise about speed against baselines in the same run, and prints the ratios.

mod append;
mod bench;
mod contention;
mod copying;
mod echo;
mod ours;
mod plain_redis;
mod proxy;
mod report;
mod sdk;
mod sections;
mod stats;
mod textbook;
mod upstream;
mod web;
mod worker;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::bench::{Bench, Sizes};

/// Whatever went wrong: a benchmark can only say so and stop.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measures Oncely against baselines in the same run.
#[derive(Debug, Parser)]
#[command(name = "bench/run", max_term_width = 100)]
struct Args {
    /// What to measure [default: everything]
    #[arg(value_name = "SECTION", value_parser = clap::builder::PossibleValuesParser::new(sections::names()))]
    sections: Vec<String>,
    /// Small sizes and short rounds: shows that everything works, decides nothing
    #[arg(long)]
    quick: bool,
    /// Rounds; baseline and subject take turns in each [default: 5, quick: 2]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// How long each subject works in a round [default: 3, quick: 0.3]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Records in the largest ledger of the sections growth and postgres [default: 10000000, quick: 40000]
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// Where ledgers are written; a real disk [default: target/bench-data]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Also write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also put the tables into docs/benchmarks.md; sections that are not run keep theirs
    #[arg(long, conflicts_with = "quick")]
    write_docs: bool,
    /// The repository
    #[arg(long, value_name = "DIR", hide = true, default_value = ".")]
    root: PathBuf,
    /// The release binary of the command line tool
    #[arg(long, value_name = "FILE", hide = true, default_value = "target/release/oncely")]
    oncely: PathBuf,
    /// Where Restate is installed
    #[arg(long, value_name = "DIR", hide = true, default_value = "bench/target/restate")]
    restate: PathBuf,
    /// The peer's driver
    #[arg(
        long,
        value_name = "FILE",
        hide = true,
        default_value = "bench/peer/target/release/oncely-bench-peer"
    )]
    peer: PathBuf,
}

/// The allocator of the `oncely` program: the ledger is measured as it runs there, and the baselines have it as well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let done = match words.get(1).map(String::as_str) {
        Some("worker") => worker::main(&words[2..]),
        Some("echo") => echo::serve(),
        Some("sdk") => sdk::serve(),
        Some("copy") => copying::serve(),
        Some("upstream") => upstream::serve(),
        Some("proxy") => proxy::serve(words.get(2).map_or("", String::as_str)),
        _ => measure(Args::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: Args) -> Result<()> {
    let sizes = if args.quick { Sizes::quick() } else { Sizes::full() };
    let sizes = sizes.with_largest(args.records);
    let mut bench = Bench::new(
        args.dir.unwrap_or_else(|| args.root.join("target/bench-data")),
        sizes,
        args.rounds.unwrap_or(if args.quick { 2 } else { 5 }).max(1),
        Duration::from_secs_f64(args.seconds.unwrap_or(if args.quick { 0.3 } else { 3.0 })),
    )?;
    bench.oncely = args.oncely;
    bench.peer = args.peer;
    bench.root.clone_from(&args.root);
    bench.restate = args.restate;
    let machine = bench.describe(&args.root);
    println!("{machine}");
    if args.quick {
        println!("Quick: sizes are smaller than the targets ask for; the verdicts decide nothing.");
    }
    let mut done = Vec::new();
    for (name, section) in sections::ALL {
        if !args.sections.is_empty() && !args.sections.iter().any(|wanted| wanted == name) {
            continue;
        }
        progress(&format!("section {name}"));
        let meter = contention::Meter::start();
        let (rows, how) = section(&mut bench)?;
        let note = format!("{how} {machine} {}", contention::sentence(meter));
        let section = report::Section { name, rows, note };
        print!("{}", section.table());
        done.push(section);
        // After every section: a long run that is stopped keeps what it has.
        if let Some(file) = &args.markdown {
            std::fs::write(file, report::markdown(&done))?;
        }
        if args.write_docs {
            report::write_docs(&args.root.join("docs/benchmarks.md"), &done, &sections::names())?;
        }
    }
    let (met, all) = done.iter().map(report::Section::score).fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    println!("\n{met} of {all} targets met");
    Ok(())
}

/// A line for whoever waits.
pub(crate) fn progress(line: &str) {
    eprintln!("  … {line}");
}

/// The executor that every subject of ours runs on.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// The clock that all processes of one machine share.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
