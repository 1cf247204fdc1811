//! Walks every state that the machine can reach with a few attempts, and checks the promise at every step.
//!
//! The walk is breadth first over an abstract world: the record, and what each attempt really did outside. Callers,
//! crashes, late answers, people, probes and time move it. Machines with a fault must be caught. The diagram in
//! `docs/state-machine.md` is drawn from the transitions that the walk saw.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod check;
mod diagram;
mod faults;
mod moves;
mod setup;
mod world;

use std::collections::{HashSet, VecDeque};

use oncely_core::machine::{Decision, step};
use oncely_core::{Policy, WhenUnknown};

use diagram::Diagram;
use moves::Move;
use setup::{FORWARDS, KeyKind, Setup, policy};
use world::{Step, World};

const KINDS: [KeyKind; 3] = [KeyKind::Explicit, KeyKind::Derived, KeyKind::DerivedInScope];

/// Attempts in one walk: enough for an unknown, a retry and what follows it.
const ATTEMPTS_MAX: usize = 3;
/// Moves in one walk.
const DEPTH: usize = 9;

fn halt() -> Policy {
    policy(WhenUnknown::Halt, false, None)
}

fn check_first() -> Policy {
    policy(WhenUnknown::Check, false, None)
}

fn idempotent() -> Policy {
    policy(WhenUnknown::Retry, true, None)
}

fn forwarding() -> Policy {
    policy(WhenUnknown::Retry, false, Some(FORWARDS))
}

/// How far a walk went.
#[derive(Default, Debug)]
struct Extent {
    states: usize,
    transitions: usize,
}

/// Walks everything within `depth` moves and [`ATTEMPTS_MAX`] attempts. An error names the moves that lead to it.
fn walk(setup: &Setup, step: Step, depth: usize, diagram: &mut Diagram) -> Result<Extent, String> {
    // Each world with the move that led to it and the place of the world before, to tell the way to a fault.
    let mut worlds: Vec<(World, Option<(usize, Move)>)> = vec![(World::empty(), None)];
    let mut seen: HashSet<Vec<u8>> = HashSet::from([World::empty().fingerprint()]);
    let mut open = VecDeque::from([(0, 0)]);
    let mut extent = Extent { states: 1, transitions: 0 };
    while let Some((at, moves)) = open.pop_front() {
        let world = worlds[at].0.clone();
        for chosen in world.moves(setup) {
            let transition = world.ask(chosen, setup, step);
            let after = world.after(chosen, transition.as_ref());
            extent.transitions += 1;
            if let Err(what) = check::check(&world, chosen, transition.as_ref(), &after, setup) {
                return Err(format!("{what}\n  the way there: {}", way(&worlds, at, chosen)));
            }
            if let Some(transition) = &transition {
                diagram.saw(&world, chosen, transition, &after);
            }
            let starts = transition.is_some_and(|t| matches!(t.decision, Decision::Execute(_)));
            if moves + 1 == depth || starts && world.attempts.len() == ATTEMPTS_MAX {
                continue;
            }
            if seen.insert(after.fingerprint()) {
                extent.states += 1;
                open.push_back((worlds.len(), moves + 1));
                worlds.push((after, Some((at, chosen))));
            }
        }
    }
    Ok(extent)
}

fn way(worlds: &[(World, Option<(usize, Move)>)], end: usize, last: Move) -> String {
    let mut moves = vec![format!("{last:?}")];
    let mut at = end;
    while let Some((before, chosen)) = worlds[at].1 {
        moves.push(format!("{chosen:?}"));
        at = before;
    }
    moves.reverse();
    moves.join("\n    ")
}

#[test]
fn every_reachable_state_keeps_the_promise_and_matches_the_documented_diagram() {
    let mut diagram = Diagram::default();
    let mut total = Extent::default();
    for kind in KINDS {
        for policies in [vec![halt()], vec![check_first()], vec![idempotent()], vec![forwarding()]] {
            let setup = Setup::new(kind, policies);
            let extent = walk(&setup, step, DEPTH, &mut diagram).unwrap_or_else(|what| panic!("{what}"));
            println!("{kind:?}, {:?}: {extent:?}", setup.policies[0].when_unknown);
            total.states += extent.states;
            total.transitions += extent.transitions;
        }
        // A tool whose declaration changes between two calls.
        let setup = Setup::new(kind, vec![halt(), check_first(), idempotent(), forwarding()]);
        let extent = walk(&setup, step, DEPTH - 2, &mut diagram).unwrap_or_else(|what| panic!("{what}"));
        println!("{kind:?}, any policy: {extent:?}");
        total.states += extent.states;
        total.transitions += extent.transitions;
    }
    println!("walked {} states and {} transitions", total.states, total.transitions);
    assert!(total.states > 100_000, "only {total:?}: the walk has lost its way");
    assert!(total.transitions > 1_000_000, "only {total:?}: the walk has lost its way");
    diagram.compare_or_bless();
}

#[test]
fn every_fault_is_caught() {
    for (what, step) in faults::FAULTS {
        let caught = KINDS.into_iter().find_map(|kind| {
            [halt(), forwarding()].into_iter().find_map(|policy| {
                walk(&Setup::new(kind, vec![policy]), *step, DEPTH - 1, &mut Diagram::default()).err()
            })
        });
        let seen = caught.unwrap_or_else(|| panic!("the walk does not notice that {what}"));
        println!("{what}: {seen}\n");
    }
}
