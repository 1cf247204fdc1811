//! The auditor: keeps an outside ledger of effects, watches every write to the records, and says what was broken.
//!
//! It knows nothing of the machine's code. What it holds a ledger and an engine to:
//!
//! 1. At most one effect for one key and epoch, unless the tool's policy calls repetition harmless. An *epoch* is one
//!    life of a key: it ends when the record is forgotten, has outlived its retention, or when a guessed intent has run
//!    its time; the auditor works out by itself whether such an end was due.
//! 2. A success that a caller was told is in the record, byte for byte, and in every replay.
//! 3. A key with an effect is running, succeeded or in doubt: never rejected, never absent.
//! 4. A stale token changes nothing.
//! 5. A doubt never ends by itself: only by the attempt's own late word, a probe, a person, or a harmless retry.
//! 6. A key that was used for another payload is a conflict.
//! 7. (The driver's to watch: every call ends once faults stop.)
//! 8. An effect runs only under a claim that was durable and acknowledged, once per attempt; a call that got an error
//!    ran nothing.

mod writes;

use std::collections::{BTreeMap, HashMap, HashSet};

use oncely_core::{AttemptToken, Event, Fingerprint, IntentId, Millis, Record, State};

/// Whether a second effect of one epoch does harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetition {
    /// It does: one effect only.
    Harmful,
    /// The tool is idempotent.
    Harmless,
    /// The outside recognises the downstream key, and takes no second effect under one.
    Deduplicated,
}

/// What the auditor has to know of a key.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Whether a second effect does harm.
    pub repetition: Repetition,
    /// Whether calls bring a probe that may settle a doubt.
    pub probed: bool,
    /// For a key that is a guess: how long after its end an equal call is still the same intent.
    pub repeat_after_ms: Option<u64>,
    /// How long an ended record keeps its result.
    pub replay_for_ms: u64,
    /// How long an ended record is kept.
    pub remember_for_ms: u64,
}

/// Who changed a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    /// A call of an engine.
    Call,
    /// The ledger's own purge.
    Purge,
}

/// One write to one record.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// Which record.
    pub intent: IntentId,
    /// What was there.
    pub before: Option<&'a Record>,
    /// What is there now.
    pub after: Option<&'a Record>,
    /// What was logged with it.
    pub events: &'a [Event],
    /// When.
    pub now: Millis,
    /// By whom.
    pub hand: Hand,
}

/// One entry of the outside ledger.
#[derive(Debug, Clone)]
struct Done {
    token: AttemptToken,
    downstream: String,
    result: Vec<u8>,
}

/// An attempt, as the auditor saw it claimed.
#[derive(Debug, Clone, Copy)]
struct Claim {
    intent: IntentId,
    epoch: u32,
}

#[derive(Debug, Default)]
struct Epoch {
    effects: Vec<Done>,
    told: Option<Vec<u8>>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Auditor {
    rules: BTreeMap<IntentId, Rules>,
    /// The number of the latest epoch of each key, and whether its record is still to be there.
    current: BTreeMap<IntentId, (u32, Standing)>,
    epochs: BTreeMap<(IntentId, u32), Epoch>,
    claims: HashMap<AttemptToken, Claim>,
    /// What each claim was written in place of.
    replaced: HashMap<AttemptToken, Record>,
    /// All tokens of a key in the order of their claims.
    history: BTreeMap<IntentId, Vec<AttemptToken>>,
    acknowledged: HashSet<AttemptToken>,
    began: HashSet<AttemptToken>,
    ended: HashSet<AttemptToken>,
    version: u64,
    serial: u64,
    findings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Kept,
    Gone,
}

/// Findings kept; after the first few the rest say nothing new.
const FINDINGS_MAX: usize = 20;

impl Auditor {
    /// Says what a key may do. Keys that were not declared are held to the strictest rules.
    pub fn declare(&mut self, intent: IntentId, rules: Rules) {
        self.rules.insert(intent, rules);
    }

    /// What was found wrong so far.
    pub fn findings(&self) -> &[String] {
        &self.findings
    }

    /// A claim was acknowledged to the engine.
    pub fn acknowledged(&mut self, token: AttemptToken) {
        self.acknowledged.insert(token);
    }

    /// The effect of an attempt starts.
    pub fn began(&mut self, intent: IntentId, token: AttemptToken) {
        if !self.acknowledged.contains(&token) {
            self.found(intent, "an effect started before its claim was acknowledged");
        }
        if self.claims.get(&token).is_none_or(|claim| claim.intent != intent) {
            self.found(intent, "an effect started although its claim was never kept");
        }
        if !self.began.insert(token) {
            self.found(intent, "one attempt started its effect twice");
        }
    }

    /// The effect of an attempt can no longer act.
    pub fn ended(&mut self, token: AttemptToken) {
        self.ended.insert(token);
    }

    /// Whether the effect of an attempt can no longer act.
    pub fn has_ended(&self, token: AttemptToken) -> bool {
        self.ended.contains(&token)
    }

    /// Tokens of attempts at a key that will not be the latest again: what was claimed after them can be withdrawn only
    /// while nobody knows that it was.
    pub fn stale_tokens(&self, intent: &IntentId) -> &[AttemptToken] {
        let tokens = self.history.get(intent).map_or(&[][..], Vec::as_slice);
        &tokens[..tokens.iter().rposition(|token| self.acknowledged.contains(token)).unwrap_or(0)]
    }

    /// An attempt acts on the outside. Returns the result, which names this effect and no other. `record` is what the
    /// ledger holds at this moment.
    pub fn effect(
        &mut self,
        intent: IntentId,
        token: AttemptToken,
        downstream: &str,
        record: Option<&Record>,
    ) -> Vec<u8> {
        let Some(claim) = self.claims.get(&token).copied() else {
            self.found(intent, "an effect without a claim");
            return Vec::new();
        };
        let repetition = self.rules_of(&intent).repetition;
        let latest = self.current.get(&intent).copied();
        self.serial += 1;
        let result = format!("{{\"effect\":{}}}", self.serial).into_bytes();
        let done = Done { token, downstream: downstream.to_owned(), result: result.clone() };
        let epoch = self.epochs.entry((intent, claim.epoch)).or_default();
        if repetition == Repetition::Deduplicated
            && let Some(first) = epoch.effects.iter().find(|d| d.downstream == downstream)
        {
            return first.result.clone();
        }
        epoch.effects.push(done);
        let many = epoch.effects.len();
        if many > 1 && repetition != Repetition::Harmless {
            self.found(intent, format!("{many} effects for one key and epoch"));
        }
        if latest == Some((claim.epoch, Standing::Kept)) {
            match record {
                None => self.found(intent, "a key with an effect has no record"),
                Some(r) if matches!(r.body.state, State::Rejected { .. }) => {
                    self.found(intent, "an effect happened while its record says rejected");
                }
                Some(_) => {}
            }
        }
        result
    }

    /// The result of an effect in the current epoch of a key, if there is one: what a truthful probe or person sees.
    pub fn happened(&self, intent: &IntentId) -> Option<Vec<u8>> {
        let (epoch, standing) = self.current.get(intent)?;
        let done = self.epochs.get(&(*intent, *epoch))?.effects.last()?;
        (*standing == Standing::Kept).then(|| done.result.clone())
    }

    /// A caller was told that its attempt succeeded and that this is recorded. `record` is what the ledger holds.
    pub fn told_success(
        &mut self,
        intent: IntentId,
        token: AttemptToken,
        result: &[u8],
        record: Option<&Record>,
    ) {
        let Some(claim) = self.claims.get(&token).copied() else {
            return self.found(intent, "a caller was told of a success that was never claimed");
        };
        self.epochs.entry((intent, claim.epoch)).or_default().told = Some(result.to_vec());
        if self.current.get(&intent) == Some(&(claim.epoch, Standing::Kept)) {
            self.check_told(intent, claim.epoch, record);
        }
    }

    /// A caller was given a record's result instead of running.
    pub fn replayed(&mut self, record: &Record, result: Option<&[u8]>) {
        let (intent, token) = (record.intent, record.body.token);
        let Some(claim) = self.claims.get(&token).copied() else {
            return self.found(intent, "a replay of an attempt that was never claimed");
        };
        let Some(result) = result else { return };
        let epoch = self.epochs.entry((intent, claim.epoch)).or_default();
        let known = epoch.effects.iter().any(|d| d.result == result);
        let differs = epoch.told.as_ref().is_some_and(|told| told != result);
        if !known {
            self.found(intent, "a replay of a result that no effect had");
        }
        if differs {
            self.found(intent, "a replay differs from what the first caller was told");
        }
    }

    /// A caller got an answer from a record; its payload has to be the record's.
    pub fn answered_from(&mut self, record: &Record, asked: &Fingerprint) {
        if !record.body.fingerprint.matches(asked) {
            self.found(record.intent, "a call with another payload was answered from the record");
        }
    }

    /// A call got an error; `started` is the attempt whose effect ran all the same, if any.
    pub fn failed_call(&mut self, intent: IntentId, started: Option<AttemptToken>) {
        if started.is_some() {
            self.found(intent, "a call got an error although its effect ran");
        }
    }

    /// Something that only the driver can see.
    pub fn driver_found(&mut self, what: impl Into<String>) {
        self.note(what.into());
    }

    /// The last look: everything that was told or done has to be in the records.
    pub fn close(&mut self, records: &BTreeMap<IntentId, std::sync::Arc<Record>>, now: Millis) {
        let current: Vec<_> = self.current.iter().map(|(i, c)| (*i, *c)).collect();
        for (intent, (epoch, standing)) in current {
            if standing == Standing::Gone {
                continue;
            }
            let record = records.get(&intent).map(AsRef::as_ref);
            let effects = self.epochs.get(&(intent, epoch)).map_or(0, |e| e.effects.len());
            match record.map(|r| &r.body.state) {
                None => self.found(intent, "a record is gone that nobody forgot"),
                Some(State::Rejected { .. }) if effects > 0 => {
                    self.found(intent, "a key with an effect is rejected at the end");
                }
                Some(_) => {}
            }
            self.check_told(intent, epoch, record);
            if let Some(record) = record
                && record.changed_at > now
            {
                self.found(intent, "a record was changed in the future");
            }
        }
    }

    fn check_told(&mut self, intent: IntentId, epoch: u32, record: Option<&Record>) {
        let told = self.epochs.get(&(intent, epoch)).and_then(|e| e.told.clone());
        let Some(told) = told else { return };
        match record.map(|r| &r.body.state) {
            Some(State::Succeeded { result: Some(kept), .. }) if kept[..] == told[..] => {}
            // Dropped by age; whether it was due is checked at that write.
            Some(State::Succeeded { result: None, .. }) => {}
            other => {
                let seen = other.map_or("absent", |s| s.name().as_str());
                self.found(intent, format!("a success that a caller was told is {seen} in the ledger"));
            }
        }
    }

    fn rules_of(&self, intent: &IntentId) -> Rules {
        self.rules.get(intent).copied().unwrap_or(Rules {
            repetition: Repetition::Harmful,
            probed: false,
            repeat_after_ms: None,
            replay_for_ms: u64::MAX,
            remember_for_ms: u64::MAX,
        })
    }

    fn found(&mut self, intent: IntentId, what: impl Into<String>) {
        self.note(format!("{}: {}", intent.short(), what.into()));
    }

    fn note(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}
