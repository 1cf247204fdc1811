//! A proxy that copies bytes and looks at nothing: what standing between a client and a server costs at the least.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use crate::Result;
use crate::echo;

/// How much is asked for at once, as much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// The command line of the minimal server behind this proxy.
pub(crate) fn command() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("copy");
    Ok(command)
}

/// Copies both ways, a thread for each, until the client ends its side.
pub(crate) fn serve() -> Result<()> {
    let mut server = echo::command()?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(to), Some(from)) = (server.stdin.take(), server.stdout.take()) else {
        return Err("the server has no pipes".into());
    };
    // The bare descriptors: the standard library's own handles would collect lines.
    let client_in = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let client_out = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let back = std::thread::spawn(move || copy(OwnedFd::from(from).into(), client_out));
    copy(client_in, OwnedFd::from(to).into())?;
    back.join().map_err(|_| "the way back was given up")??;
    server.wait()?;
    Ok(())
}

fn copy(mut from: File, mut to: File) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count])?;
    }
}
