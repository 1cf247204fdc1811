//! How the program is linked, so that it starts fast.
//!
//! A shared `libgcc_s` is loaded, relocated and asks the processor about itself at every start, only to be there for a
//! panic. The same code exists as an archive: a linker script of that name, found first, stands for it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    // Without it the program is the same, and a little slower to start.
    let _ = link_unwinder();
}

fn link_unwinder() -> Option<()> {
    let is_native = variable("HOST")? == variable("TARGET")?;
    if !is_native || variable("CARGO_CFG_TARGET_OS")? != "linux" || variable("CARGO_CFG_TARGET_ENV")? != "gnu"
    {
        return None;
    }
    let archive = "libgcc_eh.a";
    let linker = variable("RUSTC_LINKER").unwrap_or_else(|| "cc".to_owned());
    let found = Command::new(linker).arg(format!("-print-file-name={archive}")).output().ok()?;
    let path = String::from_utf8(found.stdout).ok()?;
    // What the compiler does not have it answers with the bare name.
    if !Path::new(path.trim()).is_absolute() {
        return None;
    }
    let directory = PathBuf::from(variable("OUT_DIR")?);
    std::fs::write(directory.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").ok()?;
    println!("cargo:rustc-link-search=native={}", directory.display());
    Some(())
}

#[allow(clippy::disallowed_methods, reason = "cargo speaks to a build script through the environment")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}
