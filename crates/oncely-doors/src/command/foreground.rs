//! The terminal's foreground: lent to the command so that it may read from it, and taken back afterwards. A command that
//! its user stops (Ctrl-Z) stops us, too, so that the shell is there again; resumed, it goes on.

use std::future::pending;
use std::io;

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

/// A command that was started from a terminal, as the shell sees it: one job with us.
pub(super) struct Job {
    group: Pid,
    lent: Option<Foreground>,
    child_changed: Signals,
    resumed: Signals,
}

impl Job {
    /// Lends the terminal to the command, if there is one and it is ours to lend.
    pub(super) fn start(group: Pid) -> io::Result<Option<Self>> {
        if !rustix::termios::isatty(rustix::stdio::stdin()) {
            return Ok(None);
        }
        let child_changed = signal(SignalKind::child())?;
        let resumed = signal(SignalKind::from_raw(Signal::SIGCONT as i32))?;
        let mut job = Self { group, lent: None, child_changed, resumed };
        job.go_on();
        Ok(Some(job))
    }

    /// Stops and goes on with the command. Without a job, never returns.
    pub(super) async fn attend(job: Option<&mut Self>) {
        let Some(job) = job else { return pending().await };
        tokio::select! {
            _ = job.child_changed.recv() => job.look(),
            _ = job.resumed.recv() => job.go_on(),
        }
    }

    /// Stops if the command has; not again for the same stop.
    fn look(&mut self) {
        let stopped = waitid(Id::Pid(self.group), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
        match stopped {
            // It wanted the terminal before it had it. By now it can have it.
            Ok(WaitStatus::Stopped(_, Signal::SIGTTIN | Signal::SIGTTOU)) if Foreground::is_ours() => {
                self.go_on()
            }
            Ok(WaitStatus::Stopped(..)) => self.stop(),
            _ => {}
        }
    }

    /// Stops us and whoever shares our job, a pipe's other end perhaps.
    fn stop(&mut self) {
        self.lent = None;
        // We go on after this line once we are resumed; or at once, if nobody is there who could resume us, and then
        // the command must not stay stopped for ever either.
        let _ = killpg(getpgrp(), Signal::SIGTSTP);
        self.go_on();
    }

    fn go_on(&mut self) {
        if Foreground::is_ours() {
            // First back from an earlier loan, which a shell has ended without asking us.
            self.lent = None;
            self.lent = Foreground::give(self.group);
        }
        // It may have asked for input before it was allowed to.
        let _ = killpg(self.group, Signal::SIGCONT);
    }
}

/// The foreground, lent; it is taken back when this is dropped.
struct Foreground {
    ours: rustix::process::Pid,
}

impl Foreground {
    fn is_ours() -> bool {
        let foreground = rustix::termios::tcgetpgrp(rustix::stdio::stdin());
        foreground.is_ok_and(|foreground| foreground == rustix::process::getpgrp())
    }

    fn give(group: Pid) -> Option<Self> {
        let terminal = rustix::stdio::stdin();
        let ours = rustix::termios::tcgetpgrp(terminal).ok()?;
        let group = rustix::process::Pid::from_raw(group.as_raw())?;
        rustix::termios::tcsetpgrp(terminal, group).ok()?;
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
