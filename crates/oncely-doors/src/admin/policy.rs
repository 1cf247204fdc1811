//! Settings: what tools declare, and the policies in force on the routes of the gateway.

use axum::body::Body;
use http::{Method, Response, StatusCode};
use oncely::policy_file::{PolicyFile, ToolPolicy};
use oncely_core::select::Selector;
use oncely_core::{Kind, Matching, Policy, ToolName};
use serde_json::{Value, json};

use super::problem::Problem;
use super::routes::{Ask, json_of};
use crate::gateway::config::{InForce, RouteConfig};

/// `GET /v1/policy`
pub(super) async fn policy(mut ask: Ask) -> Result<Response<Body>, Problem> {
    let tool = ask.query.text("tool")?.map(|name| ToolName::parse(&name)).transpose();
    let tool = tool.map_err(|error| Problem::bad_request(error.to_string()))?;
    ask.query.finish()?;
    let file = &ask.state.policy;
    let said = |name: &str, found: &ToolPolicy| shown(name, found.declared.as_deref(), &found.policy);
    let tools: Vec<Value> = match &tool {
        Some(tool) => vec![said(tool.as_str(), &file.tool(tool.as_str()))],
        None => file.declared().map(|(name, found)| said(name, found)).collect(),
    };
    let asked_for = |route: &&RouteConfig| tool.as_ref().is_none_or(|tool| *tool == route.tool);
    let routes: Vec<Value> =
        ask.state.routes.iter().filter(asked_for).map(|route| shown_route(route, file)).collect();
    let answer = json!({
        "strict": file.is_strict(),
        "namespace": ask.state.namespace.as_str(),
        "ledger": ask.state.oncely.store().describe(),
        // A name that nobody can have declared: what is left are the defaults.
        "defaults": said("*", &file.tool("\u{0}")),
        "tools": tools,
        "routes": routes,
    });
    json_of(StatusCode::OK, &answer)
}

/// A route, and what holds for its guarded requests: for those with which a provider gets our key, and for the others.
fn shown_route(route: &RouteConfig, file: &PolicyFile) -> Value {
    let InForce { takes_key, keyed, plain, compares_credential } = route.in_force();
    let words = |methods: &[&Method]| -> Vec<String> { methods.iter().map(ToString::to_string).collect() };
    let all: Vec<&Method> = route.methods.iter().collect();
    let (with_key, without): (Vec<_>, Vec<_>) = route.methods.iter().partition(|m| takes_key.contains(m));
    let declared = file.tool(route.tool.as_str()).declared;
    let held = |methods: &[&Method], policy: &Policy| {
        let policy = || shown(route.tool.as_str(), declared.as_deref(), policy);
        (!methods.is_empty()).then(|| json!({ "methods": words(methods), "policy": policy() }))
    };
    json!({
        "match": route.pattern.as_str(),
        "methods": words(&all),
        "tool": route.tool.as_str(),
        "provider": route.provider.as_ref().map(|provider| provider.name.as_str()),
        "compares_credential": compares_credential,
        "keyed": held(&with_key, &keyed),
        "plain": held(&without, &plain),
    })
}

fn shown(name: &str, declared: Option<&str>, policy: &Policy) -> Value {
    let selectors = |list: &[Selector]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
    json!({
        "tool": name,
        "declared": declared,
        "kind": if policy.kind == Kind::Read { "read" } else { "write" },
        "effect": policy.effect.as_str(),
        "key": selectors(&policy.key),
        "ignore": selectors(&policy.ignore),
        "match": if policy.matching == Matching::Payload { "payload" } else { "key" },
        "idempotent": policy.idempotent,
        "forwards_key_for_ms": policy.forwards_key_for_ms,
        "when_unknown": policy.when_unknown.as_str(),
        "max_retries": policy.max_retries,
        "replay_for_ms": policy.retention.replay_for_ms,
        "remember_for_ms": policy.retention.remember_for_ms,
        "repeat_after_ms": policy.repeat_after_ms,
        "wait_for_ms": policy.wait_for_ms,
        "lease_ms": policy.lease_ms,
        "require_key": policy.require_key,
        "cost": policy.cost.as_ref().map(|cost| json!({ "amount": cost.amount, "unit": cost.unit })),
    })
}
