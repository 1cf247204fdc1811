//! The files under `deploy/` and the pages about them: every flag exists, every configuration is accepted, every figure is
//! computed.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it leaves out"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncely_doors::gateway::config::GatewayConfig;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn every_command_and_flag_in_the_files_exists() {
    let help = Command::new(env!("CARGO_BIN_EXE_oncely")).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for file in ["deploy/oncely.service", "deploy/Dockerfile", "deploy/kubernetes/oncely.yaml"] {
        let text = read(file);
        assert!(text.contains("serve"), "{file} starts something else");
        let ours = text.lines().filter(|l| l.contains("serve") || l.contains("args:"));
        let mut flags = 0;
        for word in ours.flat_map(|l| l.split(|c: char| c.is_whitespace() || "\",[]".contains(c))) {
            if let Some(flag) = word.strip_prefix("--") {
                assert!(
                    help.contains(&format!("--{flag} ")),
                    "{file}: --{flag} is not a flag of oncely serve"
                );
                flags += 1;
            }
        }
        assert!(flags > 0, "{file} names no flag");
    }
    for variable in ["ONCELY_STORE", "ONCELY_ADMIN_TOKEN"] {
        assert!(help.contains(variable), "{variable} means nothing to oncely serve");
    }
}

#[test]
fn the_configuration_in_the_manifest_is_accepted() {
    let yaml = read("deploy/kubernetes/oncely.yaml");
    let block = yaml.split("oncely.toml: |\n").nth(1).unwrap().split("---").next().unwrap();
    let text: Vec<&str> = block.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    let text = text.join("\n");
    let policy = oncely::policy_file::PolicyFile::parse(&text, "oncely.yaml").unwrap();
    let providers = oncely_doors::providers::Providers::builtin();
    let config =
        GatewayConfig::parse(&text, "oncely.yaml", &policy, providers).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.routes.len(), 1);
    // The supervisors give more time than a stop takes: the drain, and what is written and sent after it.
    let drain = config.drain.as_secs();
    let needed = drain + 15;
    let number = |text: &str, name: &str| -> u64 {
        let rest = text.split(name).nth(1).unwrap_or_else(|| panic!("no {name}"));
        rest.trim_start_matches([':', '=', ' ']).split_whitespace().next().unwrap().parse().unwrap()
    };
    assert!(number(&yaml, "terminationGracePeriodSeconds") >= needed);
    assert!(number(&read("deploy/oncely.service"), "TimeoutStopSec") >= needed);
}

#[test]
fn the_manifest_is_yaml_and_the_unit_is_one() {
    let yaml = read("deploy/kubernetes/oncely.yaml");
    assert!(!yaml.contains('\t'), "YAML knows no tabs");
    for document in yaml.split("\n---\n") {
        for member in ["apiVersion:", "kind:", "metadata:"] {
            assert!(
                document.lines().any(|line| line.starts_with(member)),
                "{member} is missing in:\n{document}"
            );
        }
    }
    let parse = "import sys, yaml; print(len([d for d in yaml.safe_load_all(sys.stdin) if d['kind']]))";
    let python = Command::new("python3").args(["-c", "import yaml"]).output();
    if !python.is_ok_and(|output| output.status.success()) {
        skip("python3 has no yaml");
    } else {
        let file = std::fs::File::open(root().join("deploy/kubernetes/oncely.yaml")).unwrap();
        let output = Command::new("python3").args(["-c", parse]).stdin(file).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "4", "{output:?}");
    }
    let unit = read("deploy/oncely.service");
    for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        assert!(line.starts_with('[') || line.contains('='), "not a line of a unit: {line}");
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(root().join("deploy/oncely.service"));
    match verify.output() {
        Err(error) => skip(&format!("systemd-analyze: {error}")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            // The program need not be installed where this is tested.
            let wrong =
                said.lines().filter(|l| l.contains("oncely.service") && !l.contains("not executable"));
            assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&str>::new());
        }
    }
}

/// Says what is not looked at; under `ONCELY_NO_SKIPS`, as the script `test` sets it, that is a failure.
fn skip(why: &str) {
    eprintln!("SKIPPED in part: {why}");
    assert!(std::env::var_os("ONCELY_NO_SKIPS").is_none(), "{why}");
}

/// What was measured, what it was compared with, and how they relate, as a row of the benchmarks has it; none where the
/// section has no such row yet.
fn row(section: &str, row: &str) -> Option<[String; 3]> {
    let page = read("docs/benchmarks.md");
    let (_, section) = page.split_once(&format!("\n### {section}\n"))?;
    let section = section.split("\n### ").next()?;
    let line = section.lines().find(|line| line.strip_prefix("| ").is_some_and(|l| l.starts_with(row)))?;
    let cell = |at: usize| line.split('|').nth(at).map(|cell| cell.trim().to_owned());
    Some([cell(2)?, cell(3)?, cell(4)?])
}

/// A figure of a row of the benchmarks, as a number.
fn measured(section: &str, what: &str) -> Option<f64> {
    let [cell, ..] = row(section, what)?;
    let number: String = cell.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let factor = if cell.contains("k/s") {
        1_000.0
    } else if cell.contains("MB") {
        1_000_000.0
    } else {
        1.0
    };
    Some(number.parse::<f64>().unwrap() * factor)
}

/// A kind of ledger, and where its rate was measured.
const LEDGERS: [(&str, &str, &str); 3] = [
    ("SQLite file, 256 callers", "throughput", "begin + complete, 256 callers, against the safe textbook"),
    ("PostgreSQL, 256 callers", "postgres", "begin + complete, 256 callers |"),
    ("Redis, 64 callers", "redis", "begin + complete, 64 callers, against a bare script"),
];

fn computed() -> String {
    let rates = LEDGERS.map(|(_, section, row)| measured(section, row));
    let size = measured("million", "size on disk, 1000000 records with 1 KiB results").unwrap();
    let record_bytes = size / 1_000_000.0;
    let mut text =
        "| ledger | begin + complete a second | one takes, of its time | planned with |\n|---|---|---|---|\n"
            .to_owned();
    for ((name, section, _), rate) in LEDGERS.iter().zip(rates) {
        match rate {
            Some(rate) => {
                let (cost, planned) = (1e6 / rate, rate / 2.0);
                writeln!(text, "| {name} | {rate:.0} | {cost:.1} µs | {planned:.0} |").unwrap();
            }
            None => {
                writeln!(text, "| {name} | not measured yet: `bench/run {section} --write-docs` | | |")
                    .unwrap();
            }
        }
    }
    writeln!(text, "\nA record takes {record_bytes:.0} bytes.\n").unwrap();
    text.push_str(
        "| calls a second | fresh | SQLite files | PostgreSQL servers | gateways of each | gateways in all | connections to each \
         | Redis servers | written each day | kept on all disks |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for calls in [1_000.0, 10_000.0, 100_000.0, 1_000_000.0] {
        let fresh: f64 = calls * 0.9;
        let ledgers = rates.map(|rate| rate.map(|rate| (fresh / (rate / 2.0)).ceil().max(1.0)));
        let [sqlite, postgres, redis] = ledgers.map(told);
        // A ledger has gateways of its own: two at least.
        let of_each = ledgers[1].map(|ledgers| (calls / ledgers / 5_000.0).ceil().max(2.0));
        let gateways = told(of_each.zip(ledgers[1]).map(|(of_each, ledgers)| of_each * ledgers));
        let connections = told(of_each.map(|gateways| gateways * 9.0));
        let day = fresh * 86_400.0;
        let written = day * record_bytes / 1e12;
        let kept = (day * record_bytes + 34.0 * day * 300.0) / 1e12;
        let of_each = told(of_each);
        writeln!(
            text,
            "| {calls:.0} | {fresh:.0} | {sqlite} | {postgres} | {of_each} | {gateways} | {connections} | {redis} | \
             {written:.2} TB | {kept:.1} TB |"
        )
        .unwrap();
    }
    text
}

/// A number, where it is known.
fn told(number: Option<f64>) -> String {
    number.map_or_else(|| "?".to_owned(), |number| format!("{number:.0}"))
}

/// What the page of benchmarks says first: the question, and the row that answers it.
const HEADLINES: [(&str, &str, &str); 14] = [
    (
        "SQLite file: pairs a second, one caller",
        "throughput",
        "begin + complete, 1 callers, against the safe",
    ),
    (
        "SQLite file: pairs a second, 64 callers",
        "throughput",
        "begin + complete, 64 callers, against the safe",
    ),
    (
        "SQLite file: pairs a second, 256 callers",
        "throughput",
        "begin + complete, 256 callers, against the safe",
    ),
    ("SQLite file: one pair, one caller, p50", "throughput", "begin + complete, one caller alone, p50"),
    ("PostgreSQL: pairs a second, 64 callers", "postgres", "begin + complete, 64 callers |"),
    ("Redis: pairs a second, 64 callers", "redis", "begin + complete, 64 callers, against a bare script"),
    ("a replay in the same process, p50", "replay", "replay, byte for byte the same"),
    ("a waiting duplicate is answered, p99", "wake", "a waiting duplicate in the same process"),
    ("`oncely run`: more than the command itself, fresh key", "cli", "`oncely run -- true`, fresh key"),
    ("`oncely run`: more than the command itself, replay", "cli", "`oncely run -- true`, replay"),
    (
        "`oncely mcp`: a replayed write, p50",
        "mcp",
        "a replayed write, p50: times faster than the server itself",
    ),
    ("`oncely serve`: requests a second, passed through", "http", "passed through |"),
    ("`oncely serve`: requests a second, replayed", "http", "replayed |"),
    ("`oncely serve`: requests a second, fresh keys", "http", "fresh keys, durable |"),
];

fn headlines() -> String {
    // The spread of the rounds is for those who read on.
    let median = |cell: &str| cell.split(" (").next().unwrap_or_default().to_owned();
    let mut text = "| what | measured | compared with | relation |\n|---|---|---|---|\n".to_owned();
    for (what, section, of) in HEADLINES {
        let [measured, compared, relation] =
            row(section, of).unwrap_or_else(|| panic!("no row {section}: {of}"));
        writeln!(text, "| {what} | {} | {} | {} |", median(&measured), median(&compared), median(&relation))
            .unwrap();
    }
    text
}

/// The page has what is computed between the two markers; `ONCELY_BLESS` puts it there.
fn assert_computed(page: &str, marker: &str, computed: &str) {
    let (begin, end) = (format!("<!-- {marker}:begin -->\n"), format!("<!-- {marker}:end -->"));
    let text = read(page);
    let (before, rest) = text.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    let right = format!("{before}{begin}{computed}{end}{after}");
    if std::env::var_os("ONCELY_BLESS").is_some() {
        std::fs::write(root().join(page), &right).unwrap();
        return;
    }
    assert!(text == right, "{page}: run ONCELY_BLESS=1 cargo test -p oncely-cli --test deploy");
}

/// One test, since blessing rewrites a page that both read.
#[test]
fn the_summary_of_the_benchmarks_and_the_capacity_page_are_computed_from_the_results() {
    assert_computed("docs/benchmarks.md", "headline", &headlines());
    assert_computed("docs/capacity.md", "computed", &computed());
}
