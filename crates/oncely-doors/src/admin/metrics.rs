//! Metrics in the text format of Prometheus. Durable counters come from the ledger, so that they survive a restart;
//! what only this process can know comes from what it hears of its engine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oncely::{AnswerKind, Observer, StoreOp};
use oncely_core::{Counter, Link, StoreError, StoreErrorKind, StoreHealth, ToolName};

use super::AdminState;
use crate::stats::{Counts, Stats};

/// Most tools with labels of their own; the others are counted together.
pub const TOOLS_MAX: usize = 100;
/// The label of the tools beyond that.
pub const OTHER: &str = "other";
/// How long the ledger may take to tell what it counts: a scrape usually has ten seconds.
const LEDGER_PATIENCE: Duration = Duration::from_secs(8);
/// Upper bounds of the latency buckets, in microseconds.
const BUCKETS_US: [u64; 14] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000];

/// Counters of another part of the process, which writes them itself.
pub trait MetricsSource: Send + Sync + 'static {
    /// Appends families in the text format of Prometheus.
    fn render(&self, out: &mut String);
}

impl MetricsSource for crate::gateway::AllCounters {
    fn render(&self, out: &mut String) {
        Self::render(self, out);
    }
}

/// What this process has heard of its engine.
#[derive(Default)]
pub struct Metrics {
    calls: Mutex<BTreeMap<String, [u64; AnswerKind::ALL.len()]>>,
    answers: Histogram,
    stored: [Histogram; StoreOp::ALL.len()],
    store_errors: [AtomicU64; StoreOp::ALL.len()],
}

#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS_US.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if let Some(at) = BUCKETS_US.iter().position(|bound| us <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn render(&self, out: &mut String, name: &str, labels: &str) {
        let mut below = 0;
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, count) in BUCKETS_US.iter().zip(&self.buckets) {
            below += count.load(Ordering::Relaxed);
            let bound = *bound as f64 / 1e6;
            line(out, format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}"));
        }
        // Read last, so that the infinite bucket is never below another one.
        let count = self.count.load(Ordering::Relaxed).max(below);
        line(out, format_args!("{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}"));
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        line(out, format_args!("{name}_sum{braced} {sum}"));
        line(out, format_args!("{name}_count{braced} {count}"));
    }
}

impl Observer for Metrics {
    fn answered(&self, tool: &ToolName, kind: AnswerKind, took: Duration) {
        let at = AnswerKind::ALL.iter().position(|known| *known == kind).unwrap_or(0);
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        match calls.get_mut(tool.as_str()) {
            Some(counts) => counts[at] += 1,
            None => {
                let name = if calls.len() < TOOLS_MAX { tool.as_str() } else { OTHER };
                calls.entry(name.to_owned()).or_default()[at] += 1;
            }
        }
        drop(calls);
        self.answers.add(took);
    }

    fn stored(&self, op: StoreOp, took: Duration, error: Option<StoreErrorKind>) {
        let at = StoreOp::ALL.iter().position(|known| *known == op).unwrap_or(0);
        self.stored[at].add(took);
        if error.is_some() {
            self.store_errors[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Metrics {
    fn render(&self, out: &mut String) {
        family(out, "oncely_calls_total", "counter", "Calls answered by this process, by tool and verdict.");
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (tool, counts) in &calls {
            for (kind, count) in AnswerKind::ALL.iter().zip(counts).filter(|(_, count)| **count > 0) {
                let (tool, kind) = (escape(tool), kind.as_str());
                line(out, format_args!("oncely_calls_total{{tool=\"{tool}\",verdict=\"{kind}\"}} {count}"));
            }
        }
        let name = "oncely_answer_seconds";
        family(out, name, "histogram", "Time to answer a call, waiting included, the effect not.");
        self.answers.render(out, name, "");
        let name = "oncely_store_seconds";
        family(out, name, "histogram", "Time that the ledger took, by what was asked.");
        for (op, histogram) in StoreOp::ALL.iter().zip(&self.stored) {
            histogram.render(out, name, &format!("op=\"{}\"", op.as_str()));
        }
        family(out, "oncely_store_errors_total", "counter", "Errors of the ledger, by what was asked.");
        for (op, count) in StoreOp::ALL.iter().zip(&self.store_errors) {
            let (op, count) = (op.as_str(), count.load(Ordering::Relaxed));
            line(out, format_args!("oncely_store_errors_total{{op=\"{op}\"}} {count}"));
        }
    }
}

/// Everything, as one text. While the ledger cannot be reached, what it counts is left out; what this process knows is not.
pub(super) async fn render(state: &AdminState) -> String {
    let mut out = String::with_capacity(16 * 1024);
    let counted = tokio::time::timeout(LEDGER_PATIENCE, render_ledger(state, &mut out)).await;
    if !matches!(counted, Ok(Ok(()))) {
        // Half of it would look like counters that have been reset.
        out.clear();
    }
    render_health(&mut out, &state.oncely.store().health());
    family(&mut out, "oncely_waiting", "gauge", "Callers that wait for another attempt in this process.");
    line(&mut out, format_args!("oncely_waiting {}", state.oncely.waiting()));
    family(&mut out, "oncely_open_effects", "gauge", "Effects open in this process.");
    line(&mut out, format_args!("oncely_open_effects {}", state.oncely.open_effects()));
    if let Some(metrics) = &state.metrics {
        metrics.render(&mut out);
    }
    for source in &state.sources {
        source.render(&mut out);
    }
    out
}

/// The way to the ledger, as this process sees it.
fn render_health(out: &mut String, health: &StoreHealth) {
    let name = "oncely_store_link";
    family(out, name, "gauge", "1 at the state of the way to the ledger.");
    for word in Link::WORDS {
        let stands = u8::from(word == health.link.as_str());
        line(out, format_args!("{name}{{state=\"{word}\"}} {stands}"));
    }
    let down = health.link.down_for().map_or(0.0, |time| time.as_secs_f64());
    for (name, kind, help, value) in [
        ("oncely_store_down_seconds", "gauge", "For how long the ledger has not been usable.", down),
        ("oncely_store_connections", "gauge", "Open connections to the ledger.", health.connected as f64),
        ("oncely_store_reconnects_total", "counter", "Connections made again.", health.reconnects as f64),
        ("oncely_store_queue", "gauge", "Requests that wait for the ledger.", health.queued as f64),
        ("oncely_store_queue_max", "gauge", "Requests that may wait.", health.queue_max as f64),
    ] {
        family(out, name, kind, help);
        line(out, format_args!("{name} {value}"));
    }
}

/// What the ledger counts.
async fn render_ledger(state: &AdminState, out: &mut String) -> Result<(), StoreError> {
    let store = &**state.oncely.store();
    let stats = Stats::gather(store, &state.policy, None).await?;
    let census = store.census().await?;
    let tools = by_tool(&stats);
    for (counter, name, help) in [
        (Counter::Calls, "oncely_ledger_calls_total", "Calls that reached the ledger."),
        (Counter::Executions, "oncely_executions_total", "Effects that were started."),
        (Counter::Replays, "oncely_duplicates_prevented_total", "Calls answered from memory."),
        (Counter::Conflicts, "oncely_conflicts_total", "Keys reused for another payload."),
        (Counter::Unknowns, "oncely_unknown_answers_total", "Calls answered: outcome unknown."),
        (Counter::Waits, "oncely_waits_total", "Calls that waited for another attempt."),
        (Counter::InProgress, "oncely_in_progress_answers_total", "Calls that gave up waiting."),
        (Counter::Refusals, "oncely_refusals_total", "Rejections replayed."),
        (
            Counter::Superseded,
            "oncely_superseded_total",
            "Ends of superseded attempts: possible double effects.",
        ),
    ] {
        family(out, name, "counter", help);
        for (tool, counts) in &tools {
            line(out, format_args!("{name}{{tool=\"{}\"}} {}", escape(tool), counts.of(counter)));
        }
    }
    family(out, "oncely_in_doubt", "gauge", "Records whose outcome is unknown: somebody has to look.");
    for (tool, counts) in &tools {
        line(out, format_args!("oncely_in_doubt{{tool=\"{}\"}} {}", escape(tool), counts.in_doubt));
    }
    family(out, "oncely_running", "gauge", "Records with an attempt under way.");
    for (tool, counts) in &tools {
        line(out, format_args!("oncely_running{{tool=\"{}\"}} {}", escape(tool), counts.running));
    }
    family(out, "oncely_records", "gauge", "Records as the ledger has them, by state.");
    for (state, count) in census {
        line(out, format_args!("oncely_records{{state=\"{state}\"}} {count}"));
    }
    family(out, "oncely_cost_saved_total", "counter", "What prevented duplicates would have cost, by unit.");
    for saved in &stats.cost_saved {
        let unit = escape(&saved.unit);
        line(out, format_args!("oncely_cost_saved_total{{unit=\"{unit}\"}} {}", saved.amount));
    }
    Ok(())
}

/// Counts by tool, whatever the namespace; the tools called most have labels of their own.
fn by_tool(stats: &Stats) -> Vec<(String, Counts)> {
    let mut summed: BTreeMap<&str, Counts> = BTreeMap::new();
    for tool in &stats.tools {
        summed.entry(&tool.tool).or_default().add_all(&tool.counts);
    }
    let mut tools: Vec<(String, Counts)> =
        summed.into_iter().map(|(tool, counts)| (tool.to_owned(), counts)).collect();
    tools.sort_by(|(a, x), (b, y)| y.calls.cmp(&x.calls).then_with(|| a.cmp(b)));
    let rest = tools.split_off(tools.len().min(TOOLS_MAX));
    if !rest.is_empty() {
        let mut other = Counts::default();
        rest.iter().for_each(|(_, counts)| other.add_all(counts));
        match tools.iter_mut().find(|(tool, _)| tool == OTHER) {
            Some((_, counts)) => counts.add_all(&other),
            None => tools.push((OTHER.to_owned(), other)),
        }
    }
    tools.sort_by(|(a, _), (b, _)| a.cmp(b));
    tools
}

/// Starts a family.
pub fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}"));
    line(out, format_args!("# TYPE {name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

/// A label's value as the format wants it.
pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oncely::{AnswerKind, Observer};
    use oncely_core::ToolName;

    use super::{Metrics, OTHER, TOOLS_MAX};

    #[test]
    fn tools_beyond_the_limit_are_counted_together() {
        let metrics = Metrics::default();
        for number in 0..TOOLS_MAX + 50 {
            let tool = ToolName::parse(&format!("tool-{number}")).unwrap();
            metrics.answered(&tool, AnswerKind::Began, Duration::from_micros(60));
        }
        let mut out = String::new();
        metrics.render(&mut out);
        let lines: Vec<&str> = out.lines().filter(|line| line.starts_with("oncely_calls_total{")).collect();
        assert_eq!(lines.len(), TOOLS_MAX + 1);
        assert!(out.contains(&format!("oncely_calls_total{{tool=\"{OTHER}\",verdict=\"began\"}} 50")));
        assert!(out.contains("oncely_answer_seconds_bucket{le=\"0.00005\"} 0"));
        assert!(out.contains("oncely_answer_seconds_bucket{le=\"0.0001\"} 150"));
        assert!(out.contains("oncely_answer_seconds_bucket{le=\"+Inf\"} 150"));
    }
}
