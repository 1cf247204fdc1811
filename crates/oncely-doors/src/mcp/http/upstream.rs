//! The link to a server at an address, for a client on standard input and output.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode};
use tokio::sync::Mutex as Turn;

use super::exchange::{Ended, Exchange, METHOD, NAME, SESSION, VERSION, is_answer, quoted, refuses_unseen};
use super::headers::{PARAM_PREFIX, VERSION_META, as_text, encode, named};
use super::hello::{READY, agreed_on, agrees_again, asks_for_all_tools};
use super::messages::Messages;
use super::target::{NoReply, Target};
use crate::mcp::busy::Busy;
use crate::mcp::json::{self, Members};
use crate::mcp::link::{Boxed, Client, Link, NoAnswer, Reply};
use crate::mcp::message::{self, INTERNAL_ERROR};
use crate::mcp::session::Session;

/// How long a server may take for a message that wants no answer.
const NOTE: Duration = Duration::from_secs(10);
/// How long a server may take to take note of our end.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long a server may take to begin another session in place of one that it has lost.
const RENEWAL: Duration = Duration::from_secs(30);

/// The link to a server at an address.
pub struct HttpLink {
    target: Target,
    limit: usize,
    state: Mutex<State>,
    session: OnceLock<Weak<Session>>,
    this: Weak<Self>,
    /// How many requests of the client are under way.
    busy: Busy,
    /// Whose turn it is to begin another session: of many that find theirs lost, one does it.
    renewal: Turn<()>,
}

#[derive(Default)]
struct State {
    /// The server's name for the session, in the era that has sessions.
    session_id: Option<HeaderValue>,
    /// The protocol that was agreed on, in the same era.
    version: Option<HeaderValue>,
    /// How the client began the session.
    hello: Option<Bytes>,
    /// Whether it listens to what the server says by itself.
    listens: bool,
    /// Calls of our own that are under way, and whether they were given up.
    calls: HashMap<String, bool>,
}

/// What has to be known of a message to send it.
struct About {
    id: Option<String>,
    method: String,
    headers: HeaderMap,
}

impl HttpLink {
    /// A link to a server.
    pub fn new(target: Target, limit: usize) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            target,
            limit,
            state: Mutex::default(),
            session: OnceLock::new(),
            this: this.clone(),
            busy: Busy::default(),
            renewal: Turn::new(()),
        })
    }

    /// Says whose messages these are; once.
    pub fn serve(&self, session: &Arc<Session>) {
        let _ = self.session.set(Arc::downgrade(session));
    }

    /// Waits until no request of the client is under way, at most for `timeout`.
    pub async fn is_idle_within(&self, timeout: Duration) -> bool {
        self.busy.is_idle_within(timeout).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> Option<Arc<Session>> {
        self.session.get().and_then(Weak::upgrade)
    }

    fn base_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let state = self.state();
        for (name, value) in [(SESSION, &state.session_id), (VERSION, &state.version)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        headers
    }

    fn about(&self, line: &[u8]) -> About {
        let message: Members<'_> = serde_json::from_slice(line).unwrap_or_default();
        let method = message.text("method").unwrap_or_default().into_owned();
        let params = message.object("params").unwrap_or_default();
        let mut headers = self.base_headers();
        if method == "initialize" {
            // Another session, whichever there was before.
            headers.remove(SESSION);
            headers.remove(VERSION);
        }
        let version = params.object("_meta").and_then(|meta| meta.text(VERSION_META).map(Cow::into_owned));
        if let Some(version) = version.and_then(|version| HeaderValue::from_str(&version).ok()) {
            headers.insert(VERSION, version);
            self.describe(&mut headers, &method, &params);
        }
        let id = if method.is_empty() { None } else { message.get("id").map(str::to_owned) };
        About { id, method, headers }
    }

    /// Repeats in headers what the era without sessions wants there.
    fn describe(&self, headers: &mut HeaderMap, method: &str, params: &Members<'_>) {
        let mut set = |name: HeaderName, value: &str| {
            if let Some(value) = encode(value) {
                headers.insert(name, value);
            }
        };
        set(METHOD, method);
        let name = named(method, params);
        if let Some(name) = &name {
            set(NAME, name);
        }
        let tool = name.filter(|_| method == "tools/call");
        let tool = tool.and_then(|name| self.session()?.guard.catalog.last_known(&name));
        let arguments = params.object("arguments").unwrap_or_default();
        for (header, argument) in tool.iter().flat_map(|tool| &tool.header_arguments) {
            let header = HeaderName::try_from(format!("{PARAM_PREFIX}{}", header.to_ascii_lowercase()));
            let value = arguments.get(argument).filter(|raw| *raw != "null");
            let value = value.map(as_text);
            if let (Ok(header), Some(value)) = (header, value) {
                set(header, &value);
            }
        }
    }

    /// Sends a message, delivers what comes with the answer, and returns the answer itself. A server that has lost the session
    /// has not looked at the request: it gets another session, in the client's name, and then the request again.
    /// But a call of ours (`id`) that was given up meanwhile is not sent any more: its doubt may have been settled.
    async fn exchange(&self, line: Bytes, id: Option<&str>) -> Ended {
        let (ended, lost) = self.exchange_once(&line).await;
        let Some(lost) = lost else { return ended };
        if let Err(why) = self.renew(&lost, &line).await {
            let Ended::Refused(NoAnswer { why: refused, .. }, _) = ended else { return ended };
            return Ended::NotSent(
                format!(
                    "{refused}: it does not know the session any more, and no other could be begun: {why}"
                )
                .into(),
            );
        }
        if id.is_some_and(|id| self.state().calls.get(id) == Some(&true)) {
            return Ended::NotSent("the server had lost the session, and nobody waits any more".into());
        }
        match self.exchange_once(&line).await {
            (Ended::Refused(NoAnswer { why, .. }, _), Some(_)) => {
                Ended::NotSent(format!("{why}: it does not know the session that it has just begun").into())
            }
            (ended, _) => ended,
        }
    }

    /// The same without a second try; with the session that the server does not know any more, if it says so of a request.
    async fn exchange_once(&self, line: &Bytes) -> (Ended, Option<HeaderValue>) {
        let about = self.about(line);
        let body = Bytes::copy_from_slice(crate::mcp::frames::content(line));
        let session = about.headers.get(SESSION).cloned();
        let response = match self.target.send(Method::POST, about.headers, body).await {
            Ok(response) => response,
            Err(NoReply::NotSent(why)) => return (Ended::NotSent(why.into()), None),
            Err(NoReply::Lost(why)) => return (Ended::Lost(why.into()), None),
        };
        let status = response.status();
        if !status.is_success() {
            let ended = self.refused(response, session.as_ref(), about.id.as_deref()).await;
            let is_lost = status == StatusCode::NOT_FOUND && matches!(ended, Ended::Refused(..));
            return (ended, session.filter(|_| is_lost && about.id.is_some()));
        }
        if about.method == "initialize" {
            let mut state = self.state();
            state.session_id = response.headers().get(SESSION).cloned();
            state.hello = Some(line.clone());
        }
        if status == StatusCode::ACCEPTED {
            return (Ended::Accepted, None);
        }
        let ended = self.speaking().read(response, about.id.as_deref()).await;
        if let (Ended::Answered(answer), "initialize") = (&ended, about.method.as_str()) {
            self.state().version = agreed_on(answer);
        }
        (ended, None)
    }

    /// Begins another session in place of this one for a request, as the client began it. Those who come meanwhile wait for it.
    async fn renew(&self, lost: &HeaderValue, request: &[u8]) -> Result<(), NoAnswer> {
        let begin = async {
            let _turn = self.renewal.lock().await;
            let (hello, version) = {
                let state = self.state();
                if state.session_id.as_ref() != Some(lost) {
                    return Ok(false);
                }
                (state.hello.clone(), state.version.clone())
            };
            let hello = hello.ok_or("nobody has begun one")?;
            self.begin_again(&hello, version).await.map(|()| true)
        };
        // With the wait for one's turn: many must not wait one after the other for a server that does not answer.
        if !tokio::time::timeout(RENEWAL, begin).await.map_err(|_| "the server took too long for it")?? {
            return Ok(());
        }
        // It may be another release of the server, with other tools; unless it is just being asked for all of them.
        if let Some(session) = self.session().filter(|_| !asks_for_all_tools(request)) {
            session.guard.catalog.changed();
        }
        Ok(())
    }

    async fn begin_again(&self, hello: &[u8], version: Option<HeaderValue>) -> Result<(), NoAnswer> {
        let no_reply = |(NoReply::NotSent(why) | NoReply::Lost(why))| NoAnswer::from(why);
        let session = self.session().ok_or("the client has gone")?;
        let mut hello: Members<'_> = serde_json::from_slice(hello).map_err(|e| e.to_string())?;
        // The client's own id may be in use for something else by now.
        let id = json::raw(&session.guard.ids.next());
        hello.set("id", id.clone());
        let mut headers = self.base_headers();
        headers.remove(SESSION);
        headers.remove(VERSION);
        let response =
            self.target.send(Method::POST, headers, hello.render().into()).await.map_err(no_reply)?;
        if !response.status().is_success() {
            return Err(format!("{} answered {}", self.target.host(), response.status()).into());
        }
        let begun = response.headers().get(SESSION).cloned();
        let answer = match self.speaking().read(response, Some(&id)).await {
            Ended::Answered(answer) => answer,
            Ended::Lost(why) | Ended::NotSent(why) | Ended::Refused(why, _) => return Err(why),
            Ended::Accepted => return Err("it gave no answer".into()),
        };
        agrees_again(&answer, version.as_ref())?;
        let mut headers = self.base_headers();
        headers.remove(SESSION);
        if let Some(begun) = &begun {
            headers.insert(SESSION, begun.clone());
        }
        let ready = self.target.send(Method::POST, headers, READY.into()).await.map_err(no_reply)?;
        if !ready.status().is_success() {
            return Err(format!("{} answered {}", self.target.host(), ready.status()).into());
        }
        let listens = {
            let mut state = self.state();
            state.session_id = begun;
            state.listens
        };
        if listens {
            self.listen();
        }
        Ok(())
    }

    /// Delivers what the server says by itself in this session, from now on.
    fn listen(&self) {
        self.state().listens = true;
        if let Some(this) = self.this.upgrade() {
            tokio::spawn(async move { this.speaking().listen_for_ever().await });
        }
    }

    async fn refused(
        &self,
        response: Response<Incoming>,
        session: Option<&HeaderValue>,
        id: Option<&str>,
    ) -> Ended {
        let status = response.status();
        let unseen = refuses_unseen(session, &response);
        let body = Messages::of(response, self.limit).next().await.ok().flatten();
        let why = NoAnswer {
            why: format!("{} answered {status}", self.target.host()),
            said: body.as_deref().and_then(quoted),
        };
        if let Some(answer) = body.as_ref().filter(|body| is_answer(body, id)) {
            return Ended::Answered(answer.clone());
        }
        let answer =
            body.filter(|body| serde_json::from_slice::<Members<'_>>(body).is_ok_and(|m| m.has("error")));
        if unseen { Ended::Refused(why, answer) } else { Ended::Lost(why) }
    }

    fn speaking(&self) -> Exchange<'_> {
        Exchange { target: &self.target, limit: self.limit, headers: self.base_headers(), client: self }
    }

    /// Ends the session, where there is one.
    pub async fn farewell(&self) {
        if self.state().session_id.is_none() {
            return;
        }
        let goodbye = self.target.send(Method::DELETE, self.base_headers(), Bytes::new());
        // A server that does not take note lets the session lapse.
        let _ = tokio::time::timeout(FAREWELL, goodbye).await;
    }

    async fn pass_one(self: Arc<Self>, line: Bytes) {
        let about = self.about(&line);
        let answer = match (self.exchange(line, None).await, about.id) {
            (Ended::Answered(answer), _) => answer,
            (Ended::Refused(_, Some(answer)), _) => answer,
            (Ended::Accepted, _) | (_, None) => return,
            (Ended::Refused(why, None) | Ended::NotSent(why), Some(id)) => {
                message::error(&id, INTERNAL_ERROR, &format!("nothing ran: {why}")).into()
            }
            (Ended::Lost(why), Some(id)) => {
                let why = format!("{why}; the request may have reached the server");
                message::error(&id, INTERNAL_ERROR, &why).into()
            }
        };
        self.send(answer).await;
    }
}

/// What the server says goes to the session's client.
impl Client for HttpLink {
    fn send(&self, line: Bytes) -> Boxed<'_, ()> {
        Box::pin(async move {
            if let Some(session) = self.session() {
                session.on_server(&line);
                session.client.send(line).await;
            }
        })
    }
}

impl Link for HttpLink {
    fn pass(&self, lines: Bytes) -> Boxed<'_, ()> {
        Box::pin(async move {
            let Some(this) = self.this.upgrade() else { return };
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                let line = lines.slice_ref(line);
                let about = self.about(&line);
                if about.id.is_some() {
                    let this = this.clone();
                    this.busy.begin();
                    tokio::spawn(async move {
                        // However long it takes: the client decides when it has waited enough.
                        this.clone().pass_one(line).await;
                        this.busy.end();
                    });
                    continue;
                }
                // What needs no answer keeps its order before what comes after.
                // But a server that does not take it must not stop all that follows.
                let _ = tokio::time::timeout(NOTE, this.clone().pass_one(line)).await;
                if about.method == "notifications/initialized" {
                    this.listen();
                }
            }
        })
    }

    fn call(&self, id: String, line: Vec<u8>) -> Boxed<'_, Reply> {
        Box::pin(async move {
            self.state().calls.insert(id.clone(), false);
            let ended = self.exchange(line.into(), Some(&id)).await;
            self.state().calls.remove(&id);
            match ended {
                Ended::Answered(answer) => Reply::Answered(answer),
                Ended::Refused(why, _) => Reply::Refused(why),
                Ended::NotSent(why) => Reply::NotSent(why),
                Ended::Lost(why) => Reply::Lost(why),
                Ended::Accepted => Reply::Lost("the server took the call and gave no answer".into()),
            }
        })
    }

    fn doubt(&self, id: &str) {
        if let Some(given_up) = self.state().calls.get_mut(id) {
            *given_up = true;
        }
    }
}
