//! A client in a few lines: it sends the very bytes that a test wants, and reads one answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    #[track_caller]
    pub(crate) fn expect_code(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.json()["code"].as_str()), (status, Some(code)), "{}", self.text());
    }
}

/// One POST with these headers.
pub(crate) fn post(path: &str, headers: &[(&str, &str)], body: &str) -> String {
    request("POST", path, headers, body)
}

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: shop\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            text.push_str("content-type: application/json\r\n");
        }
    }
    format!("{text}\r\n{body}")
}

/// Connects and sends.
pub(crate) fn open(to: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    // Long enough for any machine; a test that hangs must end.
    stream.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Sends, and reads the answer.
pub(crate) fn send(to: SocketAddr, request: &str) -> Answer {
    read_answer(&mut open(to, request)).unwrap_or_else(|| panic!("no answer to {request}"))
}

/// Sends; `None` if the connection ends without a whole answer.
pub(crate) fn try_send(to: SocketAddr, request: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(180))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    read_answer(&mut stream)
}

/// Reads one answer; `None` if the connection ends before its end.
pub(crate) fn read_answer(stream: &mut impl Read) -> Option<Answer> {
    let mut bytes = Vec::new();
    let mut byte = [0; 1];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => return None,
        }
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut answer = Answer { status, headers, body: Vec::new() };
    if status == 101 || status == 204 {
        return Some(answer);
    }
    if answer.header("transfer-encoding") == Some("chunked") {
        while let Some(chunk) = read_chunk(stream)? {
            answer.body.extend(chunk);
        }
        return Some(answer);
    }
    let length = answer.header("content-length").map_or(0, |len| len.parse().unwrap());
    answer.body = vec![0; length];
    stream.read_exact(&mut answer.body).ok()?;
    Some(answer)
}

/// The next chunk; `Some(None)` at the end of the body.
pub(crate) fn read_chunk(stream: &mut impl Read) -> Option<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut byte = [0; 1];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    let len = usize::from_str_radix(std::str::from_utf8(&line).ok()?.trim(), 16).ok()?;
    let mut chunk = vec![0; len + 2];
    stream.read_exact(&mut chunk).ok()?;
    chunk.truncate(len);
    Some((len > 0).then_some(chunk))
}
