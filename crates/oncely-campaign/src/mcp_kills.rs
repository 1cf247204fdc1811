//! MCP clients, proxies and servers, killed at random moments and then retried; afterwards every key is judged against
//! the outside ledger.
//!
//! Each call is a chain of three processes: a client that starts the proxy, which starts the server. Any of them, or
//! several, get the signal. The control leaves the proxy out.

mod answer;
mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncely_testkit::sim::Rng;

use self::answer::Answer;
use crate::Checked;
use crate::kills::{children_of, was_killed};
use crate::landings::Landings;
use crate::ledger::Runner;
use crate::outside::Outside;
use crate::programs::Programs;
use crate::tellings::{Pace, Tellings, locked};

/// The longest that the server takes before and after the effect: as long as the processes take to start, so that many
/// kills land there.
const PAUSE_US_MAX: u64 = 20_000;

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Calls in which a kill must land on a living process.
    pub kills: u64,
    /// It goes on, for a while, until a kill has landed in each of these.
    pub phases: &'static [Phase],
    /// All that is random follows from it, but for the scheduling of processes.
    pub seed: u64,
    /// Chains of processes at a time.
    pub workers: u64,
    /// What stands between client and server.
    pub between: Between,
}

/// What stands between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// `oncely mcp`, which the client speaks to over stdio.
    Oncely,
    /// `oncely mcp --listen`, which the client speaks to over HTTP.
    Listening,
    /// Nothing: a client that retries blindly, which the harness must catch.
    Nothing,
}

/// Who got the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// The process that asked.
    Client,
    /// The process in between.
    Proxy,
    /// The process that has the effect.
    Server,
}

/// Where a kill landed, told by what the retry found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The claim was not written: the retry called the tool.
    BeforeTheClaim,
    /// The claim was written, no effect had been counted when everything was dead.
    BeforeTheEffect,
    /// The effect had been counted and its end was not recorded.
    AfterTheEffect,
    /// The call had an end all the same: the survivors saw to it, or it had been recorded before.
    Ended,
    /// The tool does not succeed by itself, so the retry's answer does not tell.
    NotToldApart,
}

/// Figures of a campaign, and what is wrong.
#[derive(Debug, Default)]
pub struct Report {
    /// Calls that were started, retries included.
    pub calls: u64,
    /// Calls in which a kill landed, by where it landed.
    pub kills: BTreeMap<Phase, u64>,
    /// Processes killed.
    pub victims: BTreeMap<Victim, u64>,
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
    /// Calls in which a kill landed.
    pub fn landed(&self) -> u64 {
        self.kills.values().sum()
    }
}

struct Campaign<'a> {
    plan: Plan,
    programs: &'a Programs,
    runner: &'a Runner,
    outside: &'a Outside,
    landings: Landings<Phase>,
    calls: AtomicU64,
    pace: Pace,
    tellings: Tellings<String>,
    victims: Mutex<BTreeMap<Victim, u64>>,
}

/// Runs a campaign and judges it.
pub fn run(programs: &Programs, runner: &Runner, outside: &Outside, plan: Plan) -> Checked<Report> {
    let campaign = Campaign {
        plan,
        programs,
        runner,
        outside,
        landings: Landings::wanted(plan.kills, plan.phases),
        calls: AtomicU64::new(0),
        pace: Pace::guess(20_000),
        tellings: Tellings::new(plan.seed),
        victims: Mutex::default(),
    };
    thread::scope(|scope| -> Checked<()> {
        let workers: Vec<_> = (0..plan.workers)
            .map(|worker| (worker, &campaign))
            .map(|(w, c)| scope.spawn(move || c.work(w)))
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })?;
    // A server whose proxy was killed works on by itself; and a client may have been killed between the look at its
    // children and the start of one.
    let mut asked = BTreeSet::new();
    outside.settle_telling(|pid, line| {
        if listens(line) && asked.insert(pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    })?;
    campaign.judge()
}

impl Campaign<'_> {
    fn work(&self, worker: u64) -> Checked<()> {
        let mut rng = Rng::split(self.plan.seed, worker);
        for turn in 0.. {
            if self.landings.are_enough() {
                break;
            }
            let key = self.tellings.pick_key(&mut rng, (worker, turn), 300, 2);
            let landed = self.call_and_kill(&key, &mut rng)?;
            let counted = if landed { self.outside.count(&key)? } else { 0 };
            let retry = self.retry(&key)?;
            if landed {
                self.landings.add(phase_of(&key, &retry, counted));
            }
        }
        Ok(())
    }

    fn start(&self, key: &str) -> Checked<Child> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut line = Command::new(&self.programs.mcp_client);
        let listening = self.plan.between == Between::Listening;
        line.arg(if listening { "http" } else { "stdio" });
        line.args([key, mode_of(key), &pause_of(key).to_string()]);
        if self.plan.between != Between::Nothing {
            line.arg(&self.runner.program).args(["mcp", "--store", &self.runner.store]);
            line.args(if listening { &["--listen", "127.0.0.1:0", "--"][..] } else { &["--"] });
        }
        line.arg(&self.programs.mcp_server).arg(self.outside.socket());
        line.env_remove("ONCELY_SCOPE").env_remove("ONCELY_CONFIG").env_remove("ONCELY_NAMESPACE");
        Ok(line.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// Says whether a kill landed.
    fn call_and_kill(&self, key: &str, rng: &mut Rng) -> Checked<bool> {
        let child = self.start(key)?;
        // Not waited for yet, so the number still means this process.
        let client = Pid::from_raw(i32::try_from(child.id())?);
        self.await_the_moment(client, rng);
        let mut hit = false;
        // All are looked up before the first dies and its children lose their parent.
        let chain = self.chain(client);
        for (victim, pid) in pick_victims(chain.clone(), rng) {
            // It may have ended meanwhile; of the client it is known only afterwards.
            if kill(pid, Signal::SIGKILL).is_ok() && victim != Victim::Client {
                hit = true;
                *locked(&self.victims).entry(victim).or_default() += 1;
            }
        }
        let output = child.wait_with_output()?;
        if self.plan.between == Between::Listening {
            // Nothing tells it that its client is dead.
            end_orphans(&chain);
        }
        if was_killed(&output) {
            *locked(&self.victims).entry(Victim::Client).or_default() += 1;
            return Ok(true);
        }
        self.note(key, &Answer::of(&output));
        Ok(hit)
    }

    /// Half of the kills come at any moment of a call. The others come when the server is there, since starting three
    /// processes takes longer than a call, and on a busy machine much longer.
    fn await_the_moment(&self, client: Pid, rng: &mut Rng) {
        let mut wait = self.pace.moment(rng);
        if rng.chance(500) {
            let patience = Instant::now() + Duration::from_secs(5);
            while self.chain(client).last().is_none_or(|(who, _)| *who != Victim::Server)
                && Instant::now() < patience
            {
                thread::sleep(Duration::from_millis(1));
            }
            wait = Duration::from_micros(rng.below(3 * PAUSE_US_MAX));
        }
        thread::sleep(wait);
    }

    /// The processes of a call.
    fn chain(&self, client: Pid) -> Vec<(Victim, Pid)> {
        let mut chain = vec![(Victim::Client, client)];
        let below = children_of(client);
        if self.plan.between == Between::Nothing {
            chain.extend(below.into_iter().map(|pid| (Victim::Server, pid)));
            return chain;
        }
        let servers: Vec<Pid> =
            below.iter().flat_map(|proxy| children_of(*proxy)).filter(|pid| !watches(*pid)).collect();
        chain.extend(below.into_iter().map(|pid| (Victim::Proxy, pid)));
        chain.extend(servers.into_iter().map(|pid| (Victim::Server, pid)));
        chain
    }

    fn retry(&self, key: &str) -> Checked<Answer> {
        let started = Instant::now();
        let answer = Answer::of(&self.start(key)?.wait_with_output()?);
        if matches!(answer, Answer::Succeeded { replayed: false, .. }) {
            self.pace.learn(started)?;
        }
        self.note(key, &answer);
        if matches!(answer, Answer::Nothing | Answer::NotSent) {
            self.tellings
                .complain(format!("{key}: a retry that nobody disturbed was not served: {answer:?}"));
        }
        Ok(answer)
    }

    /// Keeps what a caller was told, and complains at once if it contradicts what another was told.
    fn note(&self, key: &str, answer: &Answer) {
        match (answer, mode_of(key)) {
            (Answer::Succeeded { text, .. }, "succeeds") => self.tellings.succeeded(key, text.clone(), text),
            (Answer::Unknown, _) => self.tellings.unknown(key),
            (Answer::Rejected, "refuses") | (Answer::NotSent | Answer::Nothing, _) => {}
            _ => self.tellings.complain(format!("{key}: an answer that nothing explains: {answer:?}")),
        }
    }
}

/// One of them, or several.
fn pick_victims(mut chain: Vec<(Victim, Pid)>, rng: &mut Rng) -> Vec<(Victim, Pid)> {
    let chosen = rng.below(chain.len() as u64);
    let several = rng.chance(250);
    let mut at = 0;
    chain.retain(|_| {
        at += 1;
        at - 1 == chosen || (several && rng.chance(500))
    });
    chain
}

/// Asks proxies whose client is dead to end; they finish what they have begun.
fn end_orphans(chain: &[(Victim, Pid)]) {
    for (_, pid) in chain.iter().filter(|(who, _)| *who == Victim::Proxy) {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if listens(&line) {
            let _ = kill(*pid, Signal::SIGTERM);
        }
    }
}

fn listens(line: &[u8]) -> bool {
    has(line, "--listen")
}

/// Whether a child of the proxy is none of the server's: it only waits for the proxy's end.
fn watches(pid: Pid) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    has(&line, "mcp-watch")
}

fn has(line: &[u8], argument: &str) -> bool {
    line.split(|byte| *byte == 0).any(|there| there == argument.as_bytes())
}

/// How the tool ends for a key: the same in every attempt's arguments, since they are the payload.
fn mode_of(key: &str) -> &'static str {
    match sum(key) % 16 {
        0 => "refuses",
        1 => "fails-before",
        2 => "fails-after",
        _ => "succeeds",
    }
}

fn pause_of(key: &str) -> u64 {
    sum(key) * 7919 % PAUSE_US_MAX
}

fn sum(key: &str) -> u64 {
    key.bytes().map(u64::from).sum()
}

fn phase_of(key: &str, retry: &Answer, counted: u64) -> Phase {
    match retry {
        _ if mode_of(key) != "succeeds" => Phase::NotToldApart,
        Answer::Unknown if counted == 0 => Phase::BeforeTheEffect,
        Answer::Unknown => Phase::AfterTheEffect,
        Answer::Succeeded { replayed: true, .. } => Phase::Ended,
        _ => Phase::BeforeTheClaim,
    }
}
