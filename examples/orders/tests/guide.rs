//! docs/clap.md shows what happens: its `sh` blocks are run as one script, and its Rust is the example's own.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The blocks of the guide that are marked with a language.
fn blocks(language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/clap.md")).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        match (&mut open, line) {
            (None, line) if line.strip_prefix("```") == Some(language) => open = Some(String::new()),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), line) => *block += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    assert!(!blocks.is_empty(), "the guide has no {language} block");
    blocks
}

#[test]
fn the_guide_can_be_pasted() {
    let home = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_orders")).parent().unwrap();
    // By the same person in another folder, too.
    for folder in ["one", "two"] {
        let folder = home.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &blocks("sh").concat()])
            .current_dir(folder)
            .env_clear()
            .env("HOME", home.path())
            .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}\n--- stdout\n{out}\n--- stderr\n{err}", output.status);
    }
}

#[test]
fn the_rust_in_the_guide_is_the_examples_own() {
    let mut code = String::new();
    for entry in root().join("examples/orders/src").read_dir().unwrap() {
        code += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    for block in blocks("rust") {
        assert!(code.contains(block.trim_end()), "the example has no\n{block}");
    }
}

#[test]
fn the_exit_codes_in_the_guide_are_those_of_the_manifest() {
    let output = Command::new(env!("CARGO_BIN_EXE_orders")).arg("manifest").output().unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = std::fs::read_to_string(root().join("docs/clap.md")).unwrap();
    let codes = manifest["exit_codes"].as_object().unwrap();
    assert_eq!(codes.len(), 8);
    for code in codes.keys() {
        assert!(page.contains(&format!("\n| {code} | ")), "the guide lacks exit code {code}");
    }
}

#[test]
fn completions_and_the_manual_page_are_made_as_with_plain_clap() {
    for (words, expected) in [(&["completions", "bash"][..], "--idempotency-key"), (&["man"], ".TH orders 1")]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_orders")).args(words).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains(expected), "{words:?}");
    }
}
