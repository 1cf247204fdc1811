//! The manifest: what every command does, takes and answers, for programs that want to call it.

use clap::Command;
use serde_json::{Map, Value, json};

use crate::commands::{Entry, Shape, Work};
use crate::declare::{Danger, Declaration, KeyRule};
use crate::schema;
use crate::surroundings::variable_name;
use crate::{exit, flags};

/// The manifest's own version; a new number where a member changes its meaning.
const VERSION: u32 = 1;

/// The manifest as text: one line per run of the program would be unreadable, so it is indented.
pub(crate) fn print(command: &Command, shape: &Shape, keys: KeyRule) -> String {
    format!("{:#}\n", manifest(command, shape, keys))
}

/// The manifest.
pub(crate) fn manifest(command: &Command, shape: &Shape, keys: KeyRule) -> Value {
    let mut found = Found { app: command.get_name(), globals: Vec::new(), keys, commands: Vec::new() };
    found.visit(command, shape, &mut Vec::new());
    let app = command.get_name();
    json!({
        "manifest_version": VERSION,
        "name": app,
        "version": command.get_version(),
        "about": command.get_about().map(ToString::to_string),
        "environment": {
            variable_name(app, "SESSION"): "what a key is unique within: a session, task or run",
            variable_name(app, "STORE"): "the ledger: sqlite:PATH, a path, or memory:",
            "ONCELY_STORE": "the ledger, for all programs",
        },
        "exit_codes": exit_codes(&exit::MEANINGS.map(|(code, _)| code)),
        "envelope": schema::envelope(),
        "commands": found.commands,
    })
}

/// What is found on the way through clap's tree.
struct Found<'c> {
    app: &'c str,
    globals: Vec<&'c clap::Arg>,
    keys: KeyRule,
    commands: Vec<Value>,
}

impl<'c> Found<'c> {
    fn visit(&mut self, command: &'c Command, shape: &Shape, path: &mut Vec<String>) {
        let inherited = self.globals.len();
        match shape {
            Shape::Command(entry) => self.commands.push(self.describe(command, entry, path)),
            Shape::Group(shapes) => {
                self.globals.extend(command.get_arguments().filter(|arg| arg.is_global_set()));
                for (below, shape) in command.get_subcommands().zip(shapes) {
                    path.push(below.get_name().to_owned());
                    self.visit(below, shape, path);
                    path.pop();
                }
            }
        }
        self.globals.truncate(inherited);
    }

    fn describe(&self, command: &Command, entry: &Entry, path: &[String]) -> Value {
        let name = if path.is_empty() { self.app.to_owned() } else { path.join(" ") };
        let mut described = Map::new();
        let mut set = |member: &str, value: Value| described.insert(member.to_owned(), value);
        set("name", name.into());
        set("path", path.into());
        set("about", command.get_about().map(ToString::to_string).into());
        set("danger", entry.danger.as_str().into());
        set("managed", (!matches!(entry.work, Work::ByHand)).into());
        set("input", schema::input(command, &self.globals));
        match &entry.work {
            Work::ByHand => {}
            Work::Query { output } => {
                set("effects", json!(["noop"]));
                set("retry", json!({ "safe": true }));
                set("exit_codes", exit_codes(&exit::OF_SAFE));
                set("output", output().to_value());
            }
            Work::Handler { declare, output } => {
                let declared = declare();
                set("idempotency", self.idempotency(&declared));
                set("retry", retry(&declared));
                let effects: Vec<&str> =
                    declared.effects().into_iter().map(|effect| effect.as_str()).collect();
                set("effects", effects.into());
                set("dry_run", json!({ "flag": "--dry-run" }));
                if entry.danger == Danger::Destructive {
                    set("confirm", json!({ "flag": "--confirm" }));
                }
                set("exit_codes", exit_codes(&exit::MEANINGS.map(|(code, _)| code)));
                set("output", output().to_value());
            }
        }
        described.into()
    }

    fn idempotency(&self, declared: &Declaration) -> Value {
        let key = match declared.key_rule(self.keys) {
            KeyRule::Derived => "derived",
            KeyRule::Required => "required",
        };
        let mut value = json!({
            "strategy": declared.strategy().as_str(),
            "key": key,
            "key_flag": "--idempotency-key",
            "session_variable": variable_name(self.app, "SESSION"),
            "when_unknown": declared.bare_policy().when_unknown.as_str(),
        });
        for (member, ids) in
            [("key_from", declared.key_from_arguments()), ("ignores", declared.ignored_arguments())]
        {
            if !ids.is_empty() {
                value[member] = ids.into();
            }
        }
        value
    }
}

/// What a caller can count on when it tries again.
fn retry(declared: &Declaration) -> Value {
    let policy = declared.bare_policy();
    json!({
        "safe": true,
        "max_retries": policy.max_retries,
        "wait_for_ms": policy.wait_for_ms,
        "replay_for_ms": policy.retention.replay_for_ms,
        "remember_for_ms": policy.retention.remember_for_ms,
        "repeat_after_ms": policy.repeat_after_ms,
    })
}

fn exit_codes(codes: &[u8]) -> Value {
    let meanings = exit::MEANINGS.iter().filter(|(code, _)| codes.contains(code));
    meanings.map(|(code, meaning)| (code.to_string(), Value::from(*meaning))).collect::<Map<_, _>>().into()
}

/// Whether an argument belongs into the schema of a command's input.
pub(crate) fn is_input(arg: &clap::Arg) -> bool {
    let id = arg.get_id().as_str();
    !flags::is_ours(id) && !arg.is_hide_set() && id != "help" && id != "version"
}
