//! An MCP client that makes one call: `mcp-client stdio|http KEY MODE PAUSE_US COMMAND...`. It starts the command, calls
//! `charge` with the key, and prints the answer to the call as it came. It exits with 3 if the connection breaks
//! before that. Over stdio it speaks the older protocol era, over HTTP the newer one; a command that speaks HTTP says on
//! its standard error where it listens.
#![allow(clippy::print_stdout, reason = "the answer is its output")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncely_campaign::Checked;
use serde_json::{Value, json};

const BROKEN: u8 = 3;
const MODERN: &str = "2026-07-28";
const META: &str = "io.modelcontextprotocol";

fn main() -> Checked<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [transport, key, mode, pause, program, rest @ ..] = arguments.as_slice() else {
        return Err("usage: mcp-client stdio|http KEY MODE PAUSE_US COMMAND...".into());
    };
    let mut command = Command::new(program);
    command.args(rest);
    let params = json!({
        "name": "charge",
        "arguments": { "key": key, "mode": mode, "pause_us": pause.parse::<u64>()? },
        "_meta": { "dev.oncely/idempotency-key": key },
    });
    let answer = match transport.as_str() {
        "stdio" => over_stdio(command, &params)?,
        _ => over_http(command, params)?,
    };
    if let Some(answer) = &answer {
        println!("{answer}");
    }
    Ok(answer.map_or(ExitCode::from(BROKEN), |_| ExitCode::SUCCESS))
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn is_answer(line: &str, id: u64) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|m| m["id"] == id && m.get("method").is_none())
}

fn over_stdio(mut command: Command, params: &Value) -> Checked<Option<String>> {
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
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
    let client = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "campaign", "version": "1" } });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answer = ask(&[request(0, "initialize", &client)], 0)
        .and_then(|_| ask(&[ready, request(1, "tools/call", params)], 1));
    drop(to);
    server.wait()?;
    Ok(answer)
}

fn over_http(mut command: Command, mut params: Value) -> Checked<Option<String>> {
    params["_meta"][format!("{META}/protocolVersion")] = json!(MODERN);
    params["_meta"][format!("{META}/clientCapabilities")] = json!({});
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let answer =
        address_of(&mut server).and_then(|address| post(&address, &request(1, "tools/call", &params)));
    // It may have been killed.
    let _ = kill(Pid::from_raw(i32::try_from(server.id())?), Signal::SIGTERM);
    server.wait()?;
    Ok(answer)
}

/// Host and port, from the line in which the server says where it listens; all else that it says is passed on.
fn address_of(server: &mut Child) -> Option<String> {
    let mut lines = BufReader::new(server.stderr.take()?).lines().map_while(Result::ok);
    let address = lines.find_map(|line| {
        let (_, rest) = line.split_once("http://")?;
        Some(rest.split('/').next()?.trim().to_owned())
    });
    std::thread::spawn(move || lines.for_each(drop));
    address
}

/// One request on a connection of its own, whose end is the end of the answer.
fn post(address: &str, message: &Value) -> Option<String> {
    let body = message.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: charge\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut answer = Vec::new();
    // What came before a break is looked at all the same.
    let _ = stream.read_to_end(&mut answer);
    // The sizes of chunks and the names of fields are on lines of their own, or before the message.
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.lines()
        .filter_map(|line| Some(&line[line.find('{')?..]))
        .find(|line| is_answer(line, 1))
        .map(str::to_owned)
}
