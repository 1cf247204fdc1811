//! Many processes on one ledger, each killed at a random moment and then retried; afterwards every key is judged
//! against the outside ledger.

mod judge;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncely_testkit::sim::Rng;

use crate::Checked;
use crate::landings::Landings;
use crate::ledger::Runner;
use crate::outside::Outside;
use crate::programs::Programs;

/// The longest that a run is believed to take: longer than on any machine that is slow or has much else to do, for kills have to
/// spread over all of it, and shorter than a wait.
pub(crate) const RUN_US_MAX: u64 = 3_000_000;

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Kills that must land on a living process.
    pub kills: u64,
    /// It goes on, for a while, until a kill has landed in each of these.
    pub phases: &'static [Phase],
    /// All that is random follows from it, but for the scheduling of processes.
    pub seed: u64,
    /// Processes at a time.
    pub workers: u64,
}

/// Where a kill landed, told by what the retry found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The claim was not written: the retry ran the command.
    BeforeTheClaim,
    /// The claim was written, no effect had been counted: the retry ran nothing.
    BeforeTheEffect,
    /// The effect had been counted and its end was not recorded: the retry ran nothing.
    AfterTheEffect,
    /// The end was recorded: the retry replayed it.
    AfterTheEnd,
    /// The command does not succeed by itself, so the retry's answer does not tell.
    NotToldApart,
}

/// Figures of a campaign, and what is wrong.
#[derive(Debug, Default)]
pub struct Report {
    /// Runs that were started, retries included.
    pub runs: u64,
    /// Kills that landed on a living process, by where they landed.
    pub kills: BTreeMap<Phase, u64>,
    /// Keys used.
    pub keys: u64,
    /// Effects counted outside.
    pub effects: u64,
    /// Keys that are in doubt at the end.
    pub in_doubt: u64,
    /// Of those, keys whose effect was counted.
    pub in_doubt_with_effect: u64,
    /// Acknowledged results that were replayed once more at the end and compared.
    pub compared: u64,
    /// Keys with more than one effect.
    pub double_effects: u64,
    /// Every broken promise, in words.
    pub broken: Vec<String>,
}

impl Report {
    /// Kills that landed.
    pub fn landed(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Adds another round's figures.
    pub fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.keys += other.keys;
        self.effects += other.effects;
        self.in_doubt += other.in_doubt;
        self.in_doubt_with_effect += other.in_doubt_with_effect;
        self.compared += other.compared;
        self.double_effects += other.double_effects;
        self.broken.extend(other.broken);
        for (phase, kills) in other.kills {
            *self.kills.entry(phase).or_default() += kills;
        }
    }
}

/// What is known of a key from the answers that callers got.
#[derive(Debug, Default, Clone)]
struct Told {
    /// What the first acknowledged success printed.
    succeeded: Option<Vec<u8>>,
    /// Somebody was told that the outcome is unknown.
    unknown: bool,
}

struct Campaign<'a> {
    plan: Plan,
    runner: &'a Runner,
    effect: &'a Path,
    outside: &'a Outside,
    landings: Landings<Phase>,
    runs: AtomicU64,
    shared_keys: AtomicU64,
    /// How long an undisturbed run takes, so that kills spread over all of it.
    run_us: AtomicU64,
    told: Mutex<BTreeMap<String, Told>>,
    broken: Mutex<Vec<String>>,
}

/// Runs a campaign against a program and judges its ledger.
pub fn run(programs: &Programs, runner: &Runner, outside: &Outside, plan: Plan) -> Checked<Report> {
    let campaign = Campaign {
        plan,
        runner,
        effect: &programs.effect,
        outside,
        landings: Landings::wanted(plan.kills, plan.phases),
        runs: AtomicU64::new(0),
        shared_keys: AtomicU64::new(0),
        run_us: AtomicU64::new(8_000),
        told: Mutex::default(),
        broken: Mutex::default(),
    };
    thread::scope(|scope| -> Checked<()> {
        let workers: Vec<_> = (0..plan.workers)
            .map(|worker| (worker, &campaign))
            .map(|(w, c)| scope.spawn(move || c.work(w)))
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })?;
    outside.settle()?;
    campaign.judge()
}

impl Campaign<'_> {
    fn work(&self, worker: u64) -> Checked<()> {
        let mut rng = Rng::split(self.plan.seed, worker);
        for turn in 0.. {
            if self.landings.are_enough() {
                break;
            }
            let key = self.pick_key(&mut rng, worker, turn);
            let landed = self.run_and_kill(&key, &mut rng)?;
            let counted = if landed { self.outside.count(&key)? } else { 0 };
            let retry = self.retry(&key)?;
            if landed {
                self.landings.add(phase_of(&key, &retry, counted));
            }
        }
        Ok(())
    }

    /// Half of the keys are shared by a few workers at about the same time, so that duplicates race.
    fn pick_key(&self, rng: &mut Rng, worker: u64, turn: u64) -> String {
        let name = if rng.chance(500) {
            format!("shared-{}", self.shared_keys.fetch_add(1, Ordering::Relaxed) / 3)
        } else {
            format!("own-{worker}-{turn}")
        };
        let key = format!("{:x}-{name}", self.plan.seed);
        locked(&self.told).entry(key.clone()).or_default();
        key
    }

    fn start(&self, key: &str) -> Checked<Child> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let effect = self.effect.to_string_lossy();
        let socket = self.outside.socket().to_string_lossy();
        Ok(self.runner.run(key, &[&effect, &socket, key, mode_of(key)]).spawn()?)
    }

    /// Says whether the kill landed.
    fn run_and_kill(&self, key: &str, rng: &mut Rng) -> Checked<bool> {
        let child = self.start(key)?;
        let span_us = self.run_us.load(Ordering::Relaxed) * 6 / 5;
        thread::sleep(Duration::from_micros(rng.below(span_us.max(1))));
        // Not waited for yet, so the number still means this process.
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        let commands = if rng.chance(400) { children_of(pid) } else { Vec::new() };
        kill(pid, Signal::SIGKILL)?;
        for command in commands {
            // It may have ended meanwhile.
            let _ = kill(command, Signal::SIGKILL);
        }
        let output = child.wait_with_output()?;
        if was_killed(&output) {
            return Ok(true);
        }
        self.note(key, &output);
        Ok(false)
    }

    fn retry(&self, key: &str) -> Checked<Output> {
        let started = Instant::now();
        let output = self.start(key)?.wait_with_output()?;
        if output.status.success() && !is_replay(&output) {
            let took_us = u64::try_from(started.elapsed().as_micros())?;
            let before = self.run_us.load(Ordering::Relaxed);
            self.run_us.store((before * 7 + took_us.min(RUN_US_MAX)) / 8, Ordering::Relaxed);
        }
        self.note(key, &output);
        Ok(output)
    }

    /// Keeps what a caller was told, and complains at once if it contradicts what another was told.
    fn note(&self, key: &str, output: &Output) {
        let mut told = locked(&self.told);
        let told = told.entry(key.to_owned()).or_default();
        match (output.status.code(), mode_of(key)) {
            (Some(0), _) => match &told.succeeded {
                Some(first) if *first != output.stdout => {
                    self.complain(format!("{key}: two results were acknowledged: {}", said(output)));
                }
                Some(_) => {}
                None => told.succeeded = Some(output.stdout.clone()),
            },
            (Some(16), _) | (Some(1), "fails-before" | "fails-after") => told.unknown = true,
            (Some(64), "refuses" | "refuses-first") => {}
            _ => self.complain(format!("{key}: an answer that nothing explains: {}", said(output))),
        }
    }

    fn complain(&self, what: String) {
        locked(&self.broken).push(what);
    }
}

/// How the command of a key ends: the same in every attempt's arguments, since they are the payload.
fn mode_of(key: &str) -> &'static str {
    let sum: u32 = key.bytes().map(u32::from).sum();
    match sum % 16 {
        0 => "refuses",
        1 => "refuses-first",
        2 => "fails-before",
        3 => "fails-after",
        _ => "succeeds",
    }
}

fn phase_of(key: &str, retry: &Output, counted: u64) -> Phase {
    match retry.status.code() {
        _ if mode_of(key) != "succeeds" => Phase::NotToldApart,
        Some(16) if counted == 0 => Phase::BeforeTheEffect,
        Some(16) => Phase::AfterTheEffect,
        Some(0) if is_replay(retry) => Phase::AfterTheEnd,
        _ => Phase::BeforeTheClaim,
    }
}

fn is_replay(output: &Output) -> bool {
    said(output).contains("oncely: replayed")
}

pub(crate) fn was_killed(output: &Output) -> bool {
    use std::os::unix::process::ExitStatusExt;
    output.status.signal() == Some(Signal::SIGKILL as i32)
}

fn said(output: &Output) -> String {
    format!("{}, {:?}", output.status, String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn children_of(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|n| n.parse().ok()).map(Pid::from_raw).collect::<Vec<_>>()
        })
        .collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
