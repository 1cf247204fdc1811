//! The engine in a simulated world: crashes at every step, lost and late writes, clock jumps, callers that go away; an
//! auditor counts effects in an outside ledger. Everything follows from a seed.
//!
//! Reproduce one: `ONCELY_SIM_SEED=7 cargo test -p oncely --test simulation`. A long campaign:
//! `ONCELY_SIM_OPS=100000000 cargo test --release -p oncely --test simulation -- --ignored long_campaign --nocapture`.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a test")]

#[path = "simulation/calls.rs"]
mod calls;
#[path = "simulation/episode.rs"]
mod episode;
#[path = "simulation/keys.rs"]
mod keys;
#[path = "simulation/tally.rs"]
mod tally;

use std::time::{Duration, Instant};

use episode::{Broken, Report, play};
use keys::Lie;
use oncely_testkit::sim::{Counts, Flaw};

/// Seeds that are played in every run.
const FIXED_SEEDS: u64 = 200;
/// How long seeds chosen at random are played in every run.
const RANDOM_FOR: Duration = Duration::from_secs(6);
/// Seeds within which a broken ledger or a lie has to be noticed.
const CONTROL_SEEDS: u64 = 200;

fn play_soundly(seed: u64) -> Report {
    let report = play(seed, Broken::default());
    if given_seed().is_some() {
        report.story.iter().for_each(|line| println!("{line}"));
    }
    assert!(
        report.findings.is_empty(),
        "seed {seed}: {:#?}\nreproduce with ONCELY_SIM_SEED={seed} cargo test -p oncely --test simulation",
        report.findings
    );
    report
}

fn given_seed() -> Option<u64> {
    std::env::var("ONCELY_SIM_SEED").ok()?.parse().ok()
}

fn add(total: &mut [u64], more: &[u64]) {
    total.iter_mut().zip(more).for_each(|(t, m)| *t += m);
}

#[test]
fn fixed_seeds_keep_every_promise_and_reach_every_fault_and_answer() {
    if let Some(seed) = given_seed() {
        println!("seed {seed}");
        play_soundly(seed);
        return;
    }
    println!("seeds 0 to {}", FIXED_SEEDS - 1);
    let (mut counts, mut answers) = (Counts::default(), [0; tally::NAMES.len()]);
    for seed in 0..FIXED_SEEDS {
        let report = play_soundly(seed);
        counts.add(&report.counts);
        add(&mut answers, &report.answers);
    }
    println!("{counts}");
    println!("{:?}", tally::NAMES.iter().zip(answers).collect::<Vec<_>>());
    for (name, count) in counts.named().into_iter().chain(tally::NAMES.into_iter().zip(answers)) {
        assert!(count > 0, "no seed reached: {name}");
    }
}

#[test]
fn random_seeds_keep_every_promise() {
    if given_seed().is_some() {
        return;
    }
    let first = random_seed();
    println!("random seeds from {first} on");
    let (until, mut seed) = (Instant::now() + RANDOM_FOR, first);
    while Instant::now() < until {
        play_soundly(seed);
        seed = seed.wrapping_add(1);
    }
    println!("{} random seeds", seed.wrapping_sub(first));
}

#[test]
fn one_seed_always_tells_the_same_story() {
    for seed in 0..60 {
        let (one, two) = (play_soundly(seed), play_soundly(seed));
        assert_eq!(one.counts, two.counts, "seed {seed}");
        assert_eq!(one.answers, two.answers, "seed {seed}");
    }
}

fn must_be_caught(broken: Broken) {
    for seed in 0..CONTROL_SEEDS {
        let report = play(seed, broken);
        if let Some(finding) = report.findings.first() {
            println!("{broken:?} was caught by seed {seed}: {finding}");
            return;
        }
    }
    panic!("{broken:?} was not noticed in {CONTROL_SEEDS} seeds: the harness proves nothing");
}

#[test]
fn every_broken_ledger_is_caught() {
    for flaw in [
        Flaw::LosesClaims,
        Flaw::LosesEnds,
        Flaw::IgnoresVersions,
        Flaw::FreesLostOwners,
        Flaw::PurgesDoubts,
        Flaw::ForgetsEarly,
        Flaw::AcknowledgesFailures,
    ] {
        must_be_caught(Broken { flaw: Some(flaw), lie: None });
    }
}

#[test]
fn every_lie_is_caught() {
    for lie in [Lie::Probe, Lie::Idempotent, Lie::Person] {
        must_be_caught(Broken { flaw: None, lie: Some(lie) });
    }
}

#[test]
#[ignore = "takes as long as ONCELY_SIM_OPS says; run by hand"]
fn long_campaign() {
    let wanted: u64 = std::env::var("ONCELY_SIM_OPS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let first = given_seed().unwrap_or_else(random_seed);
    println!("{wanted} operations on {threads} threads, seeds from {first} on");
    let started = Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|worker| std::thread::spawn(move || campaign(first, worker, threads, wanted / threads)))
        .collect();
    let (mut counts, mut answers, mut seeds) = (Counts::default(), [0; tally::NAMES.len()], 0);
    for worker in workers {
        let (more, told, played) = worker.join().unwrap();
        counts.add(&more);
        add(&mut answers, &told);
        seeds += played;
    }
    println!("{seeds} seeds in {} s: {counts}", started.elapsed().as_secs());
    println!("{:?}", tally::NAMES.iter().zip(answers).collect::<Vec<_>>());
}

fn campaign(first: u64, worker: u64, step: u64, wanted: u64) -> (Counts, [u64; tally::NAMES.len()], u64) {
    let (mut counts, mut answers, mut seeds) = (Counts::default(), [0; tally::NAMES.len()], 0);
    while counts.operations < wanted {
        let report = play_soundly(first.wrapping_add(worker).wrapping_add(seeds * step));
        counts.add(&report.counts);
        add(&mut answers, &report.answers);
        seeds += 1;
    }
    (counts, answers, seeds)
}

/// A seed nobody chose: hash maps are seeded by the system.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) >> 1
}
