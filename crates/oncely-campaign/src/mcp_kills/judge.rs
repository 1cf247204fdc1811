//! Judges every key of a campaign: what the outside ledger counted, what ours says, what callers were told.

use std::sync::atomic::Ordering;

use super::{Between, Campaign, Report, mode_of};
use crate::Checked;
use crate::tellings::locked;

/// At most this many acknowledged results are replayed once more at the end.
const COMPARED_MAX: usize = 60;

impl Campaign<'_> {
    /// To be called when nothing runs any more.
    pub(super) fn judge(&self) -> Checked<Report> {
        let counts = self.outside.counts()?;
        let mut report = Report { keys: self.tellings.keys(), ..Report::default() };
        match self.plan.between {
            Between::Oncely | Between::Listening => {
                let judged = self.tellings.judge(mode_of, &counts, &self.runner.states()?);
                report.broken = judged.broken;
                report.double_effects = judged.double_effects;
                report.in_doubt = judged.in_doubt;
                report.in_doubt_with_effect = judged.in_doubt_with_effect;
                let retry = |key: &str| self.retry(key).map(drop);
                report.compared = self.tellings.ask_again(COMPARED_MAX, self.outside, retry)?;
            }
            // There is no ledger that could say anything.
            Between::Nothing => {
                report.double_effects = counts.values().filter(|count| **count > 1).count() as u64;
            }
        }
        report.calls = self.calls.load(Ordering::Relaxed);
        report.kills = self.landings.by_phase();
        report.victims = locked(&self.victims).clone();
        report.effects = counts.values().sum();
        report.broken.append(&mut self.tellings.complaints());
        Ok(report)
    }
}
