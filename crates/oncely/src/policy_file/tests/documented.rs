//! The documented files are read as they stand, and the documented defaults are the real ones.

use oncely_core::limits;

use super::super::layer::FIELDS;
use super::super::{PolicyFile, format_duration};

const DOC: &str = include_str!("../../../../../docs/policy.md");

/// The text of each block of a language.
fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    DOC.split(fence.as_str())
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

/// The row of the table of fields that describes one.
fn row(field: &str) -> &'static str {
    let start = format!("| `{field}` |");
    DOC.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{field} is not documented"))
}

#[test]
fn every_documented_file_is_accepted() {
    let blocks = blocks("toml");
    assert!(blocks.len() >= 3);
    for block in &blocks {
        PolicyFile::parse(block, "docs/policy.md").unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
}

#[test]
fn the_complete_example_uses_every_field() {
    let blocks = blocks("toml");
    let longest = blocks.iter().max_by_key(|block| block.len()).unwrap();
    for field in FIELDS {
        assert!(longest.lines().any(|line| line.starts_with(&format!("{field} = "))), "{field}");
    }
}

#[test]
fn every_field_is_documented_with_its_real_default() {
    for field in FIELDS.into_iter().chain(["store", "namespace", "strict"]) {
        row(field);
    }
    for (field, ms) in [
        ("replay_for", limits::REPLAY_FOR_MS),
        ("remember_for", limits::REMEMBER_FOR_MS),
        ("repeat_after", limits::REPEAT_AFTER_MS),
        ("wait_for", limits::WAIT_FOR_MS),
    ] {
        // "24h" is how people write a day of keeping; both spellings are the same duration.
        let default = if ms == 86_400_000 { "24h".to_owned() } else { format_duration(ms) };
        assert!(row(field).contains(&format!("| `\"{default}\"` |")), "{field}: {default}");
    }
    assert!(row("max_retries").contains(&format!("| `{}` |", limits::RETRIES)));
    assert!(row("max_retries").contains(&format!("0 to {}", limits::RETRIES_MAX)));
}

#[test]
fn the_documented_message_is_what_is_really_said() {
    let bad = "[tool.\"cmd:charge.sh\"]\nkind = \"wirte\"\nwait_for = 30\nwhen_unknown = \"retry\"\n";
    let error = PolicyFile::parse(bad, "oncely.toml").unwrap_err().to_string();
    assert_eq!(blocks("text"), [format!("{error}\n")]);
}
