//! One run, killed or failed at each of its system calls on the ledger's files in turn, by strace.
//!
//! strace counts calls per thread, so each file and each call is walked on its own: on a ledger that exists, one file's
//! calls of one name come from one thread, and the walk meets every one of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::Checked;
use crate::ledger::Runner;
use crate::outside::Outside;
use crate::programs::Programs;

/// The calls that change a file, make one, or make changes last.
pub const CHANGING: [&str; 12] = [
    "openat",
    "write",
    "pwrite64",
    "pwritev",
    "fsync",
    "fdatasync",
    "ftruncate",
    "fallocate",
    "unlink",
    "rename",
    "flock",
    "mmap",
];

/// What the files of a ledger are called, beside the ledger's own name.
const BESIDE: [&str; 6] = ["", "-wal", "-shm", "-turn", "-lock", "-journal"];

/// Runs of which one at least shows how often a call is made.
const UNDISTURBED: u32 = 5;

/// What is done to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed as it makes the call, which does not take place.
    Kill,
    /// The n-th call fails with this error.
    Once(&'static str),
    /// The n-th call and all after it fail with this error.
    FromThenOn(&'static str),
}

/// Whether the ledger is there before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// It is made by the run.
    Fresh,
    /// It is there and has a record.
    Existing,
}

/// Figures, and what is wrong.
#[derive(Debug, Default)]
pub struct Report {
    /// Runs with a fault that took place.
    pub faults: u64,
    /// Of those: runs that answered that the ledger cannot be used, and ran nothing.
    pub refused: u64,
    /// Of those: runs that answered as if nothing had been.
    pub survived: u64,
    /// Of those: runs that gave the result with a warning that it is not recorded.
    pub warned: u64,
    /// Of those: keys in doubt afterwards.
    pub in_doubt: u64,
    /// Files and calls whose walk could have missed one, since two threads make them.
    pub masked: BTreeSet<String>,
    /// Every broken promise, in words.
    pub broken: Vec<String>,
}

/// Walks faults over runs in directories of their own.
#[derive(Debug)]
pub struct Walk<'a> {
    /// The programs.
    pub programs: &'a Programs,
    /// Counts effects.
    pub outside: &'a Outside,
    /// Where ledgers are made.
    pub directory: &'a Path,
}

impl Walk<'_> {
    /// Meets every one of these calls on every file of a ledger with the fault, one per run.
    pub fn every(&self, ground: Ground, calls: &[&str], fault: Fault, report: &mut Report) -> Checked<()> {
        for beside in BESIDE {
            for call in calls {
                let case = Case { walk: self, ground, beside, call, fault };
                let met = case.count(report)?;
                for nth in 1..=met {
                    case.meet(nth, report)?;
                }
            }
        }
        Ok(())
    }

    /// Meets the n-th of these calls on one file.
    pub fn one(&self, beside: &str, call: &str, nth: u64, fault: Fault, report: &mut Report) -> Checked<()> {
        Case { walk: self, ground: Ground::Existing, beside, call, fault }.meet(nth, report)
    }
}

/// One file, one call, one fault.
struct Case<'a> {
    walk: &'a Walk<'a>,
    ground: Ground,
    beside: &'a str,
    call: &'a str,
    fault: Fault,
}

/// One ledger and one key.
struct Scene {
    runner: Runner,
    ledger: PathBuf,
    key: String,
    trace: PathBuf,
}

impl Case<'_> {
    fn name(&self) -> String {
        format!("{:?} {}{} {:?}", self.ground, self.call, self.beside, self.fault)
    }

    fn scene(&self, which: &str) -> Checked<Scene> {
        let name = format!("{} {which}", self.name());
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let directory = self.walk.directory.join(&name);
        std::fs::create_dir(&directory)?;
        let ledger = directory.join("ledger.db");
        let runner = Runner::oncely(self.walk.programs, &ledger);
        let scene = Scene { runner, ledger, key: name, trace: directory.join("trace") };
        if self.ground == Ground::Existing {
            let before = self.run(&scene, &format!("{}-before", scene.key)).output()?;
            if !before.status.success() {
                return Err("the run before does not succeed".into());
            }
        }
        Ok(scene)
    }

    fn run(&self, scene: &Scene, key: &str) -> Command {
        let effect = self.walk.programs.effect.to_string_lossy();
        let socket = self.walk.outside.socket().to_string_lossy();
        scene.runner.run(key, &[&effect, &socket, key, "succeeds"])
    }

    fn traced(&self, scene: &Scene, inject: Option<String>) -> Checked<Output> {
        let run = self.run(scene, &scene.key);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o"]).arg(&scene.trace).args(["-e", &format!("trace={}", self.call)]);
        let mut path = scene.ledger.clone().into_os_string();
        path.push(self.beside);
        strace.arg("-P").arg(path);
        if let Some(inject) = inject {
            strace.args(["-e", &inject]);
        }
        strace.arg(run.get_program()).args(run.get_args()).stdin(Stdio::null());
        Ok(strace.output()?)
    }

    /// How often an undisturbed run makes the call. One run in 64, by chance, tidies up when it is over and gets a
    /// thread for that; where several in a row have two threads, it is no chance.
    fn count(&self, report: &mut Report) -> Checked<u64> {
        let mut met = 0;
        for turn in 0..UNDISTURBED {
            let threads = self.undisturbed(turn)?;
            met = threads.len() as u64;
            if threads.iter().all(|thread| *thread == threads[0]) {
                return Ok(met);
            }
        }
        report.masked.insert(format!("{:?} {}{}", self.ground, self.call, self.beside));
        Ok(met)
    }

    /// The thread of each of these calls that an undisturbed run makes.
    fn undisturbed(&self, turn: u32) -> Checked<Vec<String>> {
        let scene = self.scene(&format!("undisturbed {turn}"))?;
        let output = self.traced(&scene, None)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} undisturbed: {said}", self.name()).into());
        }
        let trace = std::fs::read_to_string(&scene.trace)?;
        let calls = trace.lines().filter(|line| line.contains(&format!(" {}(", self.call)));
        Ok(calls.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
    }

    fn meet(&self, nth: u64, report: &mut Report) -> Checked<()> {
        let scene = self.scene(&nth.to_string())?;
        let what = match self.fault {
            Fault::Kill => format!("signal=SIGKILL:when={nth}"),
            Fault::Once(error) => format!("error={error}:when={nth}"),
            Fault::FromThenOn(error) => format!("error={error}:when={nth}+"),
        };
        let output = self.traced(&scene, Some(format!("inject={}:{what}", self.call)))?;
        let trace = std::fs::read_to_string(&scene.trace)?;
        if trace.contains("INJECTED") || trace.contains("killed by SIGKILL") {
            report.faults += 1;
        }
        self.walk.outside.settle()?;
        let judged = self.judge(&scene, &output, report)?;
        if let Err(what) = judged {
            let said = String::from_utf8_lossy(&output.stderr);
            report.broken.push(format!("{} {nth}: {what}: {}, {said:?}", self.name(), output.status));
        }
        Ok(())
    }

    fn judge(&self, scene: &Scene, first: &Output, report: &mut Report) -> Checked<Result<(), String>> {
        let counted = self.walk.outside.count(&scene.key)?;
        let said = String::from_utf8_lossy(&first.stderr).into_owned();
        let warned = said.contains("could not be recorded");
        match (self.fault, first.status.code()) {
            (Fault::Kill, _) => {}
            (_, Some(12)) if counted == 0 => report.refused += 1,
            (_, Some(12)) => {
                return Ok(Err("the ledger could not be used and the effect was started".into()));
            }
            (_, Some(0)) if warned => report.warned += 1,
            (_, Some(0)) => report.survived += 1,
            _ => return Ok(Err("an answer that nothing explains".into())),
        }
        let retry = self.run(scene, &scene.key).output()?;
        self.walk.outside.settle()?;
        let after = self.walk.outside.count(&scene.key)?;
        let state = scene.runner.states()?.remove(&scene.key).unwrap_or_else(|| "absent".to_owned());
        report.in_doubt += u64::from(state == "in_doubt");
        let acknowledged = first.status.success() && !warned;
        let wrong = match (retry.status.code(), state.as_str()) {
            _ if after > 1 => "the effect took place twice",
            (Some(0), "succeeded") if after == 1 && acknowledged && retry.stdout != first.stdout => {
                "the result was acknowledged and another was replayed"
            }
            (Some(0), "succeeded") if after == 1 => return Ok(Ok(())),
            (Some(16), "in_doubt") if acknowledged => "the result was acknowledged and is gone",
            (Some(16), "in_doubt") if after == counted => return Ok(Ok(())),
            _ => "the retry",
        };
        let said = String::from_utf8_lossy(&retry.stderr);
        Ok(Err(format!(
            "{wrong}: {}, {said:?}, {counted} effects before and {after} after, {state}",
            retry.status
        )))
    }
}
