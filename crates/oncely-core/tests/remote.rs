//! Claims of somebody who can only be judged by a lease: begun, begun again because an answer was lost, lapsed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use oncely_core::machine::{Because, Begin, Decision, HaltReason, Input, Write, step};
use oncely_core::{
    AttemptToken, Fingerprint, IntentName, Key, Liveness, Millis, Namespace, Outcome, Owner, Policy, Record,
    Scope, State, ToolName, Version,
};

const MINE: AttemptToken = AttemptToken([1; 16]);
const OTHERS: AttemptToken = AttemptToken([2; 16]);

struct World {
    name: IntentName,
    policy: Policy,
    owner: Owner,
}

impl World {
    fn new() -> Self {
        let name = IntentName {
            namespace: Namespace::default(),
            scope: Scope::none(),
            tool: ToolName::parse("charge").unwrap(),
            key: Key::explicit("k").unwrap(),
        };
        Self { name, policy: Policy::default(), owner: Owner::remote("billing") }
    }

    fn begin(&self, token: AttemptToken, payload: &[u8]) -> Input<'_> {
        Input::Begin(Begin {
            intent: self.name.intent_id(),
            name: &self.name,
            fingerprint: Fingerprint::of_json(payload).unwrap(),
            token,
            owner: &self.owner,
            liveness: Liveness::ByLease,
            policy: &self.policy,
            steady_since: Millis(0),
            checked: None,
        })
    }

    fn put(&self, write: Write, at: u64) -> Record {
        match write {
            Write::Put(draft) => draft.stamped(self.name.intent_id(), Version(at), Millis(at)),
            other => panic!("{other:?}"),
        }
    }

    fn running(&self) -> Record {
        self.put(step(None, &self.begin(MINE, b"1"), Millis(1)).write, 1)
    }
}

#[test]
fn a_begin_whose_answer_was_lost_gets_the_same_attempt_and_a_new_lease() {
    let world = World::new();
    let record = world.running();
    for now in [2, world.policy.lease_ms] {
        let again = step(Some(&record), &world.begin(MINE, b"1"), Millis(now));
        let Decision::Execute(execute) = again.decision else { panic!("{:?}", again.decision) };
        assert_eq!((execute.attempt, execute.because), (1, Because::AskedAgain));
        assert_eq!(execute.downstream_key, record.intent.downstream_key(1, 0));
        let renewed = world.put(again.write, now);
        assert_eq!((renewed.body.attempts, renewed.body.tries), (1, 1));
        assert_eq!(renewed.changed_at, Millis(now));
        assert_eq!(renewed.sent_at, record.sent_at);
        assert!(again.events.is_empty(), "it began once");
    }
}

#[test]
fn another_token_waits_and_another_payload_is_a_conflict() {
    let world = World::new();
    let record = world.running();
    assert_eq!(step(Some(&record), &world.begin(OTHERS, b"1"), Millis(2)).decision, Decision::Wait);
    assert_eq!(step(Some(&record), &world.begin(MINE, b"2"), Millis(2)).decision, Decision::Conflict);
}

#[test]
fn a_lapsed_lease_is_in_doubt_and_never_free_to_run() {
    let world = World::new();
    let lapsed = 1 + world.policy.lease_ms;
    let record = world.running();
    // The holder itself is no exception: it may be another run of the same program that kept its token.
    for token in [MINE, OTHERS] {
        assert_eq!(step(Some(&record), &world.begin(token, b"1"), Millis(lapsed)).decision, Decision::Again);
    }
    let found = step(Some(&record), &world.begin(OTHERS, b"1"), Millis(lapsed));
    let began = step(None, &world.begin(MINE, b"1"), Millis(1));
    assert_eq!(began.events[0].actor.as_deref(), Some("billing"));
    let doubted = world.put(found.write, lapsed);
    let State::InDoubt { doubt, .. } = &doubted.body.state else { panic!("{:?}", doubted.body.state) };
    assert!(doubt.message.contains("held by billing"), "{}", doubt.message);
    // Not even for the one who held it: whether it was started is what is not known.
    for token in [MINE, OTHERS] {
        let decision = step(Some(&doubted), &world.begin(token, b"1"), Millis(lapsed)).decision;
        assert_eq!(decision, Decision::Halt(HaltReason::Policy));
    }
    // The holder's own word, however late, settles it.
    let outcome = Outcome::rejected("DECLINED", "the card was declined");
    let told = step(Some(&doubted), &Input::Complete { token: MINE, outcome }, Millis(lapsed + 1));
    assert!(matches!(world.put(told.write, lapsed + 1).body.state, State::Rejected { .. }));
}

#[test]
fn a_process_that_can_be_looked_at_is_never_asked_again() {
    let mut world = World::new();
    world.owner.process.pid = 7;
    let record = world.running();
    assert_eq!(step(Some(&record), &world.begin(MINE, b"1"), Millis(2)).decision, Decision::Wait);
}

#[test]
fn a_token_is_not_taken_for_a_second_attempt() {
    let mut world = World::new();
    world.policy.idempotent = true;
    world.policy.when_unknown = oncely_core::WhenUnknown::Retry;
    for outcome in [Outcome::rejected("NO", "no"), Outcome::unknown("?")] {
        let ended = step(Some(&world.running()), &Input::Complete { token: MINE, outcome }, Millis(2));
        let ended = world.put(ended.write, 2);
        let again = step(Some(&ended), &world.begin(MINE, b"1"), Millis(3));
        assert_eq!((again.decision, again.write), (Decision::TokenUsed, Write::Nothing));
        let other = step(Some(&ended), &world.begin(OTHERS, b"1"), Millis(3));
        assert!(matches!(other.decision, Decision::Execute(_)));
    }
}

#[test]
fn a_token_of_an_attempt_that_has_ended_begins_nothing() {
    let world = World::new();
    let outcome = Outcome::succeeded(oncely_core::Effect::Created, *b"1");
    let ended = step(Some(&world.running()), &Input::Complete { token: MINE, outcome }, Millis(2));
    let ended = world.put(ended.write, 2);
    assert_eq!(step(Some(&ended), &world.begin(MINE, b"1"), Millis(3)).decision, Decision::Replay);
}
