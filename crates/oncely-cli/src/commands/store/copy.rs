//! `oncely store copy`: moves a ledger to another place.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use oncely::policy_file;
use oncely::transfer::{Progress, Report, Transfer, TransferError};
use oncely_core::{Record, Store};
use serde_json::json;

use crate::args::Global;
use crate::exit::{Failure, IN_PROGRESS, PRECONDITION};
use crate::output::{self, Tone};

/// How often the progress is said where nobody watches a bar.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// Most running records that are listed.
const SHOWN_MAX: usize = 10;

/// Move a ledger to another place: every record, event and counter, compared one by one
///
/// From the start of the copy the old ledger takes no new calls, for good: it still answers from what it remembers, and
/// tells programs that still point at it where the ledger went. The new one takes calls when everything is there and
/// equal. If the copy is stopped or killed, run the same command again: it continues.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// The ledger to move from
    #[arg(long, value_name = "URL")]
    from: String,
    /// The ledger to move to: an empty one, or one that does not exist yet
    #[arg(long, value_name = "URL")]
    to: String,
    /// Wait this long for running attempts; no new one begins meanwhile
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    wait: Duration,
    /// Give up an unfinished copy: the old ledger takes calls again, and the new one must be deleted
    #[arg(long, conflicts_with = "wait")]
    abort: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    policy_file::parse_duration(text).map(Duration::from_millis)
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: CopyArgs) -> Result<ExitCode, Failure> {
    let (from, to) = (old(&args.from).await?, new(&args.to).await?);
    // As the ledgers call themselves: with everything that tells them from others, and without secrets.
    let same = format!("oncely store copy --from {} --to {}", from.describe(), to.describe());
    if from.describe() == to.describe() {
        return Err(failure(TransferError::Same(to.describe()), &same));
    }
    let transfer = Transfer::new(from, to);
    if args.abort {
        transfer.give_up().await.map_err(|error| failure(error, &same))?;
        let said = "given up: the old ledger takes calls again; delete the new one";
        match output::wants_json(global.json) {
            true => output::print_json(&json!({ "ok": true, "given_up": true })),
            false => output::print(said),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let started = Instant::now();
    let mut teller = Teller::new();
    let moved = transfer.run(args.wait, |progress| teller.hear(progress)).await;
    teller.finish();
    match moved {
        Ok(report) => print(global, &report, started.elapsed()),
        Err(TransferError::Finished { from, to }) if !global.json => {
            output::print(&format!("{from} was moved to {to} before; nothing was changed"));
        }
        Err(TransferError::Finished { from, to }) => {
            output::print_json(&json!({ "ok": true, "finished_before": true, "from": from, "to": to }));
        }
        Err(error) => return Err(failure(error, &same)),
    }
    Ok(ExitCode::SUCCESS)
}

async fn old(address: &str) -> Result<Arc<dyn Store>, Failure> {
    if oncely_store::is_absent(address).await? {
        let message = "there is no ledger at the address that --from names; nothing was moved";
        return Err(Failure::new(PRECONDITION, "NO_LEDGER", message));
    }
    Ok(oncely_store::open(address).await?)
}

async fn new(address: &str) -> Result<Arc<dyn Store>, Failure> {
    if address == "memory:" {
        return Err(Failure::usage("a ledger in memory ends with this command; nothing was moved"));
    }
    Ok(oncely_store::open(address).await?)
}

fn failure(error: TransferError, same: &str) -> Failure {
    match error {
        TransferError::Store(error) => Failure::from(error).with_fix(same),
        TransferError::Running { ref running, .. } => {
            let message = format!("{error}:{}", list(running));
            Failure::new(IN_PROGRESS, "ATTEMPTS_UNDER_WAY", message).with_fix(format!("{same} --wait 5m"))
        }
        TransferError::Unreadable { ref ledger, .. } => {
            let fix = format!("oncely doctor --store {ledger}");
            Failure::new(PRECONDITION, "UNREADABLE", error.to_string()).with_fix(fix)
        }
        TransferError::NotEmpty(_) => Failure::new(PRECONDITION, "NOT_EMPTY", error.to_string()),
        TransferError::Same(_) => Failure::new(PRECONDITION, "SAME_LEDGER", error.to_string()),
        TransferError::Differs(_) => Failure::new(PRECONDITION, "DIFFERS", error.to_string())
            .with_fix(format!("{same} --abort, and copy into an empty ledger")),
        TransferError::Elsewhere(_) | TransferError::Finished { .. } => {
            Failure::new(PRECONDITION, "ANOTHER_MOVE", error.to_string())
        }
    }
}

fn list(running: &[Arc<Record>]) -> String {
    let mut lines = String::new();
    for record in running.iter().take(SHOWN_MAX) {
        let name = &record.body.name;
        let (tool, key) = (output::clean(name.tool.as_str()), output::clean(name.key.as_str()));
        lines.push_str(&format!("\n  {}  {tool}  {key}", record.intent.short()));
    }
    if running.len() > SHOWN_MAX {
        lines.push_str(&format!("\n  and {} more: oncely ls --state running", running.len() - SHOWN_MAX));
    }
    lines
}

fn print(global: &Global, report: &Report, took: Duration) {
    let states: serde_json::Map<_, _> =
        report.states.iter().map(|(state, count)| (state.as_str().to_owned(), json!(count))).collect();
    if output::wants_json(global.json) {
        output::print_json(&json!({
            "ok": true,
            "from": report.from,
            "to": report.to,
            "records": report.records,
            "states": states,
            "events": report.events,
            "counters": report.counters,
            "clock_shift_ms": report.shift_ms,
            "resumed": report.resumed,
            "took_ms": took.as_millis() as u64,
        }));
        return;
    }
    let line = format!(
        "moved and compared: {} records, {} events, {} counters, in {}",
        report.records,
        report.events,
        report.counters,
        output::age(took.as_millis() as u64)
    );
    output::print(&output::paint(Tone::Good, &line));
    output::print(&format!("{} takes calls now; {} only tells what it remembers", report.to, report.from));
}

/// Says how far the copy is: a bar on a terminal, a line now and then elsewhere.
struct Teller {
    bar: ProgressBar,
    is_watched: bool,
    said: Option<(Instant, &'static str)>,
}

impl Teller {
    fn new() -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{msg:<32} {bar:30} {pos}/{len}") {
            bar.set_style(style);
        }
        Self { bar, is_watched: std::io::stderr().is_terminal(), said: None }
    }

    fn hear(&mut self, progress: &Progress) {
        let stage = progress.stage.as_str();
        if self.is_watched {
            self.bar.set_message(stage);
            self.bar.set_length(progress.of.unwrap_or(progress.done));
            self.bar.set_position(progress.done);
            return;
        }
        let due = self.said.is_none_or(|(at, before)| before != stage || at.elapsed() >= SAY_EVERY);
        if due {
            let of = progress.of.map(|of| format!(" of {of}")).unwrap_or_default();
            output::say(&format!("oncely: {stage}: {}{of}", progress.done));
            self.said = Some((Instant::now(), stage));
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
