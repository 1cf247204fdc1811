//! A retry is harmless only while the downstream surely remembers the key.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use oncely_core::machine::{Begin, Decision, HaltReason, Input, Write, step};
use oncely_core::{
    AttemptToken, Fingerprint, IntentName, Key, Liveness, Millis, Namespace, Outcome, Owner, Policy, Record,
    Scope, ToolName, Version, WhenUnknown,
};

const HOUR_MS: u64 = 3_600_000;
const FIRST: AttemptToken = AttemptToken([1; 16]);
const NEXT: AttemptToken = AttemptToken([2; 16]);

struct Setup {
    name: IntentName,
    policy: Policy,
    owner: Owner,
}

impl Setup {
    fn new() -> Self {
        let policy = Policy {
            when_unknown: WhenUnknown::Retry,
            forwards_key_for_ms: Some(24 * HOUR_MS),
            ..Policy::default()
        };
        let name = IntentName {
            namespace: Namespace::default(),
            scope: Scope::none(),
            tool: ToolName::parse("charge").unwrap(),
            key: Key::explicit("k").unwrap(),
        };
        Self { name, policy, owner: Owner::default() }
    }

    fn begin(&self, token: AttemptToken, steady_since: Millis) -> Input<'_> {
        Input::Begin(Begin {
            intent: self.name.intent_id(),
            name: &self.name,
            fingerprint: Fingerprint::of_json(b"1").unwrap(),
            token,
            owner: &self.owner,
            liveness: Liveness::Lost,
            policy: &self.policy,
            steady_since,
            checked: None,
        })
    }

    /// A record whose attempt, begun at `at`, is in doubt.
    fn in_doubt(&self, at: Millis) -> Record {
        let stamp = |write: Write| match write {
            Write::Put(draft) => draft.stamped(self.name.intent_id(), Version(1), at),
            other => panic!("{other:?}"),
        };
        let running = stamp(step(None, &self.begin(FIRST, Millis(0)), at).write);
        let outcome = Outcome::unknown("?");
        stamp(step(Some(&running), &Input::Complete { token: running.body.token, outcome }, at).write)
    }
}

#[test]
fn a_key_that_was_sent_before_the_clocks_last_gap_protects_nothing() {
    let setup = Setup::new();
    let (sent, now) = (Millis(1_000), Millis(2_000));
    let record = setup.in_doubt(sent);
    let decide = |steady_since| step(Some(&record), &setup.begin(NEXT, steady_since), now).decision;
    assert!(matches!(decide(Millis(0)), Decision::Execute(_)));
    assert!(matches!(decide(sent), Decision::Execute(_)));
    // The machine was restarted since: how long ago it was sent is the wall clock's word only.
    assert_eq!(decide(Millis(1_500)), Decision::Halt(HaltReason::DownstreamForgot));
}

#[test]
fn a_key_protects_only_for_as_long_as_the_downstream_remembers_it() {
    let setup = Setup::new();
    let record = setup.in_doubt(Millis(0));
    let decide = |now| step(Some(&record), &setup.begin(NEXT, Millis(0)), now).decision;
    assert!(matches!(decide(Millis(24 * HOUR_MS - 1)), Decision::Execute(_)));
    assert_eq!(decide(Millis(24 * HOUR_MS)), Decision::Halt(HaltReason::DownstreamForgot));
}
