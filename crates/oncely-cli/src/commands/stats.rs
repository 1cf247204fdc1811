//! `oncely stats`: what was called, executed and prevented.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use oncely_doors::stats::{Counts, Saved, Stats};
use serde::Serialize;

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
    let other_namespaces = match only {
        None => None,
        Some(_) => {
            let all = Stats::gather(&**oncely.store(), &context.policy, None).await?;
            Some(Elsewhere::of(&all.totals, &stats.totals))
        }
    };
    if args.by == By::Total {
        stats.tools.clear();
    }
    let view = View { stats, other_namespaces };
    if output::wants_json(global.json) {
        output::print_json(&view);
    } else {
        print(&view.stats, &args);
        if let Some(elsewhere) = &view.other_namespaces {
            elsewhere.say();
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct View {
    #[serde(flatten)]
    stats: Stats,
    /// Left out where all of them are counted above.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_namespaces: Option<Elsewhere>,
}

/// What there is besides: whoever looks at one namespace should know of the others.
#[derive(Serialize)]
struct Elsewhere {
    calls: u64,
    in_doubt: u64,
}

impl Elsewhere {
    fn of(all: &Counts, here: &Counts) -> Self {
        // Counted one after the other: what came in between may be in one of them only.
        Self {
            calls: all.calls.saturating_sub(here.calls),
            in_doubt: all.in_doubt.saturating_sub(here.in_doubt),
        }
    }

    fn say(&self) {
        if self.calls > 0 || self.in_doubt > 0 {
            output::say(&format!(
                "{} calls in other namespaces, {} in doubt: add --all-namespaces",
                self.calls, self.in_doubt
            ));
        }
    }
}

fn print(stats: &Stats, args: &StatsArgs) {
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
    if args.by == By::Total || stats.tools.len() != 1 {
        table.add_row(row(Tone::Head, "total", &stats.totals, &stats.cost_saved));
    }
    output::print_table(&table);
    if stats.totals.in_doubt > 0 {
        let all = if args.all_namespaces { " --all-namespaces" } else { "" };
        output::say(&format!("some outcomes are unknown: oncely ls --state in_doubt{all}"));
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
