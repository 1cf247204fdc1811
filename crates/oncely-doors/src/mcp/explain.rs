//! Asks a server for its tools on behalf of a person who wants to know what oncely makes of them.

use std::sync::Arc;

use bytes::Bytes;

use super::guard::Guard;
use super::link::{Boxed, Client, Link, Reply};
use super::listing;
use super::message::{self, Response};
use super::session::Session;
use super::stdio::{Input, StdioLink, pump_server};
use super::tools::Tool;

/// What a request of the era without `initialize` has to say of itself.
const DESCRIBED: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"oncely","version":"0"}}"#;

/// A client that nobody listens as.
pub struct Nobody;

impl Client for Nobody {
    fn send(&self, _line: Bytes) -> Boxed<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Reads a server's messages for as long as it speaks.
pub fn attend(guard: &Arc<Guard>, link: &Arc<StdioLink>, from: Input, limit: usize) {
    let session = Session::new(guard.clone(), link.clone(), Arc::new(Nobody));
    let link = link.clone();
    tokio::spawn(async move { pump_server(from, (&session.guard.ids, &link), &session, None, limit).await });
}

/// The tools of a server: with a handshake if it has one, else by a request that describes itself.
pub async fn tools(guard: &Guard, link: &Arc<dyn Link>) -> Result<Vec<Arc<Tool>>, String> {
    let shaken = shake_hands(guard, link).await;
    // Over HTTP, a server without a handshake may refuse it as a whole.
    let described = if shaken == Ok(true) { None } else { Some(DESCRIBED) };
    listing::learn(guard, link, described).await;
    if !guard.catalog.is_complete() {
        return Err(shaken.err().unwrap_or_else(|| "it answered without a list of tools".to_owned()));
    }
    Ok(guard.catalog.all())
}

/// Whether the server has a handshake, and it is done.
async fn shake_hands(guard: &Guard, link: &Arc<dyn Link>) -> Result<bool, String> {
    let id = guard.ids.next();
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"oncely","version":"0"}}}}}}"#
    );
    let answer = match link.call(id, message::line(line)).await {
        Reply::Answered(answer) => answer,
        Reply::NotSent(why) | Reply::Refused(why) => return Err(format!("nothing ran: {why}")),
        Reply::Lost(why) => return Err(why.to_string()),
    };
    let text = String::from_utf8_lossy(&answer);
    let done = Response::read(&text).is_some_and(|response| response.result().is_some());
    if done {
        let ready = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        link.pass(Bytes::from_iter(ready.iter().copied().chain([b'\n']))).await;
    }
    Ok(done)
}
