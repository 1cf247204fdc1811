//! Judges every key of a campaign: what the outside ledger counted, what ours says, what callers were told.

use std::sync::atomic::Ordering;

use super::{Campaign, Report, locked, mode_of};
use crate::Checked;
use crate::judge::{Heard, Judged};

/// At most this many acknowledged results are replayed once more at the end.
const COMPARED_MAX: usize = 2_000;

impl Campaign<'_> {
    /// To be called when nothing runs any more.
    pub(super) fn judge(&self) -> Checked<Report> {
        let counts = self.outside.counts()?;
        let states = self.runner.states()?;
        let told = locked(&self.told).clone();
        let mut report = Report { keys: told.len() as u64, ..Report::default() };
        let mut judged = Judged::default();
        for (key, told) in &told {
            let heard = Heard { succeeded: told.succeeded.is_some(), unknown: told.unknown };
            judged.key(key, mode_of(key), heard, &counts, &states);
        }
        report.broken.append(&mut judged.broken);
        report.double_effects = judged.double_effects;
        report.in_doubt = judged.in_doubt;
        report.in_doubt_with_effect = judged.in_doubt_with_effect;
        report.compared = self.compare()?;
        report.runs = self.runs.load(Ordering::Relaxed);
        report.kills = self.landings.by_phase();
        report.effects = counts.values().sum();
        report.broken.append(&mut locked(&self.broken));
        Ok(report)
    }

    /// Asks once more for results that were acknowledged: they must come back byte for byte, and run nothing.
    fn compare(&self) -> Checked<u64> {
        let told = locked(&self.told).clone();
        let acknowledged: Vec<_> = told.iter().filter(|(_, told)| told.succeeded.is_some()).collect();
        let step = acknowledged.len().div_ceil(COMPARED_MAX).max(1);
        let mut compared = 0;
        for (key, _) in acknowledged.into_iter().step_by(step) {
            let before = self.outside.count(key)?;
            self.retry(key)?;
            if self.outside.count(key)? != before {
                self.complain(format!("{key}: the replay of an acknowledged success ran it again"));
            }
            compared += 1;
        }
        Ok(compared)
    }
}
