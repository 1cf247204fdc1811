//! An upstream that counts effects and does as it is told: it answers, refuses, resets, cuts short, holds back.
//!
//! A request says in the header `x-act` what is to become of it. An effect is counted under the path and the body when
//! the whole request has arrived, unless the act is one that proves that nothing happened.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A counting upstream; its threads end with the process.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    book: Arc<Book>,
}

#[derive(Default)]
struct Book {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    effects: BTreeMap<String, u32>,
    total: u32,
    connections: u32,
    ended: u32,
    released: HashMap<String, bool>,
    heads: Vec<String>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let book = Arc::new(Book::default());
        let shared = book.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let book = shared.clone();
                book.state.lock().unwrap().connections += 1;
                // A connection that breaks off is what some tests are about.
                thread::spawn(move || {
                    drop(serve(stream, &book));
                    book.state.lock().unwrap().ended += 1;
                    book.changed.notify_all();
                });
            }
        });
        Self { address, book }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All effects so far.
    pub(crate) fn total(&self) -> u32 {
        self.book.state.lock().unwrap().total
    }

    /// Effects by path and body.
    pub(crate) fn effects(&self) -> BTreeMap<String, u32> {
        self.book.state.lock().unwrap().effects.clone()
    }

    /// The heads of all requests, as they arrived.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.book.state.lock().unwrap().heads.clone()
    }

    pub(crate) fn connections(&self) -> u32 {
        self.book.state.lock().unwrap().connections
    }

    /// Waits until so many effects have been counted.
    pub(crate) fn wait_for_total(&self, total: u32) {
        let state = self.book.state.lock().unwrap();
        drop(self.book.changed.wait_while(state, |state| state.total < total).unwrap());
    }

    /// Waits until so many connections have ended.
    pub(crate) fn wait_for_ended(&self, ended: u32) {
        let state = self.book.state.lock().unwrap();
        drop(self.book.changed.wait_while(state, |state| state.ended < ended).unwrap());
    }

    /// Lets requests with `x-act: hold NAME` go on.
    pub(crate) fn release(&self, name: &str) {
        self.book.state.lock().unwrap().released.insert(name.to_owned(), true);
        self.book.changed.notify_all();
    }
}

struct Request {
    path: String,
    method: String,
    act: String,
    body: Vec<u8>,
    head: String,
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let header = |name: &str| {
        let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let body = match (header("content-length"), header("transfer-encoding")) {
        (Some(len), None) => {
            let mut body = vec![0; len.parse().unwrap()];
            reader.read_exact(&mut body)?;
            body
        }
        (None, Some(_)) => read_chunked(reader)?,
        (None, None) => Vec::new(),
        (Some(_), Some(_)) => panic!("ambiguous framing reached the upstream: {head}"),
    };
    let mut first = head.lines().next().unwrap_or("").split(' ');
    let method = first.next().unwrap_or("").to_owned();
    let path = first.next().unwrap_or("").to_owned();
    let act = header("x-act").unwrap_or_default();
    Ok(Some(Request { path, method, act, body, head }))
}

fn read_chunked(reader: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let len = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        let mut chunk = vec![0; len + 2];
        reader.read_exact(&mut chunk)?;
        if len == 0 {
            return Ok(body);
        }
        body.extend_from_slice(&chunk[..len]);
    }
}

fn serve(stream: TcpStream, book: &Book) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read_request(&mut reader)? {
        if request.act == "close-unread" {
            return Ok(());
        }
        let number = book.note(&request);
        if !answer(&stream, &request, number, book)? {
            return Ok(());
        }
    }
    Ok(())
}

impl Book {
    fn note(&self, request: &Request) -> u32 {
        let mut state = self.state.lock().unwrap();
        state.heads.push(request.head.clone());
        let is_effect = request.method != "GET" && !request.act.starts_with("refuse");
        if is_effect {
            let name = format!("{} {}", request.path, String::from_utf8_lossy(&request.body));
            *state.effects.entry(name).or_default() += 1;
            state.total += 1;
            self.changed.notify_all();
        }
        state.total
    }

    fn hold(&self, name: &str) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |s| !s.released.contains_key(name)).unwrap());
    }
}

/// Answers; `false` if the connection is over.
fn answer(mut stream: &TcpStream, request: &Request, number: u32, book: &Book) -> std::io::Result<bool> {
    let (act, argument) = request.act.split_once(' ').unwrap_or((&request.act, ""));
    let json = |status: &str, headers: &str| {
        let body = format!("{{\"order\":{number}}}");
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nset-cookie: session=secret\r\n\
             x-ratelimit-remaining: 7\r\nlocation: /orders/{number}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        )
    };
    let text = match act {
        "" | "ok" if request.method == "GET" => {
            let length = request.head.len();
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{}", request.head)
        }
        "" | "ok" => json("201 Created", ""),
        "hold" => {
            book.hold(argument);
            json("201 Created", "")
        }
        "status" | "refuse" => json(&format!("{argument} Told"), ""),
        "refuse-echo" => {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", request.head.len(), request.head)
        }
        "two-lengths" => {
            let head = "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n";
            format!("{head}14\r\n{}\r\n0\r\n\r\n", "x".repeat(20))
        }
        "say" => {
            let (status, body) = argument.split_once(' ').unwrap();
            format!("HTTP/1.1 {status} Told\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
        "not-executed" | "refuse-not-executed" => {
            json("503 Later", "cache-control: no-store\r\nidempotency-status: not-executed\r\n")
        }
        "effect" => json("200 OK", &format!("idempotency-effect: {argument}\r\n")),
        "close-after" => {
            stream.write_all(json("201 Created", "").as_bytes())?;
            return Ok(false);
        }
        "http10" => {
            stream.write_all(b"HTTP/1.0 201 Created\r\n\r\nuntil the end")?;
            return Ok(false);
        }
        "trailers" => {
            "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\ntrailer: x-t\r\n\r\n3\r\nabc\r\n0\r\nx-t: 1\r\n\r\n".to_owned()
        }
        "garbage" => "nothing that anybody would call HTTP\r\n\r\n".to_owned(),
        "hop" => json("200 OK", "connection: x-private\r\nx-private: 1\r\nkeep-alive: timeout=5\r\n"),
        "big" => {
            let body = "x".repeat(argument.parse().unwrap());
            format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
        "events" => {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(format!("{head}b\r\ndata: one\n\n\r\n").as_bytes())?;
            book.hold(argument);
            "b\r\ndata: two\n\n\r\n0\r\n\r\n".to_owned()
        }
        "websocket" => {
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
            stream.write_all(head.as_bytes())?;
            let mut byte = [0; 1];
            while stream.read(&mut byte)? == 1 {
                stream.write_all(&[byte[0].to_ascii_uppercase()])?;
            }
            return Ok(false);
        }
        "cut" => {
            stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\ncut short")?;
            return Ok(false);
        }
        "reset" => {
            rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO))?;
            return Ok(false);
        }
        other => panic!("unknown act {other:?}"),
    };
    stream.write_all(text.as_bytes())?;
    Ok(true)
}
