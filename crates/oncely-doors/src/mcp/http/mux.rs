//! Clients that connect, and servers that we start: one server for each session of the era that has sessions, and one for
//! all requests that describe themselves.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::body::Sink;
use super::headers;
use super::routes::{Audience, Routes};
use crate::command::child::PassedSignals;
use crate::mcp::call::ToolCall;
use crate::mcp::guard::Guard;
use crate::mcp::json::{self, Members};
use crate::mcp::link::Link;
use crate::mcp::message;
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
        audience: Audience,
    ) -> std::io::Result<Arc<Self>> {
        let mut server = Server::start(argv, guard)?;
        // The program may be another release by now, with other tools.
        guard.catalog.changed();
        let mut signals = PassedSignals::none();
        let closed =
            || std::io::Error::new(std::io::ErrorKind::BrokenPipe, "the server's streams are closed");
        let (to, from) = server.input.take().zip(server.output.take()).ok_or_else(closed)?;
        let routes = Arc::new(Routes::new(audience)?);
        let link = Arc::new(StdioLink::new(to));
        let session = Session::new(guard.clone(), link.clone(), routes.clone());
        let (over, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let ended = Arc::new(watch::Sender::new(false));
        let mux = Self { session, link, routes, over, stop, ended, used: Mutex::new(Instant::now()) };
        let (session, link, routes) = (mux.session.clone(), mux.link.clone(), mux.routes.clone());
        let (over, stop, ended) = (mux.over.clone(), mux.stop.clone(), mux.ended.clone());
        tokio::spawn(async move {
            let ids = &session.guard.ids;
            tokio::select! {
                // No client holds up what is for the others, or for the ledger: long messages are not passed on in pieces.
                () = pump_server(from, (ids, &link), &session, None, limit) => {}
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
            // Calls that are guarded get their own answers, which say more.
            session.is_idle_within(LAST_WORDS).await;
            routes.end();
            ended.send_replace(true);
        });
        Ok(Arc::new(mux))
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// How long nobody has asked for anything, and nothing was at work: not even a write whose client has gone.
    pub(super) fn idle_for(&self) -> Duration {
        if self.routes.is_busy() || self.session.is_busy() {
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

    /// Why the headers of a call do not say the same as its message, which the server's own list decides for some of them. One
    /// that cannot be read is answered by whoever takes it.
    pub(super) async fn contradiction(
        &self,
        headers: &HeaderMap,
        request: &message::Request<'_>,
    ) -> Option<String> {
        if request.method != "tools/call" {
            return None;
        }
        let call = ToolCall::read(request).ok()?;
        let described = call.self_description()?;
        let catalog = &self.session.guard.catalog;
        if catalog.find(&call.name).is_err() {
            self.session.learn(Some(&described)).await;
        }
        headers::contradiction(headers, &call, catalog.last_known(&call.name).as_deref())
    }

    /// Takes a message that wants no answer.
    pub(super) async fn tell(&self, line: &Bytes) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let line = self.routes.renamed_cancel(line).unwrap_or_else(|| line.clone());
        self.pass(&line, None).await;
    }

    /// Takes a request of a principal; what belongs to it comes out of the sink, the answer last.
    pub(super) async fn ask(
        self: &Arc<Self>,
        request: &message::Request<'_>,
        principal: Option<&str>,
        sink: Sink,
        when_gone: WhenGone,
    ) -> Ticket {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let (number, line) = self.routes.board(request, sink);
        let ticket = Ticket { mux: self.clone(), number, when_gone };
        self.pass(&line.into(), principal).await;
        ticket
    }

    async fn pass(&self, line: &Bytes, principal: Option<&str>) {
        if self.session.on_client(line, principal).await == Next::Pass {
            let mut line = line.to_vec();
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            self.link.pass(line.into()).await;
        }
    }
}

/// How long the last answers may take to be recorded once the server has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long a server whose input has ended may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

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
            runtime.spawn(async move { mux.pass(&message::line(line).into(), None).await });
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
