//! The arguments of ten commands, the same for the plain program and for the one with oncely-clap.

use clap::Args;

/// Some commands with some arguments.
macro_rules! arguments {
    ($($name:ident),*) => {
        $(
            #[derive(Debug, Args)]
            pub(crate) struct $name {
                /// Whom it is for
                #[arg(long)]
                pub(crate) customer: String,
                /// For how much
                #[arg(long, default_value_t = 1)]
                pub(crate) amount: u64,
                /// What else there is to say
                #[arg(long)]
                pub(crate) note: Vec<String>,
            }
        )*
    };
}

arguments!(Create, Update, Send, Deploy, Cancel, Refund, Ship, Pack, Label);

/// Nothing to say.
#[derive(Debug, Args)]
pub(crate) struct List {}
