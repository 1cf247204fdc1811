//! Clients that connect, and servers that we start: one server for each session of the era that has sessions, and one for
//! all requests that describe themselves.
//!
//! Clients choose their ids and progress tokens without knowing of each other, so each request gets names of ours on the
//! way in. What comes back under such a name is for that request, and gets the client's own names again on the way out.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use memchr::memmem;
use oncely_core::name::hex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::body::Sink;
use crate::command::child::PassedSignals;
use crate::mcp::guard::Guard;
use crate::mcp::json::{self, Members};
use crate::mcp::link::{Boxed, Client, Link};
use crate::mcp::message::{self, Message, Response};
use crate::mcp::serve::Server;
use crate::mcp::session::{Next, Session};
use crate::mcp::stdio::{StdioLink, pump_server};

/// A server that we started, and the requests that are on their way to it.
pub(super) struct Mux {
    session: Arc<Session>,
    link: Arc<StdioLink>,
    routes: Arc<Routes>,
    /// Whether the server has ended.
    over: Arc<AtomicBool>,
    stop: Arc<Notify>,
    /// Whether its process is gone, too.
    ended: Arc<watch::Sender<bool>>,
    used: Mutex<Instant>,
}

/// Where messages of a server go.
struct Routes {
    /// What names of ours start with.
    prefix: String,
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Route>>,
    /// A client that listens to what belongs to no request.
    listener: Mutex<Option<Sink>>,
}

/// A request that waits for its answer.
struct Route {
    /// The client's id and progress token, as they were written.
    id: String,
    token: Option<String>,
    sink: Sink,
}

/// Takes a request off the list when its client has its answer, or goes away.
pub(super) struct Ticket {
    mux: Arc<Mux>,
    number: u64,
    when_gone: WhenGone,
}

/// What it means that a client goes away before its answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenGone {
    /// Nothing: it may come back.
    Nothing,
    /// That it does not want the answer any more.
    Cancel,
}

impl Mux {
    /// Starts a server.
    pub(super) fn start(
        guard: &Arc<Guard>,
        argv: &[OsString],
        (limit, drain): (usize, Duration),
    ) -> std::io::Result<Arc<Self>> {
        let mut server = Server::start(argv, guard)?;
        let mut signals = PassedSignals::none();
        let closed =
            || std::io::Error::new(std::io::ErrorKind::BrokenPipe, "the server's streams are closed");
        let (to, from) = server.input.take().zip(server.output.take()).ok_or_else(closed)?;
        let routes = Arc::new(Routes::new()?);
        let link = Arc::new(StdioLink::new(to));
        let session = Session::new(guard.clone(), link.clone(), routes.clone(), None);
        let (over, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let ended = Arc::new(watch::Sender::new(false));
        let mux = Self { session, link, routes, over, stop, ended, used: Mutex::new(Instant::now()) };
        let (session, link, routes) = (mux.session.clone(), mux.link.clone(), mux.routes.clone());
        let (over, stop, ended) = (mux.over.clone(), mux.stop.clone(), mux.ended.clone());
        tokio::spawn(async move {
            let ids = &session.guard.ids;
            tokio::select! {
                () = pump_server(from, ids, &link, &session, limit) => {}
                () = async {
                    stop.notified().await;
                    session.is_idle_within(drain).await;
                } => {}
            }
            over.store(true, Ordering::Release);
            link.close().await;
            // It is ended in any case; how it ended is nothing to the clients.
            let _ = server.end(&mut signals, STOP_PATIENCE).await;
            link.end("the server ended before it answered");
            routes.end();
            ended.send_replace(true);
        });
        Ok(Arc::new(mux))
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// How long nobody has asked for anything.
    pub(super) fn idle_for(&self) -> Duration {
        if self.routes.is_busy() {
            return Duration::ZERO;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Ends the server, once what is running has ended.
    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until the server has ended, at most for `timeout`.
    pub(super) async fn is_ended_within(&self, timeout: Duration) -> bool {
        let mut ended = self.ended.subscribe();
        tokio::time::timeout(timeout, ended.wait_for(|ended| *ended)).await.is_ok()
    }

    /// Waits until nothing is at work for any client.
    pub(super) async fn is_idle_within(&self, timeout: Duration) -> bool {
        self.session.is_idle_within(timeout).await
    }

    /// Sends what belongs to no request of the client to this sink from now on.
    pub(super) fn listen(&self, sink: Sink) {
        *self.routes.listener() = Some(sink);
    }

    /// Takes a message that wants no answer.
    pub(super) async fn tell(&self, line: &Bytes) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let line = self.routes.renamed_cancel(line).unwrap_or_else(|| line.clone());
        self.pass(&line).await;
    }

    /// Takes a request; what belongs to it comes out of the sink, the answer last.
    pub(super) async fn ask(
        self: &Arc<Self>,
        request: &message::Request<'_>,
        sink: Sink,
        when_gone: WhenGone,
    ) -> Ticket {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let (number, line) = self.routes.board(request, sink);
        let ticket = Ticket { mux: self.clone(), number, when_gone };
        self.pass(&line.into()).await;
        ticket
    }

    async fn pass(&self, line: &Bytes) {
        if self.session.on_client(line).await == Next::Pass {
            let mut line = line.to_vec();
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            self.link.pass(line.into()).await;
        }
    }
}

/// How long a server whose input has ended may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

impl Routes {
    fn new() -> std::io::Result<Self> {
        let mut random = [0u8; 12];
        getrandom::fill(&mut random).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Self {
            prefix: format!("client-{}-", hex(&random)),
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            listener: Mutex::default(),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Route>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> MutexGuard<'_, Option<Sink>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_busy(&self) -> bool {
        !self.waiting().is_empty() || self.listener().as_ref().is_some_and(Sink::is_open)
    }

    fn id_of(&self, number: u64) -> String {
        format!("{}{number}i", self.prefix)
    }

    fn token_of(&self, number: u64) -> String {
        format!("{}{number}p", self.prefix)
    }

    /// Notes a request, and gives it names of ours.
    fn board(&self, request: &message::Request<'_>, sink: Sink) -> (u64, Vec<u8>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut members = request.members.clone();
        members.set("id", json::raw(&self.id_of(number)));
        let params = request.members.object("params").unwrap_or_default();
        let mut meta = params.object("_meta").unwrap_or_default();
        let token = meta.get("progressToken").filter(|raw| *raw != "null").map(str::to_owned);
        if token.is_some() {
            meta.set("progressToken", json::raw(&self.token_of(number)));
            let mut params = params.clone();
            params.set("_meta", meta.raw());
            members.set("params", params.raw());
        }
        self.waiting().insert(number, Route { id: request.id.clone(), token, sink });
        (number, message::line(members.render()))
    }

    /// A cancellation of the client, with the name of ours for what it is about.
    fn renamed_cancel(&self, line: &[u8]) -> Option<Bytes> {
        let Ok(Message::Notification { method, members }) = message::read(line) else { return None };
        let params = members.object("params").filter(|_| method == "notifications/cancelled")?;
        let id = params.get("requestId")?;
        let number = self.waiting().iter().find(|(_, route)| route.id == id).map(|(number, _)| *number)?;
        let mut params = params.clone();
        params.set("requestId", json::raw(&self.id_of(number)));
        let params = params.raw();
        let mut message = members.clone();
        message.set("params", params);
        Some(message::line(message.render()).into())
    }

    /// Hands one message of the server to whom it is for.
    fn route(&self, line: Bytes) {
        let Some(number) = self.number_in(&line) else { return self.to_nobody(line) };
        let is_answer = std::str::from_utf8(&line).ok().and_then(Response::read).is_some_and(|response| {
            response.members.text("id").as_deref() == Some(self.id_of(number).as_str())
        });
        let mut waiting = self.waiting();
        let Some(route) = waiting.get(&number) else { return };
        let line = self.with_own_names(&line, number, route);
        if is_answer {
            if let Some(route) = waiting.remove(&number) {
                route.sink.put(line);
            }
        } else {
            route.sink.put(line);
        }
    }

    fn number_in(&self, line: &[u8]) -> Option<u64> {
        let at = memmem::find(line, self.prefix.as_bytes())? + self.prefix.len();
        let digits = line[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        std::str::from_utf8(&line[at..at + digits]).ok()?.parse().ok()
    }

    fn with_own_names(&self, line: &[u8], number: u64, route: &Route) -> Bytes {
        let mut text = replace(line, json::quote(&self.id_of(number)).as_bytes(), route.id.as_bytes());
        if let Some(token) = &route.token {
            text = replace(&text, json::quote(&self.token_of(number)).as_bytes(), token.as_bytes());
        }
        text.into()
    }

    /// A message that belongs to no request: to whoever listens, else to the latest request.
    fn to_nobody(&self, line: Bytes) {
        let listener = self.listener();
        if let Some(sink) = listener.as_ref().filter(|sink| sink.is_open()) {
            return sink.put(line);
        }
        if let Some((_, route)) = self.waiting().last_key_value() {
            route.sink.put(line);
        }
    }

    /// Whoever waits still is told that no answer will come.
    fn end(&self) {
        for (_, route) in std::mem::take(&mut *self.waiting()) {
            route.sink.put(message::error(&route.id, -32603, "the server ended before it answered").into());
        }
        *self.listener() = None;
    }
}

impl Client for Routes {
    fn send(&self, lines: Bytes) -> Boxed<'_, ()> {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.route(lines.slice_ref(line));
        }
        Box::pin(std::future::ready(()))
    }
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memmem::find(rest, from) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let gone = self.mux.routes.waiting().remove(&self.number);
        let (Some(_), WhenGone::Cancel) = (gone, self.when_gone) else { return };
        let id = json::quote(&self.mux.routes.id_of(self.number));
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"the client went away"}}}}"#
        );
        let mux = self.mux.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { mux.pass(&message::line(line).into()).await });
        }
    }
}

/// Servers by session.
pub(super) type Sessions = HashMap<String, Arc<Mux>>;

/// Whether a request describes itself, and so needs no session.
pub(super) fn describes_itself(members: &Members<'_>) -> bool {
    let meta = members.object("params").and_then(|params| {
        let meta = params.object("_meta")?;
        Some(meta.has("io.modelcontextprotocol/protocolVersion"))
    });
    meta.unwrap_or(false)
}
