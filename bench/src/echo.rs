//! A minimal MCP server over stdio, and a client for it: what `oncely mcp` is measured against, and with.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::stats::Sample;
use crate::{Result, workload};

/// Bytes of the large result.
pub(crate) const LARGE_BYTES: usize = 10_000_000;

/// A tool of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// A read: passed through.
    Read,
    /// A read with a large result.
    ReadLarge,
    /// A write: guarded.
    Write,
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "get_order",
            Self::ReadLarge => "get_large",
            Self::Write => "charge",
        }
    }
}

#[derive(serde::Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct Called<'a> {
    name: &'a str,
}

/// Answers every call at once, one after the other, until its input ends.
pub(crate) fn serve() -> Result<()> {
    let text = |words: &str| json!({ "content": [{ "type": "text", "text": words }] }).to_string();
    let small = text(&String::from_utf8_lossy(workload::result(0)));
    let large = text(&"x".repeat(LARGE_BYTES));
    let schema = json!({ "type": "object" });
    let tools: Vec<Value> = [Tool::Read, Tool::ReadLarge, Tool::Write]
        .map(|tool| json!({ "name": tool.name(), "inputSchema": schema }))
        .to_vec();
    let tools = json!({ "tools": tools }).to_string();
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
        "serverInfo": { "name": "echo", "version": "1" } })
    .to_string();
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    let (mut line, mut answer) = (Vec::new(), Vec::new());
    while input.read_until(b'\n', &mut line)? > 0 {
        let request: Request<'_> = serde_json::from_slice(&line)?;
        if let Some(id) = request.id {
            let result = match request.method {
                "initialize" => &hello,
                "tools/list" => &tools,
                _ => {
                    let params = request.params.map_or("{}", RawValue::get);
                    let called: Called<'_> = serde_json::from_str(params)?;
                    if called.name == Tool::ReadLarge.name() { &large } else { &small }
                }
            };
            answer.clear();
            writeln!(answer, r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.get())?;
            output.write_all(&answer)?;
            output.flush()?;
        }
        line.clear();
    }
    Ok(())
}

/// The command line of the server.
pub(crate) fn command() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("echo");
    Ok(command)
}

/// A server behind `oncely mcp`.
pub(crate) fn guarded(oncely: &Path, ledger: &Path, server: &Command) -> Command {
    let mut command = Command::new(oncely);
    command.arg("mcp").arg("--store").arg(format!("sqlite:{}", ledger.display())).arg("--");
    command.arg(server.get_program()).args(server.get_args());
    command
}

/// A connection to a server, or to what stands before it.
pub(crate) struct Client {
    child: Child,
    /// Closed when it is dropped, which ends the server.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    id: u64,
    line: Vec<u8>,
}

impl Client {
    /// Starts the server and shakes hands.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the server has no pipes".into());
        };
        let mut client = Self { child, to: Some(to), from: BufReader::new(from), id: 0, line: Vec::new() };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" } });
        client.send(&format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{hello}}}"#))?;
        client.receive()?;
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        Ok(client)
    }

    /// Makes one call and returns its answer, taken apart.
    pub(crate) fn call(&mut self, tool: Tool, number: u64) -> Result<Value> {
        self.ask(tool, number)?;
        self.receive()?;
        Ok(serde_json::from_slice(&self.line)?)
    }

    /// Makes one call and says how long it took, in seconds.
    pub(crate) fn timed(&mut self, tool: Tool, number: u64) -> Result<f64> {
        let start = Instant::now();
        self.ask(tool, number)?;
        self.receive()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Makes calls for a while, so many in flight.
    pub(crate) fn calls(
        &mut self,
        tool: Tool,
        in_flight: usize,
        duration: Duration,
        mut number: impl FnMut() -> u64,
    ) -> Result<Sample> {
        let start = Instant::now();
        let mut asked = std::collections::VecDeque::with_capacity(in_flight);
        let mut latencies = Vec::new();
        while start.elapsed() < duration {
            while asked.len() < in_flight {
                asked.push_back(Instant::now());
                self.ask(tool, number())?;
            }
            self.receive()?;
            // Answers to reads come in the order of the questions: the server answers one after the other.
            latencies.extend(asked.pop_front().map(|from| from.elapsed()));
        }
        let sample = Sample::of(start.elapsed(), latencies, Vec::new());
        for _ in asked {
            self.receive()?;
        }
        Ok(sample)
    }

    /// The most memory that the started process has held so far, in bytes.
    pub(crate) fn peak_memory(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmHWM")?;
        Ok(kib.parse::<f64>()? * 1024.0)
    }

    fn ask(&mut self, tool: Tool, number: u64) -> Result<()> {
        self.id += 1;
        let (id, name, payload) = (self.id, tool.name(), workload::small_payload(number));
        let meta = match tool {
            Tool::Write => {
                format!(r#","_meta":{{"dev.oncely/idempotency-key":"{}"}}"#, workload::key(number))
            }
            Tool::Read | Tool::ReadLarge => String::new(),
        };
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{payload}{meta}}}}}"#
        ))
    }

    fn send(&mut self, message: &str) -> Result<()> {
        let to = self.to.as_mut().ok_or("the connection is closed")?;
        Ok(to.write_all(format!("{message}\n").as_bytes())?)
    }

    fn receive(&mut self) -> Result<()> {
        self.line.clear();
        if self.from.read_until(b'\n', &mut self.line)? == 0 {
            return Err("the server ended".into());
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.to = None;
        // It ends with its input; there is nobody to tell if not.
        let _ = self.child.wait();
    }
}
