//! Where the software that the tests run against is installed, and what happens where it is not.

use std::io::Write;
use std::path::{Path, PathBuf};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp");

/// The folder that `tests/mcp/setup` has filled.
#[derive(Debug, Clone)]
pub(crate) struct Software(PathBuf);

/// Finds the software, or says why the named test is skipped. With `ONCELY_NO_SKIPS=1` it must be there.
pub(crate) fn installed(test: &str) -> Option<Software> {
    let folder = std::env::var_os("ONCELY_MCP_SOFTWARE").map_or_else(beside_the_build, PathBuf::from);
    if folder.join("stamp").is_file() {
        return Some(Software(folder));
    }
    let why = format!("{test}: there is no MCP software in {}; run tests/mcp/setup", folder.display());
    assert!(std::env::var_os("ONCELY_NO_SKIPS").is_none(), "{why}");
    // Written past the test harness, which keeps what a passing test prints to itself.
    let mut seen = std::io::stderr();
    writeln!(seen, "skipped: {why}").unwrap();
    None
}

fn beside_the_build() -> PathBuf {
    // The binary is target/debug/oncely.
    let built = Path::new(env!("CARGO_BIN_EXE_oncely"));
    built.ancestors().nth(2).unwrap().join("mcp-software")
}

impl Software {
    /// A program of the Python environment for software that needs the second generation of the SDK.
    pub(crate) fn modern(&self, program: &str) -> String {
        self.text(&format!("modern/bin/{program}"))
    }

    /// The same for software that needs the first.
    pub(crate) fn legacy(&self, program: &str) -> String {
        self.text(&format!("legacy/bin/{program}"))
    }

    /// The server for the conformance suite on the Rust SDK.
    pub(crate) fn rust_server(&self) -> String {
        self.text("rmcp/debug/oncely-conformance-server")
    }

    /// The pinned node.
    pub(crate) fn node(&self) -> String {
        self.text("node/run")
    }

    /// A file of an npm package.
    pub(crate) fn package(&self, file: &str) -> String {
        self.text(&format!("node/node_modules/@modelcontextprotocol/{file}"))
    }

    /// A script of ours for node, put where node finds the packages.
    pub(crate) fn script_for_node(&self, folder: &str, name: &str) -> String {
        let there = self.0.join("node").join(name);
        // Several tests may do it at once: all write the same, and a rename is never half done.
        let new = tempfile::NamedTempFile::new_in(self.0.join("node")).unwrap();
        std::fs::copy(script(&format!("{folder}/{name}")), new.path()).unwrap();
        new.persist(&there).unwrap();
        there.display().to_string()
    }

    fn text(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
    }
}

/// A script under `tests/mcp`.
pub(crate) fn script(name: &str) -> String {
    format!("{SCRIPTS}/{name}")
}
