//! What was called, executed and prevented: the ledger's counters, summed up the same way for every door.

use std::collections::BTreeMap;

use oncely::policy_file::PolicyFile;
use oncely_core::limits::PAGE_MAX;
use oncely_core::{Counter, Filter, Namespace, StateName, Store, StoreError};
use serde::Serialize;

use crate::tell::state_now;

/// What is counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the counters and states")]
pub struct Counts {
    pub calls: u64,
    pub executions: u64,
    pub duplicates_prevented: u64,
    pub conflicts: u64,
    pub unknown_answers: u64,
    pub waits: u64,
    pub in_progress_answers: u64,
    pub refusals: u64,
    pub superseded: u64,
    pub running: u64,
    pub in_doubt: u64,
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

    /// What a counter stands at.
    pub fn of(&self, counter: Counter) -> u64 {
        match counter {
            Counter::Calls => self.calls,
            Counter::Executions => self.executions,
            Counter::Replays => self.duplicates_prevented,
            Counter::Conflicts => self.conflicts,
            Counter::Unknowns => self.unknown_answers,
            Counter::Waits => self.waits,
            Counter::InProgress => self.in_progress_answers,
            Counter::Refusals => self.refusals,
            Counter::Superseded => self.superseded,
        }
    }

    /// Adds all of another.
    pub fn add_all(&mut self, other: &Self) {
        for counter in Counter::ALL {
            self.add(counter, other.of(counter));
        }
        self.running += other.running;
        self.in_doubt += other.in_doubt;
    }
}

/// An amount of something that was not spent twice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Saved {
    /// How much.
    pub amount: f64,
    /// Of what.
    pub unit: String,
}

/// One tool's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolStats {
    /// Which tool.
    pub tool: String,
    /// Whose.
    pub namespace: String,
    /// How often what happened.
    #[serde(flatten)]
    pub counts: Counts,
    /// What the prevented duplicates would have cost, where the policy says what one costs.
    pub cost_saved: Option<Saved>,
}

/// Everybody's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    /// All tools together.
    pub totals: Counts,
    /// One entry per unit.
    pub cost_saved: Vec<Saved>,
    /// By namespace and name.
    pub tools: Vec<ToolStats>,
}

type ByTool = BTreeMap<(String, String), Counts>;

impl Stats {
    /// Reads the counters of one namespace, or of all.
    pub async fn gather(
        store: &dyn Store,
        policy: &PolicyFile,
        only: Option<&Namespace>,
    ) -> Result<Self, StoreError> {
        let mut tools = ByTool::new();
        for tally in store.tallies().await? {
            if only.is_none_or(|only| *only == tally.namespace) {
                let whose = (tally.namespace.as_str().to_owned(), tally.tool.as_str().to_owned());
                tools.entry(whose).or_default().add(tally.counter, tally.count);
            }
        }
        for state in [StateName::Running, StateName::InDoubt] {
            let filter = Filter { namespace: only.cloned(), state: Some(state), ..Filter::default() };
            count_open(store, filter, &mut tools).await?;
        }
        Ok(Self::of(tools, policy))
    }

    fn of(by_tool: ByTool, policy: &PolicyFile) -> Self {
        let mut totals = Counts::default();
        let mut saved: BTreeMap<String, f64> = BTreeMap::new();
        let mut tools = Vec::new();
        for ((namespace, tool), counts) in by_tool {
            totals.add_all(&counts);
            let cost_saved = policy.tool(&tool).policy.cost.map(|cost| Saved {
                amount: rounded(cost.amount * counts.duplicates_prevented as f64),
                unit: cost.unit,
            });
            if let Some(cost) = &cost_saved {
                *saved.entry(cost.unit.clone()).or_default() += cost.amount;
            }
            tools.push(ToolStats { tool, namespace, counts, cost_saved });
        }
        let cost_saved =
            saved.into_iter().map(|(unit, amount)| Saved { amount: rounded(amount), unit }).collect();
        Self { totals, cost_saved, tools }
    }
}

/// Counts what is running and in doubt by looking at each: there are few, and a running record whose owner is gone is
/// in doubt although the ledger does not say so yet.
async fn count_open(store: &dyn Store, filter: Filter, tools: &mut ByTool) -> Result<(), StoreError> {
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

/// Without the noise that binary fractions leave: 3 × 0.1 is 0.3.
fn rounded(amount: f64) -> f64 {
    (amount * 1e6).round() / 1e6
}
