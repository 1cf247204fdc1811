//! The audit log: a page of it, or as it grows, as server-sent events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use oncely_core::limits::PAGE_MAX;
use oncely_core::{IntentId, LogQuery};
use serde_json::json;
use tokio::sync::mpsc;

use super::AdminState;
use super::problem::Problem;
use super::routes::{Ask, json_of};
use super::view;

/// Events in a page without being asked for a number.
const LIMIT: u64 = 50;
/// How often a followed log is looked at.
const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
/// How long a feed may be silent: proxies close what says nothing.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events on their way to a follower that reads slowly; beyond it the log is read later.
const FEED_AHEAD: usize = 64;

/// `GET /v1/events`
pub(super) async fn list(mut ask: Ask) -> Result<Response<Body>, Problem> {
    let intent = intent_of(&mut ask)?;
    let after = ask.query.number("after", 0, i64::MAX as u64)?;
    let limit = ask.query.number("limit", 1, PAGE_MAX as u64)?.unwrap_or(LIMIT) as usize;
    ask.query.finish()?;
    // Without a place to go on from, the newest are what one wants to see.
    let query = LogQuery { after: after.unwrap_or(0), intent, limit, newest: after.is_none() };
    let page = ask.state.oncely.store().log(query).await?;
    let events: Vec<_> = page.items.iter().map(|logged| view::event(logged, page.now)).collect();
    let last = page.items.last().map(|logged| logged.seq).or(after).unwrap_or(0);
    json_of(StatusCode::OK, &json!({ "events": events, "after": last }))
}

fn intent_of(ask: &mut Ask) -> Result<Option<IntentId>, Problem> {
    let Some(text) = ask.query.text("id")? else { return Ok(None) };
    let lower_case = !text.bytes().any(|b| b.is_ascii_uppercase());
    match IntentId::parse(&text).filter(|_| lower_case) {
        Some(id) => Ok(Some(id)),
        None => Err(Problem::bad_request("id must have 64 hexadecimal digits in lower case")),
    }
}

/// `GET /v1/events/stream`
pub(super) async fn stream(mut ask: Ask) -> Result<Response<Body>, Problem> {
    let intent = intent_of(&mut ask)?;
    let after = ask.query.number("after", 0, i64::MAX as u64)?;
    ask.query.finish()?;
    // A browser that lost the connection says where it was.
    let resumed = ask.parts.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let resumed = resumed.and_then(|text| text.parse::<u64>().ok()).filter(|seq| i64::try_from(*seq).is_ok());
    let state = ask.state;
    if state.feeds.available_permits() == 0 {
        let detail = "too many follow the audit log already; try again later";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail).retryable());
    }
    let from = match resumed.or(after) {
        Some(from) => from,
        None => newest(&state, intent).await?,
    };
    let (sender, receiver) = mpsc::channel(FEED_AHEAD);
    tokio::spawn(feed(state, intent, from, sender));
    let mut response = Response::new(Body::new(Feed(receiver)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn newest(state: &AdminState, intent: Option<IntentId>) -> Result<u64, Problem> {
    let query = LogQuery { after: 0, intent, limit: 1, newest: true };
    Ok(state.oncely.store().log(query).await?.items.last().map_or(0, |logged| logged.seq))
}

/// Sends events as they come, until the follower leaves or the listener closes.
async fn feed(state: Arc<AdminState>, intent: Option<IntentId>, mut after: u64, to: mpsc::Sender<Bytes>) {
    let Ok(_place) = state.feeds.try_acquire() else { return };
    let mut closing = state.closing.subscribe();
    let mut silent = Duration::ZERO;
    if to.send(Bytes::from_static(b": following\n\n")).await.is_err() {
        return;
    }
    loop {
        let query = LogQuery { after, intent, limit: PAGE_MAX, newest: false };
        // A ledger that cannot be read now may be read later; the place is kept.
        if let Ok(page) = state.oncely.store().log(query).await {
            for logged in &page.items {
                let data = view::event(logged, page.now);
                let text =
                    format!("id: {}\nevent: {}\ndata: {data}\n\n", logged.seq, logged.event.kind.as_str());
                if to.send(Bytes::from(text)).await.is_err() {
                    return;
                }
                after = logged.seq;
                silent = Duration::ZERO;
            }
        }
        if silent >= KEEP_ALIVE {
            silent = Duration::ZERO;
            if to.send(Bytes::from_static(b": still here\n\n")).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_PAUSE) => silent += FOLLOW_PAUSE,
            () = to.closed() => return,
            _ = closing.wait_for(|closing| *closing) => return,
        }
    }
}

/// A body that ends with its sender.
struct Feed(mpsc::Receiver<Bytes>);

impl http_body::Body for Feed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
