//! Runs a check command: exit 0 = it has happened (its standard output is the result), 1 = it has not, anything else =
//! unsure.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use oncely::Finding;
use oncely_core::limits::{PROBE_MS_MAX, RESULT_BYTES_MAX};

use super::captured::Captured;

/// How long a check may take: a little less than a probe as a whole, so that it is this that says so.
pub const TIMEOUT: Duration = Duration::from_millis(PROBE_MS_MAX - 1_000);

/// Runs a check command with these additional environment variables.
pub async fn ask(argv: &[OsString], env: &[(String, String)]) -> Finding {
    let Some((program, arguments)) = argv.split_first() else {
        return Finding::Unsure("the check command is empty".into());
    };
    let shown = program.to_string_lossy().into_owned();
    let child = tokio::process::Command::new(program)
        .args(arguments)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn();
    let child = match child {
        Ok(child) => child,
        Err(error) => return Finding::Unsure(format!("the check {shown:?} could not be started: {error}")),
    };
    let output = match tokio::time::timeout(TIMEOUT, child.wait_with_output()).await {
        Err(_) => {
            return Finding::Unsure(format!("the check {shown:?} took longer than {} s", TIMEOUT.as_secs()));
        }
        Ok(Err(error)) => return Finding::Unsure(format!("the check {shown:?} could not be read: {error}")),
        Ok(Ok(output)) => output,
    };
    match output.status.code() {
        Some(0) => {
            let result = Captured { stdout: output.stdout, stderr: Vec::new(), exit_code: 0 }.encode();
            Finding::Happened((result.len() <= RESULT_BYTES_MAX).then(|| result.into()))
        }
        Some(1) => Finding::NotHappened,
        _ => Finding::Unsure(format!("the check {shown:?} ended with {}", output.status)),
    }
}
