//! Commands: their shape, as the derive macro writes it down, and the one that was chosen.

use schemars::Schema;

use crate::declare::{Danger, Declaration};
use crate::handler::{AsyncHandler, AsyncQuery, Handler, Query};
use crate::job::Job;

/// The commands of a program: derived, never written by hand.
///
/// Every variant of the enum of subcommands carries a mark; one without does not compile:
///
/// | mark | the handler is | |
/// |---|---|---|
/// | `#[oncely(safe)]` | [`Query`] | changes nothing |
/// | `#[oncely(mutating)]` | [`Handler`] | changes something |
/// | `#[oncely(destructive)]` | [`Handler`] | destroys something: wants a confirmation |
/// | … with `async` | [`AsyncQuery`], [`AsyncHandler`] | runs on a tokio runtime |
/// | … with `by_hand` | none | left to the program's own code, see [`Runner::run_or`](crate::Runner::run_or) |
/// | `#[oncely(group)]` | none | holds other commands, which derive `Commands` too |
///
/// ```
/// #[derive(clap::Subcommand, oncely_clap::Commands)]
/// enum Commands {
///     /// Somebody has said how dangerous this is
///     #[oncely(destructive, by_hand)]
///     Purge,
/// }
/// ```
///
/// ```compile_fail
/// #[derive(clap::Subcommand, oncely_clap::Commands)]
/// enum Commands {
///     /// Nobody has said how dangerous this is
///     Purge,
/// }
/// ```
pub trait Commands<A: Send + Sync + 'static> {
    /// What there is, in clap's order.
    fn shape() -> Shape;

    /// What was chosen; `None` if it is left to the program's own code.
    fn job(&self) -> Option<Job<'_, A>>;
}

/// A program: what derives [`clap::Parser`] and [`Commands`](macro@crate::Commands).
pub trait App: clap::Parser + Commands<Self> + Send + Sync + 'static {}

impl<T: clap::Parser + Commands<T> + Send + Sync + 'static> App for T {}

/// The shape of a program: a command, or a group of them.
#[derive(Debug)]
pub enum Shape {
    /// A command.
    Command(Entry),
    /// Commands, in the order in which clap knows them.
    Group(Vec<Self>),
}

/// What is known of a command without running it.
#[derive(Debug)]
pub struct Entry {
    pub(crate) danger: Danger,
    pub(crate) work: Work,
}

/// Who runs a command.
#[derive(Debug)]
pub(crate) enum Work {
    /// A handler of a safe command.
    Query { output: fn() -> Schema },
    /// A handler of one that is not.
    Handler { declare: fn() -> Declaration, output: fn() -> Schema },
    /// The program's own code.
    ByHand,
}

impl Shape {
    /// A safe command.
    pub fn query<T: Query<A>, A: Send + Sync + 'static>(danger: Danger) -> Self {
        Self::Command(Entry { danger, work: Work::Query { output: schema::<T::Data> } })
    }

    /// A safe command that is asynchronous.
    pub fn async_query<T: AsyncQuery<A>, A: Send + Sync + 'static>(danger: Danger) -> Self {
        Self::Command(Entry { danger, work: Work::Query { output: schema::<T::Data> } })
    }

    /// A command that is not safe.
    pub fn handler<T: Handler<A>, A: Send + Sync + 'static>(danger: Danger) -> Self {
        let work = Work::Handler { declare: T::declare, output: schema::<T::Data> };
        Self::Command(Entry { danger, work })
    }

    /// A command that is not safe and asynchronous.
    pub fn async_handler<T: AsyncHandler<A>, A: Send + Sync + 'static>(danger: Danger) -> Self {
        let work = Work::Handler { declare: T::declare, output: schema::<T::Data> };
        Self::Command(Entry { danger, work })
    }

    /// A command that is left to the program's own code.
    pub fn by_hand(danger: Danger) -> Self {
        Self::Command(Entry { danger, work: Work::ByHand })
    }

    /// The commands of a group; one alone is a group of itself.
    pub fn into_commands(self) -> Vec<Self> {
        match self {
            Self::Group(commands) => commands,
            command @ Self::Command(_) => vec![command],
        }
    }

    /// The entry of the command at a place in clap's tree; `None` for what clap or we have added.
    pub(crate) fn at<'s>(&'s self, command: &clap::Command, path: &[String]) -> Option<&'s Entry> {
        match (self, path.split_first()) {
            (Self::Command(entry), None) => Some(entry),
            (Self::Group(commands), Some((name, rest))) => {
                let place = command.get_subcommands().position(|c| c.get_name() == name)?;
                commands.get(place)?.at(command.get_subcommands().nth(place)?, rest)
            }
            _ => None,
        }
    }
}

fn schema<T: schemars::JsonSchema>() -> Schema {
    schemars::schema_for!(T)
}
