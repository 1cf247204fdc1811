//! Where messages of a server go that we started for clients that connect.
//!
//! Clients choose their ids and progress tokens without knowing of each other, so each request gets names of ours on the
//! way in. What comes back under such a name is for that request, and gets the client's own names again on the way out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memchr::memmem;
use oncely_core::name::hex;

use super::body::Sink;
use crate::mcp::ids;
use crate::mcp::json::{self, Members};
use crate::mcp::link::{Boxed, Client};
use crate::mcp::message::{self, INTERNAL_ERROR, Message};

/// Who hears what belongs to no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// The client whose server it is.
    One,
    /// Nobody: many share the server, and it does not say whom it means.
    Many,
}

/// Where messages of a server go.
pub(super) struct Routes {
    /// What names of ours start with.
    prefix: String,
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Route>>,
    /// A client that listens to what belongs to no request.
    listener: Mutex<Option<Sink>>,
    audience: Audience,
}

/// A request that waits for its answer.
pub(super) struct Route {
    /// The client's id and progress token, as they were written.
    id: String,
    token: Option<String>,
    sink: Sink,
}

impl Routes {
    pub(super) fn new(audience: Audience) -> std::io::Result<Self> {
        let mut random = [0u8; 12];
        getrandom::fill(&mut random).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Self {
            prefix: format!("client-{}-", hex(&random)),
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            listener: Mutex::default(),
            audience,
        })
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Route>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listener(&self) -> MutexGuard<'_, Option<Sink>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.waiting().is_empty() || self.listener().as_ref().is_some_and(Sink::is_open)
    }

    pub(super) fn id_of(&self, number: u64) -> String {
        format!("{}{number}i", self.prefix)
    }

    fn token_of(&self, number: u64) -> String {
        format!("{}{number}p", self.prefix)
    }

    /// Notes a request, and gives it names of ours.
    pub(super) fn board(&self, request: &message::Request<'_>, sink: Sink) -> (u64, Vec<u8>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut members = request.members.clone();
        members.set("id", json::raw(&self.id_of(number)));
        let params = request.members.object("params").unwrap_or_default();
        let mut meta = params.object("_meta").unwrap_or_default();
        let token = meta.get("progressToken").filter(|raw| *raw != "null").map(str::to_owned);
        if token.is_some() {
            meta.set("progressToken", json::raw(&self.token_of(number)));
            let mut params = params.clone();
            params.set("_meta", meta.render());
            members.set("params", params.render());
        }
        self.waiting().insert(number, Route { id: request.id.clone(), token, sink });
        (number, message::line(members.render()))
    }

    /// A cancellation of the client, with the name of ours for what it is about.
    pub(super) fn renamed_cancel(&self, line: &[u8]) -> Option<Bytes> {
        let Ok(Message::Notification { method, members }) = message::read(line) else { return None };
        let params = members.object("params").filter(|_| method == "notifications/cancelled")?;
        let id = params.get("requestId")?;
        let number =
            self.waiting().iter().find(|(_, route)| ids::same(&route.id, id)).map(|(number, _)| *number)?;
        let mut params = params.clone();
        params.set("requestId", json::raw(&self.id_of(number)));
        let params = params.render();
        let mut message = members.clone();
        message.set("params", params);
        Some(message::line(message.render()).into())
    }

    /// Hands one message of the server to whom it is for.
    fn route(&self, line: Bytes) {
        match self.about(&line) {
            About::Nothing => self.to_nobody(line),
            About::Request(number) => {
                if let Some(route) = self.waiting().get(&number) {
                    route.sink.put(self.with_own_names(&line, number, route));
                }
            }
            About::Answer(number) => {
                if let Some(route) = self.waiting().remove(&number) {
                    route.sink.put_last(self.with_own_names(&line, number, &route));
                }
            }
            About::Unreadable(number) => {
                if let Some(route) = self.waiting().remove(&number) {
                    let why = "the server's answer cannot be read";
                    route.sink.put_last(message::error(&route.id, INTERNAL_ERROR, why).into());
                }
            }
        }
    }

    /// What a message of the server is about. Only where the protocol puts a name it counts: a result may quote those of
    /// others. Only a message that holds one at all is read.
    fn about(&self, line: &[u8]) -> About {
        let Some(at) = memmem::find(line, self.prefix.as_bytes()) else { return About::Nothing };
        let Ok(members) = serde_json::from_slice::<Members<'_>>(line) else {
            let looks_like_one = line.trim_ascii_start().starts_with(b"{");
            let number = number_at(&line[at + self.prefix.len()..]).filter(|_| looks_like_one);
            return number.map_or(About::Nothing, About::Unreadable);
        };
        if !members.has("method") {
            let number = members.get("id").and_then(|raw| self.number_of(raw));
            return number.map_or(About::Nothing, About::Answer);
        }
        let params = members.object("params").unwrap_or_default();
        let meta = params.object("_meta").unwrap_or_default();
        let named = ["progressToken", "requestId"].iter().filter_map(|name| params.get(name));
        // Under `_meta` a message may say which request it comes with, under names that differ.
        let mut named = named.chain(meta.iter().map(|(_, raw)| raw));
        named.find_map(|raw| self.number_of(raw)).map_or(About::Nothing, About::Request)
    }

    /// The request that has this name.
    fn number_of(&self, raw: &str) -> Option<u64> {
        let name: String = serde_json::from_str(raw).ok()?;
        number_at(name.strip_prefix(&self.prefix)?.as_bytes())
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
        if self.audience == Audience::Many {
            return;
        }
        // It may wait for a client that reads slowly, and must not keep all that was read together with it.
        let line = Bytes::copy_from_slice(&line);
        let listener = self.listener();
        if let Some(sink) = listener.as_ref().filter(|sink| sink.is_open()) {
            return sink.put(line);
        }
        if let Some((_, route)) = self.waiting().last_key_value() {
            route.sink.put(line);
        }
    }

    /// Whoever waits still is told that no answer will come.
    pub(super) fn end(&self) {
        for (_, route) in std::mem::take(&mut *self.waiting()) {
            let why = "the server ended before it answered";
            route.sink.put_last(message::error(&route.id, INTERNAL_ERROR, why).into());
        }
        *self.listener() = None;
    }
}

/// What a message of a server is about.
#[derive(Debug, PartialEq, Eq)]
enum About {
    /// No request.
    Nothing,
    /// The request of this number.
    Request(u64),
    /// It is the answer to it.
    Answer(u64),
    /// Most likely the same, but it cannot be read.
    Unreadable(u64),
}

fn number_at(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::{Audience, Routes};
    use crate::mcp::http::body::{Sink, Waiting};
    use crate::mcp::message::{Message, Request, read};

    fn request(text: &str) -> Request<'_> {
        match read(text.as_bytes()) {
            Ok(Message::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    /// Takes a request on board; its names, and what its client hears.
    fn board(routes: &Routes) -> (String, Waiting) {
        let (sink, from) = Sink::new();
        let message = r#"{"id":1,"method":"x","params":{"_meta":{"progressToken":"t"}}}"#;
        let (number, _) = routes.board(&request(message), sink);
        (format!("{}{number}", routes.prefix), from)
    }

    fn heard(from: &mut Waiting) -> Vec<String> {
        std::iter::from_fn(|| from.try_recv()).map(|line| String::from_utf8_lossy(&line).into()).collect()
    }

    #[test]
    fn an_answer_goes_to_who_asked_even_if_it_quotes_another() {
        let routes = Routes::new(Audience::Many).unwrap();
        let ((ann, mut to_ann), (bob, mut to_bob)) = (board(&routes), board(&routes));
        routes.route(format!(r#"{{"result":{{"quoted":"{ann}i"}},"id":"{bob}i"}}"#).into());
        assert_eq!(heard(&mut to_bob), [format!(r#"{{"result":{{"quoted":"{ann}i"}},"id":1}}"#)]);
        assert!(heard(&mut to_ann).is_empty());
        routes.route(format!(r#"{{"method":"p","params":{{"progressToken":"{ann}p"}}}}"#).into());
        routes
            .route(format!(r#"{{"method":"s","params":{{"_meta":{{"x/subscription":"{ann}i"}}}}}}"#).into());
        assert_eq!(
            heard(&mut to_ann),
            [
                r#"{"method":"p","params":{"progressToken":"t"}}"#,
                r#"{"method":"s","params":{"_meta":{"x/subscription":1}}}"#
            ]
        );
        // A member twice: whoever waits for it is told.
        routes.route(format!(r#"{{"id":"{ann}i","id":"{ann}i","result":{{}}}}"#).into());
        assert!(heard(&mut to_ann)[0].contains("cannot be read"));
    }

    #[test]
    fn what_belongs_to_no_request_reaches_only_the_client_of_a_server_of_its_own() {
        for (audience, expected) in [(Audience::One, 1), (Audience::Many, 0)] {
            let routes = Routes::new(audience).unwrap();
            let (ann, mut to_ann) = board(&routes);
            routes.route(
                format!(r#"{{"method":"notifications/message","params":{{"data":"{ann}i"}}}}"#).into(),
            );
            assert_eq!(heard(&mut to_ann).len(), expected, "{audience:?}");
        }
    }
}
