//! `oncely purge`: drops what is past its retention.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use oncely_core::Store;
use oncely_core::limits::PAGE_MAX;
use oncely_core::machine::{Input, Write, step};
use oncely_core::{Filter, PurgeReport};

use crate::args::Global;
use crate::context::{Context, actor};
use crate::exit::Failure;
use crate::output;

/// Drop what is past its retention
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Only count what would be dropped
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: PurgeArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let oncely = context.open().await?;
    if args.dry_run {
        let due = count_due(&**oncely.store()).await?;
        // Events go with age alone, and the log is not read for this.
        report(global, &due, Tense::WouldBe);
        return Ok(ExitCode::SUCCESS);
    }
    // Draws nothing unless standard error is a terminal.
    let progress = ProgressBar::new_spinner();
    progress.enable_steady_tick(Duration::from_millis(100));
    let purged = oncely
        .purge_by(&actor(), |so_far| {
            let (results, records) = (so_far.results_dropped, so_far.records_removed);
            progress.set_message(format!("{results} results dropped, {records} records removed"));
        })
        .await;
    progress.finish_and_clear();
    let purged = purged?;
    let done = PurgeReport {
        results_dropped: purged.results_dropped,
        records_removed: purged.records_removed,
        events_removed: purged.events_removed,
        unreadable: purged.unreadable,
        more: false,
    };
    report(global, &done, Tense::Was);
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tense {
    Was,
    WouldBe,
}

fn report(global: &Global, report: &PurgeReport, tense: Tense) {
    let PurgeReport { results_dropped, records_removed, events_removed, unreadable, .. } = report;
    if output::wants_json(global.json) {
        output::print_json(&serde_json::json!({
            "dry_run": tense == Tense::WouldBe,
            "results_dropped": results_dropped,
            "records_removed": records_removed,
            "events_removed": (tense == Tense::Was).then_some(events_removed),
            "unreadable": unreadable,
        }));
        return;
    }
    output::print(&match tense {
        Tense::Was => format!(
            "{results_dropped} results dropped, {records_removed} records and {events_removed} audit events removed"
        ),
        Tense::WouldBe => format!(
            "{results_dropped} results would be dropped, {records_removed} records removed; nothing was changed"
        ),
    });
    if *unreadable > 0 {
        output::say(&format!("{unreadable} records cannot be read and are left: oncely doctor"));
    }
}

/// Asks the machine of every record what a purge would do with it now.
async fn count_due(store: &dyn Store) -> Result<PurgeReport, Failure> {
    let mut due = PurgeReport::default();
    let mut from = 0;
    loop {
        let page = store.scan(Filter::default(), from, PAGE_MAX).await?;
        due.unreadable += page.unreadable.len() as u64;
        for stored in &page.items {
            match step(Some(&stored.record), &Input::Expire, stored.now).write {
                Write::Put(_) => due.results_dropped += 1,
                Write::Remove => due.records_removed += 1,
                Write::Nothing => {}
            }
        }
        match page.next {
            Some(next) => from = next,
            None => return Ok(due),
        }
    }
}
