//! `debug_assert`: finds what is wrong with a program's commands, in a test.

use clap::{Arg, Command};

use crate::commands::{App, Shape, Work};
use crate::declare::{Declaration, KeyRule, Terms};
use crate::runner::{Runner, tool_name};

/// Checks a program's commands; a line of a test, as with clap's own `debug_assert`.
///
/// Besides what clap checks: that every declaration holds together, names only arguments that there are, that tools have
/// acceptable names, and that our flags do not clash with the program's.
///
/// ```no_run
/// # #[derive(clap::Parser, oncely_clap::Commands)] struct Cli { #[command(subcommand)] command: Commands }
/// # #[derive(clap::Subcommand, oncely_clap::Commands)] enum Commands { #[oncely(safe, by_hand)] Version }
/// #[test]
/// fn the_commands_hold_together() {
///     oncely_clap::debug_assert::<Cli>();
/// }
/// ```
///
/// # Panics
///
/// If anything is wrong, with all of it.
pub fn debug_assert<A: App>() {
    let mut wrong = Vec::new();
    let (plain, shape) = (A::command(), A::shape());
    clashes(&plain, &shape, &mut Vec::new(), &mut wrong);
    assert!(wrong.is_empty(), "the commands do not hold together:\n  {}", wrong.join("\n  "));
    let mut command = Runner::<A>::new().command();
    command.clone().debug_assert();
    command.build();
    visit(&command, &shape, &mut Vec::new(), &mut wrong);
    assert!(wrong.is_empty(), "the commands do not hold together:\n  {}", wrong.join("\n  "));
}

/// Clashes are looked for first: clap's own words for them do not say where our flags come from.
fn clashes<'c>(command: &'c Command, shape: &Shape, globals: &mut Vec<&'c Arg>, wrong: &mut Vec<String>) {
    let inherited = globals.len();
    let below: Vec<&Command> = command.get_subcommands().collect();
    match shape {
        Shape::Group(commands) => {
            if below.len() < commands.len() {
                wrong.push(format!(
                    "{} has {} subcommands but {} marks; flattened variants are marked #[oncely(group)]",
                    command.get_name(),
                    below.len(),
                    commands.len()
                ));
            }
            globals.extend(command.get_arguments().filter(|arg| arg.is_global_set()));
            for (below, shape) in below.into_iter().zip(commands) {
                clashes(below, shape, globals, wrong);
            }
        }
        Shape::Command(entry) => {
            let ours: &[&str] = match entry.work {
                Work::ByHand => &[],
                Work::Query { .. } => &["json"],
                Work::Handler { .. } => &["idempotency-key", "dry-run", "retry-unknown", "json", "confirm"],
            };
            for arg in command.get_arguments().chain(globals.iter().copied()) {
                if let Some(long) = arg.get_long().filter(|long| ours.contains(long)) {
                    wrong.push(format!(
                        "{}: --{long} is a flag of the framework; remove yours, it does the same",
                        command.get_name()
                    ));
                }
                if arg.get_id().as_str().starts_with('@') {
                    wrong.push(format!("{}: an argument's id may not begin with '@'", command.get_name()));
                }
            }
        }
    }
    globals.truncate(inherited);
}

/// Looks at every command that is not safe, with those above it: the program first.
fn visit<'c>(command: &'c Command, shape: &Shape, above: &mut Vec<&'c Command>, wrong: &mut Vec<String>) {
    above.push(command);
    match shape {
        Shape::Group(commands) => {
            for (below, shape) in command.get_subcommands().zip(commands) {
                visit(below, shape, above, wrong);
            }
        }
        Shape::Command(entry) => {
            if let Work::Handler { declare, .. } = &entry.work {
                examine(above, &declare(), wrong);
            }
        }
    }
    above.pop();
}

fn examine(commands: &[&Command], declared: &Declaration, wrong: &mut Vec<String>) {
    let Some(((program, below), command)) = commands.split_first().zip(commands.last()) else { return };
    let name = command.get_name();
    let path: Vec<String> = below.iter().map(|command| command.get_name().to_owned()).collect();
    if let Err(error) = tool_name(program.get_name(), &path) {
        wrong.push(format!("{name}: {error}"));
    }
    if let Err(error) = declared.policy(&Terms { keys: KeyRule::Derived, ignored: Vec::new() }, &[]) {
        wrong.push(format!("{name}: {error}"));
    }
    for (what, id) in declared.named_arguments() {
        let mut arguments = commands.iter().flat_map(|command| command.get_arguments());
        if arguments.all(|arg| arg.get_id().as_str() != id) {
            wrong.push(format!("{name}: {what} names {id:?}, which is no argument of it"));
        }
    }
}
