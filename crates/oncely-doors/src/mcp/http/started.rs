//! From HTTP to servers that we start: sessions, streams, and what a client has to say to get them.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use oncely_core::name::hex;

use super::body::{self, AnyResponse, Refusal, Sink, Waiting};
use super::exchange::SESSION;
use super::front::Backend;
use super::headers;
use super::intake::Intake;
use super::mux::{Mux, Sessions, Ticket, WhenGone, describes_itself};
use super::routes::Audience;
use super::tenant::Tenant;
use crate::mcp::guard::Guard;
use crate::mcp::link::Boxed;
use crate::mcp::message::{self, INVALID_REQUEST, Message, Response};
use crate::mcp::reply::Era;

/// Most sessions at once: each has a server of its own.
pub const SESSIONS_MAX: usize = 100;
/// A session that nobody has used for this long is ended when another begins.
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);
/// Where clients find the server.
const PATHS: [&str; 2] = ["/mcp", "/"];

/// Servers that are started for clients that connect.
pub struct Started {
    guard: Arc<Guard>,
    argv: Vec<OsString>,
    bounds: (usize, Duration),
    intake: Intake,
    /// What tells callers apart.
    tenant: Tenant,
    sessions: Mutex<Sessions>,
    /// The server for requests that describe themselves.
    shared: Mutex<Option<Arc<Mux>>>,
    /// Whether no server may be started any more: a connection that is still open may bring another request.
    closed: AtomicBool,
}

impl Started {
    /// Starts servers with this command line.
    pub fn new(
        guard: Arc<Guard>,
        argv: Vec<OsString>,
        bounds: (usize, Duration),
        tenant: Tenant,
    ) -> Arc<Self> {
        let (sessions, shared, closed) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        let intake = Intake::new(bounds.0);
        Arc::new(Self { guard, argv, bounds, intake, tenant, sessions, shared, closed })
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for what is running, then ends all servers.
    pub async fn end(&self) {
        // Before the locks are taken: who starts a server holds one of them, and looks at this under it.
        self.closed.store(true, Ordering::Release);
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner).take();
        let all: Vec<Arc<Mux>> = std::mem::take(&mut *self.sessions()).into_values().chain(shared).collect();
        let deadline = tokio::time::Instant::now() + self.bounds.1;
        for mux in &all {
            mux.stop();
        }
        for mux in &all {
            mux.is_idle_within(deadline.saturating_duration_since(tokio::time::Instant::now())).await;
            mux.is_ended_within(END_PATIENCE).await;
        }
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> AnyResponse {
        let (parts, body) = request.into_parts();
        if headers::is_not_utf8(&parts.headers) {
            return body::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, headers::NOT_UTF8);
        }
        if !PATHS.contains(&parts.uri.path()) {
            return body::plain(StatusCode::NOT_FOUND, "there is nothing at this path; use /mcp");
        }
        let principal = match self.tenant.principal(&parts) {
            Ok(principal) => principal,
            Err(refused) => return refused.response(),
        };
        match parts.method {
            Method::POST => match self.intake.read(body).await {
                Ok(taken_in) => self.post(&parts, principal.as_deref(), taken_in.bytes()).await,
                Err(refused) => refused.response(),
            },
            Method::GET => self.listen(&parts),
            Method::DELETE => self.delete(&parts),
            _ => body::plain(StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or DELETE"),
        }
    }

    async fn post(&self, parts: &Parts, principal: Option<&str>, bytes: Bytes) -> AnyResponse {
        let refuse = |answer: Vec<u8>| body::message(StatusCode::BAD_REQUEST, answer);
        // For the server every line is a message.
        let bytes = message::flat(&bytes);
        let read = match message::read(&bytes) {
            Ok(read) => read,
            Err(bad) => return refuse(bad.answer()),
        };
        match read {
            Message::Batch => {
                refuse(message::error("null", INVALID_REQUEST, "one message per request; nothing ran"))
            }
            Message::Request(request) => {
                let era = if describes_itself(&request.members) { Era::Modern } else { Era::Legacy };
                let mismatch = |why: String| {
                    refuse(message::error(&request.id, headers::MISMATCH, &format!("{why}; nothing ran")))
                };
                if let Some(why) = headers::mismatch(&parts.headers, &request, era) {
                    return mismatch(why);
                }
                if request.method == "initialize" && !parts.headers.contains_key(SESSION) {
                    return self.initialize(&request, principal).await;
                }
                let (mux, when_gone) = match (era, self.session(parts)) {
                    (_, Ok(mux)) => (mux, WhenGone::Nothing),
                    (Era::Modern, Err(_)) => match self.shared() {
                        Ok(mux) => (mux, WhenGone::Cancel),
                        Err(failed) => return failed.response(),
                    },
                    (Era::Legacy, Err(refused)) => return refused.response(),
                };
                if let Some(why) = mux.contradiction(&parts.headers, &request).await {
                    return mismatch(why);
                }
                let (sink, from) = Sink::new();
                let ticket = mux.ask(&request, principal, sink, when_gone).await;
                respond(from, ticket, era).await
            }
            Message::Notification { .. } | Message::Other => match self.session(parts) {
                Ok(mux) => {
                    mux.tell(&bytes).await;
                    body::plain(StatusCode::ACCEPTED, "")
                }
                Err(refused) => refused.response(),
            },
        }
    }

    async fn initialize(&self, request: &message::Request<'_>, principal: Option<&str>) -> AnyResponse {
        let id = match self.begin() {
            Ok(id) => id,
            Err(failed) => return failed.response(),
        };
        let Some(mux) = self.sessions().get(&id).cloned() else {
            return body::plain(StatusCode::SERVICE_UNAVAILABLE, "the session has ended already");
        };
        let (sink, from) = Sink::new();
        let ticket = mux.ask(request, principal, sink, WhenGone::Nothing).await;
        let mut response = respond(from, ticket, Era::Legacy).await;
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(SESSION, id);
        }
        response
    }

    /// Begins a session with a server of its own.
    fn begin(&self) -> Result<String, Refusal> {
        let mut random = [0u8; 16];
        getrandom::fill(&mut random)
            .map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers"))?;
        let mut sessions = self.sessions();
        sessions.retain(|_, mux| {
            let keep = !mux.is_over() && mux.idle_for() < SESSION_IDLE;
            if !keep {
                mux.stop();
            }
            keep
        });
        if sessions.len() >= SESSIONS_MAX {
            let why = format!("{SESSIONS_MAX} sessions are open, the limit; nothing ran, try again later");
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, &why));
        }
        let mux = self.start(Audience::One)?;
        let id = hex(&random);
        sessions.insert(id.clone(), mux);
        Ok(id)
    }

    fn start(&self, audience: Audience) -> Result<Arc<Mux>, Refusal> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Refusal::about_to_end());
        }
        Mux::start(&self.guard, &self.argv, self.bounds, audience).map_err(|error| {
            let why = format!("the server could not be started: {error}; nothing ran");
            Refusal::new(StatusCode::BAD_GATEWAY, &why)
        })
    }

    /// The server for requests that describe themselves.
    fn shared(&self) -> Result<Arc<Mux>, Refusal> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mux) = shared.as_ref().filter(|mux| !mux.is_over()) {
            return Ok(mux.clone());
        }
        let mux = self.start(Audience::Many)?;
        *shared = Some(mux.clone());
        Ok(mux)
    }

    fn session(&self, parts: &Parts) -> Result<Arc<Mux>, Refusal> {
        let Some(id) = parts.headers.get(SESSION).and_then(|id| id.to_str().ok()) else {
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "the header Mcp-Session-Id is needed; nothing ran",
            ));
        };
        let there = self.sessions().get(id).filter(|mux| !mux.is_over()).cloned();
        there.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "there is no such session; nothing ran"))
    }

    fn listen(&self, parts: &Parts) -> AnyResponse {
        if !parts.headers.contains_key(SESSION) {
            return body::plain(StatusCode::METHOD_NOT_ALLOWED, "there is no stream without a session");
        }
        match self.session(parts) {
            Ok(mux) => {
                let (sink, from) = Sink::new();
                mux.listen(sink);
                body::events(from, ())
            }
            Err(refused) => refused.response(),
        }
    }

    fn delete(&self, parts: &Parts) -> AnyResponse {
        if let Err(refused) = self.session(parts) {
            return refused.response();
        }
        let id = parts.headers.get(SESSION).and_then(|id| id.to_str().ok()).unwrap_or_default();
        if let Some(mux) = self.sessions().remove(id) {
            mux.stop();
        }
        body::plain(StatusCode::NO_CONTENT, "")
    }
}

/// How long servers may take to end.
const END_PATIENCE: Duration = Duration::from_secs(12);

/// Answers with JSON if the answer comes first, else with events.
async fn respond(mut from: Waiting, ticket: Ticket, era: Era) -> AnyResponse {
    let Some(first) = from.recv().await else {
        return body::plain(StatusCode::BAD_GATEWAY, "the server gave no answer");
    };
    let is_answer = std::str::from_utf8(&first).ok().and_then(Response::read).is_some();
    if is_answer {
        return body::message(body::status_of(era, &first), first);
    }
    let (sink, events) = Waiting::next_in_line();
    tokio::spawn(async move {
        let mut next = Some(first);
        // Over with the answer, when the route lets go of its end, or when the client goes away.
        while let Some(line) = next {
            if sink.send(line).await.is_err() {
                return;
            }
            next = tokio::select! {
                line = from.recv() => line,
                () = sink.closed() => return,
            };
        }
    });
    body::events(events, ticket)
}

impl Backend for Started {
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> Boxed<'static, AnyResponse> {
        Box::pin(self.handle(request))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use oncely::Oncely;
    use oncely::policy_file::PolicyFile;
    use oncely_core::{Namespace, Scope};

    use super::{END_PATIENCE, SESSION_IDLE, Started};
    use crate::mcp::guard::{Guard, Settings};
    use crate::mcp::http::body::Sink;
    use crate::mcp::http::mux::WhenGone;
    use crate::mcp::http::tenant::Tenant;
    use crate::mcp::message::{self, Message};
    use crate::mcp::probe::Place;

    /// Clients that connect to servers which say nothing and end with their input.
    async fn silent() -> Arc<Started> {
        let settings = Settings {
            engine: Oncely::new(oncely_store::open("memory:").await.unwrap()),
            namespace: Namespace::default(),
            scope: Scope::default(),
            policy: PolicyFile::empty(),
            server: "silent".into(),
            place: Place::Here,
            launcher: Vec::new(),
            watcher: Vec::new(),
        };
        let guard = Arc::new(Guard::new(settings).unwrap());
        Started::new(guard, vec!["cat".into()], (1024, Duration::ZERO), Tenant::None)
    }

    #[tokio::test]
    async fn a_session_that_nobody_has_used_for_long_ends_when_another_begins() {
        let started = silent().await;
        let [idle, used] = [(); 2].map(|()| started.begin().unwrap());
        let there = |id: &str| started.sessions().get(id).cloned();
        let ending = there(&idle).unwrap();
        tokio::time::pause();
        tokio::time::advance(SESSION_IDLE / 2).await;
        there(&used).unwrap().tell(&"{}".into()).await;
        tokio::time::advance(SESSION_IDLE / 2 + Duration::from_secs(1)).await;
        // From here on processes take their time.
        tokio::time::resume();
        assert!(there(&idle).is_some(), "nobody needs the room");
        started.begin().unwrap();
        assert!(there(&idle).is_none() && there(&used).is_some());
        assert!(ending.is_ended_within(END_PATIENCE).await, "its server ends, too");
        started.end().await;
    }

    #[tokio::test]
    async fn a_session_with_a_write_at_work_is_in_use_even_if_its_client_has_gone() {
        let started = silent().await;
        let id = started.begin().unwrap();
        let mux = started.sessions().get(&id).cloned().unwrap();
        let call = br#"{"id":1,"method":"tools/call","params":{"name":"pay","arguments":{}}}"#;
        let Ok(Message::Request(call)) = message::read(call) else { panic!() };
        let (sink, _) = Sink::new();
        drop(mux.ask(&call, None, sink, WhenGone::Nothing).await);
        tokio::time::pause();
        tokio::time::advance(SESSION_IDLE * 2).await;
        assert_eq!(mux.idle_for(), Duration::ZERO);
        tokio::time::resume();
        started.end().await;
    }
}
