//! Many processes on one ledger, each killed at a random moment and then retried; afterwards every key is judged
//! against the outside ledger.

mod judge;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncely_testkit::sim::Rng;

use crate::Checked;
use crate::landings::Landings;
use crate::ledger::Runner;
use crate::outside::Outside;
use crate::programs::Programs;
use crate::tellings::{Pace, Tellings};

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

struct Campaign<'a> {
    plan: Plan,
    runner: &'a Runner,
    effect: &'a Path,
    outside: &'a Outside,
    landings: Landings<Phase>,
    runs: AtomicU64,
    pace: Pace,
    tellings: Tellings<Vec<u8>>,
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
        pace: Pace::guess(8_000),
        tellings: Tellings::new(plan.seed),
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
            let key = self.tellings.pick_key(&mut rng, (worker, turn), 500, 3);
            let landed = self.run_and_kill(&key, &mut rng)?;
            let counted = if landed { self.outside.count(&key)? } else { 0 };
            let retry = self.retry(&key)?;
            if landed {
                self.landings.add(phase_of(&key, &retry, counted));
            }
        }
        Ok(())
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
        thread::sleep(self.pace.moment(rng));
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
            self.pace.learn(started)?;
        }
        self.note(key, &output);
        Ok(output)
    }

    /// Keeps what a caller was told, and complains at once if it contradicts what another was told.
    fn note(&self, key: &str, output: &Output) {
        match (output.status.code(), mode_of(key)) {
            (Some(0), _) => self.tellings.succeeded(key, output.stdout.clone(), &said(output)),
            (Some(16), _) | (Some(1), "fails-before" | "fails-after") => self.tellings.unknown(key),
            (Some(64), "refuses" | "refuses-first") => {}
            _ => self.tellings.complain(format!("{key}: an answer that nothing explains: {}", said(output))),
        }
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
