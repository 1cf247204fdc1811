//! What makes two command lines the same call: the arguments as clap understood them, without our own flags.

use std::any::TypeId;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use oncely_core::name::hex;
use serde_json::{Map, Value, json};

use crate::flags::is_ours;

/// Where arguments of the commands above the chosen one are kept that have the name of one of its own.
const ABOVE: &str = "@above";

/// What a call means.
pub(crate) struct Payload {
    pub(crate) json: Vec<u8>,
    /// The ids of arguments that were said to the commands above the chosen one, or to all: what they name (a database,
    /// a region) is part of every intent.
    pub(crate) above: Vec<String>,
}

/// The payload of a call: the arguments by their ids, as clap understood them. `--amount 5`, `--amount=05` and a default
/// of 5 are the same; paths are absolute.
///
/// An argument that is not given is left out, so that a new one does not make old calls look different; except where
/// the key is made from it: then it is `null`.
pub(crate) fn payload(command: &Command, matches: &ArgMatches, key_from: &[String]) -> Payload {
    let mut above = Map::new();
    let mut hidden = Map::new();
    let (mut at, mut said) = (command, matches);
    let mut path = String::new();
    while let Some((name, below)) = said.subcommand() {
        let Some(next) = at.find_subcommand(name) else { break };
        let own = |id: &str| next.get_arguments().any(|arg| arg.get_id() == id && !arg.is_global_set());
        for (id, value) in arguments(at, said, |arg| !arg.is_global_set()) {
            // The nearer one has the name.
            if own(&id) || above.contains_key(&id) {
                hidden.insert(format!("{path} {id}").trim().to_owned(), value);
            } else {
                above.insert(id, value);
            }
        }
        path = format!("{path} {name}").trim().to_owned();
        (at, said) = (next, below);
    }
    above.extend(global_arguments(command, said, &path));
    let ids = above.keys().cloned().collect();
    let mut payload = above;
    payload.extend(arguments(at, said, |arg| !arg.is_global_set()));
    for id in key_from {
        payload.entry(id.clone()).or_insert(Value::Null);
    }
    if !hidden.is_empty() {
        payload.insert(ABOVE.to_owned(), hidden.into());
    }
    Payload { json: Value::Object(payload).to_string().into_bytes(), above: ids }
}

/// Global arguments are told to the chosen command, but may be defined on any level.
fn global_arguments(command: &Command, said: &ArgMatches, path: &str) -> Map<String, Value> {
    let mut found = arguments(command, said, Arg::is_global_set);
    let mut at = command;
    for name in path.split(' ').filter(|name| !name.is_empty()) {
        let Some(next) = at.find_subcommand(name) else { break };
        at = next;
        found.extend(arguments(at, said, Arg::is_global_set));
    }
    found
}

fn arguments(command: &Command, said: &ArgMatches, wanted: impl Fn(&Arg) -> bool) -> Map<String, Value> {
    let mut found = Map::new();
    for arg in command.get_arguments().filter(|arg| !is_ours(arg.get_id().as_str()) && wanted(arg)) {
        if let Some(value) = value_of(arg, said) {
            found.insert(arg.get_id().as_str().to_owned(), value);
        }
    }
    found
}

fn value_of(arg: &Arg, said: &ArgMatches) -> Option<Value> {
    let id = arg.get_id().as_str();
    let mut values = typed(arg, said)?;
    // A switch that is not thrown is as if it were not there.
    let unset = match arg.get_action() {
        ArgAction::SetTrue => json!([false]),
        ArgAction::SetFalse => json!([true]),
        ArgAction::Count => json!([0]),
        _ => Value::Null,
    };
    if unset.as_array() == Some(&values) {
        return None;
    }
    let several = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    if matches!(arg.get_action(), ArgAction::Append) && several {
        // Which values belong together is part of what is said.
        let mut grouped = Vec::new();
        for occurrence in said.try_get_raw_occurrences(id).ok().flatten()? {
            let rest = values.split_off(occurrence.count().min(values.len()));
            grouped.push(Value::from(std::mem::replace(&mut values, rest)));
        }
        return Some(grouped.into());
    }
    match (several || matches!(arg.get_action(), ArgAction::Append), values.as_slice()) {
        (false, [value]) => Some(value.clone()),
        _ => Some(values.into()),
    }
}

/// The values of an argument in the type that clap gave them: how a number or a choice was spelt does not matter.
fn typed(arg: &Arg, said: &ArgMatches) -> Option<Vec<Value>> {
    let id = arg.get_id().as_str();
    let known = arg.get_value_parser().type_id();
    macro_rules! as_json {
        ($($kind:ty),*) => {
            $(
                if known == TypeId::of::<$kind>()
                    && let Ok(Some(values)) = said.try_get_many::<$kind>(id)
                {
                    return Some(values.map(|value| json!(value)).collect());
                }
            )*
        };
    }
    as_json!(bool, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);
    let raw: Vec<&OsStr> = said.try_get_raw(id).ok().flatten()?.collect();
    let number = |(value, raw): (f64, &&OsStr)| {
        // What is no number for JSON (infinity) stays text.
        if value.is_finite() { json!(value) } else { text(raw) }
    };
    if let (true, Ok(Some(values))) = (known == TypeId::of::<f64>(), said.try_get_many::<f64>(id)) {
        return Some(values.copied().zip(&raw).map(number).collect());
    }
    if let (true, Ok(Some(values))) = (known == TypeId::of::<f32>(), said.try_get_many::<f32>(id)) {
        return Some(values.copied().map(f64::from).zip(&raw).map(number).collect());
    }
    if known == TypeId::of::<PathBuf>() {
        return Some(raw.into_iter().map(path).collect());
    }
    let choices = arg.get_possible_values();
    let choice = |raw: &&OsStr| {
        let found = choices.iter().find(|c| c.matches(&raw.to_string_lossy(), arg.is_ignore_case_set()));
        found.map_or_else(|| text(raw), |choice| choice.get_name().into())
    };
    Some(raw.iter().map(choice).collect())
}

/// The same relative path means another file in another directory. What is none (`-`) stays as it is.
fn path(value: &OsStr) -> Value {
    match std::path::absolute(value) {
        Ok(path) if value != "-" => text(path.as_os_str()),
        _ => text(value),
    }
}

/// Text as text; what is not UTF-8 under a name of its own, so that it equals no text.
fn text(value: &OsStr) -> Value {
    match value.to_str() {
        Some(text) => text.into(),
        None => json!({ "bytes": hex(value.as_bytes()) }),
    }
}

#[cfg(test)]
mod tests {
    use clap::builder::PossibleValue;
    use clap::{Arg, ArgAction, Command, value_parser};

    use super::payload;

    fn of(words: &[&str]) -> String {
        let speeds = [PossibleValue::new("fast").alias("quick"), PossibleValue::new("slow")];
        let mut command = Command::new("app")
            .arg(Arg::new("db").long("db").global(true))
            .arg(Arg::new("region").long("region"))
            .arg(Arg::new("tag").long("root-tag"))
            .subcommand(
                Command::new("pay")
                    .arg(
                        Arg::new("amount")
                            .long("amount")
                            .short('a')
                            .default_value("5")
                            .value_parser(value_parser!(u64)),
                    )
                    .arg(Arg::new("rate").long("rate").value_parser(value_parser!(f64)))
                    .arg(Arg::new("share").long("share").value_parser(value_parser!(f32)))
                    .arg(Arg::new("sure").long("sure").value_parser(value_parser!(bool)))
                    .arg(Arg::new("speed").long("speed").value_parser(speeds).ignore_case(true))
                    .arg(Arg::new("tag").long("tag").action(ArgAction::Append))
                    .arg(Arg::new("pair").long("pair").action(ArgAction::Append).num_args(1..=2))
                    .arg(Arg::new("file").long("file").value_parser(value_parser!(std::path::PathBuf)))
                    .arg(Arg::new("fast").long("fast").action(ArgAction::SetTrue))
                    .arg(Arg::new("slow").long("slow").action(ArgAction::SetFalse))
                    .arg(Arg::new("loud").short('v').action(ArgAction::Count))
                    .arg(Arg::new("@ours").long("ours").action(ArgAction::SetTrue)),
            );
        let matches = command.try_get_matches_from_mut([&["app"], words].concat()).unwrap();
        String::from_utf8(payload(&command, &matches, &["note".to_owned()]).json).unwrap()
    }

    #[test]
    fn spelling_does_not_matter() {
        let plain = of(&["pay"]);
        assert_eq!(plain, r#"{"amount":5,"note":null}"#);
        for same in [
            &["pay", "--amount", "5"][..],
            &["pay", "--amount=5"],
            &["pay", "-a5", "--ours"],
            &["pay", "--amount", "005"],
            &["pay", "--amount", "+5"],
        ] {
            assert_eq!(of(same), plain, "{same:?}");
        }
        for (one, other) in [
            (&["--rate", "1"], &["--rate", "1.00"]),
            (&["--rate", "1e1"], &["--rate", "10"]),
            (&["--share", "0.5"], &["--share", ".50"]),
            (&["--speed", "FAST"], &["--speed", "quick"]),
        ] {
            assert_eq!(of(&[&["pay"], &one[..]].concat()), of(&[&["pay"], &other[..]].concat()), "{one:?}");
        }
        assert_eq!(of(&["--db", "x", "pay"]), of(&["pay", "--db=x"]), "a global argument has no place");
        let file = std::env::current_dir().unwrap().join("bill");
        let absolute = of(&["pay", "--file", file.to_str().unwrap()]);
        assert_eq!(of(&["pay", "--file", "bill"]), absolute, "a relative path means a file");
    }

    #[test]
    fn meaning_does_matter() {
        let lines = [
            &["pay"][..],
            &["pay", "--amount", "6"],
            &["pay", "--fast"],
            &["pay", "--slow"],
            &["pay", "-v"],
            &["pay", "-vv"],
            &["pay", "--rate", "5"],
            &["pay", "--rate", "inf"],
            &["pay", "--sure", "true"],
            &["pay", "--sure", "false"],
            &["pay", "--speed", "slow"],
            &["pay", "--tag", "a"],
            &["pay", "--tag", "a", "--tag", "b"],
            &["pay", "--tag", "b", "--tag", "a"],
            &["--root-tag", "a", "pay"],
            &["pay", "--pair", "a", "b", "--pair", "c"],
            &["pay", "--pair", "a", "--pair", "b", "c"],
            &["--region", "eu", "pay"],
            &["--region", "us", "pay"],
            &["--db", "eu", "pay"],
        ];
        let payloads: Vec<String> = lines.iter().map(|line| of(line)).collect();
        for (at, payload) in payloads.iter().enumerate() {
            assert!(!payloads[..at].contains(payload), "{:?}: {payload}", lines[at]);
        }
    }
}
