//! JSON-RPC messages: read only as far as is needed to pass them on, or to answer in the server's place.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;

use super::frames::content;
use super::ids;
use super::json::{self, Members};

/// JSON that cannot be read.
pub const PARSE_ERROR: i32 = -32700;
/// JSON that is no request.
pub const INVALID_REQUEST: i32 = -32600;
/// A method that the server does not know.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// Parameters that do not fit.
pub const INVALID_PARAMS: i32 = -32602;
/// A fault of the server.
pub const INTERNAL_ERROR: i32 = -32603;

/// What a client sent.
#[derive(Debug)]
pub enum Message<'a> {
    /// It wants an answer.
    Request(Request<'a>),
    /// It wants none.
    Notification {
        /// What it is about.
        method: String,
        /// All members.
        members: Members<'a>,
    },
    /// An answer to the server, or something that is nothing to us.
    Other,
    /// Several messages in an array.
    Batch,
}

/// A request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The id, as it was written.
    pub id: String,
    /// What it asks for.
    pub method: String,
    /// All members.
    pub members: Members<'a>,
}

/// A message that cannot be passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// The id to answer to, as it was written; `null` if it cannot be told.
    pub id: String,
    /// JSON-RPC's code for it.
    pub code: i32,
    /// What is wrong.
    pub message: String,
}

impl Bad {
    fn new(id: &str, code: i32, message: impl Into<String>) -> Self {
        Self { id: id.to_owned(), code, message: message.into() }
    }

    /// The answer that says so.
    pub fn answer(&self) -> Vec<u8> {
        error(&self.id, self.code, &format!("{}; nothing ran", self.message))
    }
}

/// Names that decide what a message does. Some parsers take them in any case, so another spelling is refused.
const DECISIVE: [&str; 6] = ["id", "method", "params", "name", "arguments", "_meta"];

/// Whether a member's name is one that decides, in a spelling that only some parsers take for it.
pub(super) fn is_lookalike(name: &str) -> bool {
    // Those are written in small letters: another spelling has others.
    if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return false;
    }
    if name.is_ascii() {
        return DECISIVE.iter().any(|decisive| *decisive != name && decisive.eq_ignore_ascii_case(name));
    }
    // Some fold more than ASCII: the long s, the Kelvin sign and the dotted and dotless i are letters of these names to
    // them.
    let folded: String = name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    let folded = folded.replace('\u{307}', "");
    DECISIVE.iter().any(|decisive| *decisive != name && *decisive == folded)
}

/// What the two characters begin with that end a line for some readers, although JSON takes them in a text.
const SEPARATOR: &[u8] = b"\xe2\x80";

/// Whether a message is on one line for every reader.
pub(super) fn is_flat(line: &[u8]) -> bool {
    let inside = content(line);
    // Most messages have nothing that even looks like it.
    memchr::memchr3(b'\n', b'\r', SEPARATOR[0], inside).is_none()
        || memchr::memchr2(b'\n', b'\r', inside).is_none() && memmem::find(inside, SEPARATOR).is_none()
}

/// A message on one line for every reader: line breaks within it, which can only stand between its tokens, as spaces, and
/// the separators of lines and paragraphs, which can only stand within its texts, as escapes.
pub fn flat(line: &Bytes) -> Bytes {
    if is_flat(line) {
        return line.clone();
    }
    let inside = content(line);
    let mut flat = Vec::with_capacity(line.len() + 16);
    let mut rest = inside;
    while let Some((byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'\n' | b'\r', _) => {
                flat.push(b' ');
                after
            }
            (0xe2, [0x80, 0xa8, beyond @ ..]) => {
                flat.extend_from_slice(br"\u2028");
                beyond
            }
            (0xe2, [0x80, 0xa9, beyond @ ..]) => {
                flat.extend_from_slice(br"\u2029");
                beyond
            }
            _ => {
                flat.push(*byte);
                after
            }
        };
    }
    flat.extend_from_slice(&line[inside.len()..]);
    flat.into()
}

/// Reads a message of a client.
pub fn read(line: &[u8]) -> Result<Message<'_>, Bad> {
    let Ok(text) = std::str::from_utf8(line) else {
        return Err(Bad::new("null", PARSE_ERROR, "the message is not UTF-8 text"));
    };
    if text.trim_start().starts_with('[') {
        return match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => Ok(Message::Batch),
            Err(e) => Err(Bad::new("null", PARSE_ERROR, format!("the message is not JSON: {e}"))),
        };
    }
    let members = match Members::parse(text) {
        Ok(members) => members,
        Err(e) if e.is_data() => {
            return Err(Bad::new(
                "null",
                INVALID_REQUEST,
                format!("the message is no JSON-RPC message: {e}"),
            ));
        }
        Err(e) => return Err(Bad::new("null", PARSE_ERROR, format!("the message is not JSON: {e}"))),
    };
    if let Some(name) = members.names().find(|name| is_lookalike(name)) {
        return Err(Bad::new("null", INVALID_REQUEST, format!("the member {name:?} is not spelled right")));
    }
    let Some(method) = members.get("method") else { return Ok(Message::Other) };
    let id = members.get("id");
    let Some(method) = json::text_of(method).map(Cow::into_owned) else {
        let shown = id.filter(|id| is_id(id)).unwrap_or("null");
        return Err(Bad::new(shown, INVALID_REQUEST, "the method is not a text"));
    };
    match id.map(|id| is_id(id).then(|| id.to_owned())) {
        Some(Some(id)) => Ok(Message::Request(Request { id, method, members })),
        Some(None) => Err(Bad::new("null", INVALID_REQUEST, "the id is neither a text nor an integer")),
        None => Ok(Message::Notification { method, members }),
    }
}

/// Why a batch that needs a guard is refused.
pub const BATCH_OF_CALLS: &str =
    "a batch with calls of tools is not taken; send them one by one; nothing ran";

/// What a batch holds, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// Something that would have to be looked at one by one.
    NeedsGuard,
    /// Answers to the server, among what passes.
    Answers,
    /// What passes.
    Passes,
}

/// Looks into a batch.
pub fn look_into_batch(line: &[u8]) -> Batch {
    let Some(parts) = std::str::from_utf8(line).ok().and_then(json::items) else { return Batch::NeedsGuard };
    let mut batch = Batch::Passes;
    for part in parts {
        match read(part.get().as_bytes()) {
            Ok(Message::Request(Request { method, .. }) | Message::Notification { method, .. })
                if !method.starts_with("tools/") => {}
            Ok(Message::Other) => batch = Batch::Answers,
            _ => return Batch::NeedsGuard,
        }
    }
    batch
}

pub(super) fn is_id(raw: &str) -> bool {
    raw.starts_with('"') || ids::is_integer(&ids::canonical(raw))
}

/// An answer of a server: a result or an error.
#[derive(Debug)]
pub struct Response<'a> {
    /// The members, in order.
    pub members: Members<'a>,
}

impl<'a> Response<'a> {
    /// Reads an answer; `None` if it is none.
    pub fn read(text: &'a str) -> Option<Self> {
        let members = Members::parse(text).ok()?;
        let is_one = !members.has("method") && (members.has("result") || members.has("error"));
        is_one.then_some(Self { members })
    }

    /// The raw result, if it is one.
    pub fn result(&self) -> Option<&str> {
        if self.members.has("error") { None } else { self.members.get("result") }
    }

    /// Code and message of the error, if it is one.
    pub fn error(&self) -> Option<(i64, String)> {
        let error = self.members.object("error")?;
        let code = serde_json::from_str(error.get("code")?).unwrap_or(0);
        Some((code, error.text("message").unwrap_or_default().into_owned()))
    }

    /// The same answer with another value of a member.
    pub fn with(&self, name: &str, raw: String) -> Self {
        let mut members = self.members.clone();
        members.set(name, raw);
        Self { members }
    }

    /// The same answer under another id.
    pub fn under(&self, id: &str) -> Vec<u8> {
        let mut members = self.members.clone();
        members.set("id", id.to_owned());
        line(members.render())
    }
}

/// The answer with a result.
pub fn result(id: &str, result: &str) -> Vec<u8> {
    let pieces = [r#"{"jsonrpc":"2.0","id":"#, id, r#","result":"#, result, "}"];
    let mut message = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum::<usize>() + 1);
    pieces.iter().for_each(|piece| message.extend_from_slice(piece.as_bytes()));
    line(message)
}

/// The answer with an error.
pub fn error(id: &str, code: i32, message: &str) -> Vec<u8> {
    let message = json::quote(message);
    line(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#))
}

/// A message as a line. Line breaks within it, as a person's editor or a server at an address makes them, can only stand
/// between its tokens.
pub fn line(message: impl Into<Vec<u8>>) -> Vec<u8> {
    let mut line: Vec<u8> = message.into();
    let mut from = 0;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', &line[from..]) {
        line[from + at] = b' ';
        from += at + 1;
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::{Batch, INVALID_REQUEST, Message, PARSE_ERROR, look_into_batch, read};

    fn code(line: &str) -> i32 {
        read(line.as_bytes()).unwrap_err().code
    }

    #[test]
    fn messages_are_told_apart() {
        let method = |line: &str| match read(line.as_bytes()).unwrap() {
            Message::Request(request) => format!("request {} {}", request.id, request.method),
            Message::Notification { method, .. } => format!("notification {method}"),
            Message::Other => "other".to_owned(),
            Message::Batch => "batch".to_owned(),
        };
        assert_eq!(method(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), "request 1 ping");
        assert_eq!(method(r#"{"method":"to\u006fls/call","id":"a"}"#), "request \"a\" tools/call");
        assert_eq!(method(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#), "notification notifications/x");
        assert_eq!(method(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), "other");
        assert_eq!(method(r#"[{"method":"x"}]"#), "batch");
    }

    #[test]
    fn what_is_no_message_is_answered_as_the_protocol_says() {
        assert_eq!(code("hello"), PARSE_ERROR);
        assert_eq!(code("{\"id\":1"), PARSE_ERROR);
        assert_eq!(code("[1,"), PARSE_ERROR);
        assert_eq!(read(b"{\"id\":\"\xff\"}").unwrap_err().code, PARSE_ERROR);
        assert_eq!(code("3"), INVALID_REQUEST);
        assert_eq!(code(r#"{"id":null,"method":"ping"}"#), INVALID_REQUEST);
        assert_eq!(code(r#"{"id":1.5,"method":"ping"}"#), INVALID_REQUEST);
        assert_eq!(code(r#"{"id":true,"method":"ping"}"#), INVALID_REQUEST);
        assert!(read(br#"{"id":1.0,"method":"ping"}"#).is_ok());
        assert_eq!(code(r#"{"id":{},"method":"ping"}"#), INVALID_REQUEST);
        assert_eq!(code(r#"{"id":1,"method":7}"#), INVALID_REQUEST);
        assert_eq!(code(r#"{"id":1,"method":"ping","method":"tools/call"}"#), INVALID_REQUEST);
        assert_eq!(code(r#"{"id":1,"Method":"tools/call"}"#), INVALID_REQUEST);
        for name in ["param\u{17f}", "PARAM\u{17f}", "argument\u{17f}", "\u{131}d", "\u{130}D", "_META"] {
            assert_eq!(code(&format!(r#"{{"id":1,"method":"x","{name}":{{}}}}"#)), INVALID_REQUEST, "{name}");
        }
        assert!(super::is_lookalike("Name") && !super::is_lookalike("name") && !super::is_lookalike("named"));
    }

    #[test]
    fn a_message_is_one_line_for_every_reader() {
        let flat = |text: &'static str| super::flat(&bytes::Bytes::from(text));
        assert_eq!(flat("{\"a\":\r{\n}}\r\n"), "{\"a\": { }}\r\n");
        assert_eq!(flat("{}\n"), "{}\n");
        assert_eq!(flat("{\r}"), "{ }");
        assert_eq!(
            flat("{\"a\":\"x\u{2028}y\u{2029}z\u{2027}\"}\n"),
            "{\"a\":\"x\\u2028y\\u2029z\u{2027}\"}\n"
        );
    }

    #[test]
    fn what_is_put_together_from_several_lines_is_one() {
        assert_eq!(
            super::result("7", "{\r\n  \"a\": \"\\n\"\n}\n"),
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{    \"a\": \"\\n\" } }\n"
        );
    }

    #[test]
    fn a_batch_is_looked_into() {
        let look = |line: &str| look_into_batch(line.as_bytes());
        assert_eq!(look(r#"[{"id":1,"method":"tools/call"}]"#), Batch::NeedsGuard);
        assert_eq!(look(r#"[{"id":2,"result":{}},{"method":"tools/call"}]"#), Batch::NeedsGuard);
        assert_eq!(look(r#"[3]"#), Batch::NeedsGuard);
        assert_eq!(look(r#"[{"id":1,"method":"ping"},{"method":"x"}]"#), Batch::Passes);
        assert_eq!(look(r#"[{"id":2,"result":{}},{"id":1,"method":"ping"}]"#), Batch::Answers);
        assert_eq!(look(r#"[{"method":"x"},{"id":"s","error":{"code":-32601}}]"#), Batch::Answers);
    }
}
