//! The command line tool: what `oncely run` adds to a command that does nothing.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::report::{Row, Target};
use crate::stats::{Series, Unit, p50_p99};
use crate::{Result, progress, workload};

/// What is started, in turns.
#[derive(Clone, Copy)]
enum Start {
    True,
    Fresh,
    Replay,
    Version,
}

const TURNS: [Start; 4] = [Start::True, Start::Fresh, Start::Replay, Start::Version];

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let oncely =
        bench.oncely.canonicalize().map_err(|e| format!("cannot find {}: {e}", bench.oncely.display()))?;
    let path = bench.fresh();
    let store = format!("sqlite:{}", path.display());
    let first = bench.keys();
    // The ledger exists, and the binary has been read once.
    timed(oncely_run(&oncely, &store, first))?;
    let mut middle: [Series; 4] = Default::default();
    let mut number = first;
    for round in 1..=bench.rounds {
        progress(&format!("starting commands, round {round} of {}", bench.rounds));
        let mut latencies: [Vec<Duration>; 4] = Default::default();
        for _ in 0..bench.sizes.starts {
            number += 1;
            for (at, start) in TURNS.into_iter().enumerate() {
                let took = timed(match start {
                    Start::True => quiet(Command::new("true")),
                    // The replay follows with the same key.
                    Start::Fresh | Start::Replay => oncely_run(&oncely, &store, number),
                    Start::Version => {
                        let mut command = Command::new(&oncely);
                        command.arg("--version");
                        quiet(command)
                    }
                })?;
                latencies[at].push(took);
            }
        }
        for (middle, latencies) in middle.iter_mut().zip(latencies) {
            middle.push(p50_p99(latencies).0);
        }
    }
    bench.remove(&path)?;
    let [bare, fresh, replay, version] = middle;
    let more = |what: &str, series: &Series, target: f64| {
        let more = series.less(&bare);
        Row::new(what, series, Unit::Time)
            .against("`true`", &bare, Unit::Time)
            .ratio(&more, Unit::Time)
            .target(Target::AtMost(target, Unit::Time), &more)
    };
    let rows = vec![
        more("`oncely run -- true`, fresh key: more than `true`", &fresh, 5e-3),
        more("`oncely run -- true`, replay: more than `true`", &replay, 3e-3),
        Row::new("`oncely --version` from start to end", &version, Unit::Time)
            .against("`true`", &bare, Unit::Time)
            .target(Target::AtMost(3e-3, Unit::Time), &version),
    ];
    let how = format!(
        "{} starts of each per round, in turns, from spawning the process to having its exit code; p50 per round.",
        bench.sizes.starts
    );
    Ok((rows, how))
}

fn oncely_run(oncely: &Path, store: &str, number: u64) -> Command {
    let mut command = Command::new(oncely);
    let key = workload::key(number);
    command.args(["--store", store, "run", "--key", &key, "--", "true"].map(OsStr::new));
    quiet(command)
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn timed(mut command: Command) -> Result<Duration> {
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{command:?} ended with {status}").into()) }
}
