//! Claims whose answer is lost, and which the ledger writes only after everybody has looked: nothing was started for them,
//! and the next caller hears that, even if their process has left meanwhile.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncely::core::{Body, State, WhenUnknown};
use oncely::{Attempt, Begun, Call, Oncely, Outcome, Policy, outcome};
use oncely_testkit::sim::{Faults, ProcessNumber, World};

const SEEDS: u64 = 150;
/// Every write lands some ticks after it was said that nobody knows.
const LATE: Faults = Faults { before: 0, lost_ack: 0, late: 1000, never: 0, read: 0 };
/// Nothing is certain, and something comes through now and then.
const HARD: Faults = Faults { before: 150, lost_ack: 150, late: 250, never: 150, read: 150 };

/// More ticks than a late write takes to land.
const LATEST: u32 = 150;

/// What there is before the claim.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    Rejected,
    Doubt,
}

/// What becomes of the caller whose claim is on its way.
#[derive(Debug, Clone, Copy)]
enum Caller {
    /// It hears that nobody knows.
    Told,
    /// It goes away before.
    Gone,
}

struct Bench {
    world: World,
    oncely: Oncely,
    process: ProcessNumber,
    policy: Policy,
}

impl Bench {
    fn on(world: World, policy: Policy) -> Self {
        let (process, store) = world.start(0);
        Self { oncely: Oncely::new(Arc::new(store)), world, process, policy }
    }

    fn call(&self) -> Call {
        self.oncely.tool("charge").key("k").policy(self.policy.clone()).into_call().unwrap()
    }

    /// Lets the world go on until this is done.
    async fn until<T>(&self, done: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = done => done,
            () = async {
                loop {
                    self.world.tick();
                    tokio::time::advance(Duration::from_millis(25)).await;
                }
            } => unreachable!(),
        }
    }

    async fn begin(&self) -> Result<Begun, oncely::Error> {
        let call = self.call();
        self.until(self.oncely.begin(&call)).await
    }

    async fn runs(&self) -> Attempt {
        match self.begin().await.unwrap() {
            Begun::Run(attempt) => attempt,
            Begun::Answered(answer) => panic!("nothing may run: {answer:?}"),
        }
    }

    async fn prepare(&self, before: Before) {
        let end = match before {
            Before::Nothing => return,
            Before::Rejected => outcome::rejected("NO", "no"),
            Before::Doubt => Outcome::unknown("the line went dead"),
        };
        let attempt = self.runs().await;
        assert!(self.until(attempt.complete(end)).await.is_none());
    }

    /// Claims while every write is late, and leaves as a program does that has nothing left to do.
    async fn claim_late(self, caller: Caller, seed: u64) -> World {
        self.world.set_faults(LATE);
        match caller {
            Caller::Told => {
                let said = self.begin().await;
                assert!(said.is_err(), "seed {seed}: the answer was not lost");
            }
            Caller::Gone => {
                let call = self.call();
                let begin = self.until(async {
                    tokio::select! {
                        biased;
                        _ = self.oncely.begin(&call) => panic!("seed {seed}: it was answered"),
                        () = async { while self.world.is_quiet() { tokio::task::yield_now().await } } => {}
                    }
                });
                begin.await;
            }
        }
        // It comes before anybody gets to withdraw it, or whenever it does.
        if seed.is_multiple_of(2) {
            for _ in 0..LATEST {
                self.world.tick();
            }
        }
        self.world.set_faults(HARD);
        assert_eq!(self.until(self.oncely.drain(Duration::from_secs(600))).await, 0);
        self.world.set_faults(Faults::none());
        let Self { world, oncely, process, .. } = self;
        world.retire(process, || drop(oncely));
        while !world.is_quiet() {
            world.tick();
        }
        world
    }
}

async fn leaves_the_key_as_it_was(before: Before, policy: Policy) {
    for caller in [Caller::Told, Caller::Gone] {
        let (mut late, mut came) = (0, 0);
        for seed in 0..SEEDS {
            let bench = Bench::on(World::new(seed, Faults::none(), None), policy.clone());
            let intent = bench.oncely.name_of(&bench.call()).unwrap().intent_id();
            bench.prepare(before).await;
            let was = bench.world.record(&intent);
            let world = bench.claim_late(caller, seed).await;
            late += world.counts().late_writes;
            match (was, world.record(&intent)) {
                // Whether the claim came or not, nothing that was known is lost. Numbers are not given twice.
                (Some(was), Some(is)) => {
                    let expected = Body { attempts: is.body.attempts, ..was.body.clone() };
                    assert_eq!(is.body, expected, "seed {seed}, {caller:?}");
                    assert_eq!((was.sent_at, was.changed_at), (is.sent_at, is.changed_at));
                    came += u32::from(is.body.attempts > was.body.attempts);
                }
                (None, Some(is)) => {
                    let state = &is.body.state;
                    assert!(matches!(state, State::Rejected { .. }), "seed {seed}, {caller:?}: {state:?}");
                    came += is.body.attempts;
                }
                // One that was dropped in time was never sent.
                (None, None) => assert!(matches!(caller, Caller::Gone), "seed {seed}"),
                (Some(was), None) => panic!("seed {seed}, {caller:?}: {was:?} is gone"),
            }
            // Another process may go on at once.
            let next = Bench::on(world, policy.clone());
            drop(next.runs().await);
        }
        assert!(
            late > 0 && came > 0,
            "{caller:?}: {late} writes were late, and {came} claims came before they were withdrawn"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_claim_that_is_written_late_is_taken_back() {
    leaves_the_key_as_it_was(Before::Nothing, Policy::default()).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_taken_back_is_no_attempt_of_a_tool_that_grants_only_one() {
    leaves_the_key_as_it_was(Before::Nothing, Policy { max_retries: 0, ..Policy::default() }).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_after_a_rejection_that_is_written_late_is_taken_back() {
    leaves_the_key_as_it_was(Before::Rejected, Policy::default()).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_after_a_doubt_that_is_written_late_is_taken_back_and_the_doubt_stays_as_it_was() {
    let harmless = Policy { when_unknown: WhenUnknown::Retry, idempotent: true, ..Policy::default() };
    leaves_the_key_as_it_was(Before::Doubt, harmless).await;
}
