//! Health, counters and housekeeping.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use axum::body::Body;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use oncely::Purged;
use oncely_core::{IntentId, Link, Namespace};
use serde::Deserialize;
use serde_json::json;

use super::metrics;
use super::problem::Problem;
use super::routes::{Ask, OPENAPI, json_of};
use crate::stats::Stats;

/// How long the ledger may take to prove that it can be read.
const READY_PATIENCE: Duration = Duration::from_secs(2);
/// How long one purge goes on before it says that there is more.
const PURGE_PATIENCE: Duration = Duration::from_secs(20);

/// `GET /healthz`: the process answers.
pub(super) async fn healthz(ask: Ask) -> Result<Response<Body>, Problem> {
    ask.query.finish()?;
    json_of(StatusCode::OK, &json!({ "status": "ok" }))
}

/// `GET /readyz`: the ledger can be read, whoever writes it answers, and there is room for new attempts.
pub(super) async fn readyz(ask: Ask) -> Result<Response<Body>, Problem> {
    ask.query.finish()?;
    let store = ask.state.oncely.store();
    let usable = async {
        store.load(IntentId([0; 32])).await?;
        store.flush().await
    };
    match tokio::time::timeout(READY_PATIENCE, usable).await {
        Ok(Ok(())) if !matches!(store.health().link, Link::Refused { .. }) => {
            json_of(StatusCode::OK, &json!({ "status": "ready" }))
        }
        // Open to everybody, so it does not say why.
        Ok(_) | Err(_) => {
            let detail = "the ledger cannot be used; nothing runs until it can";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", detail).retryable())
        }
    }
}

/// `GET /openapi.json`
pub(super) async fn openapi(ask: Ask) -> Result<Response<Body>, Problem> {
    ask.query.finish()?;
    Ok(with_type(OPENAPI.to_owned(), "application/json"))
}

/// `GET /metrics`
pub(super) async fn metrics(ask: Ask) -> Result<Response<Body>, Problem> {
    ask.query.finish()?;
    let text = metrics::render(&ask.state).await;
    Ok(with_type(text, "text/plain; version=0.0.4; charset=utf-8"))
}

fn with_type(text: String, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// `GET /v1/stats`
pub(super) async fn stats(mut ask: Ask) -> Result<Response<Body>, Problem> {
    let namespace = ask.query.text("namespace")?.map(|name| Namespace::parse(&name)).transpose();
    let namespace = namespace.map_err(|error| Problem::bad_request(error.to_string()))?;
    ask.query.finish()?;
    let store = &**ask.state.oncely.store();
    let stats = Stats::gather(store, &ask.state.policy, namespace.as_ref()).await?;
    json_of(StatusCode::OK, &stats)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// `POST /v1/purge`
pub(super) async fn purge(mut ask: Ask) -> Result<Response<Body>, Problem> {
    std::mem::take(&mut ask.query).finish()?;
    let (Nothing {}, state, who): (Nothing, _, _) = ask.json().await?;
    let so_far = Mutex::new(Purged::default());
    let keep = |purged: &Purged| *so_far.lock().unwrap_or_else(PoisonError::into_inner) = *purged;
    let more = match tokio::time::timeout(PURGE_PATIENCE, state.oncely.purge_by(&who.name, keep)).await {
        Ok(purged) => {
            purged?;
            false
        }
        Err(_) => true,
    };
    let purged = *so_far.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = json!({
        "results_dropped": purged.results_dropped,
        "records_removed": purged.records_removed,
        "events_removed": purged.events_removed,
        "more": more,
    });
    json_of(StatusCode::OK, &answer)
}
