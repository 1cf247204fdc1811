//! A long result of a read passes as it comes; that of a write only when it is recorded.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::web::{FORMS, Reply, Web, call, front, open, server};
use crate::world::{Home, ONCELY, code, script, text};

/// Long enough for a busy machine; no test waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(180);
const MIB: usize = 1024 * 1024;

/// Where the server writes the id of an answer.
#[derive(Debug, Clone, Copy)]
enum IdIs {
    First,
    Last,
}

/// A client that sees bytes as they come.
struct Raw {
    child: Child,
    stdin: Option<ChildStdin>,
    pieces: Receiver<Vec<u8>>,
    seen: Vec<u8>,
}

impl Raw {
    fn start(home: &Home, id_is: IdIs, options: &[&str]) -> Self {
        let mut command = home.command(ONCELY);
        command.arg("mcp").args(options).args(["--", "python3"]).arg(script());
        if let IdIs::Last = id_is {
            command.env("ID_LAST", "1");
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // What is not taken in is not read.
        let (to, pieces) = sync_channel(0);
        let mut from = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if to.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut raw = Self { stdin: child.stdin.take(), child, pieces, seen: Vec::new() };
        raw.ask(0, "initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } }));
        raw.answer();
        raw.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        raw
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn ask(&mut self, id: u32, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    fn call(&mut self, id: u32, tool: &str, arguments: Value) {
        self.ask(id, "tools/call", json!({ "name": tool, "arguments": arguments }));
    }

    /// Takes in what comes next; `false` at the end.
    fn more(&mut self) -> bool {
        match self.pieces.recv_timeout(PATIENCE) {
            Ok(piece) => self.seen.extend_from_slice(&piece),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(timeout) => panic!("{timeout}: {} bytes came", self.seen.len()),
        }
        true
    }

    /// Waits until so many bytes have come that are not part of an answer that was read.
    fn until(&mut self, count: usize) {
        while self.seen.len() < count {
            assert!(self.more(), "it ended after {} bytes", self.seen.len());
        }
    }

    fn line(&mut self) -> Vec<u8> {
        let mut looked = 0;
        loop {
            if let Some(end) = self.seen[looked..].iter().position(|byte| *byte == b'\n') {
                return self.seen.drain(..=looked + end).collect();
            }
            looked = self.seen.len();
            assert!(self.more(), "it ended after {looked} bytes");
        }
    }

    fn answer(&mut self) -> Value {
        serde_json::from_slice(&self.line()).unwrap()
    }

    /// The most memory that the proxy has held so far, in bytes.
    fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.stdin = None;
        // It ends with its client; one that does not is made to.
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

#[test]
fn the_first_half_of_a_long_result_is_there_before_the_second_is_made() {
    for id_is in [IdIs::First, IdIs::Last] {
        let home = Home::new();
        let mut client = Raw::start(&home, id_is, &[]);
        client.call(1, "halves", json!({ "bytes": 4 * MIB, "until": "go" }));
        client.until(2 * MIB);
        // What we have to say ourselves waits for the end of the line, and is not mixed into it. What the client says does
        // not wait.
        client.send(&json!("no message"));
        client.ask(7, "ping", json!({}));
        home.until(|| home.seen().iter().any(|line| line.contains("\"ping\"")));
        home.raise("go");
        let answer = client.answer();
        assert_eq!((&answer["id"], text(&answer["result"], 0).len()), (&json!(1), 4 * MIB), "{id_is:?}");
        let others = [client.answer(), client.answer()];
        assert!(others.iter().any(|answer| answer["error"]["code"] == -32600), "{others:?}");
        assert!(others.iter().any(|answer| answer["id"] == 7), "{others:?}");
        // And it goes on as before.
        client.call(2, "pay", json!({ "amount": 1 }));
        assert_eq!(text(&client.answer()["result"], 0), "paid 1, effect 1");
    }
}

#[test]
fn while_a_write_is_under_way_a_long_result_passes_if_its_id_comes_first_and_is_told_apart_if_not() {
    for id_is in [IdIs::First, IdIs::Last] {
        let home = Home::new();
        let mut client = Raw::start(&home, id_is, &[]);
        client.call(1, "pay", json!({ "amount": 1, "until": "paid" }));
        home.until_reached("paid");
        client.call(2, "halves", json!({ "bytes": 4 * MIB, "until": "go" }));
        match id_is {
            IdIs::First => client.until(2 * MIB),
            IdIs::Last => home.until_reached("go"),
        }
        home.raise("go");
        let answer = client.answer();
        assert_eq!((&answer["id"], text(&answer["result"], 0).len()), (&json!(2), 4 * MIB), "{id_is:?}");
        home.raise("paid");
        let answer = client.answer();
        assert_eq!((&answer["id"], text(&answer["result"], 0)), (&json!(1), "paid 1, effect 1"));
        assert_eq!(home.states(), [("pay".to_owned(), "succeeded".to_owned())]);
    }
}

#[test]
fn a_server_that_ends_in_the_middle_of_a_long_result_leaves_no_write_without_an_answer() {
    let home = Home::new();
    let mut client = Raw::start(&home, IdIs::First, &[]);
    client.call(1, "pay", json!({ "amount": 1, "until": "never" }));
    home.until_reached("never");
    client.call(2, "halves", json!({ "bytes": 4 * MIB, "until": "end", "then": "ends" }));
    client.until(2 * MIB);
    home.raise("end");
    let half = client.line();
    assert!(half.len() > 2 * MIB && serde_json::from_slice::<Value>(&half).is_err());
    let answer = client.answer();
    assert_eq!((&answer["id"], code(&answer["result"])), (&json!(1), "OUTCOME_UNKNOWN"));
    assert!(!client.more(), "nothing else comes");
    assert_eq!(client.child.wait().unwrap().code(), Some(7));
    assert_eq!(home.states(), [("pay".to_owned(), "in_doubt".to_owned())]);
}

#[test]
fn a_long_result_of_a_write_is_recorded_before_its_client_sees_any_of_it() {
    for id_is in [IdIs::First, IdIs::Last] {
        let home = Home::new();
        let mut client = Raw::start(&home, id_is, &[]);
        client.call(1, "pay", json!({ "amount": 1, "bytes": 900_000 }));
        client.until(1);
        client.child.kill().unwrap();
        client.child.wait().unwrap();
        assert_eq!(home.states(), [("pay".to_owned(), "succeeded".to_owned())], "{id_is:?}");
        drop(client);
        let mut client = Raw::start(&home, id_is, &[]);
        client.call(1, "pay", json!({ "amount": 1, "bytes": 900_000 }));
        let answer = client.answer();
        assert!(text(&answer["result"], 0).len() > 900_000);
        assert_eq!(home.effects(), ["pay 1"]);
    }
}

#[test]
fn a_long_result_over_the_limit_is_cut_and_its_caller_told() {
    for id_is in [IdIs::First, IdIs::Last] {
        let home = Home::new();
        let mut client = Raw::start(&home, id_is, &["--max-message", "1"]);
        client.call(1, "big", json!({ "bytes": 3 * MIB }));
        let cut = client.line();
        assert!(cut.len() <= MIB + 1 && serde_json::from_slice::<Value>(&cut).is_err(), "{}", cut.len());
        let answer = client.answer();
        let why = answer["error"]["message"].as_str().unwrap();
        assert!(answer["id"] == 1 && why.contains("--max-message"), "{answer}");
        client.call(2, "balance", json!({}));
        assert_eq!(client.answer()["id"], 2);
    }
}

#[test]
fn a_long_result_is_not_held_in_memory_also_if_its_client_stops_reading() {
    for id_is in [IdIs::First, IdIs::Last] {
        let home = Home::new();
        let mut client = Raw::start(&home, id_is, &[]);
        // What a first write takes is no part of it.
        client.call(1, "pay", json!({ "amount": 0 }));
        client.answer();
        let before = client.peak_memory();
        client.call(2, "big", json!({ "bytes": 40 * MIB }));
        client.until(MIB);
        // What the client says meanwhile is heard: the proxy has had its time to read on.
        client.call(3, "pay", json!({ "amount": 1 }));
        home.until(|| home.effects() == ["pay 0", "pay 1"]);
        assert!(client.line().len() > 40 * MIB);
        let grown = client.peak_memory() - before;
        assert!(grown < 8 * MIB, "{id_is:?}: {grown} bytes more");
        assert_eq!(text(&client.answer()["result"], 0), "paid 1, effect 2");
    }
}

#[test]
fn from_http_to_http_the_first_half_of_a_long_result_is_there_before_the_second_is_made() {
    for form in FORMS {
        let home = Home::new();
        let server = server(&home, form);
        let front = front(&home, &["--url", &format!("http://127.0.0.1:{}/mcp", server.port)]);
        let web = Web::begin(front.port);
        let asked = call("halves", json!({ "bytes": 4 * MIB, "until": "go" })).to_string();
        let mut reply = open(front.port, "POST", "/mcp", &[("Mcp-Session-Id", &web.session)], &asked);
        reply.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut half = vec![0; 2 * MIB];
        reply.read_exact(&mut half).unwrap();
        assert!(half.starts_with(b"HTTP/1.1 200"), "{form}");
        home.raise("go");
        let reply = Reply::read(half, reply);
        assert_eq!(text(&reply.result(), 0).len(), 4 * MIB, "{form}");
    }
}
