//! What costs a retry, and what does not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use oncely_core::machine::{Begin, Decision, HaltReason, Input, Verdict, Write, step};
use oncely_core::{
    AttemptToken, DownstreamKey, Failure, Fingerprint, IntentName, Key, Liveness, Millis, Namespace, Outcome,
    Owner, Policy, Record, Scope, ToolName, Version, WhenUnknown,
};

/// One intent, and calls and ends one after the other.
struct Intent {
    name: IntentName,
    policy: Policy,
    record: Option<Record>,
    attempts: u8,
}

impl Intent {
    fn new(policy: Policy) -> Self {
        let name = IntentName {
            namespace: Namespace::default(),
            scope: Scope::none(),
            tool: ToolName::parse("charge").unwrap(),
            key: Key::explicit("k").unwrap(),
        };
        Self { name, policy, record: None, attempts: 0 }
    }

    fn tell(&mut self, input: &Input<'_>) -> Decision {
        let transition = step(self.record.as_ref(), input, Millis(1));
        if let Write::Put(draft) = transition.write {
            let version = Version(self.record.as_ref().map_or(0, |record| record.version.0) + 1);
            self.record = Some(draft.stamped(self.name.intent_id(), version, Millis(1)));
        }
        transition.decision
    }

    /// A call; the key that its attempt sends on, or what it was told instead.
    fn call(&mut self) -> Result<DownstreamKey, Decision> {
        self.attempts += 1;
        let (name, policy, owner) = (self.name.clone(), self.policy.clone(), Owner::default());
        let begin = Begin {
            intent: name.intent_id(),
            name: &name,
            fingerprint: Fingerprint::of_json(b"1").unwrap(),
            token: AttemptToken([self.attempts; 16]),
            owner: &owner,
            liveness: Liveness::Lost,
            policy: &policy,
            steady_since: Millis(0),
            checked: None,
        };
        match self.tell(&Input::Begin(begin)) {
            Decision::Execute(run) => Ok(run.downstream_key),
            other => Err(other),
        }
    }

    /// The latest call was answered to nobody: its claim over this record is withdrawn, whether it came or not.
    fn withdraw(&mut self, over: Option<&Record>, came: bool) {
        let claim = self.record.clone().unwrap().body;
        if !came {
            self.record = over.cloned();
        }
        let failure = Failure::new("NOT_STARTED", "the claim was not acknowledged");
        for _ in 0..2 {
            self.tell(&Input::Withdraw { claim: &claim, over, failure: failure.clone() });
        }
    }

    fn end(&mut self, outcome: Outcome) {
        let token = self.record.as_ref().unwrap().body.token;
        assert_eq!(self.tell(&Input::Complete { token, outcome }), Decision::Recorded);
    }

    fn person_says_rejected(&mut self) {
        let doubted = self.record.as_ref().unwrap().body.token;
        let verdict = Verdict::Rejected(Failure::new("RESOLVED", "a person looked"));
        let liveness = Liveness::Lost;
        assert_eq!(self.tell(&Input::Resolve { by: "somebody", doubted, verdict, liveness }), Decision::Done);
    }
}

fn two_retries() -> Policy {
    Policy { max_retries: 2, ..Policy::default() }
}

fn unreachable() -> Outcome {
    Outcome::not_started("UNREACHABLE", "nothing was sent")
}

fn refused() -> Outcome {
    Outcome::rejected("REFUSED", "nothing happened")
}

#[test]
fn an_attempt_that_was_never_started_costs_no_retry_and_no_downstream_key() {
    let mut intent = Intent::new(two_retries());
    let first = intent.call().unwrap();
    for _ in 0..20 {
        intent.end(unreachable());
        assert_eq!(intent.call().unwrap(), first);
    }
    // What was sent and rejected costs one each, also with attempts that were never started in between.
    let mut keys = vec![first];
    for _ in 0..2 {
        intent.end(refused());
        let key = intent.call().unwrap();
        assert!(!keys.contains(&key));
        intent.end(unreachable());
        assert_eq!(intent.call().unwrap(), key);
        keys.push(key);
    }
    intent.end(refused());
    assert_eq!(intent.call(), Err(Decision::ReplayRejection));
    assert_eq!(intent.record.as_ref().unwrap().body.attempts, 25);
}

#[test]
fn a_tool_without_retries_is_not_called_a_second_time_also_if_the_first_was_never_started() {
    let mut intent = Intent::new(Policy { max_retries: 0, ..Policy::default() });
    intent.call().unwrap();
    intent.end(unreachable());
    assert_eq!(intent.call(), Err(Decision::ReplayRejection));
}

#[test]
fn a_claim_that_was_withdrawn_is_no_attempt_whether_it_came_or_not() {
    for came in [true, false] {
        let mut intent = Intent::new(Policy { max_retries: 0, ..Policy::default() });
        let first = intent.call().unwrap();
        intent.withdraw(None, came);
        // Once more, over what is left of that.
        for _ in 0..3 {
            let over = intent.record.clone();
            assert_eq!(intent.call(), Ok(first), "{came}");
            intent.withdraw(over.as_ref(), came);
        }
        assert_eq!(intent.call(), Ok(first), "{came}");
        assert_eq!(intent.record.as_ref().unwrap().body.tries, 1);
        intent.end(unreachable());
        assert_eq!(intent.call(), Err(Decision::ReplayRejection), "that one was begun");
    }
}

#[test]
fn a_claim_that_was_withdrawn_leaves_what_a_person_and_an_attempt_have_said() {
    for came in [true, false] {
        // A person's word grants one more, though the retries are spent.
        let mut intent = Intent::new(Policy { max_retries: 1, ..Policy::default() });
        intent.call().unwrap();
        intent.end(refused());
        intent.call().unwrap();
        intent.end(Outcome::unknown("?"));
        intent.person_says_rejected();
        let granted = intent.record.clone().unwrap();
        intent.call().unwrap();
        intent.withdraw(Some(&granted), came);
        let is = intent.record.clone().unwrap();
        let expected = oncely_core::Body { attempts: is.body.attempts, ..granted.body.clone() };
        assert_eq!((is.body, is.changed_at, is.sent_at), (expected, granted.changed_at, granted.sent_at));
        intent.call().unwrap();
        // What somebody has settled after it came stands.
        intent.end(Outcome::unknown("?"));
        intent.person_says_rejected();
        let settled = intent.record.clone();
        intent.withdraw(Some(&granted), true);
        assert_eq!(intent.record, settled);
        // And nobody's place is taken by one that came to nothing long ago.
        intent.call().unwrap();
        let running = intent.record.clone();
        let claim = granted.body.clone();
        let failure = Failure::new("NOT_STARTED", "the claim was not acknowledged");
        for over in [None, Some(&granted)] {
            intent.tell(&Input::Withdraw { claim: &claim, over, failure: failure.clone() });
            assert_eq!(intent.record, running);
        }
    }
}

#[test]
fn a_person_who_found_that_nothing_happened_grants_one_more_attempt() {
    let mut intent = Intent::new(two_retries());
    for _ in 0..2 {
        intent.call().unwrap();
        intent.end(refused());
    }
    for _ in 0..3 {
        intent.call().unwrap();
        intent.end(Outcome::unknown("?"));
        assert_eq!(intent.call(), Err(Decision::Halt(HaltReason::Policy)));
        intent.person_says_rejected();
    }
    intent.call().unwrap();
    intent.end(refused());
    assert_eq!(intent.call(), Err(Decision::ReplayRejection), "the tool's own word is no person's");

    let mut once = Intent::new(Policy { max_retries: 0, ..Policy::default() });
    once.call().unwrap();
    once.end(Outcome::unknown("?"));
    once.person_says_rejected();
    assert_eq!(once.call(), Err(Decision::ReplayRejection));
}

#[test]
fn a_retry_that_was_never_started_leaves_the_doubt_before_it_and_the_budget_bounds_how_often() {
    let mut intent =
        Intent::new(Policy { when_unknown: WhenUnknown::Retry, idempotent: true, ..two_retries() });
    intent.call().unwrap();
    intent.end(Outcome::unknown("?"));
    for _ in 0..2 {
        intent.call().unwrap();
        // Told twice, since the first answer may be lost.
        intent.end(unreachable());
        intent.end(unreachable());
    }
    assert_eq!(intent.call(), Err(Decision::Halt(HaltReason::BudgetSpent)));
}
