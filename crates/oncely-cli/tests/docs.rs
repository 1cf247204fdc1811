//! What the documentation shows is what happens: every `sh` block is run, and the command reference is generated.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const ONCELY: &str = env!("CARGO_BIN_EXE_oncely");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The text of all blocks marked `sh`, in order.
fn shell_blocks(markdown: &str) -> String {
    let mut script = String::new();
    let mut inside = false;
    for line in markdown.lines() {
        match (inside, line) {
            (false, "```sh") => inside = true,
            (true, "```") => inside = false,
            (true, line) => writeln!(script, "{line}").unwrap(),
            (false, _) => {}
        }
    }
    script
}

/// Runs a page's blocks as one script, as a reader would who pastes them one after the other.
fn run_page(page: &str) {
    let script = shell_blocks(&std::fs::read_to_string(root().join(page)).unwrap());
    assert!(!script.is_empty(), "{page} shows no command");
    let home = tempfile::tempdir().unwrap();
    let path =
        format!("{}:{}", Path::new(ONCELY).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(home.path())
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{page}: {}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_readme_can_be_pasted() {
    run_page("README.md");
}

#[test]
fn the_page_about_run_can_be_pasted() {
    run_page("docs/run.md");
}

#[test]
fn the_page_about_mcp_can_be_pasted() {
    run_page("docs/mcp.md");
}

#[test]
fn the_command_reference_is_what_help_prints() {
    let help = |arguments: &[&str]| {
        let output = Command::new(ONCELY).args(arguments).env_clear().output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let top = help(&["--help"]);
    let commands = top.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let mut page = String::from(
        "# Commands\n\nGenerated from `--help`; rewritten by `ONCELY_BLESS=1 cargo test -p oncely-cli --test docs`.\n",
    );
    let mut section = |title: &str, text: &str| {
        let text: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
        writeln!(page, "\n## {title}\n\n```text\n{}\n```", text.join("\n")).unwrap();
    };
    section("oncely", &top);
    for name in commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        section(&format!("oncely {name}"), &help(&[name, "--help"]));
    }
    let file = root().join("docs/cli.md");
    if std::env::var_os("ONCELY_BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/cli.md is not what --help prints; run ONCELY_BLESS=1 cargo test -p oncely-cli --test docs"
    );
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root()).unwrap().map(|e| e.unwrap().path()).collect();
    pages.extend(std::fs::read_dir(root().join("docs")).unwrap().map(|e| e.unwrap().path()));
    for page in pages.iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        for target in
            text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
        {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            assert!(page.parent().unwrap().join(file).exists(), "{}: {target}", page.display());
        }
    }
}

#[test]
fn the_page_of_limits_names_the_numbers_in_force() {
    use oncely_core::limits;
    let page = std::fs::read_to_string(root().join("docs/limits.md")).unwrap();
    for (what, number, unit) in [
        ("explicit key", limits::KEY_BYTES_MAX, "bytes"),
        ("namespace", limits::NAMESPACE_BYTES_MAX, "bytes"),
        ("scope", limits::SCOPE_BYTES_MAX, "bytes"),
        ("tool name", limits::TOOL_BYTES_MAX, "bytes"),
        ("payload, and standard input with `--stdin`", limits::PAYLOAD_BYTES_MAX, "bytes"),
        ("nesting of a JSON payload", limits::PAYLOAD_DEPTH_MAX, "levels"),
        ("result kept for a replay, both streams of a command together", limits::RESULT_BYTES_MAX, "bytes"),
        ("error, reason or doubt kept in a record", limits::TEXT_BYTES_MAX, "bytes"),
        ("fields in a tool's `key` or `ignore` list", limits::SELECTORS_MAX, "selectors"),
        ("`max_retries`", limits::RETRIES_MAX as usize, "retries"),
        ("callers that wait in one process", limits::WAITERS_MAX, "callers"),
        ("effects open in one process", limits::OPEN_CALLS_MAX, "effects"),
        ("records or events in one page of a listing", limits::PAGE_MAX, "entries"),
        ("tools remembered of one MCP server", oncely_doors::mcp::catalog::TOOLS_MAX, "tools"),
        ("a check command", oncely_doors::command::probe::TIMEOUT.as_secs() as usize, "seconds"),
    ] {
        let row = format!("| {what} | {number} {unit} |");
        assert!(page.contains(&row), "docs/limits.md lacks {row}");
    }
}
