//! Standard input and output: a server that we start, and a client that started us.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;

use super::alert::Side;
use super::frames::{Frame, Frames, content};
use super::link::{Addressee, Boxed, Client, Link, OwnIds, Reply};
use super::listing;
use super::message::{self, INTERNAL_ERROR};
use super::session::{Next, Session};

/// Anything to read from.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Anything to write to.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Messages are collected up to this size before they are written.
const COLLECT: usize = 64 * 1024;

/// Writes whole messages, one after the other. Whoever stops waiting half-way leaves the rest to the next: half a message
/// would spoil all that follow.
pub struct Outlet {
    to: tokio::sync::Mutex<Writing>,
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
enum Written {
    All,
    /// So much that it could be understood.
    Enough,
    TooLittle(io::Error),
}

impl Outlet {
    /// Writes to this.
    pub fn new(to: Output) -> Self {
        Self {
            to: tokio::sync::Mutex::new(Writing {
                to: Some(to),
                message: Bytes::new(),
                written: 0,
                within_line: false,
            }),
        }
    }

    /// No more: the reader sees the end.
    pub async fn close(&self) {
        self.to.lock().await.to = None;
    }

    async fn write(&self, message: Bytes) -> Written {
        let mut writing = self.to.lock().await;
        // What an earlier one left comes first.
        if let Err(error) = writing.finish().await {
            writing.to = None;
            return Written::TooLittle(error);
        }
        // What comes after half a line must not be glued to it.
        let begun =
            std::mem::replace(&mut writing.within_line, message.last().is_some_and(|byte| *byte != b'\n'));
        let message = if begun { [b"\n", &message[..]].concat().into() } else { message };
        (writing.message, writing.written) = (message, 0);
        match writing.finish().await {
            Ok(()) => Written::All,
            Err(error) => {
                // The next message would be glued to what there is of this one.
                writing.to = None;
                short(&writing.message, writing.written, error)
            }
        }
    }
}

impl Writing {
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

/// The link to a server by its standard input and output.
pub struct StdioLink {
    to: Outlet,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    calls: HashMap<String, oneshot::Sender<Result<Bytes, String>>>,
    /// Why no answers will come any more.
    over: Option<String>,
}

impl StdioLink {
    /// Writes to a server's standard input.
    pub fn new(to: Output) -> Self {
        Self { to: Outlet::new(to), waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server's input ends.
    pub async fn close(&self) {
        self.to.close().await;
    }

    /// No answers will come any more.
    pub fn end(&self, why: &str) {
        let mut waiting = self.waiting();
        waiting.over = Some(why.to_owned());
        for (_, caller) in waiting.calls.drain() {
            // One that does not wait any more needs no answer.
            let _ = caller.send(Err(why.to_owned()));
        }
    }

    fn answer(&self, id: &str, answer: Result<Bytes, String>) {
        let caller = self.waiting().calls.remove(id);
        if let Some(caller) = caller {
            // One that does not wait any more needs no answer.
            let _ = caller.send(answer);
        }
    }

    fn expect(&self, id: &str) -> Result<oneshot::Receiver<Result<Bytes, String>>, String> {
        let mut waiting = self.waiting();
        if let Some(why) = &waiting.over {
            return Err(why.clone());
        }
        let (sender, receiver) = oneshot::channel();
        waiting.calls.insert(id.to_owned(), sender);
        Ok(receiver)
    }
}

/// Takes a call off the list of those waited for, however the wait ends.
struct Expected<'a>(&'a StdioLink, &'a str);

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.0.waiting().calls.remove(self.1);
    }
}

impl Link for StdioLink {
    fn pass(&self, line: Bytes) -> Boxed<'_, ()> {
        // A server that went away is noticed where it is read from.
        Box::pin(async move {
            self.to.write(line).await;
        })
    }

    fn call(&self, id: String, line: Vec<u8>) -> Boxed<'_, Reply> {
        Box::pin(async move {
            let answer = match self.expect(&id) {
                Ok(answer) => answer,
                Err(why) => return Reply::NotSent(why.into()),
            };
            let _expected = Expected(self, &id);
            if let Written::TooLittle(error) = self.to.write(line.into()).await {
                return Reply::NotSent(format!("the server does not read: {error}").into());
            }
            match answer.await {
                Ok(Ok(answer)) => Reply::Answered(answer),
                Ok(Err(why)) => Reply::Lost(why.into()),
                Err(_) => Reply::Lost("the link to the server was given up".into()),
            }
        })
    }
}

/// Passes a client's messages on until it ends its input.
pub async fn pump_client(frames: &mut Frames<Input>, session: &Arc<Session>) -> io::Result<()> {
    let mut collected = Vec::new();
    loop {
        let frame = match frames.ready() {
            Some(frame) => frame,
            None => {
                flush(&mut collected, session).await;
                match frames.next().await? {
                    Some(frame) => frame,
                    None => return Ok(()),
                }
            }
        };
        session.guard.alert().came(Side::Client, 1);
        match frame {
            Frame::TooLong { .. } => {
                let why = "the message is longer than allowed (--max-message); nothing ran";
                let answer = message::error("null", message::INVALID_REQUEST, why);
                session.client.send(answer.into()).await;
            }
            Frame::Line(line) if content(&line).is_empty() => {}
            Frame::Line(line) => {
                let line = message::flat(&line);
                let next = session.on_client(&line, None).await;
                if next == Next::Pass {
                    collected.extend_from_slice(&line);
                    if line.last() != Some(&b'\n') {
                        collected.push(b'\n');
                    }
                }
                // What was passed on before goes out before what this one may have started: nothing of that has run
                // yet, and the outlet is handed out in order.
                if next == Next::Taken || collected.len() >= COLLECT {
                    flush(&mut collected, session).await;
                }
            }
        }
    }
}

async fn flush(collected: &mut Vec<u8>, session: &Session) {
    if !collected.is_empty() {
        session.link.pass(std::mem::take(collected).into()).await;
    }
}

/// Passes a server's messages on until it ends its output; answers to calls of ours go to whoever made them.
pub async fn pump_server(from: Input, ids: &OwnIds, link: &StdioLink, session: &Session, limit: usize) {
    let mut frames = Frames::new(from, limit);
    loop {
        // A server whose output cannot be read has ended, as far as can be seen from here.
        match frames.next_lines().await.ok().flatten() {
            None => return link.end("the server ended before it answered"),
            Some(Frame::TooLong { head, tail }) => too_long(&head, &tail, ids, link, session).await,
            Some(Frame::Line(lines)) => {
                let count = memchr::memchr_iter(b'\n', &lines).count();
                session.guard.alert().came(Side::Server, u32::try_from(count).unwrap_or(u32::MAX));
                // Most of what a server says is nothing to us, and passes in one piece.
                if !ids.are_in(&lines) && !listing::may_concern(&lines) {
                    session.client.send(lines).await;
                    continue;
                }
                let rest = for_the_client(&lines, ids, link, session);
                if !rest.is_empty() {
                    session.client.send(rest).await;
                }
            }
        }
    }
}

/// What of a server's lines is for the client, in one piece: nobody who is answered here gets in between. Answers to calls
/// of ours go to whoever made them, and first: the end of a write does not wait for a client that does not read.
fn for_the_client(lines: &Bytes, ids: &OwnIds, link: &StdioLink, session: &Session) -> Bytes {
    let mut pieces = Vec::new();
    let (mut piece, mut from) = (0, 0);
    let ends = memchr::memchr_iter(b'\n', lines).map(|at| at + 1);
    // The last line may lack its end.
    let ends = ends.chain((lines.last() != Some(&b'\n')).then_some(lines.len()));
    for end in ends {
        let begin = std::mem::replace(&mut from, end);
        match ids.answered_by(&lines[begin..end]) {
            Addressee::Client => {
                session.on_server(&lines[begin..end]);
                continue;
            }
            Addressee::Us(id) => link.answer(&id, Ok(lines.slice(begin..end))),
            Addressee::Unreadable(id) => link.answer(&id, Err("the server's answer cannot be read".into())),
        }
        pieces.push(lines.slice(piece..begin));
        piece = end;
    }
    pieces.push(lines.slice(piece..));
    pieces.retain(|piece| !piece.is_empty());
    if pieces.len() > 1 { pieces.concat().into() } else { pieces.pop().unwrap_or_default() }
}

async fn too_long(head: &[u8], tail: &[u8], ids: &OwnIds, link: &StdioLink, session: &Session) {
    let why = "the server's answer is longer than allowed (--max-message)";
    let id = message::id_of_cut(head, tail);
    let own = match &id {
        Some(id) => ids.somewhere_in(id.as_bytes()),
        // Where the id should be there is none: better one of ours that is given up than one that waits for ever.
        None => ids.somewhere_in(head).or_else(|| ids.somewhere_in(tail)),
    };
    match (own, id) {
        (Some(own), _) => link.answer(&own, Err(why.to_owned())),
        (None, Some(id)) => session.client.send(message::error(&id, INTERNAL_ERROR, why).into()).await,
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Outlet, StdioLink, Written};
    use crate::mcp::link::{Link, Reply};
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
        begin(&link.to, "a long message of a reader\n").await;
        drop(theirs);
        for id in ["1", "2"] {
            assert!(matches!(link.call(id.into(), b"{}\n".to_vec()).await, Reply::NotSent(_)));
        }
    }
}
