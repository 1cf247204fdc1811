//! An MCP server over stdio with one tool that has an effect: `mcp-server SOCKET`. Each call of `charge` reports one
//! effect under the key in its arguments to the outside ledger, or ends in one of the other ways a tool can.
//!
//! A call that has been taken up is finished even if nobody is left to answer to, as a real server may.
#![allow(clippy::print_stdout, reason = "it speaks over its output")]

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, sleep};
use std::time::Duration;

use oncely_campaign::{Checked, outside};
use serde_json::{Value, json};

fn main() -> Checked<()> {
    let socket = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: mcp-server SOCKET")?);
    let mut calls = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let Some(id) = message.get("id").cloned() else { continue };
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if method == "tools/call" {
            let (socket, arguments) = (socket.clone(), message["params"]["arguments"].clone());
            calls.push(thread::spawn(move || {
                let answer = charge(&socket, &arguments);
                say(&id, answer);
            }));
        } else {
            say(&id, answer(&method, &message));
        }
    }
    for call in calls {
        // One that panicked has said so.
        let _ = call.join();
    }
    Ok(())
}

/// A result, or a JSON-RPC error.
type Answer = Result<Value, Value>;

fn answer(method: &str, message: &Value) -> Answer {
    match method {
        "initialize" => Ok(json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "charges", "version": "1" },
        })),
        "tools/list" => {
            let schema = json!({ "type": "object", "properties": { "key": { "type": "string" } } });
            Ok(json!({ "tools": [{ "name": "charge", "inputSchema": schema }] }))
        }
        _ => Err(json!({ "code": -32601, "message": "Method not found" })),
    }
}

fn charge(socket: &Path, arguments: &Value) -> Answer {
    let text = |words: &str, is_error: bool| {
        Ok(json!({ "content": [{ "type": "text", "text": words }], "isError": is_error }))
    };
    let key = arguments["key"].as_str().unwrap_or_default();
    let pause = Duration::from_micros(arguments["pause_us"].as_u64().unwrap_or_default());
    match arguments["mode"].as_str() {
        Some("refuses") => return Err(json!({ "code": -32602, "message": "no such customer" })),
        Some("fails-before") => return text("the card could not be charged", true),
        _ => {}
    }
    sleep(pause);
    let receipt = outside::report(socket, key).map_err(|e| json!({ "code": 1, "message": e.to_string() }))?;
    sleep(pause);
    match arguments["mode"].as_str() {
        Some("fails-after") => text("something went wrong", true),
        _ => text(&format!("{key}: {receipt}"), false),
    }
}

/// One line, one system call. Whoever was to read it may be dead.
fn say(id: &Value, answer: Answer) {
    let message = match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    };
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{message}\n").as_bytes());
    let _ = out.flush();
}
