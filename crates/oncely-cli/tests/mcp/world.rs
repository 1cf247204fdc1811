//! A home, a scripted server and a client that speaks line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) const ONCELY: &str = env!("CARGO_BIN_EXE_oncely");
/// Long enough for a busy machine; no test waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py")
}

/// What a request of the era without `initialize` says of itself.
pub(crate) fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
    })
}

/// A place where nothing else is.
pub(crate) struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// What the server did, one line each.
    pub(crate) fn effects(&self) -> Vec<String> {
        self.read("effects").lines().map(str::to_owned).collect()
    }

    /// What the server got.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.read("seen").lines().map(str::to_owned).collect()
    }

    /// A command in this home, with nothing of the surroundings.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("HOME", self.directory.path())
            .env("ONCELY_STORE", self.path("ledger.db"))
            .env("EFFECTS", self.path("effects"))
            .env("SEEN", self.path("seen"))
            .env("FLAGS", self.directory.path())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Runs `oncely` with arguments and returns what it printed as JSON lines.
    pub(crate) fn oncely(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.command(ONCELY).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// States of the records, by tool.
    pub(crate) fn states(&self) -> Vec<(String, String)> {
        let text = |record: &Value, name: &str| record[name].as_str().unwrap().to_owned();
        let bare = |tool: String| tool.split_once('/').unwrap().1.to_owned();
        let mut all: Vec<_> =
            self.oncely(&["ls"]).iter().map(|r| (bare(text(r, "tool")), text(r, "state"))).collect();
        all.sort();
        all
    }

    pub(crate) fn raise(&self, flag: &str) {
        self.write(flag, "");
    }

    /// Waits until the server has come to a flag.
    pub(crate) fn until_reached(&self, flag: &str) {
        self.until(|| self.path(&format!("{flag}.reached")).exists());
    }

    pub(crate) fn until(&self, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "it did not come to that");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A client of the scripted server behind oncely.
    pub(crate) fn client(&self) -> Client {
        self.client_of(&["mcp", "--"], &[script().to_str().unwrap()])
    }

    /// The same, past the handshake of the era that has one.
    pub(crate) fn ready(&self) -> Client {
        let mut client = self.client();
        client.initialize();
        client
    }

    pub(crate) fn client_of(&self, before: &[&str], server: &[&str]) -> Client {
        let mut command = self.command(ONCELY);
        command.args(before);
        if !server.is_empty() {
            command.arg("python3").args(server);
        }
        Client::start(command)
    }
}

/// A client that started something and speaks with it.
pub(crate) struct Client {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    next: i64,
}

impl Client {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let errors = lines_of(child.stderr.take().unwrap());
        Self { stdin: child.stdin.take(), child, lines, errors, next: 1 }
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.send_raw(format!("{message}\n").as_bytes());
    }

    pub(crate) fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("nothing came")
    }

    pub(crate) fn receive(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// A line of standard error.
    pub(crate) fn error_line(&mut self) -> String {
        self.errors.recv_timeout(PATIENCE).expect("nothing was said")
    }

    /// Reads on until the answer to this id; what came before it is returned, too.
    pub(crate) fn answer_to(&mut self, id: &Value) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let message = self.receive();
            if message["id"] == *id && message.get("method").is_none() {
                return (message, before);
            }
            before.push(message);
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer_to(&id).0
    }

    /// Sends a request and does not wait.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> Value {
        let id = Value::from(self.next);
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(crate) fn initialize(&mut self) -> Value {
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let answer = self.request("initialize", params);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer
    }

    /// Calls a tool and returns its result.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))["result"].clone()
    }

    /// Calls a tool as the era without `initialize` does.
    pub(crate) fn call_modern(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": modern_meta() });
        self.request("tools/call", params)["result"].clone()
    }

    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn end(mut self) -> ExitStatus {
        self.close();
        self.child.wait().unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stdin = None;
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                if !std::thread::panicking() {
                    panic!("it does not end when its client does");
                }
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn lines_of(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The text of a result's item.
pub(crate) fn text(result: &Value, at: usize) -> &str {
    result["content"][at]["text"].as_str().unwrap_or_else(|| panic!("no text {at} in {result}"))
}

/// The code in the envelope of a refusal.
pub(crate) fn code(result: &Value) -> &str {
    result["_meta"]["dev.oncely/envelope"]["error"]["code"].as_str().unwrap_or_else(|| panic!("{result}"))
}
