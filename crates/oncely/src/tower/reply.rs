//! From what the engine says to a response: replays, problems, and what first answers carry.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use oncely_core::canonical::PayloadError;
use oncely_core::machine::HaltReason;
use oncely_core::name::hex;
use oncely_core::{Doubt, DoubtCause, IntentId, Key, KeyOrigin, Outcome, Settled, State};
use serde_json::{Value, json};

use super::body::Body;
use super::classify::IDEMPOTENCY_EFFECT;
use super::effect::{Handed, NOT_SENT, OF_THE_SERVICE};
use super::grpc::{self, OF_GRPC};
use super::kept::Kept;
use super::key::{GivenKey, IDEMPOTENCY_KEY};
use super::problem::{Code, Problem, Reader};
use super::service::Answered;
use super::settings::Settings;
use crate::answer::{Answer, Execution, Replay, Unrecorded, Unresolved};
use crate::error::Error;
use crate::observe::AnswerKind;

/// `true` on an answer that an earlier request got.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// How a guarded request ended: `succeeded`, `rejected` or `unknown`.
pub const IDEMPOTENCY_OUTCOME: HeaderName = HeaderName::from_static("idempotency-outcome");
/// The id of the record that remembers a guarded request.
pub const IDEMPOTENCY_RECORD: HeaderName = HeaderName::from_static("idempotency-record");
/// `0` on the answer to a request whose retries are used up: nothing will run again under its key.
pub const IDEMPOTENCY_RETRIES_LEFT: HeaderName = HeaderName::from_static("idempotency-retries-left");
/// What went wrong while the end of a request was recorded.
pub const IDEMPOTENCY_WARNING: HeaderName = HeaderName::from_static("idempotency-warning");
/// How a guarded request was answered, in the extensions of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// What the engine said.
    pub verdict: AnswerKind,
    /// How it ended, if it ran now and its end is known: `succeeded`, `rejected` or `unknown`.
    pub outcome: Option<&'static str>,
    /// The latest attempt.
    pub attempt: Option<u32>,
    /// Which record.
    pub record: Option<IntentId>,
}

/// A request that wants an answer.
pub(super) struct Asked {
    pub(super) settings: Arc<Settings>,
    pub(super) given: Option<GivenKey>,
    pub(super) method: Method,
    pub(super) reader: Reader,
}

/// A problem as a response.
pub(super) fn problem<R>(problem: Problem, reader: Reader) -> Response<Body<R>> {
    problem.into_response(reader).map(Body::whole)
}

impl Asked {
    pub(super) fn key_text(&self) -> Option<&str> {
        self.given.as_ref().map(|given| given.key.as_str())
    }

    pub(super) fn problem<R>(&self, found: Problem) -> Response<Body<R>> {
        problem(found.with_key(self.key_text()), self.reader)
    }

    /// The engine gave no answer: nothing ran.
    pub(super) fn error<R>(&self, error: &Error) -> Response<Body<R>> {
        let code = match error {
            Error::Store(_) => Code::StoreUnavailable,
            Error::Overloaded { .. } => Code::Overloaded,
            Error::KeyRequired { .. } => Code::KeyRequired,
            Error::Name(_) => Code::KeyMalformed,
            Error::Payload(PayloadError::TooLarge { .. }) => Code::BodyTooLarge,
            Error::Payload(_) => Code::BodyUnusable,
            _ => Code::Misconfigured,
        };
        let detail = match code {
            // Where the ledger is and what ails it is not for strangers.
            Code::StoreUnavailable => "the ledger cannot be used; nothing ran. Try again later".to_owned(),
            _ => error.to_string(),
        };
        let told = Told { verdict: AnswerKind::Failed, outcome: None, attempt: None, record: None };
        noted(self.problem(Problem::new(code, detail)), told)
    }

    /// The answer of an earlier request, or why there is none.
    pub(super) fn answer<R>(&self, answer: &Answer) -> Response<Body<R>> {
        let (attempt, record) = match answer {
            Answer::Replayed(Replay { record, .. }) | Answer::Refused(Replay { record, .. }) => {
                (Some(record.body.attempts), record.intent)
            }
            Answer::InProgress(there) => (Some(there.record.body.attempts), there.record.intent),
            Answer::Unknown(there) => (Some(there.record.body.attempts), there.record.intent),
            Answer::Conflict { intent } => (None, *intent),
            Answer::Executed(execution) => (Some(execution.attempt), execution.intent),
        };
        let record = Some(record);
        let told = Told { verdict: AnswerKind::of_answer(answer), outcome: None, attempt, record };
        noted(self.answered(answer), told)
    }

    fn answered<R>(&self, answer: &Answer) -> Response<Body<R>> {
        match answer {
            Answer::Replayed(replay) => self.replay(replay),
            Answer::Refused(replay) => self.refused(replay),
            Answer::Conflict { intent } => {
                let detail = "the key was used for another request; nothing ran. Repeat the first request exactly to \
                              get its answer, or use another key for another intent";
                self.problem(Problem::key_reused(self.settings.dialect, detail).about(*intent))
            }
            Answer::InProgress(there) => {
                let detail = format!(
                    "attempt {} of this request is still running; nothing ran here. Ask again with the same key to \
                     get its answer",
                    there.record.body.attempts
                );
                let found = Problem::new(Code::InProgress, detail).retry_after_ms(there.retry_after_ms);
                self.problem(found.about(there.record.intent))
            }
            Answer::Unknown(there) => self.unknown(there),
            // Answers of a begin only; an execution has its own way.
            Answer::Executed(execution) => {
                self.problem(self.doubt(execution.intent, "it ran, and its answer was lost."))
            }
        }
    }

    fn replay<R>(&self, replay: &Replay) -> Response<Body<R>> {
        const NOT_KEPT: &str = "its answer is not kept";
        let seconds = replay.age_ms() / 1_000;
        let without = |why: &str| format!("it happened {seconds} s ago; {why}, and nothing ran now");
        let kept = replay.shared_result().map(Kept::of_result);
        let mut response = match (kept, self.reader.grpc()) {
            (Some(kept), None) => kept.into_response(),
            (Some(kept), Some(_)) if kept.can_answer_grpc() => kept.into_response(),
            (Some(_), Some(speech)) => {
                grpc::happened(&without("what is kept of it is no gRPC message"), speech)
            }
            (None, Some(speech)) => grpc::happened(&without(NOT_KEPT), speech),
            (None, None) => {
                let first = replay.first_effect().map(|effect| effect.as_str());
                json_response(&json!({
                    "ok": true, "effect": "noop", "reason": without(NOT_KEPT), "data": null,
                    "meta": { "id": replay.record.intent.to_string(), "first_effect": first },
                }))
            }
        };
        let headers = response.headers_mut();
        headers.insert(IDEMPOTENCY_EFFECT, HeaderValue::from_static("noop"));
        self.stamp_replay(headers, replay);
        response
    }

    /// The rejection that used up the last retry: as the service told it, or what became of it where the service had no say.
    fn refused<R>(&self, replay: &Replay) -> Response<Body<R>> {
        let record = &replay.record;
        let State::Rejected { failure, settled } = &record.body.state else {
            return self.problem(self.doubt(record.intent, "its record cannot be read. Nothing ran now."));
        };
        let mut response = match failure.detail.as_ref().and_then(Kept::decode) {
            Some(kept) => {
                let mut response = kept.into_response();
                self.stamp_replay(response.headers_mut(), replay);
                response
            }
            None => {
                let known = match settled {
                    Settled::Person(_) => "somebody looked, and it did not happen",
                    // Why a service cannot be reached is not for strangers.
                    _ if failure.code == NOT_SENT => "nothing of it was sent to the service",
                    _ if [OF_THE_SERVICE, OF_GRPC].iter().any(|of| failure.code.starts_with(of)) => {
                        &failure.message
                    }
                    _ => "it was rejected",
                };
                let detail = format!(
                    "{known}. Its retries are used up: nothing ran now, and nothing will under this key. Use another key"
                );
                let mut response = self.problem(Problem::new(Code::Rejected, detail).about(record.intent));
                self.stamp(response.headers_mut(), record.intent, &record.body.name.key);
                response
            }
        };
        response.headers_mut().insert(IDEMPOTENCY_RETRIES_LEFT, HeaderValue::from_static("0"));
        response
    }

    fn stamp_replay(&self, headers: &mut HeaderMap, replay: &Replay) {
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        headers.insert(AGE, HeaderValue::from(replay.age_ms() / 1_000));
        self.stamp(headers, replay.record.intent, &replay.record.body.name.key);
    }

    fn unknown<R>(&self, there: &Unresolved) -> Response<Body<R>> {
        let known = match &there.record.body.state {
            State::InDoubt { doubt, .. } => told(doubt),
            _ => "its end is not known",
        };
        let why = match there.reason {
            HaltReason::Policy => "",
            HaltReason::Unsure => " The check could not tell.",
            HaltReason::DownstreamForgot => {
                " The provider no longer remembers the key, so a retry would not be harmless."
            }
            HaltReason::BudgetSpent => " Its retries are used up.",
        };
        let attempt = there.record.body.attempts;
        let known = format!("attempt {attempt} may have happened: {known}.{why} Nothing ran now.");
        self.problem(self.doubt(there.record.intent, &known))
    }

    fn doubt(&self, intent: IntentId, known: &str) -> Problem {
        let id = intent.short();
        let detail = format!(
            "{known} Find out whether it happened, then settle it: oncely resolve {id} --succeeded if it did, oncely resolve \
             {id} --rejected if it did not"
        );
        Problem::new(Code::OutcomeUnknown, detail).about(intent)
    }

    /// The head of a stream; how it ends is recorded when it ends.
    pub(super) fn streaming<R>(
        &self,
        mut response: Response<Body<R>>,
        attempt: u32,
        intent: IntentId,
        key: &Key,
    ) -> Response<Body<R>> {
        self.stamp(response.headers_mut(), intent, key);
        noted(response, ran(None, attempt, intent))
    }

    /// The answer of a request that ran now.
    pub(super) fn executed<R, E>(
        &self,
        handed: Option<Handed<R, E>>,
        execution: &Execution,
        key: &Key,
    ) -> Answered<R, E> {
        let failed = |status: StatusCode| {
            let known = match &execution.outcome {
                Outcome::Unknown(doubt) => {
                    format!("attempt {} may have happened: {}.", execution.attempt, told(doubt))
                }
                _ => "it may have happened.".to_owned(),
            };
            self.problem(self.doubt(execution.intent, &known).with_status(status))
        };
        let mut response = match handed {
            Some(Handed::Failed(error)) => return Err(error),
            Some(Handed::Whole(response) | Handed::Streaming(response)) => response,
            Some(Handed::Broken) => failed(StatusCode::BAD_GATEWAY),
            Some(Handed::Stalled) => failed(StatusCode::GATEWAY_TIMEOUT),
            None => failed(StatusCode::INTERNAL_SERVER_ERROR),
        };
        let headers = response.headers_mut();
        let outcome = match (&execution.outcome, &execution.unrecorded) {
            (Outcome::Succeeded { effect, .. }, _) => {
                headers.insert(IDEMPOTENCY_EFFECT, HeaderValue::from_static(effect.as_str()));
                "succeeded"
            }
            (_, Some(Unrecorded::EarlierUnknown)) | (Outcome::Unknown(_), _) => "unknown",
            (Outcome::Rejected(_) | Outcome::NotStarted(_), _) => "rejected",
        };
        headers.insert(IDEMPOTENCY_OUTCOME, HeaderValue::from_static(outcome));
        if outcome == "rejected" && self.settings.policy.max_retries == 0 {
            headers.insert(IDEMPOTENCY_RETRIES_LEFT, HeaderValue::from_static("0"));
        }
        if let Some(warning) = warning(execution.unrecorded.as_ref()) {
            headers.insert(IDEMPOTENCY_WARNING, HeaderValue::from_static(warning));
        }
        self.stamp(headers, execution.intent, key);
        Ok(noted(response, ran(Some(outcome), execution.attempt, execution.intent)))
    }

    /// Which record, and the key that was used: as the caller wrote it, or the derived one.
    fn stamp(&self, headers: &mut HeaderMap, intent: IntentId, key: &Key) {
        let shown = match (&self.given, key.origin()) {
            (Some(given), _) => Some(given.written.clone()),
            (None, KeyOrigin::Derived) => HeaderValue::try_from(format!("\"{}\"", key.as_str())).ok(),
            (None, KeyOrigin::Explicit) => None,
        };
        if let Some(shown) = shown {
            headers.insert(IDEMPOTENCY_KEY, shown);
        }
        insert_record(headers, intent);
    }
}

fn ran(outcome: Option<&'static str>, attempt: u32, record: IntentId) -> Told {
    Told { verdict: AnswerKind::Began, outcome, attempt: Some(attempt), record: Some(record) }
}

fn noted<R>(mut response: Response<Body<R>>, told: Told) -> Response<Body<R>> {
    response.extensions_mut().insert(told);
    response
}

/// What a stranger is told of a doubt: neither processes and hosts, nor what a panic said.
fn told(doubt: &Doubt) -> &str {
    match doubt.cause {
        DoubtCause::OwnerLost => "the process that ran it is gone",
        DoubtCause::Abandoned => "it was given up before its end",
        DoubtCause::Reported | DoubtCause::TimedOut => &doubt.message,
    }
}

fn warning(unrecorded: Option<&Unrecorded>) -> Option<&'static str> {
    Some(match unrecorded? {
        Unrecorded::StoreFailed(_) => "unrecorded: the ledger failed after the effect; recording is tried on",
        Unrecorded::Superseded => {
            "superseded: another attempt had taken its place; it may have happened twice"
        }
        Unrecorded::EarlierUnknown => {
            "in doubt: this attempt was rejected, what an earlier one did is not known"
        }
    })
}

/// Names the record that an answer is about.
pub(super) fn insert_record(headers: &mut HeaderMap, intent: IntentId) {
    if let Ok(id) = HeaderValue::try_from(hex(&intent.0)) {
        headers.insert(IDEMPOTENCY_RECORD, id);
    }
}

/// A body of ours, where the service has none.
pub(super) fn json_response<R>(body: &Value) -> Response<Body<R>> {
    let mut response = Response::new(Body::whole(Bytes::from(body.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
