//! A link to a server: passes messages on, and carries calls of our own under ids that no client can have.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use memchr::memmem::Finder;
use oncely_core::name::hex;

use super::json::Members;

/// A future that may be sent between threads.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What became of a call of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The server answered: the whole JSON-RPC message.
    Answered(Bytes),
    /// It was sent, at least in part that may have been understood, and no answer will come.
    Lost(NoAnswer),
    /// It was sent, and refused before anybody looked at it.
    Refused(NoAnswer),
    /// It certainly did not reach the server.
    NotSent(NoAnswer),
}

/// Why there is no answer, and what came in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer {
    /// In words of ours, which are kept as they are.
    pub why: String,
    /// The beginning of what the server said: words of its own, which are kept like a result.
    pub said: Option<String>,
}

impl<T: Into<String>> From<T> for NoAnswer {
    fn from(why: T) -> Self {
        Self { why: why.into(), said: None }
    }
}

/// For whoever waits for the answer.
impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.said {
            Some(said) => write!(f, "{}; it says: {said}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// A way to a server.
pub trait Link: Send + Sync {
    /// Passes a client's message on as it is.
    fn pass(&self, line: Bytes) -> Boxed<'_, ()>;

    /// Sends a request of our own and waits for its answer, however long it takes. If this is dropped before its end, the
    /// message may have been sent, or may still be.
    fn call(&self, id: String, line: Vec<u8>) -> Boxed<'_, Reply>;

    /// An answer to this request of ours is not likely to come any more, and welcome if it does.
    fn doubt(&self, _id: &str) {}
}

/// The way back to a client.
pub trait Client: Send + Sync {
    /// Sends a message. A client that went away is no error.
    fn send(&self, line: Bytes) -> Boxed<'_, ()>;
}

/// Whom a message of a server is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addressee {
    /// The client.
    Client,
    /// Us: it answers the request of this id.
    Us(String),
    /// Us, but it cannot be read.
    Unreadable(String),
}

/// Ids of our own: a random beginning that is new with every process, and a number.
pub struct OwnIds {
    prefix: String,
    /// What finds it.
    finder: Finder<'static>,
    next: AtomicU64,
}

impl OwnIds {
    /// Ids with a new beginning.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut random = [0u8; 12];
        getrandom::fill(&mut random)?;
        let prefix = format!("oncely-{}-", hex(&random));
        Ok(Self { finder: Finder::new(&prefix).into_owned(), prefix, next: AtomicU64::new(1) })
    }

    /// The next one.
    pub fn next(&self) -> String {
        format!("{}{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether any may be in these lines.
    pub fn are_in(&self, lines: &[u8]) -> bool {
        self.finder.find(lines).is_some()
    }

    /// Whether a server's message answers a request of ours. Only a message that holds our beginning is read at all: a
    /// large result of somebody else's request is not.
    pub fn answered_by(&self, line: &[u8]) -> Addressee {
        let Some(at) = self.finder.find(line) else { return Addressee::Client };
        let Ok(members) = serde_json::from_slice::<Members<'_>>(line) else {
            // A server that prints what it does to its output speaks of our ids, too; a broken answer looks like one.
            let before_id = line[..at].trim_ascii_end().strip_suffix(b"\"").map(<[u8]>::trim_ascii_end);
            let before_colon = before_id.and_then(|line| line.strip_suffix(b":")).map(<[u8]>::trim_ascii_end);
            let is_id = before_colon.is_some_and(|line| line.ends_with(b"\"id\""));
            return if is_id && line.trim_ascii_start().starts_with(b"{") {
                Addressee::Unreadable(self.id_at(line, at))
            } else {
                Addressee::Client
            };
        };
        let is_answer = !members.has("method") && (members.has("result") || members.has("error"));
        match members.text("id").filter(|id| is_answer && id.starts_with(&self.prefix)) {
            Some(id) => Addressee::Us(id.into_owned()),
            None => Addressee::Client,
        }
    }

    fn id_at(&self, line: &[u8], at: usize) -> String {
        let digits = line[at + self.prefix.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        let number: String = digits.map(|byte| char::from(*byte)).collect();
        format!("{}{number}", self.prefix)
    }

    /// The id of ours in a piece of an answer that was cut.
    pub fn somewhere_in(&self, piece: &[u8]) -> Option<String> {
        self.finder.find(piece).map(|at| self.id_at(piece, at))
    }

    /// Whether an id is one of ours.
    pub fn has(&self, id: &str) -> bool {
        id.starts_with(&self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::{Addressee, OwnIds};

    #[test]
    fn only_answers_under_our_ids_are_ours() {
        let ids = OwnIds::new().unwrap();
        let id = ids.next();
        let is_ours = |line: String| ids.answered_by(line.as_bytes()) == Addressee::Us(id.clone());
        assert!(is_ours(format!(r#"{{"result":{{}},"id":"{id}"}}"#)));
        assert!(is_ours(format!(r#"{{"jsonrpc":"2.0","id":"{id}","error":{{"code":1}}}}"#)));
        assert!(!is_ours(format!(r#"{{"id":1,"result":{{"log":"{id}"}}}}"#)));
        assert!(!is_ours(format!(r#"{{"id":"{id}","method":"x"}}"#)));
        assert!(!is_ours(format!("not json {id}")));
        let doubled = format!(r#"{{"id":"{id}","id":"{id}","result":{{}}}}"#);
        assert_eq!(ids.answered_by(doubled.as_bytes()), Addressee::Unreadable(id.clone()));
        let mut broken = format!(r#"{{"id":"{id}","result":""#).into_bytes();
        broken.extend_from_slice(b"\xff\"}");
        assert_eq!(ids.answered_by(&broken), Addressee::Unreadable(id.clone()));
        for printed in [format!("handling {id}"), format!("{{'id': '{id}'}}"), format!("{{ id = \"{id}\" }}")]
        {
            assert_eq!(ids.answered_by(printed.as_bytes()), Addressee::Client, "{printed}");
        }
        assert_eq!(ids.somewhere_in(&broken), Some(id.clone()));
        assert_ne!(ids.next(), ids.next());
        assert_ne!(OwnIds::new().unwrap().next(), OwnIds::new().unwrap().next());
    }
}
