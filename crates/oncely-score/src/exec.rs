//! Runs a measured program: in a process group of its own, for a limited time, with limited output, and with nothing left
//! running afterwards.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Error;
use crate::limits::OUTPUT_BYTES_MAX;

/// How long output is still taken after a program has ended and its group was stopped: something that left the group may
/// hold the streams open for ever.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// Most rounds of ending what was left behind; each round can only meet what the round before orphaned.
const STRAY_ROUNDS_MAX: usize = 100;

/// What to run.
#[derive(Debug, Clone)]
pub struct Task {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Where; `None` for here.
    pub directory: Option<PathBuf>,
    /// Environment variables that it gets besides ours.
    pub env: Vec<(&'static str, String)>,
    /// How long it may run.
    pub timeout: Duration,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// By us, because its time was up.
    TimedOut,
}

impl Exit {
    /// Whether it says that all is well.
    pub fn is_ok(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(out, "exit {code}"),
            Self::Signal(number) => write!(out, "ended by signal {number}"),
            Self::TimedOut => write!(out, "stopped: its time was up"),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Ran {
    /// How it ended.
    pub exit: Exit,
    /// What it wrote to standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// How long it took.
    pub took: Duration,
}

/// Runs a program to its end.
pub async fn run(task: &Task) -> Result<Ran, Error> {
    start(task)?.finish().await
}

/// Starts a program without waiting for it.
pub fn start(task: &Task) -> Result<Running, Error> {
    let (program, arguments) =
        task.words.split_first().ok_or_else(|| Error::asked("no command is given; nothing ran"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(task.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(directory) = &task.directory {
        command.current_dir(directory);
    }
    let mut child =
        command.spawn().map_err(|e| Error::measuring(format!("`{program}` could not be started: {e}")))?;
    let group = Group::of(&child)?;
    let stdout = Output::of(child.stdout.take());
    let stderr = Output::of(child.stderr.take());
    Ok(Running { child, group, stdout, stderr, began: Instant::now(), timeout: task.timeout })
}

/// A program that runs. Dropped, its whole group is ended.
pub struct Running {
    // Before the child: dropped first, so that the group is ended while its number is still ours.
    group: Group,
    child: Child,
    stdout: Output,
    stderr: Output,
    began: Instant,
    timeout: Duration,
}

impl Running {
    /// Waits for its end.
    pub async fn finish(mut self) -> Result<Ran, Error> {
        let left = self.timeout.saturating_sub(self.began.elapsed());
        let in_time = tokio::time::timeout(left, self.group.leader_ended()).await;
        let timed_out = in_time.is_err();
        let mut ran = self.end().await?;
        if timed_out {
            ran.exit = Exit::TimedOut;
        }
        Ok(ran)
    }

    /// Kills the whole group now. [`Exit::Signal`] says that it was caught alive.
    pub async fn kill(mut self) -> Result<Ran, Error> {
        self.end().await
    }

    /// Holds the whole group where it is.
    pub fn hold(&self) {
        self.group.signal(Signal::SIGSTOP);
    }

    /// Lets the group go on.
    pub fn go_on(&self) {
        self.group.signal(Signal::SIGCONT);
    }

    /// Waits until it has ended by itself or so much time has passed; it goes on running in the second case.
    pub async fn wait_for(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.group.leader_ended()).await;
    }

    /// Whether it has ended by itself.
    pub async fn has_ended(&self) -> bool {
        tokio::time::timeout(Duration::ZERO, self.group.leader_ended()).await.is_ok()
    }

    async fn end(&mut self) -> Result<Ran, Error> {
        self.group.kill();
        let status = self
            .child
            .wait()
            .await
            .map_err(|e| Error::measuring(format!("a child cannot be waited for: {e}")))?;
        self.group.forget();
        let took = self.began.elapsed();
        let exit = match (status.code(), std::os::unix::process::ExitStatusExt::signal(&status)) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        };
        let stdout = self.stdout.take().await;
        let stderr = self.stderr.take().await;
        Ok(Ran { exit, stdout, stderr, took })
    }
}

/// A stream that is read to its end, of which the limit is kept, so that a talkative program is not blocked.
struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl Output {
    fn of(stream: Option<impl AsyncRead + Unpin + Send + 'static>) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let shared = kept.clone();
        let reading = tokio::spawn(async move {
            let Some(mut stream) = stream else { return };
            let mut chunk = vec![0; 16 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut chunk).await {
                let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let room = OUTPUT_BYTES_MAX - kept.len();
                kept.extend_from_slice(&chunk[..read.min(room)]);
            }
        });
        Self { kept, reading }
    }

    /// What was written, though something outside of the group may still hold the stream.
    async fn take(&mut self) -> Vec<u8> {
        if tokio::time::timeout(OUTPUT_GRACE, &mut self.reading).await.is_err() {
            self.reading.abort();
        }
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A process group that is ended when dropped. Its leader stays unreaped until then, so that the number cannot come to mean
/// another group.
#[derive(Debug)]
pub struct Group(Option<Pid>);

impl Group {
    /// The group of a child that was started as a leader.
    pub fn of(child: &Child) -> Result<Self, Error> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| Error::measuring("a child ended before it could be watched"))?;
        Ok(Self(Some(Pid::from_raw(id))))
    }

    /// Ends every member.
    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // A group that is gone already needs no signal.
            let _ = killpg(group, signal);
        }
    }

    /// The leader was reaped: the number is no longer ours.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Waits for the leader's end without reaping it.
    pub async fn leader_ended(&self) {
        let Some(leader) = self.0 else { return };
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        // A blocking wait would hold a thread for as long as the program runs; the ends of programs are looked for often
        // enough for kills to be aimed.
        let mut pause = Duration::from_micros(200);
        loop {
            match waitid(Id::Pid(leader), flags) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
                _ => return,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What measured programs leave behind outside of their group.
#[derive(Debug)]
pub struct Strays {
    /// Children that were there before, and are nobody's strays: a shell that became us may have left us some.
    spared: Vec<Pid>,
}

impl Strays {
    /// From now on, what is left behind becomes our child, and can be ended.
    pub fn adopt() -> Self {
        let spared = children();
        // Where this is not to be had, strays go to init as ever.
        let _ = nix::sys::prctl::set_child_subreaper(true);
        Self { spared }
    }

    /// Ends everything that was left behind. To be called when no child of ours is meant to live.
    pub fn end(self) {
        for _ in 0..STRAY_ROUNDS_MAX {
            let strays: Vec<Pid> =
                children().into_iter().filter(|child| !self.spared.contains(child)).collect();
            // What may not be killed is not waited for: that could take for ever.
            let killed = strays.iter().filter(|child| kill(**child, Signal::SIGKILL).is_ok());
            if killed.filter(|child| waitpid(**child, None).is_ok()).count() == 0 {
                return;
            }
        }
    }
}

fn children() -> Vec<Pid> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok().map(Pid::from_raw))
        .collect()
}
