//! Judges every key after failovers: what the outside ledger counted, what ours says before and after all keys were called
//! once more, what callers were told.

use super::{Campaign, Plan, Report, locked, mode_of};
use crate::Checked;
use crate::judge::{Heard, Judged};

impl Campaign<'_> {
    /// To be called when nothing runs any more.
    pub(super) fn judge(&self, plan: Plan) -> Checked<Report> {
        let mut report = Report { failovers: plan.failovers, ..Report::default() };
        self.look_for_losses(&mut report)?;
        let keys: Vec<String> = locked(&self.heard).keys.keys().cloned().collect();
        let acknowledged = locked(&self.heard).acknowledged;
        // A loss shows here once more: as another result, or as an effect that is counted twice.
        self.call_again(&keys)?;
        let (counts, states) = (self.outside.counts()?, self.runner().states()?);
        let mut heard = locked(&self.heard);
        let mut judged = Judged::default();
        for (key, told) in &heard.keys {
            let heard = Heard { succeeded: told.succeeded.is_some(), unknown: told.unknown };
            judged.key(key, mode_of(key), heard, &counts, &states);
        }
        for key in counts.keys().filter(|key| !heard.keys.contains_key(*key)) {
            judged.broken.push(format!("{key}: an effect took place and nobody was told"));
        }
        report.keys = keys.len() as u64;
        report.acknowledged = acknowledged;
        report.compared = heard.acknowledged - acknowledged;
        report.unavailable = heard.unavailable;
        report.recorded_late = heard.recorded_late;
        report.effects = counts.values().sum();
        report.in_doubt = judged.in_doubt;
        report.in_doubt_with_effect = judged.in_doubt_with_effect;
        report.double_effects = judged.double_effects;
        report.broken.append(&mut judged.broken);
        report.broken.append(&mut heard.broken);
        Ok(report)
    }

    /// Before anything is called again, which would hide it.
    fn look_for_losses(&self, report: &mut Report) -> Checked<()> {
        let (counts, states) = (self.outside.counts()?, self.runner().states()?);
        for (key, told) in &locked(&self.heard).keys {
            let state = states.get(key).map_or("absent", String::as_str);
            if told.succeeded.is_some() && state != "succeeded" {
                report.lost_successes += 1;
                report.broken.push(format!("{key}: its success was acknowledged and is lost: {state}"));
            }
            if counts.contains_key(key) && !matches!(state, "succeeded" | "in_doubt" | "running") {
                report.forgotten += 1;
                report.broken.push(format!("{key}: its effect is forgotten: {state}"));
            }
        }
        Ok(())
    }
}
