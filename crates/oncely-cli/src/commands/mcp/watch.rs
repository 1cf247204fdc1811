//! The process beside a server that sees our end, even if we are killed, and then ends everything in the server's group: a
//! launcher such as `npx` or a shell does not pass on the signal that the system sends to it. It does the same with what a
//! server leaves behind that ends before us.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use oncely_doors::command::child::PassedSignals;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_current_process_group};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Failure;

/// Between the polite and the final stop.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// The same for what a server that has ended left behind.
const LEFT_GRACE: Duration = Duration::from_secs(1);
/// The first pause between two looks at who is left; each is twice as long as the one before.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// The longest.
const LONGEST_LOOK: Duration = Duration::from_millis(250);

/// Waits for the end of standard input, which only the guard of the server holds open, and ends the group that we are in. A
/// word before that end says that the server itself has ended.
pub fn run() -> Result<ExitCode, Failure> {
    let failed = |e: io::Error| Failure::internal(format!("the server cannot be watched: {e}"));
    // What the group is told, by the guard or by the server itself, is not meant for us: we stay until the guard is gone.
    let _deaf = PassedSignals::catch().map_err(failed)?;
    let _deaf_too = signal(SignalKind::alarm()).map_err(failed)?;
    let said = io::copy(&mut io::stdin().lock(), &mut io::sink()).map_err(failed)?;
    let grace = if said == 0 { STOP_GRACE } else { LEFT_GRACE };
    let asked = Instant::now();
    let failed = |e: rustix::io::Errno| Failure::internal(format!("the server cannot be ended: {e}"));
    kill_current_process_group(Signal::TERM).map_err(failed)?;
    let mut pause = FIRST_LOOK;
    while others_are_left() {
        if asked.elapsed() > grace {
            // This ends us, too.
            kill_current_process_group(Signal::KILL).map_err(failed)?;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_LOOK);
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether anybody but us is in our group. Where that cannot be seen, somebody may be.
fn others_are_left() -> bool {
    let (us, group) = (getpid(), getpgrp());
    let Ok(all) = std::fs::read_dir("/proc") else { return true };
    let mut pids = all.filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Pid::from_raw(pid).filter(|pid| *pid != us)
    });
    pids.any(|pid| is_living_member(pid, group))
}

/// Whether a process is in a group and has not ended.
fn is_living_member(pid: Pid, group: Pid) -> bool {
    // Of one that is gone nothing can be read.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of a program may hold anything; after it come state, parent and group.
    let mut rest = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let (state, its_group) = (rest.next(), rest.nth(1));
    !matches!(state, None | Some("Z" | "X"))
        && its_group.and_then(|group| group.parse().ok()) == Some(group.as_raw_nonzero().get())
}
