//! Runs a command: streams its output live while recording it, passes signals on, and stops the whole process group
//! when time is up.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use oncely_core::limits::RESULT_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::captured::Captured;

/// Between the polite and the final stop of a command whose time is up.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long silence is borne after the command itself has ended: something that it left in the background may hold the
/// streams open for ever.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// How long output is taken at most after the command itself has ended, if what it left behind goes on writing.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(5);

/// Most output that is kept, both streams together; room is left for what [`Captured`] adds.
const OUTPUT_BYTES_MAX: usize = RESULT_BYTES_MAX - 64;

/// A command that is about to run.
pub struct Plan {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Environment variables that it gets besides ours.
    pub env: Vec<(String, String)>,
    /// Its standard input; `None` for ours.
    pub stdin: Option<Vec<u8>>,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// What happens to its standard output while it runs.
    pub stdout: Live,
}

/// What happens to a stream while the command runs. It is recorded in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live {
    /// It is passed on as it comes.
    PassedOn,
    /// It is only recorded.
    Held,
}

/// How a command ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// By itself or not.
    pub how: How,
    /// Its output and exit code.
    pub captured: Captured,
    /// Whether there was more output than can be kept; then none of it is.
    pub cut: bool,
}

/// By itself or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By itself, with an exit code.
    Exited,
    /// By a signal.
    Signalled(i32),
    /// By us, because its time was up.
    TimedOut,
}

/// Signals that reach the command through us. Caught from the moment this is made, so that none ends us unrecorded.
pub struct PassedSignals {
    streams: Vec<(Signal, Signals)>,
}

impl PassedSignals {
    /// Catches the signals that ask a program to end.
    pub fn catch() -> io::Result<Self> {
        let wanted = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        let streams: io::Result<Vec<_>> = wanted
            .into_iter()
            .map(|wanted| Ok((wanted, signal(SignalKind::from_raw(wanted as i32))?)))
            .collect();
        Ok(Self { streams: streams? })
    }

    /// Catches none, for something that is ended otherwise.
    pub fn none() -> Self {
        Self { streams: Vec::new() }
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (number, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// Whether an error of [`start`] proves that the command did not start: one that only starting a program can give. Others
/// may come after it was started, from setting up what watches it.
pub fn is_certainly_not_started(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let certain = [
        Errno::ENOENT,
        Errno::EACCES,
        Errno::ENOEXEC,
        Errno::ENOTDIR,
        Errno::ELOOP,
        Errno::E2BIG,
        Errno::EAGAIN,
        Errno::ENAMETOOLONG,
        Errno::ETXTBSY,
        Errno::EISDIR,
    ];
    match error.raw_os_error() {
        Some(code) => certain.contains(&Errno::from_raw(code)),
        // Refused before anything was asked of the system: an argument with a zero byte, or no command.
        None => error.kind() == io::ErrorKind::InvalidInput,
    }
}

/// Starts the command. See [`is_certainly_not_started`] for what an error means.
pub fn start(plan: &Plan) -> io::Result<Running> {
    let (program, arguments) =
        plan.argv.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
    let child = Command::new(program)
        .args(arguments)
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .stdin(if plan.stdin.is_some() { Stdio::piped() } else { Stdio::inherit() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: a timeout ends everything that it started, and a terminal's Ctrl-C reaches it once.
        .process_group(0)
        .spawn()?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let terminal = group.and_then(Foreground::give);
    Ok(Running { child, group, terminal })
}

/// A command that runs.
pub struct Running {
    child: Child,
    group: Option<Pid>,
    terminal: Option<Foreground>,
}

impl Running {
    /// Streams, records and passes signals on until the command has ended.
    pub async fn attend(mut self, plan: &Plan, signals: &mut PassedSignals) -> io::Result<Ended> {
        let spent = Arc::new(AtomicUsize::new(0));
        let feed = self.child.stdin.take().zip(plan.stdin.clone()).map(|(mut pipe, input)| {
            // A command that does not read its input is no error.
            tokio::spawn(async move { pipe.write_all(&input).await })
        });
        let out = match plan.stdout {
            Live::PassedOn => Recording::start(self.child.stdout.take(), Some(tokio::io::stdout()), &spent),
            Live::Held => Recording::start(self.child.stdout.take(), None::<tokio::io::Stdout>, &spent),
        };
        let err = Recording::start(self.child.stderr.take(), Some(tokio::io::stderr()), &spent);
        let (status, timed_out) = self.wait(plan.timeout, signals).await?;
        if let Some(feed) = feed {
            feed.abort();
        }
        self.terminal = None;
        let deadline = Instant::now() + OUTPUT_AFTER_END;
        let (stdout, stderr) = tokio::select! {
            both = async { tokio::join!(out.finish(deadline), err.finish(deadline)) } => both,
            // Whoever reads our output does not go on, and somebody wants to be rid of us: what came is recorded.
            _ = signals.next() => (out.so_far(), err.so_far()),
        };
        let cut = spent.load(Ordering::Relaxed) > OUTPUT_BYTES_MAX;
        let how = match (timed_out, status.signal()) {
            (true, _) => How::TimedOut,
            (false, Some(signal)) => How::Signalled(signal),
            (false, None) => How::Exited,
        };
        let exit_code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(Ended { how, captured: Captured { stdout, stderr, exit_code }, cut })
    }

    async fn wait(
        &mut self,
        timeout: Option<Duration>,
        signals: &mut PassedSignals,
    ) -> io::Result<(ExitStatus, bool)> {
        let mut deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut timed_out = false;
        loop {
            let time_is_up = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                status = self.child.wait() => {
                    if timed_out {
                        // What the command started may outlive it; its time is up too.
                        self.send(Signal::SIGKILL);
                    }
                    return Ok((status?, timed_out));
                }
                signal = signals.next() => self.send(signal),
                () = time_is_up => {
                    self.send(if timed_out { Signal::SIGKILL } else { Signal::SIGTERM });
                    deadline = (!timed_out).then(|| Instant::now() + STOP_GRACE);
                    timed_out = true;
                }
            }
        }
    }

    fn send(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group that is gone needs no signal.
            let _ = killpg(group, signal);
        }
    }
}

/// One stream being recorded, and passed on as it comes.
struct Recording {
    task: tokio::task::JoinHandle<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    kept: Mutex<Vec<u8>>,
    /// Grows with every chunk that came and was passed on.
    progress: AtomicUsize,
    /// Nothing has come yet that was not passed on.
    is_reading: AtomicBool,
    /// Told once, when the stream has ended.
    ended: Notify,
}

impl Recording {
    fn start(
        from: Option<impl AsyncRead + Unpin + Send + 'static>,
        to: Option<impl AsyncWrite + Unpin + Send + 'static>,
        spent: &Arc<AtomicUsize>,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let (copied, spent) = (shared.clone(), spent.clone());
        let task = tokio::spawn(async move {
            if let Some(from) = from {
                copied.copy(from, to, &spent).await;
            }
            copied.ended.notify_one();
        });
        Self { task, shared }
    }

    /// What came, once the stream has ended, has been silent for a while after the command's end, or goes on for too
    /// long. A reader of ours that is slow is waited for, as any filter does.
    async fn finish(&self, deadline: Instant) -> Vec<u8> {
        loop {
            let progress = self.shared.progress.load(Ordering::Acquire);
            let pause = tokio::time::sleep(OUTPUT_GRACE);
            tokio::select! {
                () = self.shared.ended.notified() => return self.so_far(),
                () = pause => {}
            }
            let went_on = self.shared.progress.load(Ordering::Acquire) != progress;
            let silent = self.shared.is_reading.load(Ordering::Acquire) && !went_on;
            if self.task.is_finished() || silent || (went_on && Instant::now() >= deadline) {
                return self.so_far();
            }
        }
    }

    /// What came until now; nothing more is taken.
    fn so_far(&self) -> Vec<u8> {
        self.task.abort();
        std::mem::take(&mut *self.shared.kept())
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Vec<u8>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn copy(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: Option<impl AsyncWrite + Unpin>,
        spent: &AtomicUsize,
    ) {
        let mut chunk = vec![0u8; 16 * 1024];
        loop {
            self.is_reading.store(true, Ordering::Release);
            let read = match from.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(read) => &chunk[..read],
            };
            self.is_reading.store(false, Ordering::Release);
            let before = spent.fetch_add(read.len(), Ordering::Relaxed);
            if before + read.len() <= OUTPUT_BYTES_MAX {
                self.kept().extend_from_slice(read);
            }
            if let Some(writer) = &mut to {
                let passed = async {
                    writer.write_all(read).await?;
                    writer.flush().await
                };
                // A reader of ours that went away must not end the command; its output is recorded all the same.
                if passed.await.is_err() {
                    to = None;
                }
            }
            self.progress.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The terminal's foreground, lent to the command so that it may read from it, and taken back afterwards.
struct Foreground {
    ours: rustix::process::Pid,
}

impl Foreground {
    fn give(group: Pid) -> Option<Self> {
        let terminal = rustix::stdio::stdin();
        let ours = rustix::termios::tcgetpgrp(terminal).ok()?;
        let group = rustix::process::Pid::from_raw(group.as_raw())?;
        if ours != rustix::process::getpgrp() {
            return None;
        }
        rustix::termios::tcsetpgrp(terminal, group).ok()?;
        // It may have asked for input before it was allowed to.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::CONT);
        Some(Self { ours })
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // From the background, taking the terminal back would stop us, unless this signal is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let unblock = blocked.thread_block().is_ok();
        let _ = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), self.ours);
        if unblock {
            let _ = blocked.thread_unblock();
        }
    }
}
