//! What a write to a record may change, judged without the machine.

use oncely_core::{Body, EventKind, IntentId, Record, Settled, State};

use super::{Auditor, Claim, Hand, Repetition, Rules, Standing, Written};

impl Auditor {
    /// A record is written.
    pub fn wrote(&mut self, written: &Written<'_>) {
        if let Some(after) = written.after {
            if after.version.0 <= self.version {
                self.found(written.intent, "a version did not grow");
            }
            self.version = self.version.max(after.version.0);
        }
        match (written.before, written.after) {
            (None, None) => {}
            (None, Some(after)) => self.created(after),
            (Some(before), None) => self.removed(written, before),
            (Some(before), Some(after)) if self.is_restored(before, after) => self.restored(before, after),
            (Some(before), Some(after)) if before.body.token != after.body.token => {
                self.claimed_again(written, before, after);
            }
            (Some(before), Some(after)) => self.changed(written, before, after),
        }
    }

    fn created(&mut self, after: &Record) {
        // It says that a claim was withdrawn which never came: no attempt.
        if after.body.attempts == 0 && matches!(after.body.state, State::Rejected { .. }) {
            self.next_epoch(after.intent);
            return self.check_end(after.intent, after);
        }
        self.check_is_claim(after);
        self.next_epoch(after.intent);
        self.claim(after);
    }

    /// Whether a claim was withdrawn, so that what it had replaced is there again.
    fn is_restored(&self, before: &Record, after: &Record) -> bool {
        let Some(was) = self.replaced.get(&before.body.token) else { return false };
        let again = was.body.token == after.body.token;
        again && (was.sent_at, was.changed_at) == (after.sent_at, after.changed_at)
    }

    fn restored(&mut self, before: &Record, after: &Record) {
        let was = self.replaced.get(&before.body.token).map(|was| was.body.clone());
        let attempts = before.body.attempts;
        if was.is_none_or(|was| Body { attempts, ..was } != after.body) {
            self.found(after.intent, "a claim was withdrawn, and what was there before came back otherwise");
        }
        if self.began.contains(&before.body.token) {
            self.found(after.intent, "an attempt that started was withdrawn");
        }
        if before.body.state.has_ended() {
            self.found(after.intent, "an end was withdrawn");
        }
        // Its attempt is the latest again.
        if let Some([.., earlier, latest]) = self.history.get_mut(&after.intent).map(Vec::as_mut_slice) {
            std::mem::swap(earlier, latest);
        }
        if before.body.generation != after.body.generation
            && let Some((epoch, _)) = self.current.get_mut(&after.intent)
        {
            *epoch -= 1;
        }
    }

    fn removed(&mut self, written: &Written<'_>, before: &Record) {
        let rules = self.rules_of(&written.intent);
        let age = written.now.since(before.changed_at);
        let due = before.body.state.has_ended() && age >= rules.remember_for_ms;
        let forgotten = written.hand == Hand::Call && has(written, EventKind::Forgotten);
        if !due && !forgotten {
            let state = before.body.state.name();
            self.found(
                written.intent,
                format!("a record was removed while {state}, {age} ms after its last change"),
            );
        }
        if let Some((_, standing)) = self.current.get_mut(&written.intent) {
            *standing = Standing::Gone;
        }
    }

    /// A new attempt on a record that is there.
    fn claimed_again(&mut self, written: &Written<'_>, before: &Record, after: &Record) {
        let rules = self.rules_of(&written.intent);
        self.check_is_claim(after);
        self.replaced.insert(after.body.token, before.clone());
        if after.body.attempts != before.body.attempts.saturating_add(1) {
            self.found(written.intent, "an attempt's number does not follow the one before");
        }
        if after.body.generation != before.body.generation {
            if !intent_was_over(&rules, written, before) {
                self.found(written.intent, "a new generation began before the intent was over");
            }
            self.next_epoch(written.intent);
        } else {
            if !after.body.fingerprint.matches(&before.body.fingerprint) {
                self.found(written.intent, "an attempt took another payload under the same key");
            }
            self.check_may_run_again(&rules, written, before);
        }
        self.claim(after);
    }

    fn check_may_run_again(&mut self, rules: &Rules, written: &Written<'_>, before: &Record) {
        let happened = self.effects_now(written.intent) > 0;
        match &before.body.state {
            State::Rejected { .. } => {}
            State::InDoubt { .. } => {
                let probed = rules.probed && has(written, EventKind::ProbeNotHappened);
                let checked = has(written, EventKind::RetriedUnknown);
                let harmless = rules.repetition != Repetition::Harmful;
                if !harmless && !probed && !checked {
                    self.found(written.intent, "a doubt ended by itself: a new attempt began");
                }
                if !harmless && happened {
                    self.found(written.intent, "a new attempt began although the one in doubt had happened");
                }
            }
            State::Running { .. } | State::Succeeded { .. } => {
                let state = before.body.state.name();
                self.found(written.intent, format!("a new attempt began while the record was {state}"));
            }
        }
    }

    /// The same attempt, in another state.
    fn changed(&mut self, written: &Written<'_>, before: &Record, after: &Record) {
        let (was, is) = (&before.body, &after.body);
        if was.generation != is.generation || was.attempts != is.attempts || was.fingerprint != is.fingerprint
        {
            self.found(written.intent, "an end of an attempt changed what the attempt was");
        }
        // Another version and nothing else.
        if before.changed_at == after.changed_at && before.sent_at == after.sent_at && was == is {
            return;
        }
        match (&was.state, &is.state) {
            (State::Running { .. }, State::Running { .. } | State::InDoubt { .. }) => {}
            (
                State::Running { .. } | State::InDoubt { .. },
                State::Succeeded { .. } | State::Rejected { .. },
            ) => {
                self.check_end(written.intent, after);
            }
            (State::Succeeded { result: Some(_), .. }, State::Succeeded { result: None, .. })
                if written.hand == Hand::Purge =>
            {
                if written.now.since(before.changed_at) < self.rules_of(&written.intent).replay_for_ms {
                    self.found(written.intent, "a result was dropped before its time");
                }
            }
            // What the attempt itself knows stands above what others believed.
            (
                State::Succeeded { settled: Settled::Person(_) | Settled::Probe, .. },
                State::Succeeded { settled: Settled::Attempt, .. },
            )
            | (
                State::Rejected { settled: Settled::Person(_) | Settled::Probe, .. },
                State::Rejected { settled: Settled::Attempt, .. },
            ) => self.check_end(written.intent, after),
            (from, to) => {
                self.found(written.intent, format!("a record went from {} to {}", from.name(), to.name()));
            }
        }
    }

    /// An end has to be true, and the word of the attempt that it is written for.
    fn check_end(&mut self, intent: IntentId, after: &Record) {
        let token = after.body.token;
        match &after.body.state {
            State::Succeeded { result, settled, .. } => {
                let rules = self.rules_of(&intent);
                // A probe, a person or a downstream that recognises its key may report an earlier attempt's effect.
                let own = *settled == Settled::Attempt
                    && !rules.probed
                    && rules.repetition != Repetition::Deduplicated;
                let epoch = self.current.get(&intent).and_then(|(e, _)| self.epochs.get(&(intent, *e)));
                let known = |r: &[u8]| {
                    epoch.is_some_and(|e| {
                        e.effects.iter().any(|d| d.result == r && (!own || d.token == token))
                    })
                };
                if !result.as_deref().is_some_and(known) {
                    self.found(intent, "a success was recorded with a result that its effect did not have");
                }
            }
            State::Rejected { failure, settled } => {
                if self.effects_now(intent) > 0 {
                    self.found(intent, format!("a key with an effect was rejected ({})", failure.code));
                }
                if failure.code == "NOT_STARTED" && self.began.contains(&token) {
                    self.found(intent, "an attempt that started was recorded as not started");
                }
                let own = failure.detail.as_deref().is_none_or(|d| *d == token.0);
                if *settled == Settled::Attempt && !own {
                    self.found(intent, "a stale attempt's rejection was taken for the current one's");
                }
            }
            State::Running { .. } | State::InDoubt { .. } => {}
        }
    }

    fn check_is_claim(&mut self, after: &Record) {
        if !matches!(after.body.state, State::Running { .. }) {
            self.found(after.intent, "a new attempt does not begin as running");
        }
        if self.claims.contains_key(&after.body.token) {
            self.found(after.intent, "a token names two attempts");
        }
    }

    fn claim(&mut self, after: &Record) {
        let epoch = self.current.get(&after.intent).map_or(0, |(epoch, _)| *epoch);
        self.claims.insert(after.body.token, Claim { intent: after.intent, epoch });
        self.history.entry(after.intent).or_default().push(after.body.token);
    }

    fn next_epoch(&mut self, intent: IntentId) {
        let (epoch, standing) = self.current.entry(intent).or_insert((0, Standing::Gone));
        *epoch += 1;
        *standing = Standing::Kept;
    }

    fn effects_now(&self, intent: IntentId) -> usize {
        let epoch = self.current.get(&intent).and_then(|(epoch, _)| self.epochs.get(&(intent, *epoch)));
        epoch.map_or(0, |e| e.effects.len())
    }
}

fn has(written: &Written<'_>, kind: EventKind) -> bool {
    written.events.iter().any(|e| e.kind == kind)
}

/// Whether a name could mean a new intent: all is forgotten by age, or a guess has run its time.
fn intent_was_over(rules: &Rules, written: &Written<'_>, before: &Record) -> bool {
    let age = written.now.since(before.changed_at);
    let guess_over = rules.repeat_after_ms.is_some_and(|ms| age >= ms);
    before.body.state.has_ended() && (age >= rules.remember_for_ms || guess_over)
}
