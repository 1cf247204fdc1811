//! Runs a command: streams its output live while recording it, passes signals on, and stops the whole process group
//! when time is up.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::Instant;

use super::captured::Captured;
use super::foreground::Job;
use super::recording::{OUTPUT_BYTES_MAX, Recording};

/// Between the polite and the final stop of a command whose time is up.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long output is taken at most after the command itself has ended, if what it left behind goes on writing.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(5);

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
    /// Whether we were asked to end after it had, while its last output was read.
    pub asked: bool,
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
    /// Those that say something else: whoever they are meant for has streams of its own, and they must not end us.
    _others: Vec<(Signal, Signals)>,
}

/// Signals that ask a program to end.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
/// Signals that say something else to it.
const OTHERS: [Signal; 3] = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH];

fn streams_of(wanted: &[Signal]) -> io::Result<Vec<(Signal, Signals)>> {
    wanted.iter().map(|wanted| Ok((*wanted, signal(SignalKind::from_raw(*wanted as i32))?))).collect()
}

async fn next_of(streams: &mut [(Signal, Signals)]) -> Signal {
    std::future::poll_fn(|context| {
        for (number, stream) in &mut *streams {
            if stream.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(*number);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

impl PassedSignals {
    /// Catches the signals that ask a program to end.
    pub fn catch() -> io::Result<Self> {
        Ok(Self { streams: streams_of(&ENDING)?, _others: streams_of(&OTHERS)? })
    }

    /// Catches none, for something that is ended otherwise.
    pub fn none() -> Self {
        Self { streams: Vec::new(), _others: Vec::new() }
    }

    /// The next one that asks for the end.
    pub async fn next(&mut self) -> Signal {
        next_of(&mut self.streams).await
    }
}

/// Passes signals on that do not ask for the end, to the process that they would reach if we were not there; until this is
/// dropped.
pub struct Messenger(tokio::task::JoinHandle<()>);

impl Messenger {
    /// Passes them on to this process.
    pub fn to(process: Pid) -> io::Result<Self> {
        let mut streams = streams_of(&OTHERS)?;
        Ok(Self(tokio::spawn(async move {
            loop {
                // One that has ended needs no signal.
                let _ = kill(process, next_of(&mut streams).await);
            }
        })))
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        self.0.abort();
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
    // That nobody passes these on is no reason to lose sight of the command.
    let messenger = group.and_then(|process| Messenger::to(process).ok());
    Ok(Running { child, group, messenger })
}

/// A command that runs.
pub struct Running {
    child: Child,
    group: Option<Pid>,
    messenger: Option<Messenger>,
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
        let deadline = Instant::now() + OUTPUT_AFTER_END;
        let last_output = async { tokio::join!(out.finish(deadline), err.finish(deadline)) };
        let mut asked = false;
        let hurried = async {
            signals.next().await;
            asked = true;
            // Only for so long: whoever reads our output may not go on, and somebody wants to be rid of us.
            tokio::time::sleep(OUTPUT_AFTER_END).await;
        };
        tokio::select! { _ = last_output => {}, () = hurried => {} }
        let (stdout, stderr) = (out.take(), err.take());
        let cut = spent.load(Ordering::Relaxed) > OUTPUT_BYTES_MAX;
        let how = match (timed_out, status.signal()) {
            (true, _) => How::TimedOut,
            (false, Some(signal)) => How::Signalled(signal),
            (false, None) => How::Exited,
        };
        let exit_code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(Ended { how, captured: Captured { stdout, stderr, exit_code }, cut, asked })
    }

    async fn wait(
        &mut self,
        timeout: Option<Duration>,
        signals: &mut PassedSignals,
    ) -> io::Result<(ExitStatus, bool)> {
        let mut deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut timed_out = false;
        // A terminal that cannot be lent is no reason to lose sight of the command.
        let mut job = self.group.and_then(|group| Job::start(group).ok().flatten());
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
                    // Its number may be somebody else's from now on.
                    self.messenger = None;
                    if timed_out {
                        // What the command started may outlive it; its time is up too.
                        self.send(Signal::SIGKILL);
                    }
                    return Ok((status?, timed_out));
                }
                signal = signals.next() => self.send(signal),
                () = Job::attend(job.as_mut()) => {}
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
