//! A copy is killed at random moments: at none of them can a key be claimed in both ledgers, and the next one goes on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use oncely::{Oncely, outcome};
use oncely_core::Gate;
use oncely_testkit::servers::{Postgres, Redis};
use serde_json::json;

use crate::world::{World, contents, fill, text};

/// Enough for a copy to take a while.
const RECORDS: usize = 1_500;
/// Kills per move.
const KILLS: u32 = 25;
/// Moves, until a kill has fallen within one.
const MOVES_MAX: u32 = 20;

/// Which moment a round is about: a different one on every run, and printed.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        let seed = match std::env::var("ONCELY_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => u64::from(std::process::id()) ^ Instant::now().elapsed().as_nanos() as u64,
        };
        println!("ONCELY_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

async fn fill_much(oncely: &Oncely) {
    fill(oncely).await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..RECORDS {
        let oncely = oncely.clone();
        calls.spawn(async move {
            let call = oncely.tool("pay").key(&format!("much-{n}")).payload(&json!(n));
            call.run(move |_| async move { outcome::created(&json!({ "n": n })) }).await.unwrap();
        });
    }
    while let Some(called) = calls.join_next().await {
        called.unwrap();
    }
    oncely.store().flush().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_killed_goes_on_and_no_key_runs_in_both_ledgers() {
    is_killed_again_and_again(World::new).await;
}

/// A ledger of its own, of many shards: between any two of them a copy can be killed.
fn sharded(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (url, number) = (Redis::shared().unwrap().url(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("{url}?shards=16&prefix={name}-{number}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_to_redis_that_is_killed_goes_on_and_no_key_runs_in_both_ledgers() {
    is_killed_again_and_again(|| World::to(&sharded("filled"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_from_redis_that_is_killed_goes_on_and_no_key_runs_in_both_ledgers() {
    is_killed_again_and_again(|| World::from(&sharded("left"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_to_postgres_that_is_killed_goes_on_and_no_key_runs_in_both_ledgers() {
    let server = Postgres::shared().unwrap();
    is_killed_again_and_again(|| World::to(&server.fresh_database().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_from_postgres_that_is_killed_goes_on_and_no_key_runs_in_both_ledgers() {
    let server = Postgres::shared().unwrap();
    is_killed_again_and_again(|| World::from(&server.fresh_database().unwrap())).await;
}

/// How long a copy takes is measured first. Where no kill fell within a move, which can happen, another one is begun.
async fn is_killed_again_and_again(world: impl Fn() -> World) {
    let mut chance = Chance::new();
    let aim = world();
    fill_much(&aim.open(&aim.from).await).await;
    let started = Instant::now();
    aim.copy(&[], 0);
    let whole = started.elapsed();
    for _ in 0..MOVES_MAX {
        if kill_copies(&world(), whole, &mut chance).await > 0 {
            return;
        }
    }
    panic!("in {MOVES_MAX} moves no kill fell between their beginning and their end");
}

/// Moves one ledger. How many kills fell within the move.
async fn kill_copies(world: &World, whole: Duration, chance: &mut Chance) -> u32 {
    assert_eq!(world.pay(&world.from, "paid"), 0);
    let old = world.open(&world.from).await;
    fill_much(&old).await;
    let before = contents(&**old.store(), 0).await;
    let (mut finished, mut within) = (false, 0);
    for round in 0..KILLS {
        let mut copy = world.command(&world.copy_args(&[])).spawn().unwrap();
        let moment = Duration::from_micros(chance.below(whole.as_micros() as u64));
        let started = Instant::now();
        while started.elapsed() < moment && copy.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        copy.kill().unwrap();
        copy.wait().unwrap();
        let gates =
            (old.store().gate().await.unwrap(), world.open(&world.to).await.store().gate().await.unwrap());
        if gates == (Gate::Open, Gate::Open) {
            // Killed before anything was marked: two ledgers, and no move.
            continue;
        }
        finished |= matches!(&gates, (Gate::Closed(_), Gate::Open));
        within += u32::from(!finished);
        // A fresh key is claimed in one of them at most, and only in an old one that has not begun to move.
        let key = format!("round-{round}");
        let codes = (world.pay(&world.from, &key), world.pay(&world.to, &key));
        match &gates {
            (Gate::Open, Gate::Filling(_)) => assert_eq!(codes, (0, 12), "round {round}: {gates:?}"),
            (Gate::Closing(_) | Gate::Closed(_), Gate::Filling(_)) => {
                assert_eq!(codes, (12, 12), "round {round}: {gates:?}");
            }
            (Gate::Closed(_), Gate::Open) => assert_eq!(codes, (12, 0), "round {round}: {gates:?}"),
            other => panic!("round {round}: {other:?}"),
        }
        assert!(world.effects(&key) <= 1, "round {round}: {key} ran twice");
        assert_eq!((world.pay(&world.from, "paid"), world.effects("paid")), (0, 1), "round {round}");
        if finished {
            break;
        }
    }
    let report = world.copy(&[], 0);
    let new = world.open(&world.to).await;
    if !finished {
        let after = contents(&**new.store(), report["clock_shift_ms"].as_i64().unwrap()).await;
        let kept: Vec<&String> = before.0.iter().filter(|record| !after.0.contains(record)).collect();
        assert!(kept.is_empty(), "lost on the way: {kept:?}");
        let log: Vec<&String> = after.1.iter().take(before.1.len()).collect();
        assert!(log.iter().zip(&before.1).all(|(a, b)| *a == b), "the log did not arrive as it was");
    }
    for key in ["much-0", "much-777", "much-1499"] {
        let n: usize = key[5..].parse().unwrap();
        let call = new.tool("pay").key(key).payload(&json!(n));
        let answer = call.run(|_| async { panic!("it ran again") }).await.unwrap();
        assert!(matches!(answer, oncely::Answer::Replayed(_)), "{key}: {answer:?}");
    }
    within
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_given_up_leaves_one_ledger_that_takes_calls() {
    let world = World::new();
    let old = world.open(&world.from).await;
    fill_much(&old).await;
    let mut copy = world.command(&world.copy_args(&[])).spawn().unwrap();
    let is_closed = async || matches!(old.store().gate().await.unwrap(), Gate::Closed(_));
    while !is_closed().await {
        // It may have closed the ledger and ended since we looked.
        if copy.try_wait().unwrap().is_some() {
            assert!(is_closed().await, "the copy ended before the ledger was closed");
        }
    }
    copy.kill().unwrap();
    let output = copy.wait_with_output().unwrap();
    let finished = world.open(&world.to).await.store().gate().await.unwrap() == Gate::Open;
    if finished {
        assert_eq!(world.copy(&["--abort"], 4)["error"]["code"], "ANOTHER_MOVE", "{}", text(&output.stderr));
        assert_eq!((world.pay(&world.from, "k"), world.pay(&world.to, "k"), world.effects("k")), (12, 0, 1));
        return;
    }
    assert_eq!(world.copy(&["--abort"], 0)["given_up"], true);
    assert_eq!((world.pay(&world.from, "k"), world.pay(&world.to, "k"), world.effects("k")), (0, 12, 1));
    assert_eq!(world.copy(&["--abort"], 4)["error"]["code"], "ANOTHER_MOVE", "there is nothing to give up");
}
