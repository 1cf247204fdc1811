//! One request to a server and everything that comes back with it.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode};

use super::messages::Messages;
use super::target::Target;
use crate::mcp::json::Members;
use crate::mcp::link::Client;

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

/// How an exchange ended.
pub(super) enum Ended {
    /// With the answer.
    Answered(Bytes),
    /// The server took it and has nothing to answer.
    Accepted,
    /// The server refused it before it looked at it.
    Refused(String, Option<Bytes>),
    NotSent(String),
    Lost(String),
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
        loop {
            let broke = loop {
                match messages.next().await {
                    Ok(Some(line)) if is_answer(&line, id) => return Ended::Answered(line),
                    Ok(Some(line)) => self.client.send(line).await,
                    Ok(None) => break "the reply ended without an answer".to_owned(),
                    Err(why) => break why,
                }
            };
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
                    Some(response) => break Messages::of(response, self.limit),
                    None => failures += 1,
                }
            };
        }
    }

    /// Asks for the server's own messages, or for the rest of a stream that broke.
    pub(super) async fn listen(&self, last_event: Option<&str>) -> Option<Response<Incoming>> {
        let mut headers = self.headers.clone();
        headers.remove(CONTENT_TYPE);
        headers.remove(CONTENT_LENGTH);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(event) = last_event {
            headers.insert(LAST_EVENT, HeaderValue::from_str(event).ok()?);
        }
        let response = self.target.send(Method::GET, headers, Bytes::new()).await.ok()?;
        (response.status() == StatusCode::OK).then_some(response)
    }

    /// Delivers what the server says by itself, for as long as it has such a stream.
    pub(super) async fn listen_for_ever(&self) {
        let mut last_event: Option<String> = None;
        while let Some(response) = self.listen(last_event.as_deref()).await {
            let mut messages = Messages::of(response, self.limit);
            while let Ok(Some(line)) = messages.next().await {
                self.client.send(line).await;
            }
            last_event = messages.last_event_id.take().or(last_event);
            tokio::time::sleep(pause_of(messages.retry_ms)).await;
        }
    }
}

fn pause_of(retry_ms: Option<u64>) -> Duration {
    retry_ms.map_or(RECONNECT, Duration::from_millis).clamp(RECONNECT_MIN, RECONNECT_MAX)
}

/// Statuses with which a server says that it did not look at the message. They count only where the reply does not
/// answer to its id: one that does comes from whoever looked at it.
pub(super) fn refuses_unseen(status: StatusCode) -> bool {
    let codes = [400, 401, 403, 404, 405, 406, 411, 413, 415, 421];
    codes.contains(&status.as_u16())
}

pub(super) fn is_answer(line: &[u8], id: Option<&str>) -> bool {
    let members: Members<'_> = serde_json::from_slice(line).unwrap_or_default();
    let is_answer = !members.has("method") && (members.has("result") || members.has("error"));
    is_answer && id.is_some() && members.get("id") == id
}

#[cfg(test)]
mod tests {
    use super::{RECONNECT, RECONNECT_MAX, RECONNECT_MIN, pause_of};

    #[test]
    fn a_server_decides_within_bounds_how_soon_it_is_asked_again() {
        assert_eq!(pause_of(None), RECONNECT);
        assert_eq!(pause_of(Some(0)), RECONNECT_MIN);
        assert_eq!(pause_of(Some(u64::MAX)), RECONNECT_MAX);
    }
}
