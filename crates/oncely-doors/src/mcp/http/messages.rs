//! The messages of an HTTP reply, whether it is one JSON text or an event stream.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_TYPE;

use super::sse::Parser;
use crate::mcp::message;

/// The messages of a reply.
pub struct Messages<B = Incoming> {
    body: B,
    form: Form,
    limit: usize,
    /// The id of the latest event, from which a broken stream can be taken up again.
    pub last_event_id: Option<String>,
    /// How long to wait before that, where the server says so, in milliseconds.
    pub retry_ms: Option<u64>,
}

enum Form {
    Json(Vec<u8>),
    Events(Box<Parser>),
    Over,
}

/// Whether a reply is an event stream.
pub fn is_event_stream<B>(response: &Response<B>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

impl<B> Messages<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    /// The messages of a reply, each at most `limit` bytes long.
    pub fn of(response: Response<B>, limit: usize) -> Self {
        let form =
            if is_event_stream(&response) { Form::Events(Box::default()) } else { Form::Json(Vec::new()) };
        Self { body: response.into_body(), form, limit, last_event_id: None, retry_ms: None }
    }

    /// The next message, as one line; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            if let Form::Events(parser) = &mut self.form {
                let event = parser.next(self.limit).map_err(|_| too_long())?;
                self.retry_ms = parser.retry_ms.or(self.retry_ms);
                if let Some(event) = event {
                    self.last_event_id = event.id.or(self.last_event_id.take());
                    let is_message = event.kind.is_empty() || event.kind == "message";
                    if is_message && !event.data.trim().is_empty() {
                        return Ok(Some(message::line(event.data).into()));
                    }
                    continue;
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    let Ok(chunk) = frame.into_data() else { continue };
                    match &mut self.form {
                        Form::Json(text) if text.len() + chunk.len() > self.limit => return Err(too_long()),
                        Form::Json(text) => text.extend_from_slice(&chunk),
                        Form::Events(parser) => parser.feed(&chunk),
                        Form::Over => return Ok(None),
                    }
                }
                Some(Err(error)) => return Err(format!("the reply broke off: {error}")),
                None => {
                    let form = std::mem::replace(&mut self.form, Form::Over);
                    return match form {
                        Form::Json(text) if !text.trim_ascii().is_empty() => {
                            Ok(Some(message::line(text).into()))
                        }
                        _ => Ok(None),
                    };
                }
            }
        }
    }
}

fn too_long() -> String {
    "the server's answer is longer than allowed (--max-message)".to_owned()
}

#[cfg(test)]
mod tests {
    use super::Messages;
    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::Response;

    async fn all(kind: &str, body: &'static str, limit: usize) -> Result<Vec<String>, String> {
        let response =
            Response::builder().header("content-type", kind).body(Full::new(Bytes::from(body))).unwrap();
        let mut messages = Messages::of(response, limit);
        let mut seen = Vec::new();
        while let Some(line) = messages.next().await? {
            seen.push(String::from_utf8_lossy(&line).into_owned());
        }
        Ok(seen)
    }

    #[tokio::test]
    async fn both_forms_give_messages_in_lines() {
        assert_eq!(all("application/json", "{\n \"a\": 1\n}", 100).await.unwrap(), ["{  \"a\": 1 }\n"]);
        let events = "event: message\ndata: {}\n\nevent: other\ndata: no\n\nid: 3\ndata:\n\ndata: 2\n\n";
        assert_eq!(all("Text/Event-Stream; charset=utf-8", events, 100).await.unwrap(), ["{}\n", "2\n"]);
        assert!(all("application/json", "123456", 5).await.is_err());
        assert!(all("text/event-stream", "data: 1234567\n\n", 5).await.is_err());
    }
}
