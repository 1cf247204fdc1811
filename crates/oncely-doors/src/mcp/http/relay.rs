//! From HTTP to HTTP: requests and replies pass as they are, but for `tools/list` and calls of tools that write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HOST, HeaderName};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use oncely_core::Kind;
use tokio::sync::{mpsc, oneshot};

use super::body::{self, AnyResponse, Sink, Watched};
use super::exchange::{Ended, Exchange, METHOD, NAME, SESSION, refuses_unseen};
use super::front::{Backend, principal, read_body};
use super::target::{NoReply, Target};
use crate::mcp::call::ToolCall;
use crate::mcp::flight::Flight;
use crate::mcp::guard::{Caller, Guard};
use crate::mcp::json::{self, Members};
use crate::mcp::link::{Boxed, Client, Link, Reply};
use crate::mcp::message::{self, INVALID_REQUEST, Message, Request as Rpc, Response as Answer};
use crate::mcp::{listing, message as rpc};

/// What concerns one connection only.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Passes requests on to a server at an address.
pub struct Relay {
    guard: Arc<Guard>,
    target: Target,
    limit: usize,
    /// Calls under way, by session and id: where a cancellation finds them.
    flights: Mutex<HashMap<(Bytes, String), Arc<Flight>>>,
}

impl Relay {
    /// Passes requests on to this server.
    pub fn new(guard: Arc<Guard>, target: Target, limit: usize) -> Arc<Self> {
        Arc::new(Self { guard, target, limit, flights: Mutex::default() })
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<(Bytes, String), Arc<Flight>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> AnyResponse {
        let (parts, body) = request.into_parts();
        let bytes = match read_body(body, self.limit).await {
            Ok(bytes) => bytes,
            Err(refused) => return refused,
        };
        if parts.uri.path() != self.target.uri().path() {
            return self.aside(parts, bytes).await;
        }
        if parts.method != Method::POST {
            return self.pass(parts, bytes).await;
        }
        let refuse = |answer: Vec<u8>| body::message(StatusCode::BAD_REQUEST, answer);
        match rpc::read(&bytes) {
            Err(bad) => refuse(bad.answer()),
            Ok(Message::Other) => self.pass(parts, bytes).await,
            Ok(Message::Batch) if !message::batch_needs_guard(&bytes) => self.pass(parts, bytes).await,
            Ok(Message::Batch) => {
                let why = "a batch with calls of tools is not taken; send them one by one; nothing ran";
                refuse(message::error("null", INVALID_REQUEST, why))
            }
            Ok(Message::Notification { method, .. }) if method == "tools/call" => {
                body::plain(StatusCode::ACCEPTED, "")
            }
            Ok(Message::Notification { method, members }) if method == "notifications/cancelled" => {
                match self.cancel(&parts, &members) {
                    true => body::plain(StatusCode::ACCEPTED, ""),
                    false => self.pass(parts, bytes.clone()).await,
                }
            }
            Ok(Message::Notification { .. }) => self.pass(parts, bytes).await,
            Ok(Message::Request(request)) => match request.method.as_str() {
                "tools/list" => self.list(parts, &request).await,
                "tools/call" => match ToolCall::read(&request) {
                    Ok(call) => self.call(parts, &call, bytes.clone()).await,
                    Err(answer) => refuse(answer),
                },
                _ => self.pass(parts, bytes.clone()).await,
            },
        }
    }

    /// Another path: only what a client looks up about the server, without the headers that are meant for it.
    async fn aside(&self, parts: Parts, bytes: Bytes) -> AnyResponse {
        let path = parts.uri.path_and_query().cloned();
        match path.filter(|path| path.path().starts_with("/.well-known/")) {
            Some(path) => {
                let sent = self.target.send_to(parts.method, path, end_to_end(&parts.headers), bytes).await;
                self.replied(sent)
            }
            None => body::plain(StatusCode::NOT_FOUND, "there is nothing at this path"),
        }
    }

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
            Err(NoReply::NotSent(why) | NoReply::Lost(why)) => body::plain(StatusCode::BAD_GATEWAY, &why),
        }
    }

    async fn list(self: &Arc<Self>, parts: Parts, request: &Rpc<'_>) -> AnyResponse {
        let edition = self.guard.catalog.edition();
        let (sink, from) = Sink::new();
        let link = Arc::new(CallLink::new(self, &parts.headers, Arc::new(sink)));
        let (id, line) = (request.id.clone(), request.members.render());
        let (relay, asking) = (self.clone(), link.clone());
        let work = async move {
            match asking.ask(&id, line.into()).await {
                Reply::Answered(answer) => {
                    let text = String::from_utf8_lossy(&answer);
                    match Answer::read(&text) {
                        Some(response) => listing::rewritten(&relay.guard, &response, &id, edition),
                        None => answer.to_vec(),
                    }
                }
                Reply::Lost(why) | Reply::NotSent(why) => message::error(&id, -32603, &why),
            }
        };
        respond(work, from, link).await
    }

    async fn call(self: &Arc<Self>, parts: Parts, call: &ToolCall<'_>, bytes: Bytes) -> AnyResponse {
        let (sink, from) = Sink::new();
        let client: Arc<dyn Client> = Arc::new(sink);
        let link = Arc::new(CallLink::new(self, &parts.headers, client.clone()));
        if self.guard.kind(&call.name).is_err() {
            let asking: Arc<dyn Link> = link.clone();
            listing::learn(&self.guard, &asking, call.self_description().as_deref()).await;
            // How the server took our own question is nothing to the client.
            link.refusal();
        }
        if self.guard.kind_as_known(&call.name).0 == Kind::Read {
            return self.pass(parts, bytes).await;
        }
        let session = parts.headers.get(SESSION).map(|id| Bytes::copy_from_slice(id.as_bytes()));
        let place = session.map(|session| (session, call.id.clone()));
        let flight = Arc::new(Flight::default());
        if let Some(place) = &place {
            self.flights().insert(place.clone(), flight.clone());
        }
        let principal = principal(&parts.headers);
        let (relay, sending) = (self.clone(), link.clone());
        let work = async move {
            let sending: Arc<dyn Link> = sending;
            let caller = Caller { link: &sending, client: &client, principal: principal.as_deref() };
            let answer = match rpc::read(&bytes) {
                Ok(Message::Request(request)) => match ToolCall::read(&request) {
                    Ok(call) => relay.guard.answer(&call, &caller, &flight).await,
                    Err(answer) => answer,
                },
                // It was read before.
                _ => Vec::new(),
            };
            if let Some(place) = place {
                relay.flights().remove(&place);
            }
            answer
        };
        respond(work, from, link).await
    }

    /// Whether a cancellation is about a call that we guard. A write that was sent is let finish.
    fn cancel(&self, parts: &Parts, members: &Members<'_>) -> bool {
        let params = members.object("params").unwrap_or_default();
        let (Some(session), Some(id)) = (parts.headers.get(SESSION), params.get("requestId")) else {
            return false;
        };
        let place = (Bytes::copy_from_slice(session.as_bytes()), id.to_owned());
        match self.flights().get(&place) {
            Some(flight) => {
                flight.cancel();
                true
            }
            None => false,
        }
    }
}

impl Backend for Relay {
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> Boxed<'static, AnyResponse> {
        Box::pin(self.handle(request))
    }
}

/// Answers with JSON, or with events if something comes before the answer. The work goes on if the client goes away.
async fn respond(
    work: impl Future<Output = Vec<u8>> + Send + 'static,
    mut from: mpsc::Receiver<Bytes>,
    link: Arc<CallLink>,
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
            if let Some(refusal) = link.refusal() {
                return refusal;
            }
            return body::message(StatusCode::OK, answered);
        }
    };
    let (sink, events) = mpsc::channel(16);
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
                    while let Ok(line) = from.try_recv() {
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

/// The headers that concern the two ends.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(hyper::header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    let concerns_the_ends = |name: &HeaderName| {
        let name = name.as_str();
        !HOP_BY_HOP.contains(&name)
            && name != HOST
            && name != CONTENT_LENGTH
            && !named.iter().any(|n| n == name)
    };
    headers.iter().filter(|(name, _)| concerns_the_ends(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
}

/// The link to the server for one request of a client: everything is said as the client says it.
struct CallLink {
    relay: Arc<Relay>,
    headers: HeaderMap,
    client: Arc<dyn Client>,
    /// How the server refused a call before it looked at it: the client is told in the same way.
    refusal: Mutex<Option<Response<Bytes>>>,
}

impl CallLink {
    fn new(relay: &Arc<Relay>, headers: &HeaderMap, client: Arc<dyn Client>) -> Self {
        let mut headers = end_to_end(headers);
        // We have to read the reply.
        headers.remove(ACCEPT_ENCODING);
        Self { relay: relay.clone(), headers, client, refusal: Mutex::default() }
    }

    fn refusal(&self) -> Option<AnyResponse> {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(refusal.map(body::whole))
    }

    /// The headers for a message of our own, which is not about what the client's request is about.
    fn headers_for(&self, line: &[u8]) -> HeaderMap {
        let members: Members<'_> = serde_json::from_slice(line).unwrap_or_default();
        let method = members.text("method").unwrap_or_default();
        let mut headers = self.headers.clone();
        if headers.get(METHOD).is_some_and(|said| said.as_bytes() != method.as_bytes()) {
            headers.remove(NAME);
            let about: Vec<HeaderName> =
                headers.keys().filter(|name| name.as_str().starts_with("mcp-param-")).cloned().collect();
            for name in about {
                headers.remove(name);
            }
            if let Ok(method) = method.parse() {
                headers.insert(METHOD, method);
            }
        }
        headers
    }

    /// Sends a request under this id, as it is written, and waits for the answer.
    async fn ask(&self, raw_id: &str, line: Bytes) -> Reply {
        let headers = self.headers_for(&line);
        let body = Bytes::copy_from_slice(crate::mcp::frames::content(&line));
        let response = match self.relay.target.send(Method::POST, headers.clone(), body).await {
            Ok(response) => response,
            Err(NoReply::NotSent(why)) => return Reply::NotSent(why),
            Err(NoReply::Lost(why)) => return Reply::Lost(why),
        };
        if !response.status().is_success() {
            return self.refused(response).await;
        }
        let exchange =
            Exchange { target: &self.relay.target, limit: self.relay.limit, headers, client: self };
        match exchange.read(response, Some(raw_id)).await {
            Ended::Answered(answer) => Reply::Answered(answer),
            Ended::Lost(why) | Ended::NotSent(why) | Ended::Refused(why, _) => Reply::Lost(why),
            Ended::Accepted => Reply::Lost("the server took the call and gave no answer".into()),
        }
    }

    async fn refused(&self, response: Response<Incoming>) -> Reply {
        let (mut parts, incoming) = response.into_parts();
        let why = format!("{} answered {}", self.relay.target.host(), parts.status);
        parts.headers = end_to_end(&parts.headers);
        let unseen = refuses_unseen(parts.status);
        let limited = http_body_util::Limited::new(incoming, self.relay.limit);
        let Ok(collected) = limited.collect().await else { return Reply::Lost(why) };
        let refusal = Response::from_parts(parts, collected.to_bytes());
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        if unseen { Reply::NotSent(why) } else { Reply::Lost(why) }
    }
}

/// What comes besides the answer goes to the client as it is.
impl Client for CallLink {
    fn send(&self, line: Bytes) -> Boxed<'_, ()> {
        if memchr::memmem::find(&line, b"list_changed").is_some() {
            self.relay.guard.catalog.changed();
        }
        self.client.send(line)
    }
}

impl Link for CallLink {
    fn pass(&self, _line: Bytes) -> Boxed<'_, ()> {
        // Requests pass by themselves, each in an exchange of its own.
        Box::pin(std::future::ready(()))
    }

    fn call(&self, id: String, line: Vec<u8>) -> Boxed<'_, Reply> {
        Box::pin(async move {
            let reply = self.ask(&json::quote(&id), line.into()).await;
            if matches!(reply, Reply::Answered(_)) {
                *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            reply
        })
    }
}
