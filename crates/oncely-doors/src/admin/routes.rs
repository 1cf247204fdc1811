//! The table of routes, and what every request goes through: who asks, the query, the body, a time limit, and errors as
//! problem+json.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::routing::{MethodFilter, MethodRouter, on};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use oncely_core::IntentId;
use oncely_core::limits::ADMIN_BODY_BYTES_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::auth::{Access, Scope, Who};
use super::problem::Problem;
use super::query::Query;
use super::{AdminState, claims, events, info, policy, records};

/// The OpenAPI document, as it is served.
pub const OPENAPI: &str = include_str!("openapi.json");
/// How long a body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer may take, waiting for another attempt included.
const ANSWER_PATIENCE: Duration = Duration::from_secs(75);

/// What a route answers.
pub(super) type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Problem>> + Send>>;

/// One route.
struct Route {
    method: Method,
    path: &'static str,
    access: Access,
    answer: fn(Ask) -> Answer,
}

const OPEN: Access = Access::Open;
const READ: Access = Access::Needs(Scope::Read);
const WRITE: Access = Access::Needs(Scope::Write);

macro_rules! route {
    ($method:ident $path:literal $access:ident $answer:path) => {
        Route { method: Method::$method, path: $path, access: $access, answer: |ask| Box::pin($answer(ask)) }
    };
}

/// Every route there is.
static ROUTES: &[Route] = &[
    route!(GET "/healthz" OPEN info::healthz),
    route!(GET "/readyz" OPEN info::readyz),
    route!(GET "/openapi.json" OPEN info::openapi),
    route!(GET "/metrics" READ info::metrics),
    route!(GET "/v1/records" READ records::list),
    route!(GET "/v1/records/{id}" READ records::one),
    route!(POST "/v1/records/{id}/resolve" WRITE records::resolve),
    route!(POST "/v1/records/{id}/forget" WRITE records::forget),
    route!(GET "/v1/events" READ events::list),
    route!(GET "/v1/events/stream" READ events::stream),
    route!(GET "/v1/stats" READ info::stats),
    route!(GET "/v1/policy" READ policy::policy),
    route!(POST "/v1/purge" WRITE info::purge),
    route!(POST "/v1/begin" WRITE claims::begin),
    route!(POST "/v1/renew" WRITE claims::renew),
    route!(POST "/v1/complete" WRITE claims::complete),
];

/// Every route as the OpenAPI document has to name it: method, path, and whether a token is asked for.
pub fn documented_routes() -> Vec<(String, &'static str, bool)> {
    let needs_token = |route: &Route| route.access != Access::Open;
    ROUTES.iter().map(|r| (r.method.as_str().to_ascii_lowercase(), r.path, needs_token(r))).collect()
}

/// A request that was let in.
pub(super) struct Ask {
    pub(super) state: Arc<AdminState>,
    pub(super) who: Who,
    pub(super) query: Query,
    pub(super) parts: Parts,
    id: Option<String>,
    body: Body,
}

impl Ask {
    /// The record that the path names.
    pub(super) fn id(&self) -> Result<IntentId, Problem> {
        let text = self.id.as_deref().unwrap_or("");
        let lower_case = !text.bytes().any(|b| b.is_ascii_uppercase());
        IntentId::parse(text).filter(|_| lower_case).ok_or_else(|| {
            Problem::bad_request("an id has 64 hexadecimal digits in lower case; nothing was done")
        })
    }

    /// The body as JSON. Its type has to be stated: what a web page can send without asking is refused.
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<(T, Arc<AdminState>, Who), Problem> {
        let stated = self.parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = stated.and_then(|text| text.split(';').next()).unwrap_or("").trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            let detail = "the body must be application/json; nothing was done";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
        }
        let read = Limited::new(self.body, ADMIN_BODY_BYTES_MAX).collect();
        let bytes = match tokio::time::timeout(BODY_PATIENCE, read).await {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                let detail =
                    format!("the body is larger than {ADMIN_BODY_BYTES_MAX} bytes; nothing was done");
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail));
            }
            Ok(Err(_)) => return Err(Problem::bad_request("the body broke off; nothing was done")),
            Err(_) => {
                let detail = "the body took too long; nothing was done";
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail));
            }
        };
        // Members are told by name: a list is not taken for an object.
        if bytes.iter().find(|b| !b.is_ascii_whitespace()) != Some(&b'{') {
            let detail = "the body must be a JSON object; nothing was done";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_body", detail));
        }
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            let detail = format!("the body is not what is asked for: {error}; nothing was done");
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_body", detail)
        })?;
        Ok((value, self.state, self.who))
    }
}

/// The service for all connections.
pub(super) fn router(state: &Arc<AdminState>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let state = Arc::clone(state);
        let answer = move |request: Request<Body>| answer(route, Arc::clone(&state), request);
        let method: MethodRouter = match MethodFilter::try_from(route.method.clone()) {
            Ok(filter) => on(filter, answer),
            // Only methods without a filter of their own come here, and the table has none.
            Err(_) => continue,
        };
        router = router.route(route.path, method);
    }
    router.fallback(not_found).method_not_allowed_fallback(not_allowed)
}

async fn answer(route: &'static Route, state: Arc<AdminState>, request: Request<Body>) -> Response<Body> {
    let answered = tokio::time::timeout(ANSWER_PATIENCE, answer_asked(route, state, request)).await;
    let timed_out = || {
        let detail =
            "the answer took too long. What was asked may have been done: ask again, a begin with its token";
        Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, "timed_out", detail))
    };
    let mut response = answered.unwrap_or_else(|_| timed_out()).unwrap_or_else(Problem::into_response);
    // Records change; and no proxy or browser should keep what they hold.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

async fn answer_asked(
    route: &'static Route,
    state: Arc<AdminState>,
    request: Request<Body>,
) -> Result<Response<Body>, Problem> {
    let (mut parts, body) = request.into_parts();
    let who = state.tokens.admit(&parts, route.access)?;
    let query = Query::parse(parts.uri.query())?;
    let params = RawPathParams::from_request_parts(&mut parts, &())
        .await
        .map_err(|_| Problem::bad_request("the path is not text"))?;
    let id = params.iter().find(|(name, _)| *name == "id").map(|(_, value)| value.to_owned());
    (route.answer)(Ask { state, who, query, parts, id, body }).await
}

async fn not_found() -> Response<Body> {
    let detail = "there is no such path; /openapi.json lists what there is";
    Problem::new(StatusCode::NOT_FOUND, "no_route", detail).into_response()
}

async fn not_allowed() -> Response<Body> {
    let detail = "the path takes another method; see the header Allow";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no_method", detail).into_response()
}

/// A number as JSON knows it: `5.0` is 5.
pub(super) fn whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    maybe_whole(from)?.ok_or_else(|| serde::de::Error::custom("a number is missing"))
}

/// The same where there may be none.
pub(super) fn maybe_whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    // Beyond 2^53 a fraction cannot be told from a whole number any more.
    let exact = |float: f64| float.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&float);
    match (number.as_u64(), number.as_f64()) {
        (Some(whole), _) => Ok(Some(whole)),
        (None, Some(float)) if exact(float) => Ok(Some(float as u64)),
        _ => Err(serde::de::Error::custom(format!("{number} is not a whole number of 0 or more"))),
    }
}

/// An answer in JSON.
pub(super) fn json_of(status: StatusCode, value: &impl Serialize) -> Result<Response<Body>, Problem> {
    let text = serde_json::to_string(value).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("no JSON form: {error}"))
    })?;
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
