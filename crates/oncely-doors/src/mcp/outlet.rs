//! The way out to a client or a server that reads lines: whole messages, or one piece by piece, and never two in one line.

use std::io;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, MutexGuard};

use super::frames::content;
use super::link::{Boxed, Client};
use super::stdio::Output;

/// Writes messages, one after the other. Whoever stops waiting half-way leaves the rest to the next: half a message
/// would spoil all that follow.
pub struct Outlet {
    to: Mutex<Writing>,
}

struct Writing {
    to: Option<Output>,
    /// The message that is being written, and how far it has come.
    message: Bytes,
    written: usize,
    /// Whether the last one lacked its end of line: a server that died in the middle of it, say.
    within_line: bool,
}

/// How much of a message was written.
pub(super) enum Written {
    /// All of it.
    All,
    /// So much that it could be understood.
    Enough,
    /// Less than that.
    TooLittle(io::Error),
}

impl Outlet {
    /// Writes to this.
    pub fn new(to: Output) -> Self {
        Self {
            to: Mutex::new(Writing { to: Some(to), message: Bytes::new(), written: 0, within_line: false }),
        }
    }

    /// No more: the reader sees the end.
    pub async fn close(&self) {
        self.to.lock().await.to = None;
    }

    /// Writes a whole message.
    pub(super) async fn write(&self, message: Bytes) -> Written {
        let mut writing = self.to.lock().await;
        // What an earlier one left comes first.
        if let Err(error) = writing.finish().await {
            writing.to = None;
            return Written::TooLittle(error);
        }
        // What comes after half a line must not be glued to it.
        let message = if writing.within_line { [b"\n", &message[..]].concat().into() } else { message };
        writing.put(message).await
    }

    /// Begins a message that is written piece by piece. Nobody else gets to write until the result is dropped.
    pub(super) async fn begin(&self) -> Piecewise<'_> {
        let mut writing = self.to.lock().await;
        if writing.finish().await.is_err() {
            writing.to = None;
        }
        let begun = std::mem::take(&mut writing.within_line);
        let mut this = Piecewise(writing);
        if begun {
            this.write(Bytes::from_static(b"\n")).await;
        }
        this
    }
}

/// A message on its way out. If it is given up half-way, the next one begins on a line of its own.
pub(super) struct Piecewise<'a>(MutexGuard<'a, Writing>);

impl Piecewise<'_> {
    /// Writes the next piece. A client that went away is no error.
    pub(super) async fn write(&mut self, piece: Bytes) {
        self.0.put(piece).await;
    }

    /// Ends it where it is.
    pub(super) async fn cut(mut self) {
        if self.0.within_line {
            self.write(Bytes::from_static(b"\n")).await;
        }
    }
}

impl Writing {
    async fn put(&mut self, message: Bytes) -> Written {
        self.within_line = message.last().is_some_and(|byte| *byte != b'\n');
        (self.message, self.written) = (message, 0);
        match self.finish().await {
            Ok(()) => Written::All,
            Err(error) => {
                // The next message would be glued to what there is of this one.
                self.to = None;
                short(&self.message, self.written, error)
            }
        }
    }

    async fn finish(&mut self) -> io::Result<()> {
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "it is closed");
        let writer = self.to.as_mut().ok_or_else(closed)?;
        while self.written < self.message.len() {
            match writer.write(&self.message[self.written..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.written += count,
            }
        }
        writer.flush().await?;
        // Whole: let go of it.
        (self.message, self.written) = (Bytes::new(), 0);
        Ok(())
    }
}

/// A message that lacks more than its end of line cannot be read by anybody.
fn short(bytes: &[u8], written: usize, error: io::Error) -> Written {
    if written < content(bytes).len() { Written::TooLittle(error) } else { Written::Enough }
}

impl Client for Outlet {
    fn send(&self, line: Bytes) -> Boxed<'_, ()> {
        Box::pin(async move {
            self.write(line).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Outlet, Written};
    use crate::mcp::link::{Link, Reply};
    use crate::mcp::stdio::StdioLink;
    use bytes::Bytes;
    use tokio::io::AsyncReadExt;

    /// Begins to write, and gives up as soon as the other side takes no more.
    async fn begin(outlet: &Outlet, message: &'static str) {
        tokio::select! {
            biased;
            _ = outlet.write(Bytes::from_static(message.as_bytes())) => panic!("it fits"),
            () = std::future::ready(()) => {}
        }
    }

    #[tokio::test]
    async fn a_message_that_was_given_up_half_way_is_finished_before_the_next() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let outlet = Outlet::new(Box::new(ours));
        begin(&outlet, "a long message of a reader\n").await;
        // Given up before it was begun: never written.
        begin(&outlet, "a message that has to wait\n").await;
        let reading = tokio::spawn(async move {
            let mut all = String::new();
            theirs.read_to_string(&mut all).await.unwrap();
            all
        });
        assert!(matches!(outlet.write(Bytes::from_static(b"a guarded call\n")).await, Written::All));
        outlet.close().await;
        assert_eq!(reading.await.unwrap(), "a long message of a reader\na guarded call\n");
    }

    #[tokio::test]
    async fn a_call_after_half_a_message_that_cannot_be_finished_is_not_sent() {
        let (ours, theirs) = tokio::io::duplex(8);
        let link = StdioLink::new(Box::new(ours));
        tokio::select! {
            biased;
            () = link.pass(Bytes::from_static(b"a long message of a reader\n")) => panic!("it fits"),
            () = std::future::ready(()) => {}
        }
        drop(theirs);
        for id in ["1", "2"] {
            assert!(matches!(link.call(id.into(), b"{}\n".to_vec()).await, Reply::NotSent(_)));
        }
    }

    #[tokio::test]
    async fn nobody_gets_into_a_message_that_is_written_piece_by_piece_nor_is_glued_to_half_a_one() {
        let (ours, mut theirs) = tokio::io::duplex(1_000);
        let outlet = Outlet::new(Box::new(ours));
        let mut first = outlet.begin().await;
        first.write(Bytes::from_static(b"one ")).await;
        let other = outlet.write(Bytes::from_static(b"other\n"));
        let rest = async {
            first.write(Bytes::from_static(b"piece after ")).await;
            first.write(Bytes::from_static(b"the other\n")).await;
            drop(first);
        };
        tokio::join!(biased; other, rest);
        let mut half = outlet.begin().await;
        half.write(Bytes::from_static(b"half")).await;
        drop(half);
        let mut cut = outlet.begin().await;
        cut.write(Bytes::from_static(b"cut")).await;
        cut.cut().await;
        outlet.write(Bytes::from_static(b"whole\n")).await;
        outlet.close().await;
        let mut all = String::new();
        theirs.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "one piece after the other\nother\nhalf\ncut\nwhole\n");
    }
}
