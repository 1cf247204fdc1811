//! Judges every key of a campaign: what the outside ledger counted, what ours says, what callers were told.

use std::sync::atomic::Ordering;

use super::{Campaign, Report, mode_of};
use crate::Checked;

/// At most this many acknowledged results are replayed once more at the end.
const COMPARED_MAX: usize = 2_000;

impl Campaign<'_> {
    /// To be called when nothing runs any more.
    pub(super) fn judge(&self) -> Checked<Report> {
        let counts = self.outside.counts()?;
        let states = self.runner.states()?;
        let judged = self.tellings.judge(mode_of, &counts, &states);
        let retry = |key: &str| self.retry(key).map(drop);
        let compared = self.tellings.ask_again(COMPARED_MAX, self.outside, retry)?;
        let mut broken = judged.broken;
        broken.append(&mut self.tellings.complaints());
        Ok(Report {
            runs: self.runs.load(Ordering::Relaxed),
            kills: self.landings.by_phase(),
            keys: self.tellings.keys(),
            effects: counts.values().sum(),
            in_doubt: judged.in_doubt,
            in_doubt_with_effect: judged.in_doubt_with_effect,
            compared,
            double_effects: judged.double_effects,
            broken,
        })
    }
}
