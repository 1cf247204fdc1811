//! A run whose wall clock is somewhere else, while all other clocks tell the truth.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::Checked;

/// How many seconds are in a day.
pub const DAY: i64 = 24 * 60 * 60;

/// The same command line with its wall clock moved by so many seconds.
pub fn line_at(seconds: i64, line: &Command) -> Command {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/wall_clock.py");
    let mut moved = Command::new("python3");
    moved.arg(tool).arg(seconds.to_string()).arg(line.get_program()).args(line.get_args());
    moved.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    moved
}

/// Runs a command line with its wall clock moved by so many seconds. It is an error if the program never looked at
/// the wall clock, since then nothing was proven.
pub fn run_at(seconds: i64, line: &Command) -> Checked<Output> {
    let output = line_at(seconds, line).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let looked = said.lines().any(|line| line.starts_with("wall clock moved ") && !line.contains(" 0 times"));
    if looked { Ok(output) } else { Err(format!("the wall clock was not looked at: {said}").into()) }
}
