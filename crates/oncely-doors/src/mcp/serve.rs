//! A server that we start, between its start and its end: signals, the end of either side, and the wait for writes.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use super::frames::Frames;
use super::guard::Guard;
use super::http::front::{Doorkeeper, Listening};
use super::http::relay::Relay;
use super::http::started::Started;
use super::http::target::Target;
use super::http::upstream::HttpLink;
use super::link::Client;
use super::outlet::Outlet;
use super::probe::{OWNER_VARIABLE, mark_of};
use super::session::Session;
use super::stdio::{Input, Output, StdioLink, pump_client, pump_server};
use super::wakeful::wakeful;
use crate::command::child::{Messenger, PassedSignals};

/// Between a signal and the final stop of a server that does not heed it.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Between the polite and the final stop of what a server that has ended left behind.
const GROUP_GRACE: Duration = Duration::from_secs(1);
/// Between two looks at whether it is gone.
const GROUP_LOOK: Duration = Duration::from_millis(10);
/// How long the last answers may take to be written once the server has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What is served.
pub struct Plan {
    /// Longest message, in bytes.
    pub max_message: usize,
    /// How long running writes are waited for at the end, and then the server's own end.
    pub drain: Duration,
}

/// A server process.
pub struct Server {
    child: Child,
    group: Option<Pid>,
    watcher: Option<super::ties::Watcher>,
    messenger: Option<Messenger>,
    /// Its standard input.
    pub input: Option<Output>,
    /// Its standard output.
    pub output: Option<Input>,
    /// The same, to be looked at.
    looked_at: Option<OwnedFd>,
}

impl Server {
    /// Starts a server, marked as that of this engine's process.
    pub fn start(argv: &[OsString], guard: &Guard) -> io::Result<Self> {
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "no command");
        let argv: Vec<&OsString> = guard.launcher().iter().chain(argv).collect();
        let (program, arguments) = argv.split_first().ok_or_else(none)?;
        let mut child = Command::new(program)
            .args(arguments)
            .env(OWNER_VARIABLE, mark_of(&guard.engine().store().owner().process))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // A group of its own: our signals reach it once, when we pass them on, and everything that it started.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let watcher = group.and_then(|group| super::ties::Watcher::start(guard.watcher(), group));
        let messenger = group.and_then(|process| Messenger::to(process).ok());
        let looked_at = child.stdout.as_ref().and_then(|pipe| pipe.as_fd().try_clone_to_owned().ok());
        let input = child.stdin.take().map(|pipe| Box::new(pipe) as Output);
        let output = child.stdout.take().map(|pipe| Box::new(pipe) as Input);
        Ok(Self { child, group, watcher, messenger, input, output, looked_at })
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // One that has ended by itself needs no signal.
            let _ = killpg(group, signal);
        }
    }

    /// Waits for its end; passes signals on; after `patience` it is asked to end, and then made to.
    pub async fn end(
        mut self,
        signals: &mut PassedSignals,
        mut patience: Duration,
    ) -> io::Result<ExitStatus> {
        let mut harder = [Signal::SIGTERM, Signal::SIGKILL].into_iter();
        loop {
            let status = tokio::select! {
                biased;
                status = self.child.wait() => status?,
                signal = signals.next() => {
                    self.signal(signal);
                    patience = patience.min(STOP_GRACE);
                    continue;
                }
                () = tokio::time::sleep(patience) => {
                    self.signal(harder.next().unwrap_or(Signal::SIGKILL));
                    patience = STOP_GRACE;
                    continue;
                }
            };
            // Its number may be somebody else's from now on.
            self.messenger = None;
            let is_gone = match self.watcher {
                Some(watcher) => watcher.end().await,
                None => false,
            };
            if !is_gone {
                end_group(self.group).await;
            }
            return Ok(status);
        }
    }
}

/// What a server left behind in its group must not outlive it, nor us.
async fn end_group(group: Option<Pid>) {
    let Some(group) = group else { return };
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let deadline = tokio::time::Instant::now() + GROUP_GRACE;
        // Where nobody is left there is nothing to do.
        let _ = killpg(group, signal);
        // Without a signal this only asks whether anybody is left.
        while killpg(group, None).is_ok() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(GROUP_LOOK).await;
        }
    }
}

/// The exit code of a server, as a shell has it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(255)
}

/// Serves clients that connect with a server at an address, until a signal comes.
pub async fn http_to_url(
    guard: Arc<Guard>,
    target: Target,
    (max_message, drain): (usize, Duration),
    (listening, keeper): (Listening, Doorkeeper),
    signals: &mut PassedSignals,
) -> u8 {
    let relay = Relay::new(guard, target, max_message, keeper.tenant.clone());
    let mut signal = None;
    listening.serve(relay.clone(), keeper, async { signal = Some(signals.next().await) }).await;
    tokio::select! {
        biased;
        () = relay.end(drain) => {}
        _ = signals.next() => {}
    }
    signal.map_or(0, |signal| 128 + signal as u8)
}

/// Serves clients that connect with servers that are started for them, until a signal comes.
pub async fn http_to_command(
    guard: Arc<Guard>,
    argv: Vec<OsString>,
    bounds: (usize, Duration),
    (listening, keeper): (Listening, Doorkeeper),
    signals: &mut PassedSignals,
) -> u8 {
    let started = Started::new(guard, argv, bounds, keeper.tenant.clone());
    let mut signal = None;
    listening.serve(started.clone(), keeper, async { signal = Some(signals.next().await) }).await;
    tokio::select! {
        biased;
        () = started.end() => {}
        _ = signals.next() => {}
    }
    signal.map_or(0, |signal| 128 + signal as u8)
}

/// Serves one client on our standard streams with a server at an address.
pub async fn stdio_to_url(
    guard: Arc<Guard>,
    target: Target,
    (max_message, drain): (usize, Duration),
    (input, output): (Input, Output),
    signals: &mut PassedSignals,
) -> u8 {
    let link = HttpLink::new(target, max_message);
    let client: Arc<dyn Client> = Arc::new(Outlet::new(output));
    let session = Session::new(guard, link.clone(), client);
    link.serve(&session);
    let mut frames = Frames::new(input, max_message);
    let signal = tokio::select! {
        biased;
        signal = signals.next() => Some(signal),
        // A client whose messages cannot be read has gone.
        _ = pump_client(&mut frames, &session) => None,
    };
    tokio::select! {
        biased;
        _ = async { tokio::join!(session.is_idle_within(drain), link.is_idle_within(drain)) } => {}
        _ = signals.next() => {}
    }
    link.farewell().await;
    signal.map_or(0, |signal| 128 + signal as u8)
}

/// Serves one client on our standard streams with a server that is started for it. Returns the server's exit code.
pub async fn stdio(
    guard: Arc<Guard>,
    plan: Plan,
    mut server: Server,
    (input, output): (Input, Output),
    signals: &mut PassedSignals,
) -> io::Result<u8> {
    let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "the server's streams could not be opened");
    let (to, from) = server.input.take().zip(server.output.take()).ok_or_else(closed)?;
    let alert = guard.alert();
    let input = wakeful(input, std::io::stdin().as_fd().try_clone_to_owned().ok(), alert);
    let from = wakeful(from, server.looked_at.take(), alert);
    let link = Arc::new(StdioLink::new(to));
    let client = Arc::new(Outlet::new(output));
    let session = Session::new(guard, link.clone(), client.clone());

    let ended = Arc::new(Notify::new());
    let (pump_link, pump_session, pump_ended) = (link.clone(), session.clone(), ended.clone());
    let limit = plan.max_message;
    let mut from_server = tokio::spawn(async move {
        let ours = (&pump_session.guard.ids, &*pump_link);
        pump_server(from, ours, &pump_session, Some(&client), limit).await;
        pump_ended.notify_one();
    });
    let reading = session.clone();
    let from_client = tokio::spawn(async move {
        let mut frames = Frames::new(input, limit);
        // A client whose messages cannot be read has gone.
        let _ = pump_client(&mut frames, &reading).await;
    });

    let mut from_client = from_client;
    let passed_on = tokio::select! {
        biased;
        () = ended.notified() => None,
        signal = signals.next() => Some(signal),
        _ = &mut from_client => None,
    };
    if passed_on.is_some() {
        from_client.abort();
    }
    // Writes that were sent are let finish, unless the server is gone or somebody insists.
    let again = tokio::select! {
        biased;
        _ = session.is_idle_within(plan.drain) => None,
        signal = signals.next() => Some(signal),
    };
    link.close().await;
    for signal in passed_on.into_iter().chain(again) {
        server.signal(signal);
    }
    let patience = if passed_on.or(again).is_some() { STOP_GRACE } else { plan.drain };
    let status = server.end(signals, patience).await?;
    // Something that it left behind may hold its output open: what has been said by now is passed on.
    if tokio::time::timeout(LAST_WORDS, &mut from_server).await.is_err() {
        // Whoever holds it may have stopped in the middle of a line: what is left to say does not wait for its end.
        from_server.abort();
    }
    link.end("the server ended before it answered");
    session.is_idle_within(LAST_WORDS).await;
    Ok(exit_code(status))
}
