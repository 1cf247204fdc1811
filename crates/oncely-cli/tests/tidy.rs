//! The code base stays readable: every file says what it is for, and none grows past what can be kept in mind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

const LINES_MAX: usize = 400;
/// Files that may be longer, each with its reason.
const LONGER: [(&str, &str); 2] = [
    ("crates/oncely/tests/library.rs", "one scenario after the other on one bench"),
    ("crates/oncely-cli/tests/run.rs", "one scenario after the other on one home"),
];

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_opens_with_what_it_is_for_and_fits_the_mind() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut files = Vec::new();
    for part in ["crates", "bench", "examples"] {
        rust_files(&root.join(part), &mut files);
    }
    assert!(files.len() > 100, "the files were not found");
    let mut wrong = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        let text = std::fs::read_to_string(&file).unwrap();
        if !text.starts_with("//! ") {
            wrong.push(format!("{name} does not open with a sentence that says what it is for"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX && LONGER.iter().all(|(longer, _)| *longer != name) {
            wrong.push(format!("{name} has {lines} lines; at most {LINES_MAX}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
