//! The flags that the framework gives to commands, and what was said with them.

use clap::{Arg, ArgAction, ArgMatches, Command};
use oncely_core::Key;

use crate::commands::{Entry, Shape, Work};
use crate::declare::{Danger, KeyRule};
use crate::print::Form;

/// The command that describes all others.
pub(crate) const MANIFEST: &str = "manifest";

const KEY: &str = "@idempotency-key";
const DRY_RUN: &str = "@dry-run";
const CONFIRM: &str = "@confirm";
const RETRY_UNKNOWN: &str = "@retry-unknown";
const JSON: &str = "@json";
const HEADING: &str = "Safe to retry";

/// Whether an argument is one of ours.
pub(crate) fn is_ours(id: &str) -> bool {
    id.starts_with('@')
}

/// What was said with our flags.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) key: Option<Key>,
    pub(crate) dry_run: bool,
    pub(crate) confirmed: bool,
    pub(crate) retry_unknown: bool,
    pub(crate) form: Option<Form>,
}

impl Flags {
    /// Reads them; a command that does not have one was not told it.
    pub(crate) fn read(matches: &ArgMatches) -> Self {
        let said = |id| matches.try_get_one::<bool>(id).ok().flatten().copied();
        Self {
            key: matches.try_get_one::<Key>(KEY).ok().flatten().cloned(),
            dry_run: said(DRY_RUN) == Some(true),
            confirmed: said(CONFIRM) == Some(true),
            retry_unknown: said(RETRY_UNKNOWN) == Some(true),
            form: said(JSON).map(|json| if json { Form::Json } else { Form::Text }),
        }
    }
}

/// Gives every command that the framework runs its flags, and the program its manifest.
pub(crate) fn augment(command: Command, shape: &Shape, keys: KeyRule) -> Command {
    let command = give(command, shape, keys);
    let is_group = matches!(shape, Shape::Group(_));
    if !is_group || command.find_subcommand(MANIFEST).is_some() {
        return command;
    }
    let about = "Print what every command does, takes and answers, as JSON for programs";
    command.subcommand(Command::new(MANIFEST).about(about))
}

fn give(mut command: Command, shape: &Shape, keys: KeyRule) -> Command {
    match shape {
        Shape::Command(entry) => command.args(flags_of(entry, keys)),
        Shape::Group(commands) => {
            for (below, shape) in command.get_subcommands_mut().zip(commands) {
                *below = give(std::mem::take(below), shape, keys);
            }
            command
        }
    }
}

fn flags_of(entry: &Entry, keys: KeyRule) -> Vec<Arg> {
    let json = Arg::new(JSON)
        .long("json")
        .value_name("BOOL")
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .value_parser(clap::value_parser!(bool))
        .help("Print the answer as one line of JSON [default: unless standard output is a terminal]");
    let declare = match &entry.work {
        Work::ByHand => return Vec::new(),
        Work::Query { .. } => return vec![json],
        Work::Handler { declare, .. } => declare,
    };
    let flag = |id: &'static str, long: &'static str, help: &'static str| {
        Arg::new(id).long(long).action(ArgAction::SetTrue).help(help)
    };
    let required = declare().key_rule(keys) == KeyRule::Required;
    let from = if required { "" } else { " [default: derived from command, arguments and session]" };
    let key = Arg::new(KEY)
        .long("idempotency-key")
        .value_name("KEY")
        .required(required)
        .value_parser(|text: &str| Key::explicit(text))
        .help(format!("The name of the intent: the same for every retry, a new one for a new intent{from}"));
    let mut flags = vec![
        key,
        flag(DRY_RUN, "dry-run", "Say what would change; run nothing, write nothing"),
        flag(
            RETRY_UNKNOWN,
            "retry-unknown",
            "You have checked that the attempt with an unknown outcome did not happen: run it",
        ),
        json,
    ];
    if entry.danger == Danger::Destructive {
        flags.push(flag(
            CONFIRM,
            "confirm",
            "Confirms the command; needed where there is no terminal to ask on",
        ));
    }
    flags.into_iter().map(|flag| flag.help_heading(HEADING)).collect()
}

/// The words that lead from the program to the chosen command, and what was said to it.
pub(crate) fn chosen(matches: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let mut path = Vec::new();
    let mut at = matches;
    while let Some((name, below)) = at.subcommand() {
        path.push(name.to_owned());
        at = below;
    }
    (path, at)
}

/// The command at the end of some words, as far as they lead to one; for lines that clap could not read.
pub(crate) fn meant(command: &Command, words: &[std::ffi::OsString]) -> Vec<String> {
    let mut path = Vec::new();
    let mut at = command;
    for word in words.iter().skip(1).take_while(|word| *word != "--") {
        if let Some(below) = at.find_subcommand(word) {
            path.push(below.get_name().to_owned());
            at = below;
        }
    }
    path
}
