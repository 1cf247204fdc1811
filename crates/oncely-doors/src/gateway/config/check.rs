//! `check` of a route: how the service is asked whether an attempt in doubt has happened.

use std::time::Duration;

use oncely::policy_file::reading::{Read, Value, allowed, fault, quote, text, wrong_type};
use toml::de::DeValue;

use super::values;
use crate::gateway::check::{CheckConfig, Rule, Template};

const EXPECTED: &str = "a table such as { path = \"/orders/by-key/{key}\", happened = { status = [200] } }";
const RULE_EXPECTED: &str =
    "a table such as { status = [404] } or { status = [200], at = \"/orders\", is = [] }";
/// How long a request that got no answer may still be on its way, where the route does not say.
const AFTER: Duration = Duration::from_secs(60);

/// Reads the table.
pub(super) fn check(value: &Value<'_>) -> Read<CheckConfig> {
    let Some(table) = value.get_ref().as_table() else { return wrong_type(value, EXPECTED) };
    let (mut path, mut happened, mut not_happened, mut after) = (None, None, None, AFTER);
    for (name, item) in table {
        match name.get_ref().as_ref() {
            "path" => path = Some(Template::parse(&text(item)?).or_else(|message| fault(item, message))?),
            "happened" => happened = Some(rule(item)?),
            "not_happened" => not_happened = Some(rule(item)?),
            "after" => after = values::duration(item)?,
            other => {
                let known = allowed(other, &["path", "happened", "not_happened", "after"]);
                return fault(item, format!("unknown field {}; {known}", quote(other)));
            }
        }
    }
    let (Some(path), Some(happened)) = (path, happened) else {
        return fault(value, format!("needs both path and happened: {EXPECTED}"));
    };
    if not_happened.as_ref() == Some(&happened) {
        return fault(value, "happened and not_happened are the same answer");
    }
    Ok(CheckConfig { path, happened, not_happened, after })
}

fn rule(value: &Value<'_>) -> Read<Rule> {
    let Some(table) = value.get_ref().as_table() else { return wrong_type(value, RULE_EXPECTED) };
    let (mut status, mut at, mut is) = (None, None, None);
    for (name, item) in table {
        match name.get_ref().as_ref() {
            "status" => match values::statuses(item)? {
                none if none.is_empty() => return fault(item, "names no status, so that no answer fits"),
                some => status = Some(some),
            },
            "at" => at = Some(pointer(item)?),
            "is" => is = Some(json(item)?),
            other => {
                let known = allowed(other, &["status", "at", "is"]);
                return fault(item, format!("unknown field {}; {known}", quote(other)));
            }
        }
    }
    let Some(status) = status else { return fault(value, format!("needs a status: {RULE_EXPECTED}")) };
    if is.is_some() && at.is_none() {
        return fault(value, "is needs at: the place in the answer's JSON");
    }
    Ok(Rule { status, at, is })
}

fn pointer(value: &Value<'_>) -> Read<String> {
    match text(value)? {
        pointer if pointer.is_empty() || pointer.starts_with('/') => Ok(pointer),
        other => fault(value, format!("{} is no JSON pointer such as \"/orders/0\"", quote(&other))),
    }
}

/// A value of TOML as JSON; times are not compared.
fn json(value: &Value<'_>) -> Read<serde_json::Value> {
    Ok(match value.get_ref() {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(yes) => (*yes).into(),
        DeValue::Integer(number) => match number.to_string().parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => return wrong_type(value, "a text, a whole number, true, false or a list of them"),
        },
        DeValue::Array(items) => {
            let mut list = Vec::new();
            for item in items {
                list.push(json(item)?);
            }
            list.into()
        }
        _ => return wrong_type(value, "a text, a whole number, true, false or a list of them"),
    })
}
