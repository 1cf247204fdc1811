//! `oncely stats`: what was called, executed and prevented.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use oncely::policy_file::PolicyFile;
use oncely_core::limits::PAGE_MAX;
use oncely_core::{Counter, Filter, StateName, Store, Tally};
use serde::Serialize;

use super::view::state_now;
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
    let store = &**oncely.store();
    let only = (!args.all_namespaces).then_some(&context.namespace);
    let mut tools: BTreeMap<(String, String), Counts> = BTreeMap::new();
    for tally in store.tallies().await? {
        if only.is_none_or(|only| *only == tally.namespace) {
            tools.entry(whose(&tally)).or_default().add(tally.counter, tally.count);
        }
    }
    for state in [StateName::Running, StateName::InDoubt] {
        let filter = Filter { namespace: only.cloned(), state: Some(state), ..Filter::default() };
        count_open(store, filter, &mut tools).await?;
    }
    let stats = Stats::of(tools, &context.policy, args.by);
    if output::wants_json(global.json) {
        output::print_json(&stats);
    } else {
        stats.print(args.by);
    }
    Ok(ExitCode::SUCCESS)
}

fn whose(tally: &Tally) -> (String, String) {
    (tally.namespace.as_str().to_owned(), tally.tool.as_str().to_owned())
}

/// Counts what is running and in doubt by looking at each: there are few, and a running record whose owner is gone is
/// in doubt although the ledger does not say so yet.
async fn count_open(
    store: &dyn Store,
    filter: Filter,
    tools: &mut BTreeMap<(String, String), Counts>,
) -> Result<(), Failure> {
    let mut from = 0;
    loop {
        let page = store.scan(filter.clone(), from, PAGE_MAX).await?;
        for stored in &page.items {
            let name = &stored.record.body.name;
            let whose = (name.namespace.as_str().to_owned(), name.tool.as_str().to_owned());
            let counts = tools.entry(whose).or_default();
            match state_now(store, stored) {
                StateName::Running => counts.running += 1,
                StateName::InDoubt => counts.in_doubt += 1,
                StateName::Succeeded | StateName::Rejected => {}
            }
        }
        match page.next {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

/// What is counted.
#[derive(Debug, Clone, Default, Serialize)]
struct Counts {
    calls: u64,
    executions: u64,
    duplicates_prevented: u64,
    conflicts: u64,
    unknown_answers: u64,
    waits: u64,
    in_progress_answers: u64,
    refusals: u64,
    superseded: u64,
    running: u64,
    in_doubt: u64,
}

impl Counts {
    fn add(&mut self, counter: Counter, count: u64) {
        let place = match counter {
            Counter::Calls => &mut self.calls,
            Counter::Executions => &mut self.executions,
            Counter::Replays => &mut self.duplicates_prevented,
            Counter::Conflicts => &mut self.conflicts,
            Counter::Unknowns => &mut self.unknown_answers,
            Counter::Waits => &mut self.waits,
            Counter::InProgress => &mut self.in_progress_answers,
            Counter::Refusals => &mut self.refusals,
            Counter::Superseded => &mut self.superseded,
        };
        *place = place.saturating_add(count);
    }

    fn add_all(&mut self, other: &Self) {
        for (counter, count) in [
            (Counter::Calls, other.calls),
            (Counter::Executions, other.executions),
            (Counter::Replays, other.duplicates_prevented),
            (Counter::Conflicts, other.conflicts),
            (Counter::Unknowns, other.unknown_answers),
            (Counter::Waits, other.waits),
            (Counter::InProgress, other.in_progress_answers),
            (Counter::Refusals, other.refusals),
            (Counter::Superseded, other.superseded),
        ] {
            self.add(counter, count);
        }
        self.running += other.running;
        self.in_doubt += other.in_doubt;
    }
}

/// An amount of something that was not spent twice.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Saved {
    amount: f64,
    unit: String,
}

#[derive(Debug, Serialize)]
struct ToolStats {
    tool: String,
    namespace: String,
    #[serde(flatten)]
    counts: Counts,
    cost_saved: Option<Saved>,
}

#[derive(Debug, Serialize)]
struct Stats {
    totals: Counts,
    /// One entry per unit.
    cost_saved: Vec<Saved>,
    tools: Vec<ToolStats>,
}

impl Stats {
    fn of(tools: BTreeMap<(String, String), Counts>, policy: &PolicyFile, by: By) -> Self {
        let mut totals = Counts::default();
        let mut saved: BTreeMap<String, f64> = BTreeMap::new();
        let mut lines = Vec::new();
        for ((namespace, tool), counts) in tools {
            totals.add_all(&counts);
            let cost_saved = policy.tool(&tool).policy.cost.map(|cost| Saved {
                amount: rounded(cost.amount * counts.duplicates_prevented as f64),
                unit: cost.unit,
            });
            if let Some(cost) = &cost_saved {
                *saved.entry(cost.unit.clone()).or_default() += cost.amount;
            }
            lines.push(ToolStats { tool, namespace, counts, cost_saved });
        }
        if by == By::Total {
            lines.clear();
        }
        let cost_saved =
            saved.into_iter().map(|(unit, amount)| Saved { amount: rounded(amount), unit }).collect();
        Self { totals, cost_saved, tools: lines }
    }

    fn print(&self, by: By) {
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
        for tool in &self.tools {
            let saved: Vec<Saved> = tool.cost_saved.iter().cloned().collect();
            table.add_row(row(Tone::Plain, &tool.tool, &tool.counts, &saved));
        }
        if by == By::Total || self.tools.len() != 1 {
            table.add_row(row(Tone::Head, "total", &self.totals, &self.cost_saved));
        }
        output::print_table(&table);
        if self.totals.in_doubt > 0 {
            output::say("some outcomes are unknown: oncely ls --state in_doubt");
        }
        if self.totals.superseded > 0 {
            output::say("superseded attempts ended: effects may have happened twice; see oncely log");
        }
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

/// Without the noise that binary fractions leave: 3 × 0.1 is 0.3.
fn rounded(amount: f64) -> f64 {
    (amount * 1e6).round() / 1e6
}
