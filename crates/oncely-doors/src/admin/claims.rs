//! `begin`, `renew` and `complete` over HTTP: any language can use the ledger. A claim made here belongs to no process
//! that could be watched: it lives by its lease, and survives a restart of this one.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use oncely::{Answer, Call, Forecast, RemoteBegun, RemoteClaim, RemoteEnd, Replay};
use oncely_core::limits::{HEARTBEAT_MS, REMOTE_LEASE_MS_MAX};
use oncely_core::machine::Decision;
use oncely_core::{
    AttemptToken, Effect, IntentId, Key, Kind, Namespace, Outcome, Policy, Scope, State, ToolName,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::AdminState;
use super::auth::Who;
use super::problem::Problem;
use super::routes::{Ask, json_of, maybe_whole};
use super::view::token_text;
use crate::command::base64;

/// Longest wait for a running attempt.
const WAIT_MS_MAX: u64 = 60_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BeginBody {
    tool: String,
    namespace: Option<String>,
    scope: Option<String>,
    key: Option<String>,
    payload: Option<Box<RawValue>>,
    token: Option<String>,
    #[serde(default, deserialize_with = "maybe_whole")]
    wait_for_ms: Option<u64>,
    #[serde(default, deserialize_with = "maybe_whole")]
    lease_ms: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

/// `POST /v1/begin`
pub(super) async fn begin(mut ask: Ask) -> Result<Response<Body>, Problem> {
    std::mem::take(&mut ask.query).finish()?;
    let (body, state, who): (BeginBody, _, _) = ask.json().await?;
    let token = body.token.as_deref().map(parse_token).transpose()?;
    let dry_run = body.dry_run;
    let call = call_of(&state, body)?;
    if dry_run {
        return forecast(state.oncely.dry_run(&call).await?);
    }
    match state.oncely.begin_remote(call, &who.name, token).await? {
        RemoteBegun::Run(claim) => json_of(StatusCode::CREATED, &run(&claim)),
        RemoteBegun::Answered(answer) => answered(&answer),
    }
}

fn call_of(state: &AdminState, body: BeginBody) -> Result<Call, Problem> {
    let tool = ToolName::parse(&body.tool).map_err(oncely::Error::from)?;
    let declared = state.policy.tool(tool.as_str());
    let unusable = |code: &str, detail: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail);
    if state.policy.is_strict() && declared.declared.is_none() {
        let detail =
            format!("the tool {:?} is not declared and the policy is strict; nothing ran", tool.as_str());
        return Err(unusable("undeclared", detail));
    }
    let mut policy: Policy = declared.policy;
    if policy.kind == Kind::Read {
        let detail =
            format!("the tool {:?} is declared to change nothing: run it, no claim is needed", tool.as_str());
        return Err(unusable("read_only", detail));
    }
    if let Some(lease_ms) = body.lease_ms {
        if !(3 * HEARTBEAT_MS..=REMOTE_LEASE_MS_MAX).contains(&lease_ms) {
            let detail = format!(
                "lease_ms must be a number from {} to {REMOTE_LEASE_MS_MAX}; nothing ran",
                3 * HEARTBEAT_MS
            );
            return Err(unusable("bad_body", detail));
        }
        policy.lease_ms = lease_ms;
    }
    if body.wait_for_ms.is_some_and(|wait| wait > WAIT_MS_MAX) {
        let detail = format!("wait_for_ms must be a number from 0 to {WAIT_MS_MAX}; nothing ran");
        return Err(unusable("bad_body", detail));
    }
    // How long anybody may be kept waiting is the policy's to say.
    let wait_ms = body.wait_for_ms.unwrap_or(WAIT_MS_MAX).min(policy.wait_for_ms).min(WAIT_MS_MAX);
    let payload = body.payload.map_or_else(|| b"null".to_vec(), |raw| raw.get().as_bytes().to_vec());
    let mut call = Call::new(tool, payload);
    call.namespace = match body.namespace {
        Some(name) => Namespace::parse(&name).map_err(oncely::Error::from)?,
        None => state.namespace.clone(),
    };
    call.scope = body
        .scope
        .map(|text| Scope::parse(&text))
        .transpose()
        .map_err(oncely::Error::from)?
        .unwrap_or_default();
    call.key = body.key.map(|text| Key::explicit(&text)).transpose().map_err(oncely::Error::from)?;
    call.policy = Arc::new(policy);
    call.wait_for = Some(Duration::from_millis(wait_ms));
    Ok(call)
}

fn run(claim: &RemoteClaim) -> Value {
    json!({
        "verdict": "run",
        "id": claim.info.intent().to_string(),
        "token": token_text(claim.info.token()),
        "attempt": claim.info.number(),
        "downstream_key": claim.info.downstream_key().to_string(),
        "key": claim.info.name().key.as_str(),
        "lease_ms": claim.lease_ms,
        "renew_within_ms": claim.lease_ms / 3,
    })
}

/// An answer for which nothing runs: as it was, or a problem.
fn answered(answer: &Answer) -> Result<Response<Body>, Problem> {
    match answer {
        Answer::Replayed(replay) => replayed("replayed", replay),
        Answer::Refused(replay) => replayed("refused", replay),
        other => Err(Problem::of_answer(other).unwrap_or_else(|| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "an answer without words; nothing ran",
            )
        })),
    }
}

fn replayed(verdict: &str, replay: &Replay) -> Result<Response<Body>, Problem> {
    let record = &replay.record;
    let error = match &record.body.state {
        State::Rejected { failure, .. } => Some(json!({ "code": failure.code, "message": failure.message })),
        _ => None,
    };
    // The very bytes: a number must not lose digits on its way through us.
    let text = replay.result().and_then(|bytes| std::str::from_utf8(bytes).ok());
    let raw = text.and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
    let coded = replay.result().filter(|_| raw.is_none()).map(base64);
    let answer = ReplayView {
        verdict,
        id: record.intent.to_string(),
        attempt: record.body.attempts,
        effect: "noop",
        first_effect: replay.first_effect().map(Effect::as_str),
        age_ms: replay.age_ms(),
        result_kept: replay.result().is_some(),
        result: raw,
        result_base64: coded,
        error,
    };
    json_of(StatusCode::OK, &answer)
}

#[derive(serde::Serialize)]
struct ReplayView<'a> {
    verdict: &'a str,
    id: String,
    attempt: u32,
    effect: &'static str,
    first_effect: Option<&'static str>,
    age_ms: u64,
    result_kept: bool,
    result: Option<&'a RawValue>,
    result_base64: Option<String>,
    error: Option<Value>,
}

fn forecast(forecast: Forecast) -> Result<Response<Body>, Problem> {
    match forecast {
        Forecast::WouldRun { attempt, effect } => json_of(
            StatusCode::OK,
            &json!({ "verdict": "would_run", "attempt": attempt, "effect": effect.would() }),
        ),
        Forecast::WouldCheck { record } => {
            json_of(StatusCode::OK, &json!({ "verdict": "would_check", "id": record.intent.to_string() }))
        }
        Forecast::WouldAnswer(answer) => answered(&answer),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewBody {
    id: String,
    token: String,
}

/// `POST /v1/renew`
pub(super) async fn renew(mut ask: Ask) -> Result<Response<Body>, Problem> {
    std::mem::take(&mut ask.query).finish()?;
    let (body, state, who): (RenewBody, _, _) = ask.json().await?;
    let (id, token) = (parse_id(&body.id)?, parse_token(&body.token)?);
    let lease_ms = refuse_others(&state, &who, id, token).await?;
    match state.oncely.renew(id, token).await? {
        Decision::Renewed => {
            json_of(StatusCode::OK, &json!({ "id": id.to_string(), "renewed": true, "lease_ms": lease_ms }))
        }
        _ => {
            let detail = "the attempt is not running any more: it has ended, or its lease lapsed and it is in doubt. \
                          Report its end with /v1/complete all the same";
            Err(Problem::new(StatusCode::CONFLICT, "not_running", detail).about(id))
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompleteBody {
    id: String,
    token: String,
    outcome: OutcomeWord,
    effect: Option<String>,
    result: Option<Box<RawValue>>,
    code: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeWord {
    Succeeded,
    Rejected,
    Unknown,
}

/// `POST /v1/complete`
pub(super) async fn complete(mut ask: Ask) -> Result<Response<Body>, Problem> {
    std::mem::take(&mut ask.query).finish()?;
    let (body, state, who): (CompleteBody, _, _) = ask.json().await?;
    let (id, token) = (parse_id(&body.id)?, parse_token(&body.token)?);
    refuse_others(&state, &who, id, token).await?;
    let outcome = outcome_of(&state, id, body).await?;
    match state.oncely.complete_remote(id, token, outcome).await? {
        RemoteEnd::Recorded(stored) => {
            let state_word = stored.record.body.state.name().as_str();
            let attempt = stored.record.body.attempts;
            json_of(StatusCode::OK, &json!({ "id": id.to_string(), "state": state_word, "attempt": attempt }))
        }
        RemoteEnd::Superseded => {
            let detail = "another attempt has taken its place, or the record was forgotten: the effect may have happened \
                          twice. This is in the audit log";
            Err(Problem::new(StatusCode::CONFLICT, "superseded", detail).about(id))
        }
    }
}

async fn outcome_of(state: &AdminState, id: IntentId, body: CompleteBody) -> Result<Outcome, Problem> {
    let wrong = |what: &str| {
        let detail = format!("{what}; nothing was recorded");
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_body", detail)
    };
    if body.outcome != OutcomeWord::Succeeded && (body.effect.is_some() || body.result.is_some()) {
        return Err(wrong("only a success has an effect and a result"));
    }
    if body.outcome == OutcomeWord::Succeeded && (body.code.is_some() || body.message.is_some()) {
        return Err(wrong("a success has neither a code nor a message"));
    }
    let message = body.message.unwrap_or_else(|| "no reason was given".to_owned());
    match body.outcome {
        OutcomeWord::Rejected => {
            Ok(Outcome::rejected(body.code.unwrap_or_else(|| "REJECTED".to_owned()), message))
        }
        OutcomeWord::Unknown if body.code.is_some() => Err(wrong("an unknown outcome has no code")),
        OutcomeWord::Unknown => Ok(Outcome::unknown(message)),
        OutcomeWord::Succeeded => {
            let effect = match body.effect {
                Some(word) => word.parse::<Effect>().map_err(|error| wrong(&error))?,
                None => {
                    let stored = state.oncely.store().load(id).await?;
                    let tool = stored.map(|stored| stored.record.body.name.tool.as_str().to_owned());
                    state.policy.tool(&tool.unwrap_or_default()).policy.effect
                }
            };
            let result = body.result.map_or_else(|| "null".to_owned(), |raw| raw.get().to_owned());
            // What cannot be read for the rules is not stored.
            Ok(match state.redaction.body(Some("application/json"), result.as_bytes()) {
                Some(result) => Outcome::succeeded(effect, result.into_owned()),
                None => Outcome::Succeeded { effect, result: None },
            })
        }
    }
}

/// An attempt is its holder's: others do not report for it. Answers with the lease.
async fn refuse_others(
    state: &AdminState,
    who: &Who,
    id: IntentId,
    token: AttemptToken,
) -> Result<Option<u64>, Problem> {
    let Some(stored) = state.oncely.store().load(id).await? else { return Ok(None) };
    let (owner, lease_ms) = match &stored.record.body.state {
        State::Running { owner, lease_ms } => (owner, Some(*lease_ms)),
        State::InDoubt { owner, .. } => (owner, None),
        State::Succeeded { .. } | State::Rejected { .. } => return Ok(None),
    };
    if stored.record.body.token == token && (!owner.is_remote() || owner.host != who.name) {
        let detail = "the attempt was begun by somebody else; nothing was done";
        return Err(Problem::new(StatusCode::FORBIDDEN, "not_yours", detail).about(id));
    }
    Ok(lease_ms)
}

fn parse_id(text: &str) -> Result<IntentId, Problem> {
    let lower_case = !text.bytes().any(|b| b.is_ascii_uppercase());
    IntentId::parse(text).filter(|_| lower_case).ok_or_else(|| {
        let detail = "id must have 64 hexadecimal digits in lower case; nothing was done";
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_body", detail)
    })
}

/// A token is 128 random bits; one that is all zero is no token.
fn parse_token(text: &str) -> Result<AttemptToken, Problem> {
    let good = text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match u128::from_str_radix(text, 16) {
        Ok(number) if good && number != 0 => Ok(AttemptToken(number.to_be_bytes())),
        _ => {
            let detail =
                "token must have 32 hexadecimal digits in lower case, not all zero; nothing was done";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_body", detail))
        }
    }
}
