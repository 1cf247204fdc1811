//! Bad files and the exact lines said about them.

use super::super::PolicyFile;

/// Each line of a message after the first, less the two spaces in front.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let error = PolicyFile::parse(text, "p.toml").expect_err(text).to_string();
    let lines: Vec<&str> = error.lines().skip(1).map(str::trim_start).collect();
    assert_eq!(lines, expected, "\n{text}");
}

const TOOL_FIELDS: &str = "allowed: kind, effect, key, ignore, match, idempotent, forwards_key_for, when_unknown, \
                           check, max_retries, rejected_on, replay_for, remember_for, repeat_after, wait_for, \
                           require_key, cost, is_error, rejected_when, annotate, forward_cancel, dry_run, \
                           advertise_idempotent";

#[test]
fn the_first_line_says_what_happened_and_that_nothing_ran() {
    let error = PolicyFile::parse("strict = 1\nstore = 2", "p.toml").unwrap_err().to_string();
    let first = error.lines().next().unwrap();
    assert_eq!(first, "the policy file p.toml has 2 problems; it was not used and nothing ran");
}

#[test]
fn unknown_fields_are_named_with_the_nearest_and_the_allowed() {
    check(
        "stict = true\n[tools.x]\n",
        &[
            "p.toml:1:1: unknown field \"stict\"; did you mean strict? allowed: store, namespace, strict, defaults, tool, server, route, provider, admin, encryption, redact, otlp",
            "p.toml:2:2: unknown field \"tools\"; did you mean tool? allowed: store, namespace, strict, defaults, tool, server, route, provider, admin, encryption, redact, otlp",
        ],
    );
    check(
        "[tool.x]\n  when-unknown = 'halt'\n",
        &[&format!(
            "p.toml:2:3: tool.x: unknown field \"when-unknown\"; did you mean when_unknown? {TOOL_FIELDS}"
        )],
    );
    check("[defaults]\nzzz = 1\n", &[&format!("p.toml:2:1: defaults: unknown field \"zzz\"; {TOOL_FIELDS}")]);
    check(
        "[tool.charge.sh]\n",
        &[&format!(
            "p.toml:1:14: tool.charge: unknown field \"sh\"; {TOOL_FIELDS}; a tool's name with a dot in it needs \
             quotes: [tool.\"a.b\"]"
        )],
    );
}

#[test]
fn words_that_are_not_allowed_are_answered_with_those_that_are() {
    check(
        "[tool.x]\nkind = 'wirte'\neffect = 'made'\nmatch = 1\nwhen_unknown = 'hlt'\n",
        &[
            "p.toml:2:8: tool.x.kind: \"wirte\" is not allowed; did you mean \"write\"? allowed: \"read\", \"write\"",
            "p.toml:3:10: tool.x.effect: \"made\" is not allowed; allowed: \"created\", \"updated\", \"deleted\", \
             \"sent\", \"executed\", \"noop\"",
            "p.toml:4:9: tool.x.match: must be one of \"payload\", \"key\", not an integer",
            "p.toml:5:16: tool.x.when_unknown: \"hlt\" is not allowed; did you mean \"halt\"? allowed: \"halt\", \
             \"retry\", \"check\"",
        ],
    );
}

#[test]
fn durations_without_a_unit_or_sense_say_what_to_write() {
    let units =
        "write whole numbers with units, the longest first: d, h, m, s, ms, as in \"30s\" or \"1h30m\"";
    check(
        "[tool.\"cmd:a\"]\nwait_for = 30\nreplay_for = '30'\nremember_for = '1.5d'\nrepeat_after = true\n\
         forwards_key_for = '4000d'",
        &[
            "p.toml:2:12: tool.\"cmd:a\".wait_for: \"30\" has no unit; add one: \"30ms\", \"30s\", \"30m\", \"30h\" or \
             \"30d\"",
            "p.toml:3:14: tool.\"cmd:a\".replay_for: \"30\" has no unit; add one: \"30ms\", \"30s\", \"30m\", \"30h\" or \
             \"30d\"",
            &format!("p.toml:4:16: tool.\"cmd:a\".remember_for: \"1.5d\" is not a duration; {units}"),
            "p.toml:5:16: tool.\"cmd:a\".repeat_after: must be a duration such as \"30s\" or \"1h30m\", not a boolean",
            "p.toml:6:20: tool.\"cmd:a\".forwards_key_for: \"4000d\" is longer than ten years",
        ],
    );
}

#[test]
fn every_wrong_value_says_what_is_expected() {
    check(
        "store = ''\nnamespace = 'a b'\nstrict = 'yes'\n[tool.x]\nkey = 'a'\nignore = ['ok', 'a..b', 1]\n\
         idempotent = 1\nmax_retries = 1001\nrequire_key = 'no'\n",
        &[
            "p.toml:1:9: store: must not be empty",
            "p.toml:2:13: namespace: the namespace holds ' ' at byte 1; allowed are visible ASCII characters",
            "p.toml:3:10: strict: must be true or false, not a string",
            "p.toml:5:7: tool.x.key: must be a list of fields such as [\"customer_id\", \"/items/0/sku\"], not a string",
            "p.toml:6:17: tool.x.ignore: \"a..b\" has an empty part; a JSON Pointer can name such a field: \"/a//b\"",
            "p.toml:6:25: tool.x.ignore: must be a field of the payload such as \"customer_id\" or \"/items/0/sku\", \
             not an integer",
            "p.toml:7:14: tool.x.idempotent: must be true or false, not an integer",
            "p.toml:8:15: tool.x.max_retries: \"1001\" is not allowed; allowed: 0 to 1000",
            "p.toml:9:15: tool.x.require_key: must be true or false, not a string",
        ],
    );
    check(
        "[tool.x]\nmax_retries = -1",
        &["p.toml:2:15: tool.x.max_retries: \"-1\" is not allowed; allowed: 0 to 1000"],
    );
    check(
        "[tool.x]\nmax_retries = 1.0",
        &["p.toml:2:15: tool.x.max_retries: must be a whole number from 0 to 1000, not a float"],
    );
    check("defaults = 1", &["p.toml:1:1: defaults: must be a table: [defaults]"]);
    check("[[tool]]\nkind = 'read'", &["p.toml:1:3: tool: must be one table for each tool: [tool.\"name\"]"]);
    check(
        "[tool]\nkind = 'read'",
        &["p.toml:2:1: tool.kind: must be a table, with a tool's name after the dot: [tool.kind]"],
    );
    check("[tool.'']", &["p.toml:1:7: tool.\"\": the tool name is empty; it needs 1 to 255 characters"]);
}

#[test]
fn exit_codes_are_checked_one_by_one() {
    check(
        "[tool.x]\nrejected_on = [3, 0, 256, '69-65', 'x', 1.5, -1]\n",
        &[
            "p.toml:2:19: tool.x.rejected_on: exit code 0 means succeeded and cannot prove that nothing happened; \
             allowed: 1 to 255",
            "p.toml:2:22: tool.x.rejected_on: \"256\" is not an exit code; allowed: 1 to 255, or a range such as \"65-69\"",
            "p.toml:2:27: tool.x.rejected_on: the range 69-65 is empty; write the smaller code first: \"65-69\"",
            "p.toml:2:36: tool.x.rejected_on: \"x\" is not an exit code; allowed: 1 to 255, or a range such as \"65-69\"",
            "p.toml:2:41: tool.x.rejected_on: must be an exit code from 1 to 255, or a range such as \"65-69\", not a float",
            "p.toml:2:46: tool.x.rejected_on: \"-1\" is not an exit code; allowed: 1 to 255, or a range such as \"65-69\"",
        ],
    );
    check(
        "[tool.x]\nrejected_on = '3'",
        &[
            "p.toml:2:15: tool.x.rejected_on: must be a list of exit codes such as [3, 4, \"65-69\"], not a string",
        ],
    );
}

#[test]
fn probes_and_costs_are_checked() {
    check("[tool.x]\ncheck = ' '", &["p.toml:2:9: tool.x.check: must not be empty"]);
    check(
        "[tool.x]\ncheck = []",
        &["p.toml:2:9: tool.x.check: must not be empty; name a program, such as [\"./probe\", \"{key}\"]"],
    );
    check("[tool.x]\ncheck = ['a', 1]", &["p.toml:2:15: tool.x.check: must be a string, not an integer"]);
    check("[tool.x]\ncheck = ['', 'a']", &["p.toml:2:10: tool.x.check: must not be empty"]);
    check(
        "[tool.x]\ncheck = 'probe {key}'",
        &[
            "p.toml:2:9: tool.x.check: a key is not put into a line for the shell, which would run it as code; use \
           \"$ONCELY_KEY\" there, or a list such as [\"./probe\", \"{key}\"]",
        ],
    );
    check(
        "[tool.x]\ncost = { amount = -1, unti = 'USD' }",
        &[
            "p.toml:2:19: tool.x.cost: the amount must be a decimal number of 0 or more",
            "p.toml:2:23: tool.x.cost: unknown field \"unti\"; did you mean unit? allowed: amount, unit",
        ],
    );
    check(
        "[tool.x]\ncost = { amount = 1 }\n[tool.y]\ncost = 1\n[tool.z]\ncost = { amount = nan, unit = 'USD' }",
        &[
            "p.toml:2:8: tool.x.cost: needs both amount and unit: a table such as { amount = 0.30, unit = \"USD\" }",
            "p.toml:4:8: tool.y.cost: must be a table such as { amount = 0.30, unit = \"USD\" }, not an integer",
            "p.toml:6:19: tool.z.cost: the amount must be a decimal number of 0 or more",
        ],
    );
}

const RETRY: &str = "\"retry\" needs a tool whose repetition is harmless: set idempotent = true, or forwards_key_for to \
                     how long the downstream de-duplicates by our key; else use \"halt\" or \"check\"";

#[test]
fn contradictions_are_found_where_they_are_stated_and_only_once() {
    check("[tool.x]\nwhen_unknown = 'retry'", &[&format!("p.toml:2:16: tool.x.when_unknown: {RETRY}")]);
    // The defaults' own contradiction is not said again for the tools that inherit it.
    check(
        "[defaults]\nwhen_unknown = 'retry'\n[tool.x]\n[tool.y]\nmax_retries = 1",
        &[&format!("p.toml:2:16: defaults.when_unknown: {RETRY}")],
    );
    check(
        "[defaults]\nwhen_unknown = 'retry'\nidempotent = true\n[tool.x]\nidempotent = false",
        &[&format!("p.toml:5:14: tool.x.idempotent: contradicts when_unknown: {RETRY}")],
    );
    check(
        "[tool.x]\nwhen_unknown = 'check'\nreplay_for = '2d'\nremember_for = '1d'",
        &[
            "p.toml:2:16: tool.x.when_unknown: \"check\" needs a probe to ask: set check = [\"./probe\", \"{key}\"]; else \
             use \"halt\"",
            "p.toml:3:14: tool.x.replay_for: a result cannot be kept longer (172800000 ms) than its key (remember_for, \
             86400000 ms)",
        ],
    );
    check(
        "[defaults]\nreplay_for = '1d'\n[tool.x]\nremember_for = '1h'",
        &[
            "p.toml:4:16: tool.x.remember_for: contradicts replay_for: a result cannot be kept longer (86400000 ms) than \
           its key (remember_for, 3600000 ms)",
        ],
    );
    let many = vec!["'a'"; 65].join(",");
    check(
        &format!("[tool.x]\nkey = [{many}]\nignore = [{many}]"),
        &[
            "p.toml:2:7: tool.x.key: 65 selectors; at most 64",
            "p.toml:3:10: tool.x.ignore: 65 selectors; at most 64",
        ],
    );
}

#[test]
fn a_field_that_cannot_be_read_is_not_also_called_missing() {
    check(
        "[tool.x]\nwhen_unknown = 'retry'\nidempotent = 'yes'",
        &["p.toml:3:14: tool.x.idempotent: must be true or false, not a string"],
    );
    check("[tool.x]\nwhen_unknown = 'check'\ncheck = ''", &["p.toml:3:9: tool.x.check: must not be empty"]);
}

#[test]
fn equally_close_globs_that_meet_are_refused_naming_both() {
    check(
        "[tool.'ab*']\n[tool.'*cd']\n[tool.'x*']\n",
        &[
            "p.toml:2:7: tool.\"*cd\": can match the same tool as \"ab*\" in line 1, and both have 2 characters besides *; \
           make one of them longer",
        ],
    );
}

#[test]
fn text_that_is_not_toml_is_placed_and_a_missing_quote_explained() {
    check(
        "strict = true\n[tool.cmd:x]\nkind = 'read'\n",
        &[
            "p.toml:2:10: not TOML: invalid unquoted key, expected letters, numbers, `-`, `_`; a tool's name with other characters than letters, digits, \
           _ and - needs quotes: [tool.\"cmd:mail.sh\"]",
        ],
    );
    check("strict = true\nstrict = true\n", &["p.toml:2:1: not TOML: duplicate key"]);
    check("[tool.x]\n[tool.x] # again\n", &["p.toml:2:7: not TOML: duplicate key"]);
}

#[test]
fn columns_count_characters() {
    check(
        "[tool.'äöü']\ncost = { unit = 'ä', x = 1, amount = 1 }",
        &["p.toml:2:22: tool.\"äöü\".cost: unknown field \"x\"; allowed: amount, unit"],
    );
}

#[test]
fn past_a_thousand_problems_the_rest_are_counted() {
    let text: String = (0..1_500).map(|i| format!("field_{i} = 1\n")).collect();
    let error = PolicyFile::parse(&text, "p.toml").unwrap_err();
    assert_eq!(error.problems.len(), 1_001);
    assert_eq!(error.problems[1_000].message, "500 more problems are not listed");
}
