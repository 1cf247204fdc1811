//! `tools/list`: passed on with our arguments added, and asked by us where a client calls before it lists.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use memchr::memmem::Finder;

use super::catalog::{Listing, TOOLS_MAX};
use super::flight::Flight;
use super::guard::Guard;
use super::json::{self, Members};
use super::link::{Link, Reply};
use super::message::{self, INTERNAL_ERROR, Request, Response};
use super::session::Session;
use super::tools::{Tool, rewrite};

/// How long a server may take to list its tools to us.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most pages of tools that are asked for.
const PAGES_MAX: usize = 1_000;

/// Answers a client's `tools/list`: the server's own answer, with our arguments added to tools that write. `None` if the
/// client has cancelled it.
pub(super) async fn answer(
    session: &Session,
    request: &Request<'_>,
    flight: &Arc<Flight>,
) -> Option<Vec<u8>> {
    let id = session.guard.ids.next();
    flight.forward_cancel();
    if !flight.launch(&id) {
        return None;
    }
    let edition = session.guard.catalog.edition();
    let mut message = request.members.clone();
    message.set("id", json::raw(&id));
    let reply = tokio::select! {
        reply = session.link.call(id, message::line(message.render())) => reply,
        () = async { flight.cancelled().await; tokio::time::sleep(PATIENCE).await } => return None,
    };
    let failed = |why: &str| message::error(&request.id, INTERNAL_ERROR, why);
    let answer = match reply {
        Reply::Answered(answer) => answer,
        Reply::Lost(why) => return Some(failed(&format!("the server did not answer: {why}"))),
        Reply::Refused(why) | Reply::NotSent(why) => {
            return Some(failed(&format!("the server was not asked; nothing ran: {why}")));
        }
    };
    let text = std::str::from_utf8(&answer).ok()?;
    let response = Response::read(text)?;
    Some(rewritten(&session.guard, &response, &Asked::of(request), edition))
}

/// What a client asked for with `tools/list`.
pub(super) struct Asked {
    /// Its id, as it was written.
    pub(super) id: String,
    /// Whether it wants what follows a page.
    goes_on: bool,
}

impl Asked {
    /// What a request asks for.
    pub(super) fn of(request: &Request<'_>) -> Self {
        let params = request.members.object("params").unwrap_or_default();
        Self { id: request.id.clone(), goes_on: cursor(&params, "cursor").is_some() }
    }
}

/// Where a list goes on, as it is written.
fn cursor<'a>(members: &'a Members<'_>, name: &str) -> Option<&'a str> {
    members.get(name).filter(|raw| *raw != "null")
}

/// A server's list as the client should see it; what is listed is learnt by the way.
pub(super) fn rewritten(guard: &Guard, response: &Response<'_>, asked: &Asked, edition: u64) -> Vec<u8> {
    let id = &asked.id;
    let Some(mut result) = response.result().and_then(|raw| Members::parse(raw).ok()) else {
        return response.under(id);
    };
    let Some(entries) = result.get("tools").and_then(json::items) else { return response.under(id) };
    let is_part = asked.goes_on || cursor(&result, "nextCursor").is_some();
    let listing = if is_part { Listing::Part } else { Listing::Whole };
    guard.catalog.learn(entries.iter().filter_map(|entry| Tool::read(entry.get())), listing, edition);
    let policy = |name: &str| guard.rules(name).declared.clone();
    let changed: Vec<Option<String>> = entries.iter().map(|entry| rewrite(entry.get(), policy)).collect();
    if changed.iter().all(Option::is_none) {
        return response.under(id);
    }
    let texts: Vec<&str> = entries
        .iter()
        .zip(&changed)
        .map(|(entry, changed)| changed.as_deref().unwrap_or_else(|| entry.get()))
        .collect();
    let tools = format!("[{}]", texts.join(","));
    result.set("tools", tools);
    let mut message = response.members.clone();
    message.set("id", id.to_owned());
    message.set("result", result.render());
    message::line(message.render())
}

/// What a server says when its tools have changed. It may write the slash of the method's name in two ways, so only the
/// end is looked for.
static CHANGED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"list_changed"));

/// Whether a server may say so in these lines.
pub(super) fn may_concern(lines: &[u8]) -> bool {
    CHANGED.find(lines).is_some()
}

/// Notices that a server says that its tools have changed.
pub(super) fn notice(guard: &Guard, line: &[u8]) {
    if !may_concern(line) {
        return;
    }
    let members: Result<Members<'_>, _> = serde_json::from_slice(line);
    if members.is_ok_and(|m| m.text("method").as_deref() == Some("notifications/tools/list_changed")) {
        guard.catalog.changed();
    }
}

/// Asks the server for all its tools, unless somebody has lately done so, or it has just failed to answer. `described` is
/// what requests say of themselves in the era without `initialize`.
pub async fn learn(guard: &Guard, link: &Arc<dyn Link>, described: Option<&str>) {
    let _asking = guard.catalog.asking.lock().await;
    guard.catalog.expire();
    if !guard.catalog.is_worth_asking() {
        return;
    }
    let edition = guard.catalog.edition();
    let mut tools = Vec::new();
    // Whatever it is that kept it from listing all of them, the next call would find the same.
    let asked = tokio::time::timeout(PATIENCE, pages(guard, link, described, &mut tools)).await;
    let is_whole = asked.is_ok_and(|listed| listed.is_some());
    // Taken in at once, since a tool may be on two pages.
    guard.catalog.learn(tools, if is_whole { Listing::Whole } else { Listing::Part }, edition);
    if is_whole {
        guard.catalog.complete(edition);
    }
    if !guard.catalog.is_complete() {
        guard.catalog.failed(edition);
    }
}

/// Adds the tools of all pages, as far as they come; `None` if that is not all of them.
async fn pages(
    guard: &Guard,
    link: &Arc<dyn Link>,
    described: Option<&str>,
    tools: &mut Vec<Tool>,
) -> Option<()> {
    let mut next: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let page = page(guard, link, described, next.as_deref()).await?;
        let text = std::str::from_utf8(&page).ok()?;
        let response = Response::read(text)?;
        let result = Members::parse(response.result()?).ok()?;
        let entries = json::items(result.get("tools")?)?;
        tools.extend(entries.iter().filter_map(|entry| Tool::read(entry.get())));
        next = cursor(&result, "nextCursor").map(str::to_owned);
        if next.is_none() {
            return Some(());
        }
        // No more of them are remembered.
        if tools.len() > TOOLS_MAX {
            return None;
        }
    }
    None
}

async fn page(
    guard: &Guard,
    link: &Arc<dyn Link>,
    described: Option<&str>,
    cursor: Option<&str>,
) -> Option<bytes::Bytes> {
    let id = guard.ids.next();
    let mut params = Members::default();
    if let Some(cursor) = cursor {
        params.set("cursor", cursor.to_owned());
    }
    if let Some(described) = described {
        params.set("_meta", described.to_owned());
    }
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{},"method":"tools/list","params":{}}}"#,
        json::quote(&id),
        params.render()
    );
    match link.call(id, message::line(line)).await {
        Reply::Answered(answer) => Some(answer),
        Reply::Lost(_) | Reply::Refused(_) | Reply::NotSent(_) => None,
    }
}
