//! One request to a server and everything that comes back with it.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, Response, StatusCode};

use super::messages::Messages;
use super::target::Target;
use crate::mcp::ids;
use crate::mcp::json::Members;
use crate::mcp::link::{Client, NoAnswer};

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Between two tries to take a broken stream up again, unless the server says otherwise.
const RECONNECT: Duration = Duration::from_secs(1);
/// Shortest such pause: a server that asks for none, and ends every stream, would be asked without end.
const RECONNECT_MIN: Duration = Duration::from_millis(100);
/// Longest such pause that a server may ask for.
const RECONNECT_MAX: Duration = Duration::from_secs(30);
/// How often in a row that may fail.
const RECONNECTS_MAX: u32 = 5;
/// Most of a reply that is quoted.
const QUOTE: usize = 500;

/// How an exchange ended.
pub(super) enum Ended {
    /// With the answer.
    Answered(Bytes),
    /// The server took it and has nothing to answer.
    Accepted,
    /// The server refused it before it looked at it.
    Refused(NoAnswer, Option<Bytes>),
    NotSent(NoAnswer),
    Lost(NoAnswer),
}

/// What came of asking for a stream.
pub(super) enum Stream {
    There(Response<Incoming>),
    /// Nobody answered, or somebody who cannot now.
    NotNow,
    /// The server has none, or none for us.
    None,
}

/// A server, and how it is spoken to.
pub(super) struct Exchange<'a> {
    pub(super) target: &'a Target,
    pub(super) limit: usize,
    /// What is said with every request of this client.
    pub(super) headers: HeaderMap,
    /// Who gets what comes besides the answer.
    pub(super) client: &'a dyn Client,
}

impl Exchange<'_> {
    /// Reads a reply until the answer to this id has come; a stream that breaks is taken up again where that is possible.
    pub(super) async fn read(&self, response: Response<Incoming>, id: Option<&str>) -> Ended {
        let mut messages = Messages::of(response, self.limit);
        let mut failures = 0;
        let mut last_event: Option<String> = None;
        let mut odd = None;
        loop {
            let broke = loop {
                match messages.next().await {
                    Ok(Some(line)) => match said(&line, id) {
                        Said::Answer => return Ended::Answered(line),
                        Said::Message => self.client.send(line).await,
                        Said::Nothing => odd = quoted(&line),
                    },
                    Ok(None) => break "the reply ended without an answer".to_owned(),
                    Err(why) => break why,
                }
            };
            let broke = NoAnswer { why: broke, said: odd.clone() };
            let pause = pause_of(messages.retry_ms);
            failures = if messages.last_event_id.is_some() { 0 } else { failures + 1 };
            last_event = messages.last_event_id.take().or(last_event);
            let Some(event) = last_event.clone() else { return Ended::Lost(broke) };
            messages = loop {
                if failures >= RECONNECTS_MAX {
                    return Ended::Lost(broke);
                }
                tokio::time::sleep(pause).await;
                match self.listen(Some(&event)).await {
                    Stream::There(response) => break Messages::of(response, self.limit),
                    Stream::NotNow | Stream::None => failures += 1,
                }
            };
        }
    }

    /// Asks for the server's own messages, or for the rest of a stream that broke.
    pub(super) async fn listen(&self, last_event: Option<&str>) -> Stream {
        let mut headers = self.headers.clone();
        headers.remove(CONTENT_TYPE);
        headers.remove(CONTENT_LENGTH);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(event) = last_event {
            let Ok(event) = HeaderValue::from_str(event) else { return Stream::None };
            headers.insert(LAST_EVENT, event);
        }
        match self.target.send(Method::GET, headers, Bytes::new()).await {
            Ok(response) if response.status() == StatusCode::OK => Stream::There(response),
            Ok(response) if !is_passing(response.status()) => Stream::None,
            Ok(_) | Err(_) => Stream::NotNow,
        }
    }

    /// Delivers what the server says by itself, for as long as it has such a stream. A server that is away for a while has it
    /// again when it is back, and says there that its tools have changed.
    pub(super) async fn listen_for_ever(&self) {
        let mut last_event: Option<String> = None;
        let mut failures = 0;
        loop {
            let response = match self.listen(last_event.as_deref()).await {
                Stream::There(response) => response,
                Stream::None => return,
                Stream::NotNow => {
                    tokio::time::sleep(pause_after(failures)).await;
                    failures = failures.saturating_add(1);
                    continue;
                }
            };
            failures = 0;
            let mut messages = Messages::of(response, self.limit);
            while let Ok(Some(line)) = messages.next().await {
                if said(&line, None) != Said::Nothing {
                    self.client.send(line).await;
                }
            }
            last_event = messages.last_event_id.take().or(last_event);
            tokio::time::sleep(pause_of(messages.retry_ms)).await;
        }
    }
}

/// Whether a status says that it may be another one soon.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429)
        || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
}

/// Between two tries to get a stream, after so many that failed before the last one.
fn pause_after(failures: u32) -> Duration {
    RECONNECT.saturating_mul(2u32.saturating_pow(failures)).min(RECONNECT_MAX)
}

fn pause_of(retry_ms: Option<u64>) -> Duration {
    retry_ms.map_or(RECONNECT, Duration::from_millis).clamp(RECONNECT_MIN, RECONNECT_MAX)
}

/// Whether a server that refuses a request says so that it did not look at it. Only statuses count that come before a handler
/// is entered: who gives another one may have acted before, or may stand behind a gateway that replaces replies. (Frameworks
/// say 406 when they write the result of a handler that has run.) And they count only where the reply does not answer to the
/// request's id: one that does comes from whoever looked at it. `session` is the one that the request named.
pub(super) fn refuses_unseen<B>(session: Option<&HeaderValue>, refusal: &Response<B>) -> bool {
    match refusal.status().as_u16() {
        401 | 405 | 411 | 413 | 415 | 421 => true,
        // The credentials do not reach far enough: the client is to get others and to call again.
        403 => refusal.headers().contains_key(WWW_AUTHENTICATE),
        // The session is gone: the client is to begin another one and to call again. Programs say so to programs; a page for
        // people is somebody else's.
        404 => session.is_some() && !is_page(refusal.headers()),
        _ => false,
    }
}

/// Whether a body is meant for people.
fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.trim_ascii_start()
        .get(..b"text/html".len())
        .is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/html"))
}

/// What a line of a server is to whoever waits for the answer to an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// That answer.
    Answer,
    /// Another message.
    Message,
    /// No message at all: a page of a gateway, most likely. A client that reads lines would stumble over it.
    Nothing,
}

fn said(line: &[u8], id: Option<&str>) -> Said {
    let Ok(members) = serde_json::from_slice::<Members<'_>>(line) else {
        let is_batch = serde_json::from_slice::<Vec<Members<'_>>>(line).is_ok();
        return if is_batch { Said::Message } else { Said::Nothing };
    };
    let is_answer = !members.has("method") && (members.has("result") || members.has("error"));
    let its_id = members.get("id").filter(|_| is_answer);
    match its_id.zip(id) {
        Some((its_id, id)) if ids::same(its_id, id) => Said::Answer,
        _ => Said::Message,
    }
}

/// Whether a line answers the request of this id.
pub(super) fn is_answer(line: &[u8], id: Option<&str>) -> bool {
    said(line, id) == Said::Answer
}

/// The beginning of what a server said, for people; `None` if it is blank.
pub(super) fn quoted(body: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(&body[..body.len().min(QUOTE)]).trim().to_owned();
    (!said.is_empty()).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::{
        Exchange, RECONNECT, RECONNECT_MAX, RECONNECT_MIN, Said, pause_after, pause_of, refuses_unseen, said,
    };
    use crate::mcp::http::target::Target;
    use crate::mcp::link::{Boxed, Client};
    use bytes::Bytes;
    use hyper::{HeaderMap, Response};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::mpsc;

    /// A client that keeps what it is told.
    struct Told(mpsc::UnboundedSender<Bytes>);

    impl Client for Told {
        fn send(&self, line: Bytes) -> Boxed<'_, ()> {
            let _ = self.0.send(line);
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test]
    async fn a_server_that_was_away_is_listened_to_again_and_one_without_a_stream_is_not() {
        const STREAM: &str = "200 OK\r\ncontent-type: text/event-stream\r\nconnection: close";
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::new(&format!("http://{}/mcp", listener.local_addr().unwrap()), &[]).unwrap();
        let (to, mut told) = mpsc::unbounded_channel();
        let listening = tokio::spawn(async move {
            let exchange =
                Exchange { target: &target, limit: 1024, headers: HeaderMap::new(), client: &Told(to) };
            exchange.listen_for_ever().await;
        });
        let said = "retry: 1\ndata: {\"method\":\"notifications/tools/list_changed\"}\n\n";
        let empty = "connection: close\r\ncontent-length: 0";
        for (head, body) in [
            (format!("503 Service Unavailable\r\n{empty}"), ""),
            (STREAM.to_owned(), said),
            (format!("405 Method Not Allowed\r\n{empty}"), ""),
        ] {
            let asks = tokio::time::timeout(std::time::Duration::from_secs(20), listener.accept()).await;
            let (mut server, _) = asks.expect("it does not ask again").unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(server.read_u8().await.unwrap());
            }
            server.write_all(format!("HTTP/1.1 {head}\r\n\r\n{body}").as_bytes()).await.unwrap();
        }
        listening.await.unwrap();
        let line = told.recv().await.unwrap();
        assert!(String::from_utf8_lossy(&line).contains("list_changed"));
        assert_eq!(told.recv().await, None);
    }
    use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};

    #[test]
    fn an_answer_is_known_by_its_id_however_that_is_written_and_a_page_is_no_message() {
        let one = Some("1");
        for (line, expected) in [
            (r#"{"id":1,"result":{}}"#, Said::Answer),
            (r#"{"error":{},"id":1.0}"#, Said::Answer),
            (r#"{"id":"1","result":{}}"#, Said::Message),
            (r#"{"id":1,"method":"ping"}"#, Said::Message),
            (r#"{"method":"notifications/message"}"#, Said::Message),
            (r#"[{"id":1,"result":{}}]"#, Said::Message),
            ("<html>", Said::Nothing),
            ("\"text\"", Said::Nothing),
            ("[1]", Said::Nothing),
        ] {
            assert_eq!(said(line.as_bytes(), one), expected, "{line}");
        }
        assert_eq!(said(br#"{"id":"\u0061","result":{}}"#, Some("\"a\"")), Said::Answer);
        assert_eq!(said(br#"{"id":1,"result":{}}"#, None), Said::Message);
    }

    #[test]
    fn a_server_decides_within_bounds_how_soon_it_is_asked_again() {
        assert_eq!(pause_of(None), RECONNECT);
        assert_eq!(pause_of(Some(0)), RECONNECT_MIN);
        assert_eq!(pause_of(Some(u64::MAX)), RECONNECT_MAX);
        assert_eq!((pause_after(0), pause_after(2)), (RECONNECT, RECONNECT * 4));
        assert_eq!(pause_after(u32::MAX), RECONNECT_MAX);
    }

    #[test]
    fn only_what_is_said_before_a_handler_is_entered_proves_that_a_call_was_not_looked_at() {
        let refuse =
            |session: Option<&'static str>, header: Option<(HeaderName, &'static str)>| -> Vec<u16> {
                let session = session.map(HeaderValue::from_static);
                let unseen = |status: &u16| {
                    let mut refusal = Response::builder().status(*status);
                    if let Some((name, value)) = &header {
                        refusal = refusal.header(name, *value);
                    }
                    refuses_unseen(session.as_ref(), &refusal.body(()).unwrap())
                };
                (300..=599).filter(unseen).collect()
            };
        let always = [401, 405, 411, 413, 415, 421];
        assert_eq!(refuse(None, None), always);
        assert_eq!(refuse(Some("s"), None), [401, 404, 405, 411, 413, 415, 421]);
        assert_eq!(refuse(Some("s"), Some((CONTENT_TYPE, "Text/HTML; charset=utf-8"))), always);
        assert_eq!(refuse(None, Some((WWW_AUTHENTICATE, "Bearer"))), [401, 403, 405, 411, 413, 415, 421]);
    }
}
