//! Processes that make calls while the server of their ledger is killed and replaced, again and again; afterwards every key
//! is judged against the outside ledger.

mod judge;
mod services;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use oncely_testkit::sim::Rng;

pub use self::services::{Cluster, Demand, PostgresPair, Restarted, Wait};
use crate::Checked;
use crate::ledger::Runner;
use crate::outside::Outside;
use crate::programs::Programs;

/// Of so many kinds, two are shared between callers, one is a key that the caller has used before, the others are new.
pub const KEY_KINDS: u64 = 8;
/// Acknowledged answers between two failovers: nobody is spared by a server that is taken away while nothing happens.
const ANSWERS_BETWEEN: u64 = 50;
/// The longest that calls go on between two failovers once there were answers.
const PAUSE_MS_MAX: u64 = 800;
/// How long the callers may go without any answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A ledger's server that can be taken away and replaced.
pub trait Service {
    /// The address of the ledger, the same all the time.
    fn address(&self) -> String;

    /// Takes the server away under load, has another take over, and returns when everything is whole again.
    fn fail(&mut self, rng: &mut Rng) -> Checked<()>;
}

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How often the server is taken away.
    pub failovers: u64,
    /// All that is random follows from it, but for the scheduling of processes.
    pub seed: u64,
    /// Processes that make calls.
    pub workers: u64,
    /// Calls at a time in each.
    pub callers: u64,
}

/// Figures of a campaign, and what is wrong.
#[derive(Debug, Default)]
pub struct Report {
    /// How often the server was taken away.
    pub failovers: u64,
    /// Keys used.
    pub keys: u64,
    /// Successes told to callers, replays included.
    pub acknowledged: u64,
    /// Calls that were told that the ledger cannot be used: nothing ran.
    pub unavailable: u64,
    /// Ends that could not be recorded at once, and were later.
    pub recorded_late: u64,
    /// Effects counted outside.
    pub effects: u64,
    /// Keys that are in doubt at the end.
    pub in_doubt: u64,
    /// Of those, keys whose effect was counted.
    pub in_doubt_with_effect: u64,
    /// Acknowledged results that were asked for once more at the end and compared.
    pub compared: u64,
    /// Keys with more than one effect.
    pub double_effects: u64,
    /// Acknowledged successes that the ledger does not have any more when everything has ended.
    pub lost_successes: u64,
    /// Keys with an effect of which the ledger knows nothing when everything has ended.
    pub forgotten: u64,
    /// Every broken promise, in words.
    pub broken: Vec<String>,
}

/// What is known of a key from the answers that callers got.
#[derive(Debug, Default, Clone)]
struct Told {
    succeeded: Option<String>,
    unknown: bool,
}

#[derive(Debug, Default)]
struct Heard {
    keys: BTreeMap<String, Told>,
    /// Calls that came to an end for good.
    answers: u64,
    acknowledged: u64,
    unavailable: u64,
    recorded_late: u64,
    broken: Vec<String>,
}

/// Runs a campaign against a service and judges its ledger.
pub fn run(programs: &Programs, service: &mut dyn Service, outside: &Outside, plan: Plan) -> Checked<Report> {
    let campaign = Campaign { programs, outside, address: service.address(), heard: Arc::default() };
    let mut workers =
        (0..plan.workers).map(|worker| campaign.start_worker(worker, plan)).collect::<Checked<Vec<_>>>()?;
    let mut rng = Rng::split(plan.seed, u64::MAX);
    for _ in 0..plan.failovers {
        campaign.await_answers(&mut workers, ANSWERS_BETWEEN)?;
        thread::sleep(Duration::from_millis(rng.below(PAUSE_MS_MAX)));
        service.fail(&mut rng)?;
    }
    campaign.await_answers(&mut workers, ANSWERS_BETWEEN)?;
    for worker in workers {
        worker.finish()?;
    }
    campaign.judge(plan)
}

struct Campaign<'a> {
    programs: &'a Programs,
    outside: &'a Outside,
    address: String,
    heard: Arc<Mutex<Heard>>,
}

/// A process that makes calls; killed when dropped.
struct Worker {
    process: Child,
    input: Option<ChildStdin>,
    listener: Option<JoinHandle<()>>,
}

impl Campaign<'_> {
    fn start_worker(&self, worker: u64, plan: Plan) -> Checked<Worker> {
        let numbers = [worker, plan.seed, plan.callers].map(|n| n.to_string());
        self.start("work", &numbers)
    }

    fn start(&self, what: &str, more: &[String]) -> Checked<Worker> {
        let mut process = Command::new(&self.programs.store_worker)
            .args([what, &self.address])
            .arg(self.outside.socket())
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let heard = self.heard.clone();
        let listener = output.map(|output| {
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    locked(&heard).note(&line);
                }
            })
        });
        Ok(Worker { process, input, listener })
    }

    /// Waits until callers have got so many more answers: without answers there is no load.
    fn await_answers(&self, workers: &mut [Worker], more: u64) -> Checked<()> {
        let wanted = locked(&self.heard).answers + more;
        let deadline = Instant::now() + PATIENCE;
        while locked(&self.heard).answers < wanted {
            for worker in &mut *workers {
                if let Some(status) = worker.process.try_wait()? {
                    return Err(format!("a worker ended by itself: {status}").into());
                }
            }
            if Instant::now() >= deadline {
                return Err(format!("no answers for {} s", PATIENCE.as_secs()).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Has a process of its own, which remembers nothing, call these keys once more.
    fn call_again(&self, keys: &[String]) -> Checked<()> {
        let mut worker = self.start("again", &[])?;
        if let Some(input) = &mut worker.input {
            input.write_all((keys.join("\n") + "\n").as_bytes())?;
        }
        worker.finish()
    }

    fn runner(&self) -> Runner {
        Runner { program: self.programs.oncely.clone(), store: self.address.clone() }
    }
}

impl Worker {
    /// Lets it bring its calls to their end.
    fn finish(mut self) -> Checked<()> {
        drop(self.input.take());
        let status = self.process.wait()?;
        if let Some(listener) = self.listener.take() {
            listener.join().map_err(|_| "a listener panicked")?;
        }
        if status.success() { Ok(()) } else { Err(format!("a worker failed: {status}").into()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended; there is nobody to tell.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Heard {
    /// Keeps what a caller was told, and complains at once if it contradicts what another was told.
    fn note(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (word, key, rest) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        match word {
            "unavailable" => self.unavailable += 1,
            "unrecorded" => self.recorded_late += 1,
            "waiting" => {}
            _ => self.note_end(word, key, rest, line),
        }
    }

    fn note_end(&mut self, word: &str, key: &str, rest: &str, line: &str) {
        self.answers += 1;
        let told = self.keys.entry(key.to_owned()).or_default();
        match word {
            "succeeded" => {
                self.acknowledged += 1;
                let first = told.succeeded.get_or_insert_with(|| rest.to_owned());
                if *first != rest {
                    let what = format!("{key}: two results were acknowledged: {first:?} and {rest:?}");
                    self.broken.push(what);
                }
            }
            "unknown" => told.unknown = true,
            "rejected" if mode_of(key) == "refuses" => {}
            _ => self.broken.push(format!("an answer that nothing explains: {line}")),
        }
    }
}

/// How the effect of a key ends.
pub fn mode_of(key: &str) -> &'static str {
    let sum = key.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    if sum % 16 == 0 { "refuses" } else { "succeeds" }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
