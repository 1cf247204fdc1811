//! Messages on a stream, one in each line, read in bounded memory and without copying them more than needed.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is asked for at once.
const CHUNK: usize = 64 * 1024;
/// What is kept of the start of a message that is too long.
const HEAD: usize = 64 * 1024;
/// What is kept of its end.
pub(super) const TAIL: usize = 4 * 1024;

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
    /// A long line has begun, and its end has not come yet. Said once, and only where that is asked for: see
    /// [`Frames::telling`].
    Begun,
}

/// The lines of a stream.
pub struct Frames<R> {
    from: R,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of line.
    scanned: usize,
    /// The start of a line that is being passed over.
    head: Option<Bytes>,
    /// A line of which so much has come without its end is a long one.
    long: usize,
    /// Whether that was said of the line in the buffer.
    said: bool,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// The lines of a stream, each at most `limit` bytes long.
    pub fn new(from: R, limit: usize) -> Self {
        Self { from, buffer: BytesMut::new(), scanned: 0, head: None, long: usize::MAX, said: false, limit }
    }

    /// The same; where several lines are asked for, it is said when one that is longer than this has begun.
    pub fn telling(self, long: usize) -> Self {
        Self { long, ..self }
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
            if self.buffer.len() > self.long && self.head.is_none() && !self.said {
                self.said = true;
                return Ok(Some(Frame::Begun));
            }
            if !self.read_more().await? {
                return Ok(self.rest());
            }
        }
    }

    /// What has come of a long line.
    pub fn begun(&self) -> &[u8] {
        &self.buffer
    }

    /// What has come of a long line since the last piece, or comes next, up to its end; `None` at the end of the stream.
    /// Whoever asks for one asks for all.
    pub async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        if self.buffer.is_empty() && !self.read_more().await? {
            return Ok(None);
        }
        let end = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at + 1);
        self.said = end.is_none();
        self.scanned = 0;
        Ok(Some(self.buffer.split_to(end.unwrap_or(self.buffer.len())).freeze()))
    }

    /// Takes a piece back and passes over it, and over what is left of its line. This is how that began.
    pub fn pass_over_from(&mut self, piece: &Bytes, head: Bytes) {
        let rest = std::mem::take(&mut self.buffer);
        self.buffer.extend_from_slice(piece);
        self.buffer.unsplit(rest);
        self.head = Some(head);
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
            self.said = false;
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
        (self.scanned, self.said) = (0, false);
        let line = self.buffer.split_to(end).freeze();
        match self.head.take() {
            Some(head) => Some(Frame::TooLong { head, tail: line.slice(line.len().saturating_sub(TAIL)..) }),
            None if line.len() > self.limit => Some(too_long(&line)),
            None => Some(Frame::Line(line)),
        }
    }

    /// Lets go of what is more than a message may have, but for its start and its end.
    fn pass_over(&mut self) {
        let most = if self.head.is_some() { self.limit.min(HEAD) } else { self.limit };
        if self.buffer.len() <= most {
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
        (self.scanned, self.said) = (0, false);
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

    const LONG: usize = 64 * 1024;

    async fn all(bytes: &[u8], limit: usize) -> Vec<String> {
        let mut frames = Frames::new(bytes, limit);
        let mut seen = Vec::new();
        while let Some(frame) = frames.next().await.unwrap() {
            seen.push(match frame {
                Frame::Line(line) => String::from_utf8_lossy(&line).into_owned(),
                Frame::TooLong { head, tail } => format!("<{} {}>", head.len(), tail.len()),
                Frame::Begun => panic!("said only where several lines are asked for"),
            });
        }
        seen
    }

    #[tokio::test]
    async fn a_long_line_is_said_to_have_begun_once_and_comes_in_pieces_or_whole() {
        let mut text = b"short\n".to_vec();
        for letter in [b'x', b'y'] {
            text.resize(text.len() + 300_000, letter);
            text.push(b'\n');
        }
        text.extend_from_slice(b"next\nrest");
        let mut frames = Frames::new(&text[..], 1_000_000).telling(LONG);
        let mut seen = Vec::new();
        while let Some(frame) = frames.next_lines().await.unwrap() {
            match frame {
                Frame::Line(line) => seen.extend_from_slice(&line),
                Frame::TooLong { .. } => panic!("nothing is too long"),
                Frame::Begun if frames.begun()[0] == b'x' => loop {
                    let piece = frames.piece().await.unwrap().unwrap();
                    assert!(piece.len() <= 128 * 1024);
                    seen.extend_from_slice(&piece);
                    if piece.ends_with(b"\n") {
                        break;
                    }
                },
                Frame::Begun => seen.extend_from_slice(b"begun "),
            }
        }
        let at = text.iter().position(|byte| *byte == b'y').unwrap();
        text.splice(at..at, *b"begun ");
        assert!(seen == text, "{} of {}", seen.len(), text.len());
    }

    #[tokio::test]
    async fn the_rest_of_a_long_line_is_passed_over_where_it_is_not_wanted_any_more() {
        let mut text = vec![b'x'; 300_000];
        text.extend_from_slice(b"tail\nnext\n");
        let mut frames = Frames::new(&text[..], 1_000_000).telling(LONG);
        assert!(matches!(frames.next_lines().await.unwrap(), Some(Frame::Begun)));
        let piece = frames.piece().await.unwrap().unwrap();
        frames.pass_over_from(&piece, "head".into());
        let Some(Frame::TooLong { head, tail }) = frames.next_lines().await.unwrap() else { panic!() };
        assert!(head == "head" && tail.ends_with(b"tail\n"));
        let Some(Frame::Line(next)) = frames.next_lines().await.unwrap() else { panic!() };
        assert_eq!(next, "next\n");
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
