//! What makes two command lines the same call: the arguments as clap understood them, without our own flags.

use std::any::TypeId;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use oncely_core::name::hex;
use serde_json::{Map, Value, json};

use crate::flags::is_ours;

/// Where the arguments of the commands above the chosen one are kept.
const ABOVE: &str = "@above";

/// The payload of a call, as JSON: the chosen command's arguments by their ids, and those of the commands above it that
/// are not its own. `--amount 5`, `--amount=5` and a default of 5 are the same, and paths are absolute.
///
/// An argument that is not given is left out, so that a new one does not make old calls look different; except where
/// the key is made from it: then it is `null`.
pub(crate) fn payload(command: &Command, matches: &ArgMatches, key_from: &[String]) -> Vec<u8> {
    let mut above = Map::new();
    let (mut at, mut said) = (command, matches);
    let mut path = String::new();
    while let Some((name, below)) = said.subcommand() {
        let level = arguments(at, said, |arg| !arg.is_global_set());
        if !level.is_empty() {
            above.insert(path.clone(), level.into());
        }
        let Some(next) = at.find_subcommand(name) else { break };
        path = format!("{path} {name}").trim().to_owned();
        (at, said) = (next, below);
    }
    let mut payload = global_arguments(command, said, &path);
    payload.extend(arguments(at, said, |_| true));
    for id in key_from {
        payload.entry(id.clone()).or_insert(Value::Null);
    }
    if !above.is_empty() {
        payload.insert(ABOVE.to_owned(), above.into());
    }
    Value::Object(payload).to_string().into_bytes()
}

/// Global arguments are told to the chosen command, but may be defined on any level above it.
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
    let raw: Vec<&OsStr> = said.try_get_raw(id).ok().flatten()?.collect();
    let many = match arg.get_action() {
        // A switch that is not thrown is as if it were not there.
        ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count
            if said.value_source(id) == Some(ValueSource::DefaultValue) =>
        {
            return None;
        }
        ArgAction::Append => true,
        _ => arg.get_num_args().is_some_and(|range| range.max_values() > 1),
    };
    let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    let text = |value: &&OsStr| if is_path { path(value) } else { text(value) };
    match (many, raw.as_slice()) {
        (false, [value]) => Some(text(value)),
        (_, values) => Some(values.iter().map(text).collect()),
    }
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
    use clap::{Arg, ArgAction, Command};

    use super::payload;

    fn of(words: &[&str]) -> String {
        let command = Command::new("app")
            .arg(Arg::new("db").long("db").global(true))
            .arg(Arg::new("region").long("region"))
            .subcommand(
                Command::new("pay")
                    .arg(Arg::new("amount").long("amount").short('a').default_value("5"))
                    .arg(Arg::new("tag").long("tag").action(ArgAction::Append))
                    .arg(Arg::new("file").long("file").value_parser(clap::value_parser!(std::path::PathBuf)))
                    .arg(Arg::new("fast").long("fast").action(ArgAction::SetTrue))
                    .arg(Arg::new("loud").short('v').action(ArgAction::Count))
                    .arg(Arg::new("@ours").long("ours").action(ArgAction::SetTrue)),
            );
        let matches = command.clone().try_get_matches_from([&["app"], words].concat()).unwrap();
        String::from_utf8(payload(&command, &matches, &["note".to_owned()])).unwrap()
    }

    #[test]
    fn spelling_does_not_matter_and_meaning_does() {
        let plain = of(&["pay"]);
        assert_eq!(plain, r#"{"amount":"5","note":null}"#);
        for same in [&["pay", "--amount", "5"][..], &["pay", "--amount=5"], &["pay", "-a5", "--ours"]] {
            assert_eq!(of(same), plain, "{same:?}");
        }
        for other in [
            &["pay", "--amount", "6"][..],
            &["pay", "--fast"],
            &["pay", "-v"],
            &["pay", "-vv"],
            &["pay", "--tag", "a"],
            &["pay", "--tag", "a", "--tag", "b"],
            &["pay", "--tag", "b", "--tag", "a"],
            &["--region", "eu", "pay"],
            &["--region", "us", "pay"],
            &["--db", "x", "pay"],
        ] {
            assert_ne!(of(other), plain, "{other:?}");
        }
        assert_ne!(of(&["pay", "-v"]), of(&["pay", "-vv"]));
        assert_eq!(of(&["--db", "x", "pay"]), of(&["pay", "--db=x"]), "a global argument has no place");
        assert_ne!(of(&["--region", "x", "pay"]), of(&["--db", "x", "pay"]));
        let file = std::env::current_dir().unwrap().join("bill");
        let absolute = of(&["pay", "--file", file.to_str().unwrap()]);
        assert_eq!(of(&["pay", "--file", "bill"]), absolute, "a relative path means a file");
    }
}
