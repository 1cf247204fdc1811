//! The link to a server at an address for one request of a client that connected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Response};

use super::body::{self, AnyResponse};
use super::exchange::{Ended, Exchange, METHOD, NAME, SESSION, is_answer, quoted, refuses_unseen};
use super::headers::{PARAM_PREFIX, end_to_end};
use super::messages::is_event_stream;
use super::target::NoReply;
use super::views::View;
use crate::mcp::json::{self, Members};
use crate::mcp::link::{Boxed, Client, Link, NoAnswer, Reply};

/// The link to the server for one request of a client: everything is said as the client says it.
pub(super) struct CallLink {
    view: Arc<View>,
    limit: usize,
    headers: HeaderMap,
    client: Arc<dyn Client>,
    /// The client's id, as it was written.
    client_id: String,
    /// How the server refused a call: the client is told in the same way. Without a body if that was an answer to the call,
    /// of which there may be more to say.
    refusal: Mutex<Option<Response<Option<Bytes>>>>,
    /// Whether the server answered with events.
    got_events: AtomicBool,
}

impl CallLink {
    /// The link for a client's own request.
    pub(super) fn new(
        view: &Arc<View>,
        limit: usize,
        headers: &HeaderMap,
        client: Arc<dyn Client>,
        client_id: &str,
    ) -> Self {
        Self {
            view: view.clone(),
            limit,
            headers: end_to_end(headers),
            client,
            client_id: client_id.to_owned(),
            refusal: Mutex::default(),
            got_events: AtomicBool::new(false),
        }
    }

    /// The link for a `tools/list` of our own: in the client's name, but not about what its request is about.
    pub(super) fn for_ourselves(
        view: &Arc<View>,
        limit: usize,
        headers: &HeaderMap,
        client: Arc<dyn Client>,
    ) -> Self {
        let mut link = Self::new(view, limit, headers, client, "null");
        let about: Vec<HeaderName> =
            link.headers.keys().filter(|name| name.as_str().starts_with(PARAM_PREFIX)).cloned().collect();
        for name in about.into_iter().chain([NAME]) {
            link.headers.remove(name);
        }
        if link.headers.contains_key(METHOD) {
            link.headers.insert(METHOD, HeaderValue::from_static("tools/list"));
        }
        link
    }

    fn kept_refusal(&self) -> MutexGuard<'_, Option<Response<Option<Bytes>>>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the server refused the call, if it did; else the answer that was made of its own.
    pub(super) fn refusal(&self, answered: Vec<u8>) -> Result<AnyResponse, Vec<u8>> {
        match self.kept_refusal().take() {
            Some(refusal) => Ok(refusal.map(|said| body::whole(said.unwrap_or_else(|| answered.into())))),
            None => Err(answered),
        }
    }

    /// Whether the server answered with events.
    pub(super) fn got_events(&self) -> bool {
        self.got_events.load(Ordering::Acquire)
    }

    /// Sends a request under this id, as it is written, and waits for the answer.
    async fn ask(&self, raw_id: &str, line: Bytes) -> Reply {
        let headers = self.headers.clone();
        let body = Bytes::copy_from_slice(crate::mcp::frames::content(&line));
        let response = match self.view.target.send(Method::POST, headers.clone(), body).await {
            Ok(response) => response,
            Err(NoReply::NotSent(why)) => return Reply::NotSent(why.into()),
            Err(NoReply::Lost(why)) => return Reply::Lost(why.into()),
        };
        if !response.status().is_success() {
            return self.refused(response, raw_id).await;
        }
        self.got_events.store(is_event_stream(&response), Ordering::Release);
        let exchange = Exchange { target: &self.view.target, limit: self.limit, headers, client: self };
        match exchange.read(response, Some(raw_id)).await {
            Ended::Answered(answer) => Reply::Answered(answer),
            Ended::Lost(why) | Ended::NotSent(why) | Ended::Refused(why, _) => Reply::Lost(why),
            Ended::Accepted => Reply::Lost("the server took the call and gave no answer".into()),
        }
    }

    /// A message about a request that we sent, under the client's own id.
    fn under_its_id(&self, body: Bytes) -> Bytes {
        match serde_json::from_slice::<Members<'_>>(&body) {
            Ok(mut message) if message.text("id").is_some_and(|id| self.view.guard.ids.has(&id)) => {
                message.set("id", self.client_id.clone());
                message.render().into()
            }
            _ => body,
        }
    }

    /// The server refuses the request. The client is told in the same way; what it proves depends on whether the server
    /// looked at the call.
    async fn refused(&self, response: Response<Incoming>, raw_id: &str) -> Reply {
        let unseen = refuses_unseen(self.headers.get(SESSION), &response);
        let (mut parts, incoming) = response.into_parts();
        let why = format!("{} answered {}", self.view.target.host(), parts.status);
        parts.headers = end_to_end(&parts.headers);
        let limited = http_body_util::Limited::new(incoming, self.limit);
        let Ok(collected) = limited.collect().await else { return Reply::Lost(why.into()) };
        let bytes = collected.to_bytes();
        let is_answer = is_answer(&bytes, Some(raw_id));
        let said = (!is_answer).then(|| self.under_its_id(bytes.clone()));
        *self.kept_refusal() = Some(Response::from_parts(parts, said));
        if is_answer {
            return Reply::Answered(bytes);
        }
        let why = NoAnswer { why, said: quoted(&bytes) };
        if unseen { Reply::Refused(why) } else { Reply::Lost(why) }
    }
}

/// What comes besides the answer goes to the client as it is.
impl Client for CallLink {
    fn send(&self, line: Bytes) -> Boxed<'_, ()> {
        if memchr::memmem::find(&line, b"list_changed").is_some() {
            self.view.guard.catalog.changed();
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
        Box::pin(async move { self.ask(&json::quote(&id), line.into()).await })
    }
}
