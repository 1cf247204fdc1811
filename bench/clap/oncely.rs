//! The subject of the section clap: the same ten commands with oncely-clap.

mod arguments;

use std::process::ExitCode;

use arguments::{Cancel, Create, Deploy, Label, List, Pack, Refund, Send, Ship, Update};
use clap::{Parser, Subcommand};
use oncely_clap::{Answer, Cx, Declaration, Failure, Handler, Query, created};

/// Ten commands
#[derive(Debug, Parser, oncely_clap::Commands)]
#[command(name = "shop", version)]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand, oncely_clap::Commands)]
enum Commands {
    /// Create
    #[oncely(mutating)]
    Create(Create),
    /// Update
    #[oncely(mutating)]
    Update(Update),
    /// Send
    #[oncely(mutating)]
    Send(Send),
    /// Deploy
    #[oncely(mutating)]
    Deploy(Deploy),
    /// Cancel
    #[oncely(destructive)]
    Cancel(Cancel),
    /// Refund
    #[oncely(mutating)]
    Refund(Refund),
    /// Ship
    #[oncely(mutating)]
    Ship(Ship),
    /// Pack
    #[oncely(mutating)]
    Pack(Pack),
    /// Label
    #[oncely(mutating)]
    Label(Label),
    /// List
    #[oncely(safe)]
    List(List),
}

macro_rules! handlers {
    ($($name:ident),*) => {
        $(
            impl Handler<Cli> for $name {
                type Data = String;

                fn declare() -> Declaration {
                    Declaration::creates()
                }

                fn run(&self, _cx: &Cx<Cli>) -> Answer<String> {
                    created(format!("{} {} {:?}", self.customer, self.amount, self.note))
                }
            }
        )*
    };
}

handlers!(Create, Update, Send, Deploy, Cancel, Refund, Ship, Pack, Label);

impl Query<Cli> for List {
    type Data = Vec<String>;

    fn run(&self, _app: &Cli) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }
}

fn main() -> ExitCode {
    oncely_clap::main::<Cli>()
}
