//! A program whose only command panics: what its callers see then, whether a panic unwinds or aborts.

use clap::Parser;
use oncely_clap::{Failure, Query};

#[derive(Debug, Parser, oncely_clap::Commands)]
#[command(name = "fragile")]
#[oncely(safe)]
struct Fragile {}

impl Query<Self> for Fragile {
    type Data = u32;

    fn run(&self, _app: &Self) -> Result<u32, Failure> {
        panic!("it broke")
    }
}

fn main() -> std::process::ExitCode {
    oncely_clap::main::<Fragile>()
}
