//! A program with oncely-clap against the same program with plain clap: what a start costs more.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::report::{Row, Target};
use crate::stats::{Series, Unit, p50_p99};
use crate::{Result, progress};

/// Lines that are started in turns, each with both programs.
const LINES: [(&str, &[&str]); 2] = [("a safe command", &["list"]), ("`--help`", &["--help"])];

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let programs = std::env::current_exe()?;
    let programs = programs.parent().ok_or("the benchmark has no directory")?;
    let (plain, ours) = (programs.join("bench-clap-plain"), programs.join("bench-clap-oncely"));
    let mut rows = Vec::new();
    for (what, words) in LINES {
        // Both have been read once.
        start(&plain, words)?;
        start(&ours, words)?;
        let (mut of_plain, mut of_ours) = (Series::default(), Series::default());
        for round in 1..=bench.rounds {
            progress(&format!("starting {what}, round {round} of {}", bench.rounds));
            let (mut plain_took, mut ours_took) = (Vec::new(), Vec::new());
            for _ in 0..bench.sizes.starts {
                plain_took.push(start(&plain, words)?);
                ours_took.push(start(&ours, words)?);
            }
            of_plain.push(p50_p99(plain_took).0);
            of_ours.push(p50_p99(ours_took).0);
        }
        let more = of_ours.less(&of_plain);
        rows.push(
            Row::new(format!("{what} with oncely-clap: more than plain clap"), &of_ours, Unit::Time)
                .against("plain clap", &of_plain, Unit::Time)
                .ratio(&more, Unit::Time)
                .target(Target::AtMost(1e-3, Unit::Time), &more),
        );
    }
    let how = format!(
        "Ten commands; {} starts of each per round, in turns, from spawning the process to having its exit code; p50 \
         per round.",
        bench.sizes.starts
    );
    Ok((rows, how))
}

fn start(program: &Path, words: &[&str]) -> Result<Duration> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("cannot start {}: {e}", program.display()))?;
    let took = start.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{command:?} ended with {status}").into()) }
}
