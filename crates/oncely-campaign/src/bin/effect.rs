//! The command that is run under oncely: `effect SOCKET KEY MODE`. It reports one effect and prints the receipt, or ends in
//! one of the other ways a command can. With `EFFECT_UNTIL` in its environment it ends only when that file is there.
#![allow(clippy::print_stdout, reason = "its output is what is replayed")]

use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use oncely_campaign::{Checked, outside};

fn main() -> Checked<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, key, mode] = arguments.as_slice() else {
        return Err("usage: effect SOCKET KEY MODE".into());
    };
    let socket = Path::new(socket);
    let first = std::env::var_os("ONCELY_ATTEMPT").is_none_or(|attempt| attempt == "1");
    match mode.as_str() {
        "refuses" => return Ok(ExitCode::from(64)),
        "refuses-first" if first => return Ok(ExitCode::from(64)),
        "fails-before" => return Ok(ExitCode::from(1)),
        _ => {}
    }
    let receipt = outside::report(socket, key)?;
    if let Some(file) = std::env::var_os("EFFECT_UNTIL") {
        while !Path::new(&file).exists() {
            sleep(Duration::from_millis(5));
        }
    }
    if mode == "fails-after" {
        return Ok(ExitCode::from(1));
    }
    print!("{key}: {receipt}");
    Ok(ExitCode::SUCCESS)
}
