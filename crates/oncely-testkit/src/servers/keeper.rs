//! A server's process, kept by a shell beside it that ends it when its handle is dropped or its starter dies.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};

use super::{Trouble, locked, until};

/// Starts what it is told, says its number, waits for the end of its input, ends what it started. The start time in
/// `/proc` tells the server from a later process with the same number.
const KEEP: &str = r#"
trap '' INT HUP TERM
log=$0 signal=$1
shift
"$@" >>"$log" 2>&1 </dev/null &
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
first=$(started $!)
echo $!
cat >/dev/null
if [ -n "$first" ] && [ "$(started $!)" = "$first" ]; then kill -s "$signal" $!; kill -s CONT $!; fi
wait
"#;

/// A server's process.
#[derive(Debug)]
pub(super) struct Kept {
    keeper: Child,
    server: Process,
    log: PathBuf,
}

impl Kept {
    /// Starts a server whose words go to a log, and which is ended by this signal (`QUIT`, `KILL`).
    pub(super) fn start(line: &Command, log: &Path, signal: &str) -> Result<Self, Trouble> {
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEP]).arg(log).arg(signal).arg(line.get_program()).args(line.get_args());
        let mut keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut number = String::new();
        if let Some(out) = keeper.stdout.take() {
            BufReader::new(out).read_line(&mut number)?;
        }
        let pid = number.trim_end().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Trouble::new("the keeper of a server did not start"))?;
        Ok(Self { keeper, server: Process::look_up(pid), log: log.to_owned() })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.server.is_alive()
    }

    /// The last of what the server said.
    pub(super) fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(2_000)..]).into_owned()
    }

    /// Sends a signal to the server's first process.
    pub(super) fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Sends a signal to all processes of the server. The first is stopped meanwhile, so that it starts no more.
    pub(super) fn signal_all(&self, signal: Signal) -> Vec<Process> {
        self.server.signal(Signal::STOP);
        let mut all = self.server.children();
        all.push(self.server.clone());
        for process in &all {
            process.signal(signal);
        }
        all
    }

    /// Kills all processes of the server at once and waits until they are gone.
    pub(super) fn kill_all(&self) -> Result<(), Trouble> {
        let all = self.signal_all(Signal::KILL);
        until("all processes of the server are dead", || Ok(!all.iter().any(Process::is_alive)))
    }

    pub(super) fn await_end(&self) -> Result<(), Trouble> {
        until("the server has ended", || Ok(!self.is_alive()))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The end of its input is its sign.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// The process of a server that can be stopped and started again: none while it is down.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Option<Kept>>);

impl Slot {
    /// Keeps a process that was just started, once the server answers.
    pub(super) fn fill(&self, what: &str, kept: Kept, answers: impl Fn() -> bool) -> Result<(), Trouble> {
        until(&format!("{what} answers"), || {
            if !kept.is_alive() {
                return Err(Trouble::new(format!("{what} did not start: {}", kept.last_words())));
            }
            Ok(answers())
        })?;
        *locked(&self.0) = Some(kept);
        Ok(())
    }

    /// Ends it in order, by this signal.
    pub(super) fn stop(&self, signal: Signal) -> Result<(), Trouble> {
        let mut slot = locked(&self.0);
        if let Some(kept) = slot.as_ref() {
            kept.signal(signal);
            kept.await_end()?;
        }
        *slot = None;
        Ok(())
    }

    /// Kills all of its processes at once.
    pub(super) fn kill(&self) -> Result<(), Trouble> {
        let mut slot = locked(&self.0);
        if let Some(kept) = slot.as_ref() {
            kept.kill_all()?;
        }
        *slot = None;
        Ok(())
    }

    /// Sends a signal to all of its processes, if it runs.
    pub(super) fn signal_all(&self, signal: Signal) {
        if let Some(kept) = locked(&self.0).as_ref() {
            kept.signal_all(signal);
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        locked(&self.0).as_ref().is_some_and(Kept::is_alive)
    }

    /// The last of what the server said.
    pub(super) fn last_words(&self) -> String {
        locked(&self.0).as_ref().map(Kept::last_words).unwrap_or_default()
    }
}

/// A process that is told from a later one with the same number by its start.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pid: Pid,
    started: Option<String>,
}

impl Process {
    fn look_up(pid: Pid) -> Self {
        Self { pid, started: stat_of(pid).map(|(_, started)| started) }
    }

    fn is_alive(&self) -> bool {
        stat_of(self.pid).is_some_and(|(state, started)| {
            !matches!(state.as_str(), "Z" | "X") && self.started.as_ref() == Some(&started)
        })
    }

    fn signal(&self, signal: Signal) {
        if self.is_alive() {
            // It may have ended this moment.
            let _ = kill_process(self.pid, signal);
        }
    }

    fn children(&self) -> Vec<Self> {
        let pid = self.pid.as_raw_nonzero();
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
        let lists = threads.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
        lists
            .flat_map(|list| {
                let numbers = list.split_whitespace().filter_map(|n| n.parse().ok());
                numbers.filter_map(Pid::from_raw).map(Self::look_up).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// State and start time out of `/proc`.
fn stat_of(pid: Pid) -> Option<(String, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    Some(((*fields.first()?).to_owned(), (*fields.get(19)?).to_owned()))
}
