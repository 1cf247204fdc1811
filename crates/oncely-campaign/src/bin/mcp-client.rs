//! An MCP client that makes one call over stdio: `mcp-client KEY MODE PAUSE_US COMMAND...`. It starts the command,
//! shakes hands, calls `charge` with the key, and prints the answer to the call as it came. It exits with 3 if the
//! connection breaks before that.
#![allow(clippy::print_stdout, reason = "the answer is its output")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

use oncely_campaign::Checked;
use serde_json::{Value, json};

const BROKEN: u8 = 3;

fn main() -> Checked<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [key, mode, pause, program, rest @ ..] = arguments.as_slice() else {
        return Err("usage: mcp-client KEY MODE PAUSE_US COMMAND...".into());
    };
    let pause: u64 = pause.parse()?;
    let mut server = Command::new(program).args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut to), Some(from)) = (server.stdin.take(), server.stdout.take()) else {
        return Err("the server has no pipes".into());
    };
    let mut from = BufReader::new(from).lines();
    let mut ask = |messages: &[Value], id: u64| -> Option<String> {
        for message in messages {
            to.write_all(format!("{message}\n").as_bytes()).ok()?;
        }
        // Notifications and requests of the server are not for us.
        from.by_ref().map_while(Result::ok).find(|line| is_answer(line, id))
    };
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "campaign", "version": "1" } } });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "charge",
        "arguments": { "key": key, "mode": mode, "pause_us": pause },
        "_meta": { "dev.oncely/idempotency-key": key } } });
    let answer = ask(&[hello], 0).and_then(|_| ask(&[ready, call], 1));
    if let Some(answer) = &answer {
        println!("{answer}");
    }
    drop(to);
    server.wait()?;
    Ok(answer.map_or(ExitCode::from(BROKEN), |_| ExitCode::SUCCESS))
}

fn is_answer(line: &str, id: u64) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|m| m["id"] == id && m.get("method").is_none())
}
