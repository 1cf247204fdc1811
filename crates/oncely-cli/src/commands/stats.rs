//! `oncely stats`: what was called, executed and prevented.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use oncely_doors::stats::{Counts, Saved, Stats};

use crate::args::Global;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, Tone};

/// Count calls, executions and duplicates prevented
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// One line per tool, or only the total
    #[arg(long, value_enum, default_value_t = By::Tool)]
    by: By,
    /// Every namespace, not just the current one
    #[arg(long)]
    all_namespaces: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Tool,
    Total,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: StatsArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let oncely = context.open().await?;
    let only = (!args.all_namespaces).then_some(&context.namespace);
    let mut stats = Stats::gather(&**oncely.store(), &context.policy, only).await?;
    if args.by == By::Total {
        stats.tools.clear();
    }
    if output::wants_json(global.json) {
        output::print_json(&stats);
    } else {
        print(&stats, args.by);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(stats: &Stats, by: By) {
    let columns = [
        "TOOL",
        "CALLS",
        "EXECUTED",
        "PREVENTED",
        "CONFLICTS",
        "WAITED",
        "RUNNING",
        "IN DOUBT",
        "SUPERSEDED",
        "SAVED",
    ];
    let mut table = output::table(&columns);
    for tool in &stats.tools {
        let saved: Vec<Saved> = tool.cost_saved.iter().cloned().collect();
        table.add_row(row(Tone::Plain, &tool.tool, &tool.counts, &saved));
    }
    if by == By::Total || stats.tools.len() != 1 {
        table.add_row(row(Tone::Head, "total", &stats.totals, &stats.cost_saved));
    }
    output::print_table(&table);
    if stats.totals.in_doubt > 0 {
        output::say("some outcomes are unknown: oncely ls --state in_doubt");
    }
    if stats.totals.superseded > 0 {
        output::say("superseded attempts ended: effects may have happened twice; see oncely log");
    }
}

fn row(tone: Tone, name: &str, counts: &Counts, saved: &[Saved]) -> Vec<comfy_table::Cell> {
    let number = |tone: Tone, count: u64| output::cell(tone, &count.to_string());
    let alarming = |count: u64| number(if count > 0 { Tone::Loud } else { tone }, count);
    let saved: Vec<String> = saved.iter().map(|saved| format!("{} {}", saved.amount, saved.unit)).collect();
    vec![
        output::cell(tone, name),
        number(tone, counts.calls),
        number(tone, counts.executions),
        number(Tone::Good, counts.duplicates_prevented),
        number(tone, counts.conflicts),
        number(tone, counts.waits),
        number(tone, counts.running),
        alarming(counts.in_doubt),
        alarming(counts.superseded),
        output::cell(tone, if saved.is_empty() { "-".to_owned() } else { saved.join(", ") }.as_str()),
    ]
}
