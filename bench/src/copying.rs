//! A proxy that copies bytes and looks at nothing: what standing between a client and a server costs at the least. One thread
//! does it, and stays awake for a moment, as `oncely mcp` does: two threads that sleep in between carry half as much. It would
//! stand still if more than a pipe holds were under way in both directions, which the benchmark never has.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Result;
use crate::echo;

/// How much is asked for at once, as much as a pipe holds.
const CHUNK: usize = 64 * 1024;
/// How long it looks for what comes next before it sleeps.
const LOOK: Duration = Duration::from_micros(100);

/// The command line of the minimal server behind this proxy.
pub(crate) fn command() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("copy");
    Ok(command)
}

/// From where to where.
struct Way {
    from: File,
    to: File,
}

impl Way {
    /// Copies what there is; `false` at the end.
    fn copy(&mut self, buffer: &mut [u8]) -> std::io::Result<bool> {
        let count = self.from.read(buffer)?;
        self.to.write_all(&buffer[..count])?;
        Ok(count > 0)
    }
}

/// Copies both ways until the client ends its side.
pub(crate) fn serve() -> Result<()> {
    let mut server = echo::command()?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(to), Some(from)) = (server.stdin.take(), server.stdout.take()) else {
        return Err("the server has no pipes".into());
    };
    // The bare descriptors: the standard library's own handles would collect lines.
    let client_in = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let client_out = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let mut there = Way { from: client_in, to: OwnedFd::from(to).into() };
    let mut back = Way { from: OwnedFd::from(from).into(), to: client_out };
    let mut buffer = vec![0; CHUNK];
    loop {
        let [is_asked, is_answered] = wait(&there.from, &back.from)?;
        if is_answered && !back.copy(&mut buffer)? || is_asked && !there.copy(&mut buffer)? {
            break;
        }
    }
    drop(there);
    while back.copy(&mut buffer)? {}
    server.wait()?;
    Ok(())
}

/// Waits until something has come on either, or has ended, and says on which.
fn wait(one: &File, other: &File) -> Result<[bool; 2]> {
    let until = Instant::now() + LOOK;
    loop {
        let mut sources = [one, other].map(|source| PollFd::new(source, PollFlags::IN));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let patience = (Instant::now() < until).then_some(&at_once);
        if poll(&mut sources, patience)? > 0 {
            return Ok(sources.map(|source| !source.revents().is_empty()));
        }
        std::thread::yield_now();
    }
}
