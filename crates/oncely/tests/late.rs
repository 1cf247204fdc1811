//! Claims whose answer is lost, and which the ledger writes only after everybody has looked: nothing was started for them,
//! and the next caller hears that, even if their process has left meanwhile.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncely::core::State;
use oncely::{Begun, Call, Oncely, outcome};
use oncely_testkit::sim::{Faults, ProcessNumber, World};

const SEEDS: u64 = 200;
/// Every write of a process lands some ticks after it was said that nobody knows.
const LATE: Faults = Faults { before: 0, lost_ack: 0, late: 1000, never: 0, read: 0 };

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
}

impl Bench {
    fn new(seed: u64) -> Self {
        let world = World::new(seed, Faults::none(), None);
        let (process, store) = world.start(0);
        Self { world, oncely: Oncely::new(Arc::new(store)), process }
    }

    fn call(&self) -> Call {
        self.oncely.tool("charge").key("k").into_call().unwrap()
    }

    /// Lets the world go on until this is done.
    async fn until<T>(&self, done: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = done => done,
            () = async { loop { self.world.tick(); tokio::task::yield_now().await } } => unreachable!(),
        }
    }

    async fn begin(&self) -> Result<Begun, oncely::Error> {
        let call = self.call();
        self.until(self.oncely.begin(&call)).await
    }

    async fn rejected_once(&self) {
        let Begun::Run(attempt) = self.begin().await.unwrap() else { panic!("there is something already") };
        assert!(self.until(attempt.complete(outcome::rejected("NO", "no"))).await.is_none());
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
                tokio::select! {
                    biased;
                    _ = self.oncely.begin(&call) => panic!("seed {seed}: nothing had landed"),
                    () = tokio::task::yield_now() => {}
                }
            }
        }
        self.world.set_faults(Faults::none());
        assert_eq!(self.until(self.oncely.drain(Duration::from_secs(600))).await, 0);
        let Self { world, oncely, process } = self;
        world.retire(process, || drop(oncely));
        while !world.is_quiet() {
            world.tick();
        }
        world
    }
}

async fn leaves_nothing_in_doubt(rejected_before: bool, caller: Caller) {
    let mut late = 0;
    for seed in 0..SEEDS {
        let bench = Bench::new(seed);
        let intent = bench.oncely.name_of(&bench.call()).unwrap().intent_id();
        if rejected_before {
            bench.rejected_once().await;
        }
        let world = bench.claim_late(caller, seed).await;
        late += world.counts().late_writes;
        let record = world.record(&intent);
        let state = record.as_ref().map(|record| &record.body.state);
        let free = matches!(state, None | Some(State::Rejected { .. }));
        assert!(free, "seed {seed}, {caller:?}: {state:?}");
        // Another process may go on at once.
        let (process, store) = world.start(0);
        let next = Bench { oncely: Oncely::new(Arc::new(store)), world, process };
        assert!(matches!(next.begin().await.unwrap(), Begun::Run(_)), "seed {seed}, {caller:?}");
    }
    assert!(late > 0, "{caller:?}: no claim was late");
}

#[tokio::test(start_paused = true)]
async fn a_first_claim_that_is_written_late_is_taken_back() {
    leaves_nothing_in_doubt(false, Caller::Told).await;
    leaves_nothing_in_doubt(false, Caller::Gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_after_a_rejection_that_is_written_late_is_taken_back() {
    leaves_nothing_in_doubt(true, Caller::Told).await;
    leaves_nothing_in_doubt(true, Caller::Gone).await;
}
