//! `debug_assert`: finds what is wrong with a program's commands, in a test.

use clap::Command;

use crate::commands::{App, Shape, Work};
use crate::declare::{Declaration, KeyRule};
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
    clashes(&plain, &shape, &mut wrong);
    assert!(wrong.is_empty(), "the commands do not hold together:\n  {}", wrong.join("\n  "));
    let mut command = Runner::<A>::new().command();
    command.clone().debug_assert();
    command.build();
    let app = command.get_name().to_owned();
    visit(&command, &shape, &mut Vec::new(), &mut |command, declared, path| {
        examine(&app, command, declared, path, &mut wrong);
    });
    assert!(wrong.is_empty(), "the commands do not hold together:\n  {}", wrong.join("\n  "));
}

/// Clashes are looked for first: clap's own words for them do not say where our flags come from.
fn clashes(command: &Command, shape: &Shape, wrong: &mut Vec<String>) {
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
            for (below, shape) in below.into_iter().zip(commands) {
                clashes(below, shape, wrong);
            }
        }
        Shape::Command(entry) => {
            let ours: &[&str] = match entry.work {
                Work::ByHand => &[],
                Work::Query { .. } => &["json"],
                Work::Handler { .. } => &["idempotency-key", "dry-run", "retry-unknown", "json", "confirm"],
            };
            for arg in command.get_arguments() {
                if let Some(long) = arg.get_long().filter(|long| ours.contains(long)) {
                    wrong.push(format!(
                        "{}: --{long} is a flag of the framework; rename yours",
                        command.get_name()
                    ));
                }
                if arg.get_id().as_str().starts_with('@') {
                    wrong.push(format!("{}: an argument's id may not begin with '@'", command.get_name()));
                }
            }
        }
    }
}

fn visit(
    command: &Command,
    shape: &Shape,
    path: &mut Vec<String>,
    look: &mut dyn FnMut(&Command, &Declaration, &[String]),
) {
    match shape {
        Shape::Group(commands) => {
            for (below, shape) in command.get_subcommands().zip(commands) {
                path.push(below.get_name().to_owned());
                visit(below, shape, path, look);
                path.pop();
            }
        }
        Shape::Command(entry) => {
            if let Work::Handler { declare, .. } = &entry.work {
                look(command, &declare(), path);
            }
        }
    }
}

fn examine(app: &str, command: &Command, declared: &Declaration, path: &[String], wrong: &mut Vec<String>) {
    let name = command.get_name();
    if let Err(error) = tool_name(app, path) {
        wrong.push(format!("{name}: {error}"));
    }
    if let Err(error) = declared.policy(KeyRule::Derived) {
        wrong.push(format!("{name}: {error}"));
    }
    for (what, id) in declared.named_arguments() {
        // Global arguments are in every command once clap has built it.
        if command.get_arguments().all(|arg| arg.get_id().as_str() != id) {
            wrong.push(format!("{name}: {what} names {id:?}, which is no argument of it"));
        }
    }
}
