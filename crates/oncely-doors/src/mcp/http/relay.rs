//! From HTTP to HTTP: requests and replies pass as they are, but for `tools/list` and calls of tools that write.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use oncely_core::Kind;
use tokio::sync::oneshot;

use super::body::{self, AnyResponse, Refusal, Sink, Waiting, Watched};
use super::call_link::CallLink;
use super::exchange::SESSION;
use super::front::Backend;
use super::headers::{self, end_to_end};
use super::intake::Intake;
use super::rewritten;
use super::target::{NoReply, Target};
use super::tenant::Tenant;
use super::views::{View, Views};
use crate::mcp::busy::Busy;
use crate::mcp::call::ToolCall;
use crate::mcp::flight::Flight;
use crate::mcp::guard::{Caller, Guard};
use crate::mcp::ids;
use crate::mcp::json::{self, Members};
use crate::mcp::link::{Boxed, Client, Link};
use crate::mcp::listing::{self, Asked};
use crate::mcp::message::{self, BATCH_OF_CALLS, Batch, INVALID_REQUEST, Message, Response as Answer};
use crate::mcp::reply::Era;

/// Passes requests on to a server at an address.
pub struct Relay {
    views: Views,
    intake: Intake,
    limit: usize,
    /// Calls under way, by session and id: where a cancellation finds them.
    flights: Mutex<HashMap<(Bytes, String), Arc<Flight>>>,
    /// How many guarded calls are under way.
    busy: Busy,
    /// Whether no guarded call is taken any more: a connection that is still open may bring another one.
    closed: AtomicBool,
}

/// A guarded call that is under way.
struct UnderWay(Arc<Relay>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.busy.end();
    }
}

impl Relay {
    /// Passes requests on to this server.
    pub fn new(guard: Arc<Guard>, target: Target, limit: usize, tenant: Tenant) -> Arc<Self> {
        let (busy, closed) = (Busy::default(), AtomicBool::new(false));
        let views = Views::new(guard, target, tenant);
        Arc::new(Self { views, intake: Intake::new(limit), limit, flights: Mutex::default(), busy, closed })
    }

    /// Takes no more guarded calls, and waits for those under way, at most for `drain`.
    pub async fn end(&self, drain: Duration) {
        self.closed.store(true, Ordering::SeqCst);
        let deadline = tokio::time::Instant::now() + drain;
        // What is still running then stays in doubt.
        self.busy.is_idle_within(drain).await;
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        self.views.plain.guard.engine().drain(left).await;
    }

    /// Counts a guarded call, unless this is about to end.
    fn take_on(self: &Arc<Self>) -> Option<UnderWay> {
        self.busy.begin();
        let under_way = UnderWay(self.clone());
        // Only now: whoever ends this looks at the count after it has closed it.
        (!self.closed.load(Ordering::SeqCst)).then_some(under_way)
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<(Bytes, String), Arc<Flight>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> AnyResponse {
        let (parts, body) = request.into_parts();
        if headers::is_not_utf8(&parts.headers) {
            return body::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, headers::NOT_UTF8);
        }
        let taken_in = match self.intake.read(body).await {
            Ok(taken_in) => taken_in,
            Err(refused) => return refused.response(),
        };
        let bytes = taken_in.bytes();
        if parts.uri.path() != self.views.plain.target.uri().path() {
            return aside(&self.views.plain, parts, bytes).await;
        }
        let view = match self.views.of(&parts) {
            Ok(view) => view,
            Err(refused) => return refused.response(),
        };
        match parts.method {
            Method::POST => {}
            // Ends and streams of sessions. A message in such a request would not be looked at.
            Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS if bytes.is_empty() => {
                return view.pass(parts, bytes).await;
            }
            _ => {
                return body::plain(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "messages are sent with POST; nothing ran",
                );
            }
        }
        let refuse = |answer: Vec<u8>| body::message(StatusCode::BAD_REQUEST, answer);
        match message::read(&bytes) {
            Err(bad) => refuse(bad.answer()),
            Ok(Message::Other) => {
                view.guard.client_answers();
                view.pass(parts, bytes).await
            }
            Ok(Message::Batch) => match message::look_into_batch(&bytes) {
                Batch::NeedsGuard => refuse(message::error("null", INVALID_REQUEST, BATCH_OF_CALLS)),
                batch => {
                    if batch == Batch::Answers {
                        view.guard.client_answers();
                    }
                    view.pass(parts, bytes).await
                }
            },
            Ok(Message::Notification { method, .. }) if method == "tools/call" => {
                body::plain(StatusCode::ACCEPTED, "")
            }
            Ok(Message::Notification { method, members }) if method == "notifications/cancelled" => {
                match self.cancel(&parts, &members) {
                    Cancel::Kept => body::plain(StatusCode::ACCEPTED, ""),
                    Cancel::Passed(message) => view.pass(parts, message).await,
                    Cancel::NotOurs => view.pass(parts, bytes.clone()).await,
                }
            }
            Ok(Message::Notification { .. }) => view.pass(parts, bytes).await,
            Ok(Message::Request(request)) => match request.method.as_str() {
                "tools/list" => self.list(&view, parts, bytes.clone(), Asked::of(&request)).await,
                "tools/call" => match ToolCall::read(&request) {
                    Ok(call) => self.call(&view, parts, &call, bytes.clone()).await,
                    Err(answer) => refuse(answer),
                },
                "initialize" => {
                    let reply = view.pass(parts, bytes.clone()).await;
                    // Whoever answered it may be another release of the server, with other tools.
                    view.guard.catalog.changed();
                    reply
                }
                _ => view.pass(parts, bytes.clone()).await,
            },
        }
    }

    /// Passes `tools/list` on, and its answer back in the form that it has.
    async fn list(&self, view: &View, parts: Parts, bytes: Bytes, asked: Asked) -> AnyResponse {
        let edition = view.guard.catalog.edition();
        let response = match view.target.send(Method::POST, end_to_end(&parts.headers), bytes).await {
            Ok(response) if response.status() == StatusCode::OK => response,
            other => return view.replied(other),
        };
        let guard = view.guard.clone();
        let rewrite = move |line: &[u8]| {
            listing::notice(&guard, line);
            let text = std::str::from_utf8(line).ok()?;
            let response = Answer::read(text)
                .filter(|response| response.members.get("id").is_some_and(|its| ids::same(its, &asked.id)))?;
            Some(listing::rewritten(&guard, &response, &asked, edition))
        };
        rewritten::reply(response, self.limit, rewrite).await
    }

    async fn call(
        self: &Arc<Self>,
        view: &Arc<View>,
        parts: Parts,
        call: &ToolCall<'_>,
        bytes: Bytes,
    ) -> AnyResponse {
        let guard = &view.guard;
        let (sink, from) = Sink::new();
        let client: Arc<dyn Client> = Arc::new(sink);
        if guard.kind(&call.name).is_err() {
            let link = CallLink::for_ourselves(view, self.limit, &parts.headers, client.clone());
            let asking: Arc<dyn Link> = Arc::new(link);
            listing::learn(guard, &asking, call.self_description().as_deref()).await;
        }
        if guard.kind_as_known(&call.name).0 == Kind::Read {
            return view.pass(parts, bytes).await;
        }
        let tool = guard.catalog.find(&call.name).ok().flatten();
        if let Some(why) = headers::contradiction(&parts.headers, call, tool.as_deref()) {
            let answer = message::error(&call.id, headers::MISMATCH, &format!("{why}; nothing ran"));
            return body::message(StatusCode::BAD_REQUEST, answer);
        }
        let Some(under_way) = self.take_on() else { return Refusal::about_to_end().response() };
        let link = Arc::new(CallLink::new(view, self.limit, &parts.headers, client.clone(), &call.id));
        let session = parts.headers.get(SESSION).map(|id| Bytes::copy_from_slice(id.as_bytes()));
        let place = session.map(|session| (session, ids::canonical(&call.id).into_owned()));
        let flight = Arc::new(Flight::default());
        if let Some(place) = &place {
            self.flights().insert(place.clone(), flight.clone());
        }
        let (relay, view, sending) = (self.clone(), view.clone(), link.clone());
        let era = if call.self_description().is_some() { Era::Modern } else { Era::Legacy };
        let work = async move {
            let _under_way = under_way;
            let sending: Arc<dyn Link> = sending;
            let caller = Caller { link: &sending, client: &client, principal: view.principal.as_deref() };
            let answer = match message::read(&bytes) {
                Ok(Message::Request(request)) => match ToolCall::read(&request) {
                    Ok(call) => view.guard.answer(&call, &caller, &flight).await,
                    Err(answer) => answer,
                },
                // It was read before.
                _ => Vec::new(),
            };
            if let Some(place) = place {
                let mut flights = relay.flights();
                // A client that uses an id again has another call there by now.
                if flights.get(&place).is_some_and(|there| Arc::ptr_eq(there, &flight)) {
                    flights.remove(&place);
                }
            }
            answer
        };
        respond(work, from, (link, era)).await
    }

    /// Whether a cancellation is about a call that we guard. A write that was sent is let finish, unless its policy says
    /// otherwise.
    fn cancel(&self, parts: &Parts, members: &Members<'_>) -> Cancel {
        let params = members.object("params").unwrap_or_default();
        let (Some(session), Some(id)) = (parts.headers.get(SESSION), params.get("requestId")) else {
            return Cancel::NotOurs;
        };
        let place = (Bytes::copy_from_slice(session.as_bytes()), ids::canonical(id).into_owned());
        let Some(flight) = self.flights().get(&place).cloned() else { return Cancel::NotOurs };
        match flight.cancel().filter(|_| flight.forwards_cancel()) {
            Some(own_id) => {
                let mut params = params.clone();
                params.set("requestId", json::raw(&own_id));
                let mut message = members.clone();
                let params = params.render();
                message.set("params", params);
                Cancel::Passed(message.render().into())
            }
            None => Cancel::Kept,
        }
    }
}

/// Another path: only what a client looks up about the server. Nothing there may be a way to the server's own path that
/// nobody guards.
async fn aside(view: &View, parts: Parts, bytes: Bytes) -> AnyResponse {
    let looks_up = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method) && bytes.is_empty();
    let path = parts.uri.path_and_query().cloned();
    match path.filter(|path| looks_up && is_plain_lookup(path.path())) {
        Some(path) => {
            let sent = view.target.send_to(parts.method, path, end_to_end(&parts.headers), bytes).await;
            view.replied(sent)
        }
        None => body::plain(StatusCode::NOT_FOUND, "there is nothing at this path"),
    }
}

impl View {
    async fn pass(&self, parts: Parts, bytes: Bytes) -> AnyResponse {
        let sent = self.target.send(parts.method, end_to_end(&parts.headers), bytes).await;
        self.replied(sent)
    }

    fn replied(&self, sent: Result<Response<Incoming>, NoReply>) -> AnyResponse {
        match sent {
            Ok(response) => {
                let (mut parts, incoming) = response.into_parts();
                let length = parts.headers.get(CONTENT_LENGTH).cloned();
                parts.headers = end_to_end(&parts.headers);
                if let Some(length) = length {
                    parts.headers.insert(CONTENT_LENGTH, length);
                }
                Response::from_parts(parts, Watched::body(incoming, &self.guard))
            }
            Err(no_reply) => body::plain(StatusCode::BAD_GATEWAY, &no_reply.to_string()),
        }
    }
}

/// What becomes of a cancellation.
enum Cancel {
    /// It is not about a call that we guard.
    NotOurs,
    /// It ends here.
    Kept,
    /// It is passed on like this.
    Passed(Bytes),
}

impl Backend for Relay {
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> Boxed<'static, AnyResponse> {
        Box::pin(self.handle(request))
    }
}

/// Whether a path leads to what is published about a server, and nowhere else however it is read.
fn is_plain_lookup(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let leads_away =
        ["..", "//", "\\", ";", "%2e", "%2f", "%5c", "%25"].iter().any(|odd| lower.contains(odd));
    path.starts_with("/.well-known/") && !leads_away
}

/// Answers with JSON, or with events if something comes before the answer. The work goes on if the client goes away.
async fn respond(
    work: impl Future<Output = Vec<u8>> + Send + 'static,
    mut from: Waiting,
    (link, era): (Arc<CallLink>, Era),
) -> AnyResponse {
    let (done, mut answer) = oneshot::channel::<Vec<u8>>();
    tokio::spawn(async move {
        // A client that went away has nobody to tell.
        let _ = done.send(work.await);
    });
    let first = tokio::select! {
        biased;
        line = from.recv() => line,
        answered = &mut answer => {
            let Ok(answered) = answered else {
                return body::plain(StatusCode::INTERNAL_SERVER_ERROR, "the call was given up");
            };
            let answered = match link.refusal(answered) {
                Ok(refusal) => return refusal,
                Err(answered) => answered,
            };
            if !link.got_events() {
                return body::message(body::status_of(era, &answered), answered);
            }
            let (sink, events) = Sink::new();
            sink.put_last(answered.into());
            return body::events(events, ());
        }
    };
    let (sink, events) = Waiting::next_in_line();
    tokio::spawn(async move {
        let mut next = first;
        loop {
            if let Some(line) = next.take()
                && sink.send(line).await.is_err()
            {
                return;
            }
            tokio::select! {
                biased;
                line = from.recv() => match line {
                    Some(line) => next = Some(line),
                    None => break,
                },
                answered = &mut answer => {
                    while let Some(line) = from.try_recv() {
                        let _ = sink.send(line).await;
                    }
                    let _ = sink.send(answered.unwrap_or_default().into()).await;
                    return;
                }
            }
        }
        let _ = sink.send(answer.await.unwrap_or_default().into()).await;
    });
    body::events(events, ())
}
