//! One client and one server: decides for every message of the client whether it is passed on, guarded or answered.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use oncely_core::Kind;

use super::busy::Busy;
use super::call::{ToolCall, tool_of};
use super::catalog::NotAsked;
use super::flight::Flight;
use super::glance::Glance;
use super::guard::{Caller, Guard};
use super::handle::TASKS;
use super::ids;
use super::json::{self, Members};
use super::link::{Client, Link};
use super::listing;
use super::message::{self, BATCH_OF_CALLS, Batch, INVALID_REQUEST, Message, Request};
use super::unread::Unread;

/// A client, a server and the guard between them.
pub struct Session {
    /// The guard.
    pub guard: Arc<Guard>,
    /// The way to the server.
    pub link: Arc<dyn Link>,
    /// The way to the client.
    pub client: Arc<dyn Client>,
    /// Requests of the client that we answer, by their ids.
    flights: Mutex<HashMap<String, Arc<Flight>>>,
    handshake: Mutex<Handshake>,
    /// Whether the client said in its handshake that it knows of tasks.
    client_knows_tasks: AtomicBool,
    /// How many tasks are at work for the client.
    busy: Busy,
    /// Answers of ours that the client has not read.
    unread: Arc<Unread>,
}

/// How far the client and the server have come with each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Handshake {
    /// Nothing was said yet, or requests describe themselves.
    #[default]
    None,
    /// `initialize` was sent: the server takes no other requests.
    Begun,
    /// The client said that it is ready.
    Done,
}

/// What a message is, as far as can be seen at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen<'a> {
    /// It is passed on as it is.
    Passes,
    /// A call of a tool that may write, under this id.
    Call(&'a str),
    /// It has to be read.
    Unclear,
}

/// What to do with a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Pass it on as it is.
    Pass,
    /// It is taken care of.
    Taken,
}

impl Session {
    /// A session between a client and a server.
    pub fn new(guard: Arc<Guard>, link: Arc<dyn Link>, client: Arc<dyn Client>) -> Arc<Self> {
        let (flights, handshake) = (Mutex::default(), Mutex::default());
        let (busy, unread) = (Busy::default(), Arc::default());
        let client_knows_tasks = AtomicBool::new(false);
        Arc::new(Self { guard, link, client, flights, handshake, client_knows_tasks, busy, unread })
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<String, Arc<Flight>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_handshake(&self, to: Handshake) {
        *self.handshake.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    fn may_ask(&self) -> bool {
        *self.handshake.lock().unwrap_or_else(PoisonError::into_inner) != Handshake::Begun
    }

    /// Asks the server for its tools, unless it takes no requests yet. `described` is what requests say of themselves.
    pub(super) async fn learn(&self, described: Option<&str>) {
        if self.may_ask() {
            listing::learn(&self.guard, &self.link, described).await;
        }
    }

    /// Waits until nothing is at work for the client any more, at most for `timeout`. Says whether that was reached.
    pub async fn is_idle_within(&self, timeout: Duration) -> bool {
        self.busy.is_idle_within(timeout).await
    }

    /// Whether something is at work for the client, be it there or gone.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.is_any()
    }

    /// Takes a message of the client. `principal` is what tells who says it from others that share the guard.
    pub async fn on_client(self: &Arc<Self>, line: &Bytes, principal: Option<&str>) -> Next {
        self.take(self.see(line, &mut None), line, principal).await
    }

    /// Looks at a message of the client. `reads` is a tool that was lately found to read, and need not be asked about again.
    pub(super) fn see<'a>(&self, line: &'a [u8], reads: &mut Option<&'a str>) -> Seen<'a> {
        let Some(glance) = Glance::at(line) else { return Seen::Unclear };
        match (glance.method, glance.name) {
            ("tools/call", Some(tool)) => {
                if *reads != Some(tool) && !self.reads(tool) {
                    return Seen::Call(glance.id);
                }
                *reads = Some(tool);
                Seen::Passes
            }
            ("initialize" | "tools/list", _) | ("tools/call", None) => Seen::Unclear,
            _ => Seen::Passes,
        }
    }

    /// Takes a message of the client that was seen to be this.
    pub(super) async fn take(
        self: &Arc<Self>,
        seen: Seen<'_>,
        line: &Bytes,
        principal: Option<&str>,
    ) -> Next {
        match seen {
            Seen::Passes => return Next::Pass,
            Seen::Call(id) => return self.take_call(id, line, principal).await,
            Seen::Unclear => {}
        }
        match message::read(line) {
            Err(bad) => self.tell(bad.answer()),
            Ok(Message::Other) => {
                self.guard.client_answers();
                Next::Pass
            }
            Ok(Message::Batch) => match message::look_into_batch(line) {
                Batch::NeedsGuard => self.tell(message::error("null", INVALID_REQUEST, BATCH_OF_CALLS)),
                batch => {
                    if batch == Batch::Answers {
                        self.guard.client_answers();
                    }
                    Next::Pass
                }
            },
            Ok(Message::Notification { method, members }) => self.on_notification(&method, &members).await,
            Ok(Message::Request(request)) => self.on_request(request, line, principal).await,
        }
    }

    /// Whether a tool is known to read.
    fn reads(&self, tool: &str) -> bool {
        self.guard.kind(tool).is_ok_and(|(kind, _)| kind == Kind::Read)
    }

    async fn on_notification(&self, method: &str, members: &Members<'_>) -> Next {
        match method {
            "notifications/initialized" => self.set_handshake(Handshake::Done),
            // Without an id nobody could be told how it went, and no server may act on it.
            "tools/call" => return Next::Taken,
            "notifications/cancelled" => return self.cancel(members).await,
            _ => {}
        }
        Next::Pass
    }

    async fn on_request(
        self: &Arc<Self>,
        request: Request<'_>,
        line: &Bytes,
        principal: Option<&str>,
    ) -> Next {
        match request.method.as_str() {
            "initialize" => {
                self.set_handshake(Handshake::Begun);
                // Whoever answers it may be another release of the server, with other tools.
                self.guard.catalog.changed();
                let params = request.members.object("params").unwrap_or_default();
                let able = params.object("capabilities").unwrap_or_default();
                let knows = able.object("extensions").is_some_and(|known| known.has(TASKS));
                self.client_knows_tasks.store(knows, Ordering::Release);
                Next::Pass
            }
            "tools/list" => match self.board(&request.id) {
                Some(on_board) => self.begin_task(line, on_board, Task::List).await,
                None => self.tell(double_id(&request.id)),
            },
            "tools/call" => {
                let tool = match tool_of(&request) {
                    Ok(tool) => tool,
                    Err(answer) => return self.tell(answer),
                };
                if self.reads(&tool) {
                    Next::Pass
                } else {
                    self.take_call(&request.id, line, principal).await
                }
            }
            _ => Next::Pass,
        }
    }

    /// Takes a call of a tool that may write.
    async fn take_call(self: &Arc<Self>, id: &str, line: &Bytes, principal: Option<&str>) -> Next {
        match self.board(id) {
            Some(on_board) => self.begin_task(line, on_board, Task::Call(principal.map(str::to_owned))).await,
            None => self.tell(double_id(id)),
        }
    }

    /// Notes a message of the server that is passed on.
    pub fn on_server(&self, line: &[u8]) {
        listing::notice(&self.guard, line);
    }

    /// Waits until the client has read so much of what it was answered that one more message of it may be taken.
    pub(super) async fn room(&self) {
        self.unread.room().await;
    }

    /// Answers a message that is refused, in a task of its own: what else the client says does not wait for the end of a line
    /// that the server is in the middle of.
    pub(super) fn tell(self: &Arc<Self>, answer: Vec<u8>) -> Next {
        let session = self.clone();
        self.busy.begin();
        tokio::spawn(async move {
            session.send(answer).await;
            session.busy.end();
        });
        Next::Taken
    }

    /// Sends an answer of ours to the client.
    async fn send(&self, answer: Vec<u8>) {
        let _held = self.unread.hold(answer.len());
        self.client.send(answer.into()).await;
    }

    /// Takes a request on board; `None` if one with this id is under way.
    fn board(self: &Arc<Self>, id: &str) -> Option<OnBoard> {
        let id = ids::canonical(id);
        let mut flights = self.flights();
        if flights.contains_key(id.as_ref()) {
            return None;
        }
        let (id, flight) = (id.into_owned(), Arc::new(Flight::default()));
        flights.insert(id.clone(), flight.clone());
        self.busy.begin();
        Some(OnBoard { session: self.clone(), id, flight, left: AtomicBool::new(false) })
    }

    /// Works on a request: at once, as far as nothing has to be waited for, which is all of a replay; then in a task of its
    /// own: the client's other messages do not wait for it, and its end is recorded even if the client goes away.
    async fn begin_task(self: &Arc<Self>, line: &Bytes, on_board: OnBoard, task: Task) -> Next {
        let (session, line) = (self.clone(), line.clone());
        let mut work = Box::pin(async move {
            let Ok(Message::Request(request)) = message::read(&line) else { return };
            let flight = &on_board.flight;
            let answer = match task {
                Task::List => listing::answer(&session, &request, flight).await,
                Task::Call(principal) => {
                    session.answer_call(&request, &line, &on_board, principal.as_deref()).await
                }
            };
            on_board.leave();
            // A client that has cancelled a request does not expect an answer to it.
            if let Some(answer) = answer.filter(|_| !flight.is_cancelled()) {
                session.send(answer).await;
            }
        });
        // A panic ends this one alone, as it would in a task of its own.
        let polled =
            poll_fn(|context| Poll::Ready(catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)))));
        if matches!(polled.await, Ok(Poll::Pending)) {
            tokio::spawn(work);
        }
        Next::Taken
    }

    async fn answer_call(
        self: &Arc<Self>,
        request: &Request<'_>,
        line: &Bytes,
        on_board: &OnBoard,
        principal: Option<&str>,
    ) -> Option<Vec<u8>> {
        let mut call = match ToolCall::read(request) {
            Ok(call) => call,
            Err(answer) => return Some(answer),
        };
        call.client_knows_tasks = self.client_knows_tasks.load(Ordering::Acquire);
        let kind = match self.guard.kind(&call.name) {
            Ok((kind, _)) => kind,
            Err(NotAsked) => {
                self.learn(call.self_description().as_deref()).await;
                self.guard.kind_as_known(&call.name).0
            }
        };
        if kind == Kind::Read {
            // From here on the server answers it, and a cancellation is passed on.
            on_board.leave();
            if !on_board.flight.is_cancelled() {
                self.link.pass(line.clone()).await;
            }
            return None;
        }
        // Many may have waited together for the list of tools. Nothing has begun yet.
        self.room().await;
        let caller = Caller { link: &self.link, client: &self.client, principal };
        Some(self.guard.answer(&call, &caller, &on_board.flight).await)
    }

    /// A client does not want an answer any more. A write that has been sent is let finish, so that its end is known;
    /// what the server would only compute in vain is cancelled there.
    async fn cancel(&self, members: &Members<'_>) -> Next {
        let params = members.object("params").unwrap_or_default();
        let Some(id) = params.get("requestId") else { return Next::Pass };
        let Some(flight) = self.flights().get(ids::canonical(id).as_ref()).cloned() else {
            return Next::Pass;
        };
        let sent_as = flight.cancel();
        if let Some(own_id) = sent_as.filter(|_| flight.forwards_cancel()) {
            let mut params = params.clone();
            params.set("requestId", json::raw(&own_id));
            let mut message = members.clone();
            let params = params.render();
            message.set("params", params);
            self.link.pass(message::line(message.render()).into()).await;
        }
        Next::Taken
    }
}

/// A request on its way. However its task ends, the session does not wait for it any longer than that.
struct OnBoard {
    session: Arc<Session>,
    /// In its one spelling.
    id: String,
    flight: Arc<Flight>,
    /// Whether it has made room for another one.
    left: AtomicBool,
}

impl OnBoard {
    /// Makes room for another request of this id; one that has come already stays.
    fn leave(&self) {
        if self.left.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut flights = self.session.flights();
        if flights.get(&self.id).is_some_and(|there| Arc::ptr_eq(there, &self.flight)) {
            flights.remove(&self.id);
        }
    }
}

impl Drop for OnBoard {
    fn drop(&mut self) {
        self.leave();
        self.session.busy.end();
    }
}

/// What is done for a request.
#[derive(Debug)]
enum Task {
    List,
    /// For this principal.
    Call(Option<String>),
}

fn double_id(id: &str) -> Vec<u8> {
    message::error(id, INVALID_REQUEST, "a request with this id is under way; nothing ran")
}
