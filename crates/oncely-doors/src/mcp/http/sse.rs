//! Event streams, read as they come.

use bytes::{Buf, BytesMut};

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Its kind; empty for a message.
    pub kind: String,
    /// What it says.
    pub data: String,
    /// Its id, if it has one.
    pub id: Option<String>,
}

/// Reads events out of chunks.
#[derive(Default)]
pub struct Parser {
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of line.
    scanned: usize,
    event: Event,
    has_data: bool,
    /// How long to wait before connecting again, where the server says so, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// An event that is longer than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl Parser {
    /// Takes a chunk in.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole event.
    pub fn next(&mut self, limit: usize) -> Result<Option<Event>, TooLong> {
        while let Some(line) = self.line() {
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                if std::mem::take(&mut self.has_data) || event.id.is_some() {
                    return Ok(Some(event));
                }
                continue;
            }
            self.field(&line);
            if self.event.data.len() > limit {
                return Err(TooLong);
            }
        }
        if self.buffer.len() > limit { Err(TooLong) } else { Ok(None) }
    }

    fn line(&mut self) -> Option<String> {
        let at = memchr::memchr2(b'\n', b'\r', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
        let Some(at) = at else {
            self.scanned = self.buffer.len();
            return None;
        };
        let width = match (self.buffer[at], self.buffer.get(at + 1)) {
            (b'\r', Some(b'\n')) => 2,
            // The other half of this end of line may still come.
            (b'\r', None) => {
                self.scanned = at;
                return None;
            }
            _ => 1,
        };
        let line = String::from_utf8_lossy(&self.buffer[..at]).into_owned();
        self.buffer.advance(at + width);
        self.scanned = 0;
        Some(line)
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            "event" => self.event.kind = value.to_owned(),
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.retry_ms = value.parse().ok().or(self.retry_ms),
            _ => {}
        }
    }
}

/// An event as it is written.
pub fn render(event: &Event) -> Vec<u8> {
    let mut text = String::new();
    for (name, value) in
        [("event", Some(&event.kind).filter(|kind| !kind.is_empty())), ("id", event.id.as_ref())]
    {
        if let Some(value) = value {
            text.push_str(&format!("{name}: {value}\n"));
        }
    }
    for line in event.data.split('\n') {
        text.push_str(&format!("data: {line}\n"));
    }
    text.push('\n');
    text.into_bytes()
}

/// A message as an event.
pub fn event(message: &[u8]) -> Vec<u8> {
    let mut text = b"event: message\ndata: ".to_vec();
    text.extend_from_slice(super::super::frames::content(message));
    text.extend_from_slice(b"\n\n");
    text
}

#[cfg(test)]
mod tests {
    use super::{Event, Parser, TooLong, event};

    fn events(chunks: &[&str]) -> Vec<Event> {
        let mut parser = Parser::default();
        let mut seen = Vec::new();
        for chunk in chunks {
            parser.feed(chunk.as_bytes());
            while let Some(event) = parser.next(1_000).unwrap() {
                seen.push(event);
            }
        }
        seen
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let whole = "event: message\r\nid: 7\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n: comment\n\ndata:x\n\n";
        let read = events(&[whole]);
        let one = Event { kind: "message".into(), data: "{\"a\":\n1}".into(), id: Some("7".into()) };
        assert_eq!(read, [one, Event { data: "x".into(), ..Event::default() }]);
        for cut in 0..whole.len() {
            assert_eq!(events(&[&whole[..cut], &whole[cut..]]), read, "{cut}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = Parser::default();
        parser.feed(&vec![b'x'; 2_000]);
        assert_eq!(parser.next(1_000), Err(TooLong));
    }

    #[test]
    fn a_message_becomes_an_event() {
        assert_eq!(event(b"{}\n"), b"event: message\ndata: {}\n\n");
    }
}
