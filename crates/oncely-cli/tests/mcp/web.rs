//! A scripted server at an address, oncely in front of it, and a client that posts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::world::{Home, ONCELY, modern_meta, script};

/// Something that listens, until it is dropped.
pub(crate) struct Listening {
    pub(crate) child: Child,
    pub(crate) port: u16,
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        self.child.wait().unwrap();
    }
}

/// The form in which the scripted server replies.
pub(crate) const FORMS: [&str; 2] = ["json", "sse"];

/// The scripted server at an address of its own.
pub(crate) fn server(home: &Home, form: &str) -> Listening {
    let mut command = home.command("python3");
    command.arg(script()).arg("--http").env("MODE", form);
    start_server(command)
}

pub(crate) fn start_server(mut command: Command) -> Listening {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Listening { child, port: line.trim().parse().unwrap() }
}

/// oncely in front of a server, at an address of its own.
pub(crate) fn front(home: &Home, arguments: &[&str]) -> Listening {
    let mut command = home.command(ONCELY);
    command.args(["mcp", "--listen", "127.0.0.1:0"]).args(arguments);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    let port = line.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap().parse();
    Listening { child, port: port.unwrap_or_else(|_| panic!("{line}")) }
}

/// A reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    /// Reads what is left of a reply of which this has been read.
    pub(crate) fn read(mut bytes: Vec<u8>, mut stream: TcpStream) -> Self {
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Self { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(there, _)| there == name).map(|(_, value)| value.as_str())
    }

    /// The messages in it, whichever form it has.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
            return data.map(|data| serde_json::from_str(data).unwrap()).collect();
        }
        vec![serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))]
    }

    /// The result of the answer, which comes last.
    pub(crate) fn result(&self) -> Value {
        self.messages().pop().unwrap()["result"].clone()
    }
}

/// Sends a request and reads the whole reply.
pub(crate) fn send(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let stream = open(port, method, path, headers, body);
    Reply::read(Vec::new(), stream)
}

/// Sends a request and does not read.
pub(crate) fn open(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut text =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        text.push_str("Host: 127.0.0.1\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\r\n");
    text.push_str(body);
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    whole
}

/// A client of one session of the era that has sessions.
pub(crate) struct Web {
    pub(crate) port: u16,
    pub(crate) session: String,
}

impl Web {
    pub(crate) fn begin(port: u16) -> Self {
        Self::begin_as(port, &[])
    }

    /// The same with headers that say who the client is.
    pub(crate) fn begin_as(port: u16, who: &[(&str, &str)]) -> Self {
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {} });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string();
        let reply = send(port, "POST", "/mcp", who, &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        let web = Self { port, session: reply.header("mcp-session-id").unwrap().to_owned() };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(web.post(&ready, who).status, 202);
        web
    }

    pub(crate) fn post(&self, message: &Value, headers: &[(&str, &str)]) -> Reply {
        let mut all = vec![("Mcp-Session-Id", self.session.as_str())];
        all.extend_from_slice(headers);
        send(self.port, "POST", "/mcp", &all, &message.to_string())
    }

    pub(crate) fn call(&self, tool: &str, arguments: Value, headers: &[(&str, &str)]) -> Reply {
        self.post(&call(tool, arguments), headers)
    }
}

/// A call of a tool; always under the same id, as some clients do.
pub(crate) fn call(tool: &str, arguments: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
}

/// The headers that repeat what a call of the era without sessions says of itself.
pub(crate) fn described(tool: &str) -> [(&'static str, &str); 3] {
    [("Mcp-Method", "tools/call"), ("Mcp-Name", tool), ("MCP-Protocol-Version", "2026-07-28")]
}

/// A call as the era without sessions makes it.
pub(crate) fn call_modern(port: u16, tool: &str, arguments: Value) -> Reply {
    let mut message = call(tool, arguments);
    message["params"]["_meta"] = modern_meta();
    send(port, "POST", "/mcp", &described(tool), &message.to_string())
}
