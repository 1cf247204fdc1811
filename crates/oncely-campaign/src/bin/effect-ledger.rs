//! The outside ledger as a process: `effect-ledger SOCKET LOG`.
#![allow(clippy::print_stdout, reason = "it says when it is ready")]

use std::path::PathBuf;

use oncely_campaign::{Checked, outside};

fn main() -> Checked<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(socket), Some(log)) = (arguments.next(), arguments.next()) else {
        return Err("usage: effect-ledger SOCKET LOG".into());
    };
    outside::serve(&socket, &log, || println!("ready"))
}
