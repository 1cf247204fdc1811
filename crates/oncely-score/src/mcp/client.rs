//! A small MCP client over standard input and output that speaks both eras: with `initialize`, and without.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::Plan;
use crate::Error;
use crate::exec::Group;
use crate::limits::{LINE_BYTES_MAX, OUTPUT_BYTES_MAX, TOOLS_MAX};
use crate::words::{clip, excerpt};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
/// Most pages of a list of tools.
const PAGES_MAX: usize = 100;
/// How long a server may take to end after its input was closed.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// How the server begins a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// With `initialize`.
    Legacy,
    /// Without: every request says its version.
    Modern,
}

/// A running server and a conversation with it. Dropped, its whole group is ended.
pub(super) struct Client {
    // Before the child: dropped first, so that the group is ended while its number is still ours.
    group: Group,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: JoinHandle<Vec<u8>>,
    timeout: Duration,
    next_id: u64,
    era: Era,
}

/// What a request was answered with: a result, or an error's message.
pub(super) type Reply = Result<Value, String>;

impl Client {
    /// Starts the server and begins the conversation.
    pub(super) async fn start(plan: &Plan, words: &[String]) -> Result<Self, Error> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| Error::asked("no command is given; nothing ran"))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(sandbox) = &plan.sandbox {
            command.current_dir(sandbox);
        }
        let mut child = command
            .spawn()
            .map_err(|e| Error::measuring(format!("`{program}` could not be started: {e}")))?;
        let group = Group::of(&child)?;
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::measuring("the server's streams cannot be had"));
        };
        let errors = tokio::spawn(async move {
            let mut kept = Vec::new();
            // What cannot be read is only missing from a message.
            let _ = errors.take(OUTPUT_BYTES_MAX as u64).read_to_end(&mut kept).await;
            kept
        });
        let mut client = Self {
            child,
            group,
            input: Some(input),
            output: BufReader::new(output),
            errors,
            timeout: plan.timeout,
            next_id: 0,
            era: Era::Legacy,
        };
        client.begin().await?;
        Ok(client)
    }

    /// How the server began.
    pub(super) fn era(&self) -> Era {
        self.era
    }

    async fn begin(&mut self) -> Result<(), Error> {
        let hello = json!({
            "protocolVersion": LEGACY,
            "capabilities": {},
            "clientInfo": { "name": "oncely-score", "version": env!("CARGO_PKG_VERSION") },
        });
        if self.request("initialize", hello).await?.is_ok() {
            return self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        }
        self.era = Era::Modern;
        match self.request("server/discover", json!({})).await? {
            Ok(_) => Ok(()),
            Err(message) => Err(Error::measuring(format!(
                "the server answers neither `initialize` nor `server/discover`: {}",
                clip(&message)
            ))),
        }
    }

    /// All tools, page by page.
    pub(super) async fn tools(&mut self) -> Result<Vec<Value>, Error> {
        let mut tools = Vec::new();
        let mut params = json!({});
        for _ in 0..PAGES_MAX {
            let page = self.request("tools/list", params.clone()).await?.map_err(|message| {
                Error::measuring(format!("the tools cannot be listed: {}", clip(&message)))
            })?;
            tools.extend(page["tools"].as_array().into_iter().flatten().cloned());
            match page["nextCursor"].as_str() {
                Some(cursor) if tools.len() < TOOLS_MAX => params = json!({ "cursor": cursor }),
                _ => break,
            }
        }
        tools.truncate(TOOLS_MAX);
        Ok(tools)
    }

    /// Calls a tool.
    pub(super) async fn call(&mut self, tool: &str, arguments: &Value) -> Result<Reply, Error> {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    async fn request(&mut self, method: &str, mut params: Value) -> Result<Reply, Error> {
        self.next_id += 1;
        let id = self.next_id;
        if self.era == Era::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": { "name": "oncely-score", "version": env!("CARGO_PKG_VERSION") },
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let timeout = self.timeout;
        let exchange = async {
            self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await?;
            loop {
                let message = self.receive().await?;
                if message["id"] == id && message["method"].is_null() {
                    return Ok(reply(&message));
                }
                self.decline(&message).await?;
            }
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(done) => done,
            Err(_) => Err(Error::measuring(format!(
                "the server did not answer `{method}` within {} s",
                timeout.as_secs()
            ))),
        }
    }

    /// Answers what the server asks of a client: that it is there, and that it can do nothing else.
    async fn decline(&mut self, message: &Value) -> Result<(), Error> {
        let (Some(method), false) = (message["method"].as_str(), message["id"].is_null()) else {
            return Ok(());
        };
        let mut answer = json!({ "jsonrpc": "2.0", "id": message["id"] });
        if method == "ping" {
            answer["result"] = json!({});
        } else {
            answer["error"] = json!({ "code": -32601, "message": "not supported by this client" });
        }
        self.send(&answer).await
    }

    async fn send(&mut self, message: &Value) -> Result<(), Error> {
        let Some(input) = &mut self.input else {
            return Err(Error::measuring("the server's input is closed"));
        };
        let sent = async {
            input.write_all(format!("{message}\n").as_bytes()).await?;
            input.flush().await
        };
        match sent.await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.gone().await),
        }
    }

    /// The next message. Lines that are none are passed over: some servers talk on standard output.
    async fn receive(&mut self) -> Result<Value, Error> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.output).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line).await;
            if read.unwrap_or(0) == 0 {
                return Err(self.gone().await);
            }
            if line.len() == LINE_BYTES_MAX {
                return Err(Error::measuring(format!(
                    "the server sent a line of more than {LINE_BYTES_MAX} bytes"
                )));
            }
            if let Ok(message @ Value::Object(_)) = serde_json::from_slice(&line) {
                return Ok(message);
            }
        }
    }

    /// Why the conversation broke off, with the server's last words.
    async fn gone(&mut self) -> Error {
        let words = tokio::time::timeout(CLOSE_GRACE, &mut self.errors).await;
        let words = words.map(Result::unwrap_or_default).unwrap_or_default();
        let text = String::from_utf8_lossy(&words);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Error::measuring(format!("the server ended the conversation: {}", excerpt(last.as_bytes())))
    }

    /// Closes the conversation as the protocol says, and then ends whatever is left of the server.
    pub(super) async fn close(mut self) {
        self.input = None;
        let _ = tokio::time::timeout(CLOSE_GRACE, self.group.leader_ended()).await;
        self.group.kill();
        if self.child.wait().await.is_ok() {
            self.group.forget();
        }
        self.errors.abort();
    }
}

fn reply(message: &Value) -> Reply {
    match &message["error"] {
        Value::Null => Ok(message["result"].clone()),
        error => Err(error["message"].as_str().unwrap_or("an error without a message").to_owned()),
    }
}
