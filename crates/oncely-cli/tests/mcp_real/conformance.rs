//! The protocol's own conformance suite: with oncely in between, its checks end as they do without.
//!
//! The suite wants a server with certain tools. Those that the SDKs are tested with are not published, so there are two in
//! `tests/mcp`: one on the Rust SDK, of which every check ends well, and one on the Python SDK, of which every check does but
//! those of tasks, which that SDK does not offer. Their tools are all reads in one half of the tests, and all writes in the
//! other, where every call is guarded.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::software::{Software, installed, script};
use crate::world::{Server, World, both_ways};

/// What the suite notes of the traffic between its checks.
const DIARY: [&str; 4] = ["outgoing-request", "incoming-response", "incoming-sse-event", "stream-closed"];
/// A guarded call whose stream the server closes is awaited by oncely, over as many streams as it takes, and answered
/// on one stream: the client has nothing to resume.
const ANSWERED_ON_ONE_STREAM: [&str; 3] = [
    "server-server-sse-polling server-sse-disconnect-resume ServerDisconnectResume",
    "server-server-sse-polling server-sse-priming-event ServerSendsPrimingEvent",
    "server-server-sse-polling server-sse-retry-field ServerSendsRetryField",
];

/// These scenarios call a tool without a key and with the arguments of an earlier scenario, whose call, asked for input and
/// answered, has succeeded a moment before. To oncely that is the same intent once more: it replays the result, where the
/// server would ask again.
const SUCCEEDED_BEFORE: [&str; 4] = [
    "server-input-required-result-missing-input-response sep-2322-missing-response-rerequests InputRequiredResultMissingResponseRerequests",
    "server-input-required-result-result-type sep-2322-result-type-included ResultTypeIncluded",
    "server-input-required-result-validate-input sep-2322-error-on-protocol-error ErrorOnProtocolError",
    "server-input-required-result-validate-input sep-2322-validate-input-responses ValidateInputResponses",
];

/// What the server is made with.
#[derive(Debug, Clone, Copy)]
enum Sdk {
    Python,
    Rust,
}

impl Sdk {
    /// Whether a check of this name may fail without oncely.
    fn may_fail(self, check: &str) -> bool {
        matches!(self, Self::Python) && check.starts_with("server-tasks-")
    }
}

/// How the checks of the suite ended, by scenario and check; a check may be made several times.
type Checks = BTreeMap<String, Vec<String>>;

/// Runs what the suite requires of servers in one version of the specification.
fn checks(world: &World, url: &str, version: &str) -> Checks {
    let results = world.path("results");
    let output = Command::new(world.software.node())
        .arg(world.software.package("conformance/dist/index.js"))
        .args(["server", "--url", url, "--requirements", version, "--output-dir"])
        .arg(&results)
        .current_dir(world.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let folders = std::fs::read_dir(&results)
        .unwrap_or_else(|e| panic!("no results: {e}: {}", String::from_utf8_lossy(&output.stdout)));
    let mut checks = Checks::new();
    for folder in folders {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        // The folder is called after the scenario and the time.
        let scenario = &name[..name.len() - "-2026-07-28T12-00-00-000Z".len()];
        let text = std::fs::read(folder.path().join("checks.json")).unwrap();
        for check in serde_json::from_slice::<Vec<Value>>(&text).unwrap() {
            let text = |field: &str| check[field].as_str().unwrap_or_default();
            if DIARY.contains(&text("id")) {
                continue;
            }
            let name = format!("{scenario} {} {}", text("id"), text("name"));
            checks.entry(name).or_default().push(text("status").to_owned());
        }
    }
    checks
}

/// The suite without oncely and with it. Many checks end well if there is no server at all, so the first run must have
/// as many good ends as are known, and no bad one. `differing` lists the only checks that end differently, and all of them do.
///
/// The suite gives up on an answer after a while of its own, which a busy machine may take: what differs has to differ again, and
/// a run whose control is not good is none.
fn compare(sdk: Sdk, version: &str, tools: &str, passed_min: usize, differing: &[&str]) {
    let Some(software) = installed(&format!("conformance {sdk:?} {version}, {tools}")) else { return };
    let look = || {
        let mut bad = String::new();
        for _ in 0..3 {
            match differences(&software, sdk, version, tools, passed_min) {
                Ok(found) => return found,
                Err(control) => bad = control,
            }
        }
        panic!("{bad}");
    };
    let is_listed = |name: &String| differing.contains(&name.as_str());
    let mut found = look();
    let mut missing: BTreeSet<&str> =
        differing.iter().copied().filter(|name| !found.contains_key(*name)).collect();
    found.retain(|name, _| !is_listed(name));
    for _ in 0..2 {
        if found.is_empty() && missing.is_empty() {
            return;
        }
        let mut seen = std::io::stderr();
        writeln!(seen, "looked at again, without oncely and with it: {found:#?}, alike: {missing:#?}")
            .unwrap();
        let again = look();
        found.retain(|name, _| again.contains_key(name));
        missing.retain(|name| !again.contains_key(*name));
    }
    assert!(found.is_empty(), "without oncely and with it: {found:#?}");
    assert!(missing.is_empty(), "these are said to end differently, and end alike: {missing:#?}");
}

/// The checks that end differently, and how; an error if the control has too few good ends, or bad ones.
fn differences(
    software: &Software,
    sdk: Sdk,
    version: &str,
    tools: &str,
    passed_min: usize,
) -> Result<BTreeMap<String, String>, String> {
    let [direct, guarded] = both_ways(|way| {
        let world = World::new(software);
        let mut server = match sdk {
            Sdk::Python => vec![world.software.modern("python"), script("servers/conformance.py")],
            Sdk::Rust => vec![world.software.rust_server()],
        };
        server.push(tools.to_owned());
        let url = world.serve(&server, &[]);
        let Server::Url(url) = world.through(way, Server::Url(url)) else { panic!("not over HTTP") };
        checks(&world, &url, version)
    });
    let passed = direct.values().flatten().filter(|status| *status == "SUCCESS").count();
    let is_bad = |status: &String| ["FAILURE", "WARNING"].contains(&status.as_str());
    let bad = direct.iter().filter(|(name, ends)| ends.iter().any(is_bad) && !sdk.may_fail(name));
    let bad: Vec<&String> = bad.map(|(name, _)| name).collect();
    if passed < passed_min || !bad.is_empty() {
        return Err(format!("without oncely {passed} checks passed, and these did not: {bad:#?}"));
    }
    let differ = direct.keys().chain(guarded.keys()).filter(|name| direct.get(*name) != guarded.get(*name));
    Ok(differ
        .map(|name| (name.clone(), format!("{:?} and {:?}", direct.get(name), guarded.get(name))))
        .collect())
}

#[test]
fn the_documentation_names_every_check_that_may_end_differently() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reliability.md");
    let page = std::fs::read_to_string(page).unwrap();
    let listed = ANSWERED_ON_ONE_STREAM.iter().chain(&SUCCEEDED_BEFORE);
    for check in listed {
        let (scenario, check) = check.rsplit_once(' ').unwrap().0.split_once(' ').unwrap();
        let scenario = scenario.strip_prefix("server-").unwrap();
        let row = format!("| `{scenario}` | `{check}` |");
        assert!(page.contains(&row), "docs/reliability.md lacks {row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.matches('`').count() == 4);
    let known = ["`server-sse-polling`", "`input-required-result-"];
    let rows = rows.filter(|line| known.iter().any(|scenario| line.contains(scenario))).count();
    assert_eq!(rows, 7, "the page names no others");
}

#[test]
fn every_check_of_the_conformance_suite_ends_alike_for_reads_in_version_2025_11_25() {
    compare(Sdk::Python, "2025-11-25", "reads", 84, &[]);
}

#[test]
fn every_check_of_the_conformance_suite_ends_alike_for_reads_in_version_2026_07_28() {
    compare(Sdk::Python, "2026-07-28", "reads", 159, &[]);
}

#[test]
fn every_check_but_those_of_resuming_ends_alike_for_writes_in_version_2025_11_25() {
    compare(Sdk::Python, "2025-11-25", "writes", 84, &ANSWERED_ON_ONE_STREAM);
}

#[test]
fn every_check_but_those_of_asking_again_ends_alike_for_writes_in_version_2026_07_28() {
    compare(Sdk::Python, "2026-07-28", "writes", 159, &SUCCEEDED_BEFORE);
}

#[test]
fn every_check_ends_alike_for_reads_of_the_rust_sdk_in_version_2025_11_25() {
    compare(Sdk::Rust, "2025-11-25", "reads", 83, &[]);
}

#[test]
fn every_check_ends_alike_for_reads_of_the_rust_sdk_in_version_2026_07_28() {
    compare(Sdk::Rust, "2026-07-28", "reads", 195, &[]);
}

#[test]
fn every_check_but_those_of_resuming_ends_alike_for_writes_of_the_rust_sdk_in_version_2025_11_25() {
    // Of resuming itself, the check of this server ends alike.
    compare(Sdk::Rust, "2025-11-25", "writes", 83, &ANSWERED_ON_ONE_STREAM[1..]);
}

#[test]
fn every_check_but_those_of_asking_again_ends_alike_for_writes_of_the_rust_sdk_in_version_2026_07_28() {
    compare(Sdk::Rust, "2026-07-28", "writes", 195, &SUCCEEDED_BEFORE);
}
