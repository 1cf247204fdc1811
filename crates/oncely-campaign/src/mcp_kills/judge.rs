//! Judges every key of a campaign: what the outside ledger counted, what ours says, what callers were told.

use std::sync::atomic::Ordering;

use super::{Between, Campaign, Report, Told, locked, mode_of};
use crate::Checked;
use crate::ledger::States;
use crate::outside::Counts;

/// At most this many acknowledged results are replayed once more at the end.
const COMPARED_MAX: usize = 60;

impl Campaign<'_> {
    /// To be called when nothing runs any more.
    pub(super) fn judge(&self) -> Checked<Report> {
        let counts = self.outside.counts()?;
        let told = locked(&self.told).clone();
        let mut report = Report { keys: told.len() as u64, ..Report::default() };
        match self.plan.between {
            Between::Oncely | Between::Listening => {
                let states = self.runner.states()?;
                for (key, told) in &told {
                    judge_key(key, told, &counts, &states, &mut report);
                }
                report.compared = self.compare()?;
            }
            // There is no ledger that could say anything.
            Between::Nothing => {
                report.double_effects = counts.values().filter(|count| **count > 1).count() as u64;
            }
        }
        report.calls = self.calls.load(Ordering::Relaxed);
        report.kills = locked(&self.phases).clone();
        report.victims = locked(&self.victims).clone();
        report.effects = counts.values().sum();
        report.broken.append(&mut locked(&self.broken));
        Ok(report)
    }

    /// Asks once more for results that were acknowledged: they must come back as they were, and call nothing.
    fn compare(&self) -> Checked<u64> {
        let told = locked(&self.told).clone();
        let acknowledged: Vec<_> = told.iter().filter(|(_, told)| told.succeeded.is_some()).collect();
        let step = acknowledged.len().div_ceil(COMPARED_MAX).max(1);
        let mut compared = 0;
        for (key, _) in acknowledged.into_iter().step_by(step) {
            let before = self.outside.count(key)?;
            self.retry(key)?;
            if self.outside.count(key)? != before {
                self.complain(format!("{key}: the replay of an acknowledged success called the tool again"));
            }
            compared += 1;
        }
        Ok(compared)
    }
}

fn judge_key(key: &str, told: &Told, counts: &Counts, states: &States, report: &mut Report) {
    let counted = counts.get(key).copied().unwrap_or(0);
    let state = states.get(key).map_or("absent", String::as_str);
    let mut broken = |what: &str| {
        report.broken.push(format!("{key} ({}): {what}; {counted} effects, {state}", mode_of(key)));
    };
    if counted > 1 {
        broken("the effect took place more than once");
        report.double_effects += 1;
    }
    if counted > 0 && !matches!(state, "succeeded" | "in_doubt") {
        broken("an effect took place and the ledger does not say that it may have");
    }
    if !matches!(state, "succeeded" | "rejected" | "in_doubt") {
        broken("every key was retried to the end, so there must be an end or a doubt");
    }
    if told.succeeded.is_some() && (state != "succeeded" || counted == 0) {
        broken("a success was acknowledged and is not there");
    }
    if told.unknown && state != "in_doubt" {
        broken("a doubt has settled itself");
    }
    if state == "succeeded" && counted == 0 {
        broken("a success without an effect");
    }
    if state == "in_doubt" {
        report.in_doubt += 1;
        report.in_doubt_with_effect += counted.min(1);
    }
}
