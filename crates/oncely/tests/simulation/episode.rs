//! One simulated life of a ledger, from one seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncely::Oncely;
use oncely::core::{AttemptToken, State, WhenUnknown};
use oncely_testkit::sim::{Counts, Faults, Flaw, ProcessNumber, Rng, World};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::calls::{self, Variant, Wish};
use super::keys::{KeySpec, Lie, REMEMBER_FOR_MS, REPEAT_AFTER_MS, REPLAY_FOR_MS};
use super::tally::{Answers, NAMES};

/// Most keys in one world.
const KEYS_MAX: usize = 24;
/// Most callers in one process.
const CALLERS_MAX: usize = 6;
/// Rounds after which a call that has not ended is said to hang.
const QUIET_ROUNDS_MAX: u64 = 5_000;
/// How much time passes in each of those rounds.
const REST_STEP_MS: u64 = 250;

/// What is broken on purpose, if anything.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Broken {
    pub(crate) flaw: Option<Flaw>,
    pub(crate) lie: Option<Lie>,
}

pub(crate) struct Report {
    pub(crate) findings: Vec<String>,
    /// What happened, for people; only where something was found.
    pub(crate) story: Vec<String>,
    pub(crate) counts: Counts,
    pub(crate) answers: [u64; NAMES.len()],
}

#[derive(Debug, Clone, Copy)]
enum Exit {
    Crash,
    Orderly,
}

struct Process {
    number: ProcessNumber,
    oncely: Oncely,
    runtime: Runtime,
    calls: Vec<JoinHandle<()>>,
    /// How far its own clock is behind.
    behind_ms: u64,
}

struct Episode {
    world: World,
    rng: Rng,
    broken: Broken,
    hosts: u64,
    keys: Vec<Arc<(usize, KeySpec)>>,
    processes: Vec<Process>,
    /// One person looks after each key; what they do must end before they look again.
    people: Vec<Option<(ProcessNumber, JoinHandle<()>)>>,
    answers: Answers,
}

/// Plays the episode of a seed and returns what the auditor says.
pub(crate) fn play(seed: u64, broken: Broken) -> Report {
    let mut rng = Rng::new(seed);
    let hardship = rng.below(4) as u32;
    let faults = Faults {
        before: 10 * hardship,
        lost_ack: 12 * hardship,
        late: 12 * hardship,
        never: 8 * hardship,
        read: 10 * hardship,
    };
    let world = World::new(rng.bits(), faults, broken.flaw);
    let hosts = rng.between(1, 2);
    let answers = Answers::default();
    let (keys, processes, people) = (Vec::new(), Vec::new(), Vec::new());
    let mut episode = Episode { world, rng, broken, hosts, keys, processes, people, answers };
    episode.new_key();
    for _ in 0..episode.rng.between(1, 4) {
        episode.start();
    }
    for _ in 0..episode.rng.between(300, 2_500) {
        episode.act();
    }
    episode.come_to_rest();
    episode.ask_again();
    let findings = episode.world.findings();
    let story = if findings.is_empty() { Vec::new() } else { episode.world.story() };
    Report { findings, story, counts: episode.world.counts(), answers: episode.answers.all() }
}

impl Episode {
    fn act(&mut self) {
        match self.rng.below(1000) {
            0..700 => self.drive_one(),
            700..860 => self.call(),
            860..880 => self.drop_a_caller(),
            880..890 => self.end_one(Exit::Crash),
            890..893 => self.end_one(Exit::Orderly),
            893..920 => self.time_passes(),
            920..950 => self.person(),
            950..970 => self.stale(),
            970..980 => self.purge(),
            _ => {
                if self.processes.len() < 4 {
                    self.start();
                }
            }
        }
    }

    fn start(&mut self) {
        let host = self.rng.below(self.hosts) as u8;
        let (number, store) = self.world.start(host);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let world = self.world.clone();
        let oncely = Oncely::with_tokens(Arc::new(store), move || token(&world));
        self.processes.push(Process { number, oncely, runtime, calls: Vec::new(), behind_ms: 0 });
    }

    fn new_key(&mut self) {
        let number = self.keys.len();
        let key = KeySpec::draw(number, &mut self.rng, self.broken.lie);
        self.world.audit(|a| a.declare(key.intent, key.rules));
        self.keys.push(Arc::new((number, key)));
        self.people.push(None);
    }

    fn pick(&mut self) -> Option<usize> {
        let count = self.processes.len() as u64;
        (count > 0).then(|| self.rng.below(count) as usize)
    }

    fn drive_one(&mut self) {
        let Some(at) = self.pick() else { return self.start() };
        let polls = self.rng.between(1, 4);
        let late = self.rng.chance(300);
        let process = &mut self.processes[at];
        let catch_up = if late { 0 } else { std::mem::take(&mut process.behind_ms) };
        process.drive(&self.world, polls, catch_up);
    }

    fn call(&mut self) {
        let Some(at) = self.pick() else { return };
        if self.keys.len() < KEYS_MAX && self.rng.chance(60) {
            self.new_key();
        }
        // Mostly the newest: an old key has little left to happen to it.
        let oldest = if self.rng.chance(800) { self.keys.len().saturating_sub(3) } else { 0 };
        let key = self.rng.pick(&self.keys[oldest..]).unwrap().clone();
        let variant = match self.rng.below(10) {
            0 => Variant::Other,
            1 | 2 => Variant::Respelled,
            3..6 => Variant::ByHand,
            _ => Variant::Same,
        };
        self.call_from(at, key, variant);
    }

    fn call_from(&mut self, at: usize, key: Arc<(usize, KeySpec)>, variant: Variant) {
        let process = &mut self.processes[at];
        process.calls.retain(|call| !call.is_finished());
        if process.calls.len() < CALLERS_MAX {
            let (world, oncely) = (self.world.clone(), process.oncely.clone());
            let call = calls::call(world, oncely, key, variant, self.broken.lie, self.answers.clone());
            process.calls.push(process.runtime.spawn(call));
        }
    }

    fn drop_a_caller(&mut self) {
        let Some(at) = self.pick() else { return };
        let process = &mut self.processes[at];
        if !process.calls.is_empty() {
            let call = self.rng.below(process.calls.len() as u64) as usize;
            process.calls.swap_remove(call).abort();
        }
    }

    fn end_one(&mut self, exit: Exit) {
        let Some(at) = self.pick() else { return };
        let process = self.processes.swap_remove(at);
        self.end(process, exit);
    }

    fn end(&mut self, process: Process, exit: Exit) {
        let Process { number, oncely, runtime, calls, .. } = process;
        let shut_down = || drop((calls, oncely, runtime));
        match exit {
            Exit::Orderly => self.world.retire(number, shut_down),
            Exit::Crash => {
                // Dead before anything is dropped: a killed process hands nothing in.
                self.world.kill(number);
                shut_down();
            }
        }
        for person in &mut self.people {
            if person.as_ref().is_some_and(|(at, _)| *at == number) {
                *person = None;
            }
        }
    }

    fn time_passes(&mut self) {
        let around = |rng: &mut Rng, ms: u64| ms - 2 + rng.below(4);
        let rng = &mut self.rng;
        let (ms, seen) = match rng.below(20) {
            0..8 => (rng.below(50), true),
            8..14 => (rng.between(500, 6_000), true),
            14..17 => (rng.between(9_000, 40_000), true),
            17 => (around(rng, REPEAT_AFTER_MS), rng.chance(500)),
            18 => (around(rng, REPLAY_FOR_MS), rng.chance(500)),
            _ => (around(rng, REMEMBER_FOR_MS), rng.chance(500)),
        };
        self.world.pass(ms);
        for process in &mut self.processes {
            // A machine that slept does not notice the time.
            process.behind_ms += if seen { ms } else { 0 };
        }
    }

    /// A person looks at a record in doubt, and acts only if its attempt can no longer do anything.
    ///
    /// What they say is about the attempt that they looked at; others may have begun the next one before it arrives.
    /// Where a retry is harmless they only have records forgotten: there an attempt before the latest may still act.
    fn person(&mut self) {
        let Some(at) = self.pick() else { return };
        let which = self.rng.below(self.keys.len() as u64) as usize;
        let key = self.keys[which].clone();
        let intent = key.1.intent;
        let busy = self.people[which].as_ref().is_some_and(|(_, wish)| !wish.is_finished());
        let Some(record) = self.world.record(&intent) else { return };
        let in_doubt = matches!(record.body.state, State::InDoubt { .. }) && self.world.is_over(&record);
        if busy || !in_doubt || !self.world.is_settled(&intent) {
            return;
        }
        let happened = self.world.audit(|a| a.happened(&intent)).is_some();
        let speaks = key.1.call.policy.when_unknown != WhenUnknown::Retry;
        let process = &mut self.processes[at];
        let (world, oncely, lie) = (self.world.clone(), process.oncely.clone(), self.broken.lie);
        let task = match self.rng.below(6) {
            1 | 2 if speaks && !happened => {
                let variant = Variant::Checked(record.body.token);
                let call = calls::call(world, oncely, key, variant, lie, self.answers.clone());
                process.runtime.spawn(call)
            }
            3..6 if speaks => process.runtime.spawn(calls::person(world, oncely, record, Wish::Resolve, lie)),
            0 => process.runtime.spawn(calls::person(world, oncely, record, Wish::Forget, lie)),
            _ => return,
        };
        self.people[which] = Some((process.number, task));
    }

    fn stale(&mut self) {
        let Some(at) = self.pick() else { return };
        let intent = self.rng.pick(&self.keys).unwrap().1.intent;
        let tokens = self.world.audit(|a| a.stale_tokens(&intent).to_vec());
        let draw = self.rng.bits();
        if let Some(token) = self.rng.pick(&tokens) {
            let process = &self.processes[at];
            process.runtime.spawn(calls::stale(process.oncely.clone(), intent, *token, draw));
        }
    }

    fn purge(&mut self) {
        let Some(at) = self.pick() else { return };
        let oncely = self.processes[at].oncely.clone();
        self.processes[at].runtime.spawn(async move { drop(oncely.purge(|_| ()).await) });
    }

    /// Faults stop: every call has to end.
    fn come_to_rest(&mut self) {
        self.world.set_faults(Faults::none());
        let mut rounds = 0;
        while !self.is_quiet() {
            for process in &mut self.processes {
                let catch_up = std::mem::take(&mut process.behind_ms);
                process.drive(&self.world, 4, catch_up);
            }
            self.world.tick();
            // Waiters and pauses between tries end by time, in steps too small for a lease to lapse.
            self.world.pass(REST_STEP_MS);
            for process in &mut self.processes {
                process.behind_ms += REST_STEP_MS;
            }
            rounds += 1;
            if rounds > QUIET_ROUNDS_MAX {
                self.world.audit(|a| a.driver_found("calls did not end although faults had stopped"));
                return;
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.world.is_quiet()
            && self.processes.iter().all(|p| p.calls.iter().all(JoinHandle::is_finished))
            && self.people.iter().flatten().all(|(_, wish)| wish.is_finished())
    }

    /// Everybody is gone, and a new process tries every key once more.
    fn ask_again(&mut self) {
        for process in std::mem::take(&mut self.processes) {
            self.end(process, Exit::Crash);
        }
        self.start();
        for keys in self.keys.clone().chunks(CALLERS_MAX) {
            for key in keys {
                self.call_from(0, key.clone(), Variant::Same);
            }
            self.come_to_rest();
        }
    }
}

/// A token that is new in this process, since engines remember tokens beyond one world; what an engine decides by its
/// first byte follows from the seed.
fn token(world: &World) -> AttemptToken {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0; 16];
    bytes[0] = world.random(|rng| rng.bits() as u8);
    bytes[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    AttemptToken(bytes)
}

impl Process {
    /// Polls everything in the process a few times, one world's tick before each.
    fn drive(&mut self, world: &World, polls: u64, catch_up_ms: u64) {
        self.runtime.block_on(async {
            if catch_up_ms > 0 {
                tokio::time::advance(Duration::from_millis(catch_up_ms)).await;
            }
            for _ in 0..polls {
                world.tick();
                tokio::task::yield_now().await;
            }
        });
    }
}
