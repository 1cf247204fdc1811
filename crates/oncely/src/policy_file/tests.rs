//! Good files and what they mean; bad files and exactly what is said about them.

mod bad;
mod documented;
mod random;

use std::path::Path;

use oncely_core::{Cost, Effect, Kind, Matching, Policy, WhenUnknown, limits};

use super::{CheckCommand, PolicyFile, format_duration, parse_duration, parse_exit_codes};

#[track_caller]
fn parse(text: &str) -> PolicyFile {
    PolicyFile::parse(text, "oncely.toml").unwrap_or_else(|error| panic!("{error}"))
}

const FULL: &str = r#"
store = "sqlite:/var/lib/agent/ledger.db"
namespace = "team-a"
strict = true
[defaults]
wait_for = "5s"
replay_for = "12h"
[tool."cmd:charge.sh"]
kind = "write"
effect = "created"
key = ["customer_id", "/amount"]
ignore = ["requested_at"]
match = "payload"
idempotent = false
forwards_key_for = "24h"
when_unknown = "retry"
check = ["./was-it-charged.sh", "{key}"]
max_retries = 3
rejected_on = [3, 4, "65-69"]
replay_for = "24h"
remember_for = "35d"
repeat_after = "1h30m"
require_key = true
cost = { amount = 0.30, unit = "USD" }
"#;

#[test]
fn every_field_reaches_the_policy() {
    let file = parse(FULL);
    assert_eq!(file.store(), Some("sqlite:/var/lib/agent/ledger.db"));
    assert_eq!(file.namespace(), Some("team-a"));
    assert!(file.is_strict());
    let tool = file.tool("cmd:charge.sh");
    let policy = &tool.policy;
    let names =
        |list: &[oncely_core::select::Selector]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((policy.kind, policy.effect), (Kind::Write, Effect::Created));
    assert_eq!(names(&policy.key), ["/customer_id", "/amount"]);
    assert_eq!(names(&policy.ignore), ["/requested_at"]);
    assert_eq!(policy.matching, Matching::Payload);
    assert!(!policy.idempotent && policy.require_key);
    assert_eq!(policy.forwards_key_for_ms, Some(86_400_000));
    assert_eq!(policy.when_unknown, WhenUnknown::Retry);
    assert_eq!(policy.max_retries, 3);
    assert_eq!(policy.retention.replay_for_ms, 86_400_000);
    assert_eq!(policy.retention.remember_for_ms, 35 * 86_400_000);
    assert_eq!((policy.repeat_after_ms, policy.wait_for_ms), (5_400_000, 5_000));
    assert_eq!(policy.lease_ms, limits::LEASE_MS);
    assert_eq!(policy.cost, Some(Cost { amount: 0.3, unit: "USD".into() }));
    let argv = ["./was-it-charged.sh", "{key}"].map(str::to_owned).to_vec();
    assert_eq!(tool.check, Some(CheckCommand::Argv(argv)));
    assert_eq!(tool.rejected_on, Some(vec![3..=3, 4..=4, 65..=69]));
    assert_eq!((tool.declared.as_deref(), tool.line), (Some("cmd:charge.sh"), 8));
    assert!(tool.left_out.is_empty());
}

#[test]
fn without_a_file_every_tool_has_the_careful_defaults() {
    let tool = PolicyFile::empty().tool("anything");
    assert_eq!(tool.policy, Policy::default());
    assert_eq!((tool.declared, tool.line, tool.check), (None, 0, None));
    assert_eq!(tool.left_out, ["idempotent", "max_retries", "when_unknown"]);
    assert_eq!(parse(""), PolicyFile::empty());
    assert!(!PolicyFile::empty().is_strict());
}

#[test]
fn a_tool_wins_over_the_defaults_and_an_undeclared_tool_gets_them() {
    let file = parse("[defaults]\nmax_retries = 1\nidempotent = true\n[tool.a]\nmax_retries = 2\n");
    assert_eq!(file.tool("a").policy.max_retries, 2);
    assert!(file.tool("a").policy.idempotent);
    assert_eq!(file.tool("a").left_out, ["when_unknown"]);
    assert_eq!(file.tool("b").policy.max_retries, 1);
    assert_eq!(file.tool("b").declared, None);
    assert_eq!(file.tool("b").left_out, ["when_unknown"]);
}

#[test]
fn the_closest_declaration_applies() {
    let file = parse(
        "[tool.'*']\n[tool.'mcp:*']\n[tool.'mcp:*/create_*']\n[tool.'mcp:stripe/create_refund']\n[tool.'*.sh']\n[tool.'x*']\n",
    );
    let cases = [
        ("mcp:stripe/create_refund", "mcp:stripe/create_refund"),
        ("mcp:stripe/create_charge", "mcp:*/create_*"),
        ("mcp:create_", "mcp:*"),
        ("mcp:/create_", "mcp:*/create_*"),
        ("mcp:", "mcp:*"),
        ("a.sh", "*.sh"),
        ("x.sh", "*.sh"),
        ("x", "x*"),
        ("sh", "*"),
        ("*", "*"),
    ];
    for (name, pattern) in cases {
        assert_eq!(file.tool(name).declared.as_deref(), Some(pattern), "{name}");
    }
    let declared: Vec<&str> = file.declared().map(|(pattern, _)| pattern).collect();
    let in_file_order = ["*", "mcp:*", "mcp:*/create_*", "mcp:stripe/create_refund", "*.sh", "x*"];
    assert_eq!(declared, in_file_order);
}

#[test]
fn equally_close_globs_are_fine_where_no_tool_can_match_both() {
    let file = parse("[tool.'cmd:*']\n[tool.'mcp:*']\n[tool.'*.rb']\nkind='read'\n[tool.'*.py']\n");
    assert_eq!(file.tool("a.rb").policy.kind, Kind::Read);
    assert_eq!(file.tool("a.py").policy.kind, Kind::Write);
}

#[test]
fn a_glob_matches_what_its_pieces_cover_in_order_without_overlap() {
    let matches = |pattern: &str, name: &str| super::Pattern::new(pattern).matches(name);
    for (pattern, name) in [("a*a", "aa"), ("*ab*ab*", "abab"), ("a**b", "ab"), ("*", ""), ("ä*ö", "äxö")]
    {
        assert!(matches(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in
        [("a*a", "a"), ("*ab*ab*", "aab"), ("a*b*c", "acb"), ("a*", "ba"), ("ab*ba", "aba")]
    {
        assert!(!matches(pattern, name), "{pattern} {name}");
    }
}

#[test]
fn a_probe_means_check_unless_the_same_table_says_otherwise() {
    let when = |text: &str| parse(text).tool("t").policy.when_unknown;
    assert_eq!(when("[tool.t]\ncheck = 'true'"), WhenUnknown::Check);
    assert_eq!(when("[defaults]\nwhen_unknown = 'halt'\n[tool.t]\ncheck = 'true'"), WhenUnknown::Check);
    assert_eq!(when("[tool.t]\ncheck = 'true'\nwhen_unknown = 'halt'"), WhenUnknown::Halt);
    assert_eq!(when("[defaults]\ncheck = 'true'\n[tool.t]\nwhen_unknown = 'halt'"), WhenUnknown::Halt);
    assert_eq!(when("[defaults]\ncheck = 'true'\n[tool.t]\nwhen_unknown = 'check'"), WhenUnknown::Check);
    let tool = parse("[tool.t]\ncheck = 'grep -q \"$ONCELY_KEY\" log'").tool("t");
    assert_eq!(tool.check, Some(CheckCommand::Shell("grep -q \"$ONCELY_KEY\" log".into())));
    assert_eq!(tool.left_out, ["idempotent", "max_retries"]);
}

#[test]
fn durations_read_as_written_and_write_as_read() {
    for (text, ms) in [
        ("0s", 0),
        ("10ms", 10),
        ("30s", 30_000),
        ("10m", 600_000),
        ("24h", 86_400_000),
        ("35d", 3_024_000_000),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("007s", 7_000),
        ("90m", 5_400_000),
    ] {
        assert_eq!(parse_duration(text), Ok(ms), "{text}");
        assert_eq!(parse_duration(&format_duration(ms)), Ok(ms), "{text}");
    }
    assert_eq!(format_duration(93_784_005), "1d2h3m4s5ms");
    assert_eq!(format_duration(u64::MAX), "213503982334d14h25m51s615ms");
    for bad in
        ["", "s", "1", "1h30", "1x", "1.5h", "-1s", "1h 30m", " 1s", "30m1h", "1s1s", "1S", "1ß", "99999d"]
    {
        assert!(parse_duration(bad).is_err(), "{bad:?}");
    }
    assert!(parse_duration(&"9".repeat(400)).is_err());
    assert!(parse_duration(&format!("{}d", "9".repeat(400))).unwrap_err().ends_with("longer than ten years"));
}

#[test]
fn exit_codes_read_as_lists_and_ranges() {
    assert_eq!(parse_exit_codes("3,4, 65-69"), Ok(vec![3..=3, 4..=4, 65..=69]));
    assert_eq!(parse_exit_codes("1-255"), Ok(vec![1..=255]));
    for bad in ["", ",", "3,", "0", "0-9", "256", "-1", "9-3", "1-2-3", "+3", "3 4", "a", "٣"] {
        assert!(parse_exit_codes(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn the_nearest_file_upward_is_found_even_where_it_cannot_be_used() {
    let root = tempfile::tempdir().unwrap();
    let top = root.path().canonicalize().unwrap();
    let deep = top.join("a/b/c");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(top.join("oncely.toml"), "strict = true").unwrap();
    std::fs::create_dir(deep.join("oncely.toml")).unwrap();
    let found = PolicyFile::find(&deep.join("../c")).unwrap();
    assert_eq!(found, top.join("oncely.toml"));
    assert!(PolicyFile::load(&found).unwrap().is_strict());

    std::os::unix::fs::symlink("nowhere", top.join("a/oncely.toml")).unwrap();
    let dangling = PolicyFile::find(&deep).unwrap();
    assert_eq!(dangling, top.join("a/oncely.toml"));
    let error = PolicyFile::load(&dangling).unwrap_err().to_string();
    assert!(error.contains("a/oncely.toml: cannot be read: "), "{error}");
}

#[test]
fn a_file_that_is_too_large_or_not_text_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.toml");
    let load = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        PolicyFile::load(&path)
    };
    assert!(load(&vec![b'\n'; super::FILE_BYTES_MAX]).is_ok());
    let error = load(&vec![b'\n'; super::FILE_BYTES_MAX + 1]).unwrap_err();
    assert!(error.problems[0].message.starts_with("is larger than 1048576 bytes"), "{error}");
    let error = load(b"strict = true\nstore = \"\xff\"").unwrap_err();
    assert_eq!((error.problems[0].line, error.problems[0].column), (2, 10));
    assert!(PolicyFile::load(Path::new("/")).is_err());
}

#[test]
fn a_thousand_tools_are_allowed_and_one_more_is_not() {
    let file = |count: usize| (0..count).map(|i| format!("[tool.'{i}-*']\n")).collect::<String>();
    assert_eq!(parse(&file(super::TOOLS_MAX)).declared().count(), 1_000);
    let error = PolicyFile::parse(&file(super::TOOLS_MAX + 1), "p").unwrap_err();
    assert_eq!(error.problems.len(), 1);
    assert_eq!(error.problems[0].message, "1001 tools are declared; at most 1000 may be");
}
