//! Messages on a stream, one in each line, read in bounded memory and without copying them more than needed.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is asked for at once.
const CHUNK: usize = 64 * 1024;
/// What is kept of the start of a message that is too long.
const HEAD: usize = 64 * 1024;
/// What is kept of its end.
const TAIL: usize = 4 * 1024;

/// What was read.
#[derive(Debug)]
pub enum Frame {
    /// A line as it came, with its end; where several are asked for, all of them.
    Line(Bytes),
    /// A line that is longer than allowed: its start and its end.
    TooLong {
        /// The first bytes.
        head: Bytes,
        /// The last bytes.
        tail: Bytes,
    },
}

/// The lines of a stream.
pub struct Frames<R> {
    from: R,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of line.
    scanned: usize,
    /// The start of a line that is being passed over.
    head: Option<Bytes>,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// The lines of a stream, each at most `limit` bytes long.
    pub fn new(from: R, limit: usize) -> Self {
        Self { from, buffer: BytesMut::new(), scanned: 0, head: None, limit }
    }

    /// The next line; `None` at the end of the stream.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.ready() {
                return Ok(Some(frame));
            }
            if !self.read_more().await? {
                return Ok(self.rest());
            }
        }
    }

    /// The next lines, as many as have been read, in one piece; `None` at the end of the stream.
    pub async fn next_lines(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.ready_lines() {
                return Ok(Some(frame));
            }
            if !self.read_more().await? {
                return Ok(self.rest());
            }
        }
    }

    /// Reads what there is; `false` at the end of the stream.
    async fn read_more(&mut self) -> io::Result<bool> {
        // Growing by what is there keeps the copying of a long line within twice its length.
        if self.buffer.capacity() - self.buffer.len() < CHUNK {
            self.buffer.reserve(CHUNK.max(self.buffer.len().min(self.limit)));
        }
        Ok(self.from.read_buf(&mut self.buffer).await? > 0)
    }

    fn ready_lines(&mut self) -> Option<Frame> {
        // Where all that was read is not longer than a line may be, no line in it is.
        if self.head.is_none()
            && self.buffer.len() <= self.limit
            && let Some(at) = memchr::memrchr(b'\n', &self.buffer[self.scanned..])
        {
            let lines = self.buffer.split_to(self.scanned + at + 1).freeze();
            self.scanned = self.buffer.len();
            return Some(Frame::Line(lines));
        }
        self.ready()
    }

    /// The next line, if it has been read already.
    pub fn ready(&mut self) -> Option<Frame> {
        let end = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at + 1);
        let Some(end) = end else {
            self.scanned = self.buffer.len();
            self.pass_over();
            return None;
        };
        self.scanned = 0;
        let line = self.buffer.split_to(end).freeze();
        match self.head.take() {
            Some(head) => Some(Frame::TooLong { head, tail: line.slice(line.len().saturating_sub(TAIL)..) }),
            None if line.len() > self.limit => Some(too_long(&line)),
            None => Some(Frame::Line(line)),
        }
    }

    /// Lets go of what is more than a message may have, but for its start and its end.
    fn pass_over(&mut self) {
        if self.buffer.len() <= self.limit {
            return;
        }
        if self.head.is_none() {
            self.head = Some(Bytes::copy_from_slice(&self.buffer[..HEAD.min(self.buffer.len())]));
        }
        let kept = self.buffer.split_off(self.buffer.len().saturating_sub(TAIL));
        // A buffer of its own, so that the large one is given back.
        self.buffer = BytesMut::from(&kept[..]);
        self.scanned = self.buffer.len();
    }

    fn rest(&mut self) -> Option<Frame> {
        let line = self.buffer.split().freeze();
        self.scanned = 0;
        match self.head.take() {
            Some(head) => Some(Frame::TooLong { head, tail: line }),
            None if line.is_empty() => None,
            None => Some(Frame::Line(line)),
        }
    }
}

fn too_long(line: &Bytes) -> Frame {
    Frame::TooLong {
        head: line.slice(..HEAD.min(line.len())),
        tail: line.slice(line.len().saturating_sub(TAIL)..),
    }
}

/// A line without its end.
pub fn content(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::{Frame, Frames, content};

    async fn all(bytes: &[u8], limit: usize) -> Vec<String> {
        let mut frames = Frames::new(bytes, limit);
        let mut seen = Vec::new();
        while let Some(frame) = frames.next().await.unwrap() {
            seen.push(match frame {
                Frame::Line(line) => String::from_utf8_lossy(&line).into_owned(),
                Frame::TooLong { head, tail } => format!("<{} {}>", head.len(), tail.len()),
            });
        }
        seen
    }

    #[tokio::test]
    async fn lines_keep_their_ends_and_the_last_needs_none() {
        assert_eq!(all(b"a\r\n\nb", 10).await, ["a\r\n", "\n", "b"]);
        assert_eq!(content(b"a\r\n"), b"a");
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_passed_over_and_the_next_is_read() {
        let mut text = vec![b'x'; 300_000];
        text.extend_from_slice(b"\nnext\n");
        assert_eq!(all(&text, 100_000).await, ["<65536 4096>", "next\n"]);
        assert_eq!(all(b"12345678901\nok\n", 10).await, ["<12 12>", "ok\n"]);
    }
}
