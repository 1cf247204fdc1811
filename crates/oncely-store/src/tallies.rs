//! Counters in memory: a call adds to them on its way, a store writes them when it is time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oncely_core::{Counter, Namespace, Tally, ToolName};

/// One number for each counter.
type Counts = [u64; Counter::ALL.len() + 1];

/// Increments, merged.
#[derive(Default)]
pub(crate) struct Tallies(Mutex<HashMap<Namespace, HashMap<ToolName, Counts>>>);

impl Tallies {
    /// Adds increments; answers whether there were none before. Allocates only for a tool that is new.
    pub(crate) fn add(&self, namespace: &Namespace, tool: &ToolName, increments: &[(Counter, u64)]) -> bool {
        let mut by_namespace = self.lock();
        let first = by_namespace.is_empty();
        if !by_namespace.contains_key(namespace) {
            by_namespace.insert(namespace.clone(), HashMap::new());
        }
        let Some(tools) = by_namespace.get_mut(namespace) else { return first };
        let counts = match tools.get_mut(tool) {
            Some(counts) => counts,
            None => tools.entry(tool.clone()).or_default(),
        };
        for (counter, count) in increments {
            if let Some(total) = counts.get_mut(*counter as usize) {
                *total = total.saturating_add(*count);
            }
        }
        first
    }

    /// Raises a counter to a total, where it is lower.
    pub(crate) fn raise(&self, to: &Tally) {
        let mut by_namespace = self.lock();
        let tools = by_namespace.entry(to.namespace.clone()).or_default();
        if let Some(total) = tools.entry(to.tool.clone()).or_default().get_mut(to.counter as usize) {
            *total = to.count.max(*total);
        }
    }

    /// Puts back what could not be written.
    pub(crate) fn put_back(&self, tallies: Vec<Tally>) {
        for Tally { namespace, tool, counter, count } in tallies {
            self.add(&namespace, &tool, &[(counter, count)]);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes all of them out.
    pub(crate) fn take(&self) -> Vec<Tally> {
        list(&std::mem::take(&mut *self.lock()))
    }

    /// A copy of all of them.
    pub(crate) fn all(&self) -> Vec<Tally> {
        list(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Namespace, HashMap<ToolName, Counts>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In a fixed order, without zeroes.
fn list(by_namespace: &HashMap<Namespace, HashMap<ToolName, Counts>>) -> Vec<Tally> {
    let mut tallies = Vec::new();
    for (namespace, tools) in by_namespace {
        for (tool, counts) in tools {
            for counter in Counter::ALL {
                let count = counts.get(counter as usize).copied().unwrap_or(0);
                if count > 0 {
                    tallies.push(Tally { namespace: namespace.clone(), tool: tool.clone(), counter, count });
                }
            }
        }
    }
    tallies.sort_by(|a, b| (&a.namespace, &a.tool, a.counter).cmp(&(&b.namespace, &b.tool, b.counter)));
    tallies
}

const _: () = {
    let mut at = 0;
    while at < Counter::ALL.len() {
        assert!((Counter::ALL[at] as usize) <= Counter::ALL.len(), "every counter has its place");
        at += 1;
    }
};
