//! What a key is judged by after any campaign of kills: what the outside ledger counted, what ours says, what callers were
//! told. The promise is written down here once.

use crate::ledger::States;
use crate::outside::Counts;

/// What the callers of a key were told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard {
    /// Somebody was told that it succeeded.
    pub(crate) succeeded: bool,
    /// Somebody was told that its outcome is unknown.
    pub(crate) unknown: bool,
}

/// The judgement of one or more keys.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Every broken promise, in words.
    pub(crate) broken: Vec<String>,
    /// Keys with more than one effect.
    pub(crate) double_effects: u64,
    /// Keys in doubt.
    pub(crate) in_doubt: u64,
    /// Of those, keys whose effect was counted.
    pub(crate) in_doubt_with_effect: u64,
}

impl Judged {
    /// Judges a key whose tool ends in this mode.
    pub(crate) fn key(&mut self, key: &str, mode: &str, heard: Heard, counts: &Counts, states: &States) {
        let counted = counts.get(key).copied().unwrap_or(0);
        let state = states.get(key).map_or("absent", String::as_str);
        let mut broken =
            |what: &str| self.broken.push(format!("{key} ({mode}): {what}; {counted} effects, {state}"));
        if counted > 1 {
            broken("the effect took place more than once");
            self.double_effects += 1;
        }
        if counted > 0 && !matches!(state, "succeeded" | "in_doubt") {
            broken("an effect took place and the ledger does not say that it may have");
        }
        if !matches!(state, "succeeded" | "rejected" | "in_doubt") {
            broken("every key was retried to the end, so there must be an end or a doubt");
        }
        if heard.succeeded && (state != "succeeded" || counted == 0) {
            broken("a success was acknowledged and is not there");
        }
        if heard.unknown && state != "in_doubt" {
            broken("a doubt has settled itself");
        }
        if state == "succeeded" && counted == 0 {
            broken("a success without an effect");
        }
        if state == "in_doubt" {
            self.in_doubt += 1;
            self.in_doubt_with_effect += counted.min(1);
        }
    }
}
