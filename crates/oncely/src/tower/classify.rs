//! What an answer of the service proves: that it happened, that it certainly did not, or neither.

use std::ops::RangeInclusive;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName};
use http::response::Parts;
use http::{Method, StatusCode};
use oncely_core::{Effect, Policy};

use super::grpc;
use super::problem::Dialect;

/// What a service says about its own answer: `not-executed` (with `Cache-Control: no-store`) means that nothing
/// happened.
pub const IDEMPOTENCY_STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// What a call changed; a service may declare it, else it is told by method and status.
pub const IDEMPOTENCY_EFFECT: HeaderName = HeaderName::from_static("idempotency-effect");

/// What an answer proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It happened; the answer is kept and replayed.
    Succeeded,
    /// It was answered for good and changed nothing, such as a declined card; the answer is kept and replayed.
    Final,
    /// It is certain that nothing happened; a retry may run it again.
    Rejected,
    /// Nothing was even begun, such as a service that cannot be reached; a retry may run it, and costs nothing of the budget.
    /// The answer speaks of one moment, and is not kept.
    NotStarted,
    /// It may have happened; it is never started again by itself.
    Unknown,
}

/// A handler's own word about its answer, put into the extensions of a response. It wins over every rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// What the answer proves.
    pub class: Class,
    /// Why, for the record; where left out, the status is named.
    pub why: Option<String>,
}

/// Looks at a whole answer; `None` leaves it to the general rules.
pub type Judge = Arc<dyn Fn(&Parts, &[u8]) -> Option<Class> + Send + Sync>;

/// Statuses, as single ones and ranges.
pub type Statuses = Vec<RangeInclusive<u16>>;

/// What answers mean, where a route says otherwise than the general rules.
#[derive(Clone, Default)]
pub struct Rules {
    /// These prove that it happened.
    pub succeeded_on: Statuses,
    /// These are final answers that changed nothing.
    pub final_on: Statuses,
    /// These prove that nothing happened.
    pub rejected_on: Statuses,
    /// These prove nothing.
    pub unknown_on: Statuses,
    /// Knows a provider's own codes.
    pub judge: Option<Judge>,
}

impl Rules {
    /// What an answer proves. Asked first: the answer itself, then who knows the service, then the route's statuses,
    /// then the general rules. A gRPC answer is taken for the HTTP status that its own one stands for; an error after a
    /// message proves nothing. A body that came and was not held (it was too long) is `None`.
    pub fn class(
        &self,
        parts: &Parts,
        body: Option<&[u8]>,
        trailers: Option<&HeaderMap>,
        dialect: Dialect,
    ) -> Class {
        if let Some(said) = parts.extensions.get::<Said>() {
            return said.class;
        }
        let end = grpc::End::of(&parts.headers, body, trailers);
        if end.as_ref().is_some_and(grpc::End::says_unknown) {
            return Class::Unknown;
        }
        if says_not_executed(&parts.headers) || end.as_ref().is_some_and(grpc::End::says_not_executed) {
            return Class::Rejected;
        }
        if let Some(class) = self.judge.as_ref().and_then(|judge| judge(parts, body.unwrap_or_default())) {
            return class;
        }
        let status = match end.map(|end| end.counts_as()) {
            None => parts.status,
            Some(Some(status)) => status,
            Some(None) => return Class::Unknown,
        };
        let listed = |list: &Statuses| list.iter().any(|range| range.contains(&status.as_u16()));
        // Where two lists name a status, the more careful reading holds.
        for (list, class) in [
            (&self.unknown_on, Class::Unknown),
            (&self.rejected_on, Class::Rejected),
            (&self.final_on, Class::Final),
            (&self.succeeded_on, Class::Succeeded),
        ] {
            if listed(list) {
                return class;
            }
        }
        of_status(status, dialect)
    }
}

impl Rules {
    /// Whether nothing that follows the head of an answer can change what it proves.
    pub(super) fn is_settled_by_head(&self, parts: &Parts) -> bool {
        let is_said = parts.extensions.get::<Said>().is_some() || says_not_executed(&parts.headers);
        is_said || (self.judge.is_none() && grpc::speech_of(&parts.headers).is_none())
    }
}

/// The general rules.
fn of_status(status: StatusCode, dialect: Dialect) -> Class {
    match status.as_u16() {
        200..=399 => Class::Succeeded,
        // They speak of a moment, not of the call: who sent them may have begun to act.
        408 | 409 | 425 | 429 => Class::Unknown,
        // The draft has errors replayed like successes; Stripe keeps what its endpoints have looked at.
        400..=499 if dialect == Dialect::Ietf => Class::Final,
        402 if dialect == Dialect::Stripe => Class::Final,
        400..=499 => Class::Rejected,
        _ => Class::Unknown,
    }
}

pub(super) fn says_not_executed(headers: &HeaderMap) -> bool {
    let holds = |name: &HeaderName, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|v| v.to_str().ok());
        values.flat_map(|v| v.split(',')).any(|v| v.trim().eq_ignore_ascii_case(word))
    };
    holds(&IDEMPOTENCY_STATUS, "not-executed") && holds(&CACHE_CONTROL, "no-store")
}

/// What a success changed: as the answer declares, else as the tool declares, else by method and status.
pub(super) fn effect_of(
    class: Class,
    headers: &HeaderMap,
    status: StatusCode,
    method: &Method,
    policy: &Policy,
) -> Effect {
    if class == Class::Final {
        return Effect::Noop;
    }
    let declared = headers.get(IDEMPOTENCY_EFFECT).and_then(|v| v.to_str().ok());
    match declared.and_then(|word| word.trim().parse().ok()) {
        Some(effect) => effect,
        None if status == StatusCode::CREATED && policy.effect == Effect::Executed => Effect::Created,
        None => expected_effect(method, policy),
    }
}

/// What a call is expected to change, before it has run.
pub(super) fn expected_effect(method: &Method, policy: &Policy) -> Effect {
    match (policy.effect, method) {
        (Effect::Executed, &Method::DELETE) => Effect::Deleted,
        (Effect::Executed, &Method::PUT | &Method::PATCH) => Effect::Updated,
        (declared, _) => declared,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method, Response, StatusCode};
    use oncely_core::{Effect, Policy};

    use super::{Class, Rules, Said, effect_of};
    use crate::tower::Dialect;

    fn class(
        rules: &Rules,
        status: u16,
        headers: &[(&'static str, &'static str)],
        dialect: Dialect,
    ) -> Class {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        rules.class(&response.body(()).unwrap().into_parts().0, Some(b""), None, dialect)
    }

    #[test]
    fn a_status_proves_success_a_rejection_or_nothing() {
        let of = |status| class(&Rules::default(), status, &[], Dialect::Default);
        for status in [200, 201, 202, 204, 301, 303] {
            assert_eq!(of(status), Class::Succeeded, "{status}");
        }
        for status in [400, 401, 402, 403, 404, 410, 422] {
            assert_eq!(of(status), Class::Rejected, "{status}");
        }
        for status in [408, 409, 425, 429, 500, 502, 503, 504, 599, 199] {
            assert_eq!(of(status), Class::Unknown, "{status}");
        }
    }

    #[test]
    fn the_dialects_replay_errors_as_their_rules_say() {
        let of = |status, dialect| class(&Rules::default(), status, &[], dialect);
        assert_eq!(of(422, Dialect::Ietf), Class::Final);
        assert_eq!(of(429, Dialect::Ietf), Class::Unknown);
        assert_eq!(of(402, Dialect::Stripe), Class::Final);
        assert_eq!(of(400, Dialect::Stripe), Class::Rejected);
    }

    #[test]
    fn a_route_can_say_otherwise_and_the_more_careful_reading_holds() {
        let rules = Rules {
            rejected_on: vec![429..=429, 503..=503],
            unknown_on: vec![404..=404, 503..=503],
            ..Rules::default()
        };
        assert_eq!(class(&rules, 429, &[], Dialect::Default), Class::Rejected);
        assert_eq!(class(&rules, 404, &[], Dialect::Default), Class::Unknown);
        assert_eq!(class(&rules, 503, &[], Dialect::Default), Class::Unknown);
    }

    #[test]
    fn an_answer_can_say_that_nothing_happened() {
        let said = [("cache-control", "private, no-store"), ("idempotency-status", "not-executed")];
        assert_eq!(class(&Rules::default(), 503, &said, Dialect::Default), Class::Rejected);
        // Half of it is not a word: a cache may have answered.
        assert_eq!(class(&Rules::default(), 503, &said[1..], Dialect::Default), Class::Unknown);
        let mut parts = Response::new(()).into_parts().0;
        parts.extensions.insert(Said { class: Class::Unknown, why: None });
        assert_eq!(Rules::default().class(&parts, Some(b""), None, Dialect::Default), Class::Unknown);
    }

    #[test]
    fn what_another_oncely_does_not_know_is_unknown_whatever_its_status() {
        // As older ones have said it: a status that stands for a rejection.
        let refused = [
            ("content-type", "application/grpc"),
            ("grpc-status", "9"),
            ("idempotency-code", "outcome_unknown"),
        ];
        assert_eq!(class(&Rules::default(), 200, &refused, Dialect::Default), Class::Unknown);
        assert_eq!(class(&Rules::default(), 200, &refused[..2], Dialect::Default), Class::Rejected);
        let lenient = Rules { rejected_on: vec![200..=599], ..Rules::default() };
        assert_eq!(class(&lenient, 200, &refused, Dialect::Default), Class::Unknown);
    }

    #[test]
    fn an_effect_is_declared_or_told_by_method_and_status() {
        let of = |method: Method, status: u16, declared: Option<&'static str>| {
            let headers: HeaderMap = declared
                .iter()
                .map(|d| ("idempotency-effect".parse().unwrap(), d.parse().unwrap()))
                .collect();
            let status = StatusCode::from_u16(status).unwrap();
            effect_of(Class::Succeeded, &headers, status, &method, &Policy::default())
        };
        assert_eq!(of(Method::POST, 201, None), Effect::Created);
        assert_eq!(of(Method::POST, 200, None), Effect::Executed);
        assert_eq!(of(Method::DELETE, 204, None), Effect::Deleted);
        assert_eq!(of(Method::PATCH, 200, None), Effect::Updated);
        assert_eq!(of(Method::POST, 201, Some("sent")), Effect::Sent);
        assert_eq!(of(Method::POST, 200, Some("nonsense")), Effect::Executed);
    }
}
