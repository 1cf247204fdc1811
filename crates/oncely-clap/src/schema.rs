//! JSON schemas: of a command's input from clap's own definition, and of the envelope.

use std::any::TypeId;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command};
use serde_json::{Map, Value, json};

use crate::manifest::is_input;

/// The schema of a command's arguments, by their ids; `flag` or `position` says how each is written.
pub(crate) fn input(command: &Command, globals: &[&Arg]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    let own = command.get_arguments().filter(|arg| !arg.is_global_set());
    for arg in globals.iter().copied().chain(own).filter(|arg| is_input(arg)) {
        let id = arg.get_id().as_str();
        properties.insert(id.to_owned(), property(arg));
        if arg.is_required_set() {
            required.push(id);
        }
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(arg: &Arg) -> Value {
    let mut value = match arg.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => json!({ "type": "boolean" }),
        ArgAction::Count => json!({ "type": "integer", "minimum": 0 }),
        ArgAction::Append => json!({ "type": "array", "items": single(arg) }),
        _ if arg.get_num_args().is_some_and(|range| range.max_values() > 1) => {
            json!({ "type": "array", "items": single(arg) })
        }
        _ => single(arg),
    };
    if let Some(help) = arg.get_help() {
        value["description"] = help.to_string().into();
    }
    match (arg.get_long(), arg.get_short(), arg.get_index()) {
        (Some(long), _, _) => value["flag"] = format!("--{long}").into(),
        (None, Some(short), _) => value["flag"] = format!("-{short}").into(),
        (None, None, index) => value["position"] = index.map_or(Value::Null, Into::into),
    }
    if let Some(variable) = arg.get_env() {
        value["environment"] = variable.to_string_lossy().into_owned().into();
    }
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count);
    let defaults = arg.get_default_values();
    if !is_switch && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        let parser = arg.get_value_parser();
        let mut defaults = defaults.iter().map(|default| typed(&default.to_string_lossy(), parser));
        let many = value["type"] == "array";
        value["default"] = if many { defaults.collect() } else { defaults.next().into() };
    }
    value
}

fn single(arg: &Arg) -> Value {
    let values: Vec<String> = arg.get_possible_values().iter().map(|v| v.get_name().to_owned()).collect();
    match type_of(arg.get_value_parser()) {
        "string" if !values.is_empty() => json!({ "type": "string", "enum": values }),
        name => json!({ "type": name }),
    }
}

/// A value as the schema's type says it is.
fn typed(text: &str, parser: &ValueParser) -> Value {
    match type_of(parser) {
        "string" => text.into(),
        _ => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

fn type_of(parser: &ValueParser) -> &'static str {
    let id = parser.type_id();
    let is_one_of = |ids: &[TypeId]| ids.iter().any(|other| id == *other);
    if is_one_of(&[TypeId::of::<bool>()]) {
        "boolean"
    } else if is_one_of(&[
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i8>(),
        TypeId::of::<i16>(),
        TypeId::of::<i32>(),
        TypeId::of::<i64>(),
        TypeId::of::<isize>(),
    ]) {
        "integer"
    } else if is_one_of(&[TypeId::of::<f32>(), TypeId::of::<f64>()]) {
        "number"
    } else {
        "string"
    }
}

/// The schema of the envelope around every answer.
pub(crate) fn envelope() -> Value {
    json!({
        "type": "object",
        "required": ["ok", "effect", "data", "meta"],
        "properties": {
            "ok": { "type": "boolean", "description": "it happened now, or it had happened" },
            "effect": {
                "type": ["string", "null"],
                "enum": [
                    "created", "updated", "deleted", "sent", "executed", "noop", "would_create", "would_update",
                    "would_delete", "would_send", "would_execute", null
                ],
                "description": "what changed now; null where that is not known",
            },
            "reason": { "type": "string" },
            "changes": { "type": "array", "description": "what would change, under --dry-run" },
            "data": { "description": "the command's own answer: see its output" },
            "error": {
                "type": "object",
                "required": ["code", "message", "retryable"],
                "properties": {
                    "code": { "type": "string" },
                    "message": { "type": "string" },
                    "retryable": { "type": "boolean", "description": "true: nothing happened, try again" },
                    "retry_after_ms": { "type": "integer" },
                    "fix": { "type": "string", "description": "the command to run" },
                },
            },
            "warnings": { "type": "array", "items": { "type": "string" } },
            "meta": { "type": "object" },
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction, Command, value_parser};
    use serde_json::json;

    use super::input;

    #[test]
    fn the_schema_of_an_argument_follows_from_claps_own_definition() {
        let command = Command::new("pay")
            .arg(Arg::new("amount").long("amount").value_parser(value_parser!(u32)).default_value("5"))
            .arg(Arg::new("rate").short('r').value_parser(value_parser!(f64)).required(true))
            .arg(
                Arg::new("tag").long("tag").action(ArgAction::Append).default_values(["a", "b"]).help("Tags"),
            )
            .arg(Arg::new("speed").long("speed").value_parser(["slow", "fast"]))
            .arg(Arg::new("fast").long("fast").action(ArgAction::SetTrue))
            .arg(Arg::new("loud").short('v').action(ArgAction::Count))
            .arg(Arg::new("secret").long("secret").hide(true))
            .arg(Arg::new("file").index(1));
        assert_eq!(
            input(&command, &[]),
            json!({
                "type": "object",
                "properties": {
                    "amount": { "type": "integer", "flag": "--amount", "default": 5 },
                    "rate": { "type": "number", "flag": "-r" },
                    "tag": {
                        "type": "array", "items": { "type": "string" }, "flag": "--tag", "default": ["a", "b"],
                        "description": "Tags"
                    },
                    "speed": { "type": "string", "enum": ["slow", "fast"], "flag": "--speed" },
                    "fast": { "type": "boolean", "flag": "--fast" },
                    "loud": { "type": "integer", "minimum": 0, "flag": "-v" },
                    "file": { "type": "string", "position": 1 },
                },
                "required": ["rate"],
                "additionalProperties": false,
            })
        );
    }
}
