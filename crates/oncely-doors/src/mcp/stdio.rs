//! Standard input and output: a server that we start, and a client that started us.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::cut::Cut;
use super::frames::{Frame, Frames, content};
use super::ids::canonical;
use super::link::{Addressee, Boxed, Link, OwnIds, Reply};
use super::listing;
use super::long::{self, LONG};
use super::message::{self, INTERNAL_ERROR};
use super::outlet::{Outlet, Written};
use super::session::{Next, Seen, Session};

/// Anything to read from.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Anything to write to.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// How long a server may take to read what is being written to it, once its input is to end.
const CLOSE: Duration = Duration::from_secs(1);
/// After this time nobody reckons with the answer to a request of ours that was given up, or whose cancellation was passed
/// on: most that were cancelled get none.
const FORGET: Duration = Duration::from_secs(60);

/// The link to a server by its standard input and output.
pub struct StdioLink {
    to: Outlet,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    calls: HashMap<String, Call>,
    /// Those that nobody waits for any more, although an answer may come, and since when.
    given_up: HashMap<String, Instant>,
    /// Why no answers will come any more.
    over: Option<String>,
}

struct Call {
    caller: oneshot::Sender<Result<Bytes, String>>,
    /// Since when it is not likely to be answered any more.
    doubtful: Option<Instant>,
}

impl StdioLink {
    /// Writes to a server's standard input.
    pub fn new(to: Output) -> Self {
        Self { to: Outlet::new(to), waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server's input ends. One that does not read, so that somebody is still writing to it, is not waited for.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE, self.to.close()).await;
    }

    /// No answers will come any more.
    pub fn end(&self, why: &str) {
        let mut waiting = self.waiting();
        waiting.over = Some(why.to_owned());
        for (_, call) in waiting.calls.drain() {
            // One that does not wait any more needs no answer.
            let _ = call.caller.send(Err(why.to_owned()));
        }
    }

    fn answer(&self, id: &str, answer: Result<Bytes, String>) {
        let mut waiting = self.waiting();
        match waiting.calls.remove(id) {
            Some(call) => {
                // One that does not wait any more needs no answer.
                let _ = call.caller.send(answer);
            }
            None => drop(waiting.given_up.remove(id)),
        }
    }

    /// Whoever waits for this answer is told that it cannot be read.
    pub(super) fn unreadable(&self, id: &str) {
        self.answer(id, Err("the server's answer cannot be read".into()));
    }

    /// Whether nobody reckons with an answer to a request of ours, unless we ask for one.
    pub(super) fn awaits_nothing(&self) -> bool {
        self.awaits_nothing_at(Instant::now())
    }

    fn awaits_nothing_at(&self, now: Instant) -> bool {
        let is_forgotten = |since: &Instant| now.duration_since(*since) >= FORGET;
        let mut waiting = self.waiting();
        waiting.given_up.retain(|_, since| !is_forgotten(since));
        waiting.given_up.is_empty()
            && waiting.calls.values().all(|call| call.doubtful.as_ref().is_some_and(is_forgotten))
    }

    fn expect(&self, id: &str) -> Result<oneshot::Receiver<Result<Bytes, String>>, String> {
        let mut waiting = self.waiting();
        if let Some(why) = &waiting.over {
            return Err(why.clone());
        }
        let (caller, receiver) = oneshot::channel();
        waiting.calls.insert(id.to_owned(), Call { caller, doubtful: None });
        Ok(receiver)
    }
}

/// Takes a call off the list of those waited for, however the wait ends.
struct Expected<'a>(&'a StdioLink, &'a str);

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        if waiting.calls.remove(self.1).is_some() {
            waiting.given_up.retain(|_, since| since.elapsed() < FORGET);
            waiting.given_up.insert(self.1.to_owned(), Instant::now());
        }
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

    fn doubt(&self, id: &str) {
        if let Some(call) = self.waiting().calls.get_mut(id) {
            call.doubtful.get_or_insert_with(Instant::now);
        }
    }
}

/// Passes a client's messages on until it ends its input.
pub async fn pump_client(frames: &mut Frames<Input>, session: &Arc<Session>) -> io::Result<()> {
    while let Some(frame) = frames.next_lines().await? {
        match frame {
            Frame::Line(lines) => take_lines(&lines, session).await,
            Frame::TooLong { head, tail } => {
                let why = "the message is longer than allowed (--max-message); nothing ran";
                let id = match Cut::of(&head, &tail) {
                    Cut::Call(Some(id)) => id,
                    _ => "null".to_owned(),
                };
                session.room().await;
                session.tell(message::error(&id, message::INVALID_REQUEST, why));
            }
            // Nobody asked to be told.
            Frame::Begun => {}
        }
    }
    Ok(())
}

/// Takes lines of a client. Those that are nothing to us go on as they are, in one piece as far as no other comes in
/// between; what was passed on before goes out before what another one may start.
async fn take_lines(lines: &Bytes, session: &Arc<Session>) {
    let (mut passed, mut at, mut reads) = (0, 0, None);
    while at < lines.len() {
        let end = memchr::memchr(b'\n', &lines[at..]).map(|length| at + length + 1);
        // The last line may lack its end.
        let line = &lines[at..end.unwrap_or(lines.len())];
        let is_plain = end.is_some() && message::is_flat(line);
        let seen = if is_plain { session.see(line, &mut reads) } else { Seen::Unclear };
        let begin = at;
        at += line.len();
        if seen != Seen::Passes {
            pass(lines.slice(std::mem::replace(&mut passed, at)..begin), session).await;
            take_line(seen, &lines.slice(begin..at), session).await;
            // Meanwhile the server may have said otherwise.
            reads = None;
        }
    }
    pass(lines.slice(passed..), session).await;
}

async fn take_line(seen: Seen<'_>, line: &Bytes, session: &Arc<Session>) {
    if content(line).is_empty() {
        return;
    }
    // Each may have to be answered by us; what waits for a client that does not read must not grow for ever.
    session.room().await;
    // What was seen as it is was flat.
    let line = if seen == Seen::Unclear { message::flat(line) } else { line.clone() };
    if session.take(seen, &line, None).await == Next::Pass {
        let is_whole = line.last() == Some(&b'\n');
        pass(if is_whole { line } else { [&line[..], b"\n"].concat().into() }, session).await;
    }
}

async fn pass(lines: Bytes, session: &Session) {
    if !lines.is_empty() {
        session.link.pass(lines).await;
    }
}

/// Passes a server's messages on until it ends its output; answers to calls of ours go to whoever made them. Where the way
/// out to the client is known, it takes long ones as they come.
pub async fn pump_server(
    from: Input,
    (ids, link): (&OwnIds, &StdioLink),
    session: &Session,
    out: Option<&Outlet>,
    limit: usize,
) {
    let mut frames = Frames::new(from, limit).telling(LONG);
    loop {
        // A server whose output cannot be read has ended, as far as can be seen from here.
        match frames.next_lines().await.ok().flatten() {
            None => return link.end("the server ended before it answered"),
            Some(Frame::Begun) => {
                let out = out.filter(|_| long::is_for_the_client(frames.begun(), ids, link));
                if let Some(out) = out {
                    long::pass(&mut frames, out, (ids, link, session), limit).await;
                }
            }
            Some(Frame::TooLong { head, tail }) => too_long(&head, &tail, ids, link, session).await,
            Some(Frame::Line(lines)) => {
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
            Addressee::Unreadable(id) => link.unreadable(&id),
        }
        pieces.push(lines.slice(piece..begin));
        piece = end;
    }
    pieces.push(lines.slice(piece..));
    pieces.retain(|piece| !piece.is_empty());
    if pieces.len() > 1 { pieces.concat().into() } else { pieces.pop().unwrap_or_default() }
}

/// Tells whoever waits for an answer that is too long.
async fn too_long(head: &[u8], tail: &[u8], ids: &OwnIds, link: &StdioLink, session: &Session) {
    let why = "the server's answer is longer than allowed (--max-message)";
    let ours = |id: &str| ids.somewhere_in(canonical(id).as_bytes());
    let (own, id) = match Cut::of(head, tail) {
        Cut::Answer(id) => (ours(&id), id),
        // What else the server asks or says is let go.
        Cut::Call(id) => match id.as_deref().and_then(ours) {
            Some(own) => return link.unreadable(&own),
            None => return,
        },
        // Better one of ours that is given up, and so left in doubt, than one that waits for ever.
        Cut::Unclear => (ids.somewhere_in(head).or_else(|| ids.somewhere_in(tail)), "null".to_owned()),
    };
    match own {
        Some(own) => link.answer(&own, Err(why.to_owned())),
        None => session.client.send(message::error(&id, INTERNAL_ERROR, why).into()).await,
    }
}

#[cfg(test)]
mod tests {
    use super::{FORGET, Instant, StdioLink};
    use crate::mcp::link::{Link, Reply};

    #[tokio::test]
    async fn a_call_that_is_hardly_answered_any_more_is_forgotten_but_its_answer_is_taken() {
        let (to, _server) = tokio::io::duplex(1_000);
        let link = StdioLink::new(Box::new(to));
        let mut calling = std::pin::pin!(link.call("a".to_owned(), b"{}\n".to_vec()));
        tokio::select! {
            biased;
            reply = &mut calling => panic!("{reply:?}"),
            () = std::future::ready(()) => {}
        }
        let awaits_nothing_after = |time| link.awaits_nothing_at(Instant::now() + time);
        assert!(!awaits_nothing_after(2 * FORGET), "it may take as long as it likes");
        link.doubt("a");
        assert!(!awaits_nothing_after(FORGET / 2) && awaits_nothing_after(FORGET));
        link.answer("a", Ok("late".into()));
        assert_eq!(calling.await, Reply::Answered("late".into()));
        assert!(link.awaits_nothing());
    }
}
