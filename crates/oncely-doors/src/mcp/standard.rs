//! Our own standard input and output, without a thread in between where that is possible.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::FileType;

use super::stdio::{Input, Output};

/// Our standard input, without a thread in between where that is possible.
pub fn standard_input() -> io::Result<Input> {
    let fd = std::io::stdin().as_fd().try_clone_to_owned()?;
    Ok(match plain_pipe(&fd)? {
        Some(FileType::Fifo) => Box::new(tokio::net::unix::pipe::Receiver::from_owned_fd(fd)?),
        Some(FileType::Socket) => Box::new(stream(fd)?),
        _ => Box::new(tokio::io::stdin()),
    })
}

/// Our standard output, without a thread in between where that is possible.
pub fn standard_output() -> io::Result<Output> {
    let fd = std::io::stdout().as_fd().try_clone_to_owned()?;
    Ok(match plain_pipe(&fd)? {
        Some(FileType::Fifo) => Box::new(tokio::net::unix::pipe::Sender::from_owned_fd(fd)?),
        Some(FileType::Socket) => Box::new(stream(fd)?),
        _ => Box::new(tokio::io::stdout()),
    })
}

fn stream(fd: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

/// What a stream is, if it may be switched to not blocking: the switch is seen by everybody who shares it, and standard
/// error is shared with the server.
fn plain_pipe(fd: &OwnedFd) -> io::Result<Option<FileType>> {
    let this = rustix::fs::fstat(fd)?;
    let shared = rustix::fs::fstat(std::io::stderr().as_fd())
        .is_ok_and(|other| (other.st_dev, other.st_ino) == (this.st_dev, this.st_ino));
    Ok((!shared).then(|| FileType::from_raw_mode(this.st_mode)))
}
