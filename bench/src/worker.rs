//! Work in other processes: the benchmark starts itself (or the peer's driver) and talks over pipes.
//!
//! A worker says `ready`, waits for a line, works, and prints one line of figures. The `wait` worker takes a number per
//! line, calls with that key, says `waiting` once it waits, and then the moment at which it was answered.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use oncely::{Answer, Begun};
use tokio::runtime::Runtime;

use crate::stats::Sample;
use crate::textbook::{Connections, Pattern, Textbook};
use crate::{Result, ours, workload};

/// Who works in the other process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject<'a> {
    /// Oncely, begin and complete.
    Ours,
    /// Oncely, run with a closure.
    OursRun,
    /// The safe textbook pattern.
    Textbook(Connections),
    /// The peer, through its own program.
    Peer(&'a Path),
}

impl Subject<'_> {
    fn word(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursRun => "ours-run",
            Self::Textbook(Connections::Shared) => "textbook-shared",
            Self::Textbook(Connections::PerCaller) => "textbook-per-caller",
            Self::Peer(_) => "peer",
        }
    }
}

/// A worker that is running.
pub(crate) struct Worker {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker and waits until it has opened its ledger.
    pub(crate) fn start(
        subject: Subject<'_>,
        path: &Path,
        callers: usize,
        duration: Duration,
        first_key: u64,
    ) -> Result<Self> {
        let mut command = match subject {
            Subject::Peer(program) => Command::new(program),
            _ => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["worker", subject.word()]);
                command
            }
        };
        command.arg(path).args([
            callers.to_string(),
            duration.as_secs_f64().to_string(),
            first_key.to_string(),
        ]);
        Self::spawn(command)
    }

    /// Starts a worker that waits for calls to end.
    pub(crate) fn start_waiter(path: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "wait"]).arg(path);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Result<Self> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            started.map_err(|e| format!("cannot start {}: {e}", command.get_program().display()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker was started without pipes".into());
        };
        let mut worker = Self { child, to, from: BufReader::new(from) };
        match worker.hear()?.as_str() {
            "ready" => Ok(worker),
            other => Err(format!("a worker said {other:?} instead of ready").into()),
        }
    }

    pub(crate) fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.to, "{line}")?;
        Ok(self.to.flush()?)
    }

    pub(crate) fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err("a worker ended early; its message is above".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// The figures of a worker that was told to go.
    pub(crate) fn sample(mut self) -> Result<Sample> {
        let line = self.hear()?;
        self.child.wait()?;
        Sample::from_line(&line).ok_or_else(|| format!("a worker said {line:?} instead of figures").into())
    }

    /// Ends a waiter: no more lines will come.
    pub(crate) fn end(self) -> Result<()> {
        let Self { mut child, to, from } = self;
        drop((to, from));
        child.wait()?;
        Ok(())
    }
}

/// One worker alone: start, go, figures.
pub(crate) fn alone(
    subject: Subject<'_>,
    path: &Path,
    callers: usize,
    duration: Duration,
    first_key: u64,
) -> Result<Sample> {
    let mut worker = Worker::start(subject, path, callers, duration, first_key)?;
    worker.say("go")?;
    worker.sample()
}

/// What a worker process does; `words` follow `worker` on its command line.
pub(crate) fn main(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["wait", path] => wait(Path::new(path)),
        [subject, path, callers, seconds, first_key] => {
            let duration = Duration::from_secs_f64(seconds.parse()?);
            work(subject, Path::new(path), callers.parse()?, duration, first_key.parse()?)
        }
        _ => Err("usage: worker SUBJECT PATH CALLERS SECONDS FIRST_KEY, or worker wait PATH".into()),
    }
}

fn work(subject: &str, path: &Path, callers: usize, duration: Duration, first_key: u64) -> Result<()> {
    let ready = || -> Result<()> {
        println!("ready");
        std::io::stdin().read_line(&mut String::new())?;
        Ok(())
    };
    let textbook = |connections| -> Result<Sample> {
        let textbook = Textbook::open(path, Pattern::Safe, connections, callers, first_key)?;
        ready()?;
        textbook.run(duration)
    };
    let engine = |style| -> Result<Sample> {
        let runtime = crate::runtime()?;
        let oncely = runtime.block_on(ours::open(path))?;
        ready()?;
        runtime.block_on(ours::closed_loop(&oncely, style, callers, duration, first_key))
    };
    let sample = match subject {
        "ours" => engine(ours::Style::BeginComplete)?,
        "ours-run" => engine(ours::Style::Run)?,
        "textbook-shared" => textbook(Connections::Shared)?,
        "textbook-per-caller" => textbook(Connections::PerCaller)?,
        other => return Err(format!("{other:?} is not a subject").into()),
    };
    println!("{}", sample.to_line());
    Ok(())
}

fn wait(path: &Path) -> Result<()> {
    let runtime = crate::runtime()?;
    let oncely = runtime.block_on(ours::open(path))?;
    println!("ready");
    for line in std::io::stdin().lines() {
        let number: u64 = line?.trim().parse()?;
        println!("{}", wait_for(&runtime, &oncely, number)?);
    }
    Ok(())
}

/// Calls with a key whose attempt runs in another process; the moment of the answer.
fn wait_for(runtime: &Runtime, oncely: &oncely::Oncely, number: u64) -> Result<u64> {
    runtime.block_on(async {
        let caller = oncely.clone();
        let task = tokio::spawn(async move {
            let payload = workload::small_payload(number);
            let begun =
                caller.tool(workload::TOOL).key(&workload::key(number)).payload_json(payload).begin().await;
            (begun, crate::monotonic_ns())
        });
        while oncely.waiting() == 0 && !task.is_finished() {
            tokio::task::yield_now().await;
        }
        println!("waiting");
        match task.await? {
            (Ok(Begun::Answered(Answer::Replayed(_))), at) => Ok(at),
            (Ok(Begun::Answered(other)), _) => Err(format!("the waiter was answered {other:?}").into()),
            (Ok(Begun::Run(_)), _) => Err("the waiter was told to run".into()),
            (Err(error), _) => Err(error.into()),
        }
    })
}
