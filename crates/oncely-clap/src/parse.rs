//! Reads the command line, and where it is wrong says everything that is wrong with it, not just the first thing.

use std::ffi::OsString;

use clap::builder::OsStringValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, Error};

use crate::handler::{Problem, Problems};

/// Most problems that are looked for.
const PROBLEMS_MAX: usize = 64;

/// What came of reading a line.
pub(crate) enum Read {
    /// It is well formed.
    Line(ArgMatches),
    /// Help or the version was asked for.
    Shown(Error),
    /// It is wrong: what clap says first, and everything that is.
    Wrong(Error, Problems),
}

/// Reads a line.
pub(crate) fn read(command: &mut Command, words: &[OsString]) -> Read {
    match command.try_get_matches_from_mut(words) {
        Ok(matches) => Read::Line(matches),
        Err(error) if !error.use_stderr() => Read::Shown(error),
        Err(error) => {
            let problems = Search::new(command, words).all(&error);
            Read::Wrong(error, problems)
        }
    }
}

/// The problem that an error says, where no other can be looked for.
pub(crate) fn problems_of(error: &Error) -> Problems {
    let argument = invalid_arguments(error).into_iter().next();
    Problems { all: vec![Problem { argument, message: first_sentence(error) }] }
}

/// Clap stops at the first error. So the line is read again, each time with what was wrong no longer mattering, until
/// nothing else is.
struct Search {
    command: Command,
    words: Vec<OsString>,
    problems: Problems,
}

/// Whether it makes sense to look on.
enum Look {
    On,
    Over,
}

impl Search {
    fn new(command: &Command, words: &[OsString]) -> Self {
        Self { command: command.clone(), words: words.to_vec(), problems: Problems::default() }
    }

    fn all(mut self, first: &Error) -> Problems {
        let mut look = self.note(first);
        while matches!(look, Look::On) && self.problems.all.len() < PROBLEMS_MAX {
            look = match self.command.clone().try_get_matches_from(&self.words) {
                Err(error) if error.use_stderr() => self.note(&error),
                _ => Look::Over,
            };
        }
        self.problems
    }

    /// Notes what an error says, and makes it not matter.
    fn note(&mut self, error: &Error) -> Look {
        let names = invalid_arguments(error);
        if error.kind() == ErrorKind::MissingRequiredArgument && !names.is_empty() {
            for name in names {
                self.add(Some(name), "is required".to_owned());
            }
            // Clap asks for what is missing last of all.
            return Look::Over;
        }
        let known = self.problems.all.len();
        self.add(names.first().cloned(), first_sentence(error));
        if self.problems.all.len() == known {
            return Look::Over;
        }
        let Some(name) = names.first() else { return Look::Over };
        match error.kind() {
            ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
                self.relax(name, |arg| arg.value_parser(OsStringValueParser::new()));
                Look::On
            }
            ErrorKind::TooFewValues
            | ErrorKind::TooManyValues
            | ErrorKind::WrongNumberOfValues
            | ErrorKind::NoEquals => {
                self.relax(name, |arg| arg.require_equals(false).num_args(0..));
                Look::On
            }
            ErrorKind::UnknownArgument => self.take_out(name),
            ErrorKind::ArgumentConflict => {
                self.relax(name, |arg| arg.required(false));
                self.take_out(name)
            }
            _ => Look::Over,
        }
    }

    fn add(&mut self, argument: Option<String>, message: String) {
        let problem = Problem { argument, message };
        if !self.problems.all.contains(&problem) {
            self.problems.all.push(problem);
        }
    }

    /// Changes the argument of this name in every command that has it.
    fn relax(&mut self, name: &str, change: impl Fn(Arg) -> Arg + Copy) {
        fn within(command: Command, name: &str, change: impl Fn(Arg) -> Arg + Copy) -> Command {
            command
                .mut_args(|arg| if is_named(&arg, name) { change(arg) } else { arg })
                .mut_subcommands(|below| within(below, name, change))
        }
        self.command = within(std::mem::take(&mut self.command), name, change);
    }

    /// Takes an argument out of the line, with the word that looks like its value.
    fn take_out(&mut self, name: &str) -> Look {
        let head = head_of(name);
        let is_it = |word: &OsString| {
            word.to_str().is_some_and(|word| word == head || word.starts_with(&format!("{head}=")))
        };
        let Some(at) = self.words.iter().skip(1).position(is_it).map(|at| at + 1) else { return Look::Over };
        let taken = self.words.remove(at);
        let lone_option = head.starts_with('-') && !taken.to_string_lossy().contains('=');
        let value_follows = self.words.get(at).is_some_and(|next| !next.to_string_lossy().starts_with('-'));
        if lone_option && value_follows {
            self.words.remove(at);
        }
        Look::On
    }
}

fn invalid_arguments(error: &Error) -> Vec<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => Vec::new(),
    }
}

/// What clap says, without "error:", the usage and where to find help.
fn first_sentence(error: &Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "nothing is said to do; see --help".to_owned();
    }
    let text = error.render().to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.split('\n').map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The flag or the name of the value in `--amount <AMOUNT>`, `-a <A>`, `<FILE>`, `[FILE]...`.
fn head_of(name: &str) -> &str {
    let head = name.split([' ', '=']).next().unwrap_or(name);
    if head.starts_with('-') {
        head.trim_end_matches('[')
    } else {
        name.trim_matches(['<', '>', '[', ']', '.'])
    }
}

fn is_named(arg: &Arg, name: &str) -> bool {
    let head = head_of(name);
    if let Some(long) = head.strip_prefix("--") {
        return arg.get_long() == Some(long);
    }
    if let Some(short) = head.strip_prefix('-') {
        return arg.get_short().is_some_and(|c| short.chars().eq([c]));
    }
    let value_name = arg.get_value_names().and_then(|names| names.first());
    arg.is_positional()
        && value_name.map_or_else(|| arg.get_id().as_str() == head, |value_name| value_name.as_str() == head)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{Arg, Command, value_parser};

    use super::{PROBLEMS_MAX, Read, read};

    fn wrong(words: &[&str]) -> Vec<String> {
        let number = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(u32));
        let mut command = Command::new("app").subcommand(
            Command::new("pay")
                .arg(number("amount").required(true))
                .arg(number("fee"))
                .arg(Arg::new("to").long("to").required(true))
                .arg(Arg::new("speed").long("speed").value_parser(["slow", "fast"]))
                .arg(Arg::new("now").long("now").num_args(0).conflicts_with("speed"))
                .arg(Arg::new("file").value_parser(value_parser!(u8))),
        );
        let words: Vec<OsString> = ["app", "pay"].iter().chain(words).map(Into::into).collect();
        match read(&mut command, &words) {
            Read::Wrong(_, problems) => problems.all.into_iter().filter_map(|p| p.argument).collect(),
            Read::Line(_) => Vec::new(),
            Read::Shown(_) => vec!["shown".to_owned()],
        }
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        assert_eq!(wrong(&["--amount", "5", "--to", "a"]), Vec::<String>::new());
        assert_eq!(
            wrong(&["--amount", "x", "--fee", "y", "--speed", "warp"]),
            ["--amount <amount>", "--fee <fee>", "--speed <speed>", "--to <to>"]
        );
        assert_eq!(wrong(&[]), ["--amount <amount>", "--to <to>"]);
        assert_eq!(
            wrong(&["--ammount", "5", "--fee", "x"]),
            ["--ammount", "--fee <fee>", "--amount <amount>", "--to <to>"]
        );
        assert_eq!(wrong(&["--colour=red", "--to", "a", "--amount=-"]), ["--colour", "--amount <amount>"]);
        assert_eq!(wrong(&["--to", "a", "--amount", "1", "999"]), ["[file]"]);
        assert_eq!(wrong(&["--now", "--speed", "slow", "--fee", "x"])[0], "--fee <fee>");
        assert!(wrong(&["--now", "--speed", "slow", "--fee", "x"]).contains(&"--to <to>".to_owned()));
        assert_eq!(wrong(&["--help"]), ["shown"]);
    }

    #[test]
    fn the_search_is_bounded_as_documented() {
        let words: Vec<String> = (0..1_000).map(|n| format!("--unknown-{n}")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(wrong(&words).len(), PROBLEMS_MAX);
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md")).unwrap();
        assert!(page.contains(&format!(
            "| mistakes on one command line of an `oncely-clap` program | {PROBLEMS_MAX} mistakes |"
        )));
    }

    #[test]
    fn what_cannot_be_looked_past_ends_the_search() {
        let mut command = Command::new("app").subcommand_required(true).subcommand(Command::new("pay"));
        let words = ["app", "pey"].map(OsString::from);
        let Read::Wrong(_, problems) = read(&mut command, &words) else { panic!("it is wrong") };
        assert!(problems.all[0].message.contains("unrecognized subcommand 'pey'"), "{problems:?}");
    }
}
