//! The protocol's own conformance suite: with oncely in between, every check of it ends as it does without.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::software::{installed, script};
use crate::world::{Server, World, both_ways};

/// A check of the suite: the scenario, the check's name, and how it ended.
type Check = (String, String, String);

/// Runs what the suite requires of servers in one version of the specification.
fn checks(world: &World, url: &str, version: &str) -> Vec<Check> {
    let results = world.path("results");
    let output = Command::new(world.software.node())
        .arg(world.software.package("conformance/dist/index.js"))
        .args(["server", "--url", url, "--requirements", version, "--output-dir"])
        .arg(&results)
        .current_dir(world.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut checks = Vec::new();
    let folders = std::fs::read_dir(&results)
        .unwrap_or_else(|e| panic!("no results: {e}: {}", String::from_utf8_lossy(&output.stdout)));
    for folder in folders {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        // The folder is called after the scenario and the time.
        let scenario = name.rsplit_once("-20").unwrap().0.to_owned();
        let text = std::fs::read(folder.path().join("checks.json")).unwrap();
        for check in serde_json::from_slice::<Vec<Value>>(&text).unwrap() {
            let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
            checks.push((scenario.clone(), format!("{} {}", text("id"), text("name")), text("status")));
        }
    }
    checks.sort();
    checks
}

/// The suite without oncely and with it. Many checks end well if there is no server at all, so the first run must have
/// as many good ends as are known.
fn compare(test: &str, version: &str, passed_min: usize) {
    let Some(software) = installed(test) else { return };
    let run = |way| {
        let world = World::new(&software);
        let url = world.serve(&[world.software.modern("python"), script("servers/conformance.py")], &[]);
        let Server::Url(url) = world.through(way, Server::Url(url)) else { panic!("not over HTTP") };
        checks(&world, &url, version)
    };
    let [direct, guarded] = both_ways(run);
    let passed = direct.iter().filter(|check| check.2 == "SUCCESS").count();
    assert!(passed >= passed_min, "only {passed} checks passed without oncely: {direct:#?}");
    let missing: Vec<_> = direct.iter().filter(|check| !guarded.contains(check)).collect();
    let added: Vec<_> = guarded.iter().filter(|check| !direct.contains(check)).collect();
    assert!(missing.is_empty() && added.is_empty(), "without oncely: {missing:#?}\nwith it: {added:#?}");
    assert_eq!(direct, guarded);
}

#[test]
fn every_check_of_the_conformance_suite_ends_alike_in_version_2025_11_25() {
    compare("conformance 2025-11-25", "2025-11-25", 80);
}

#[test]
fn every_check_of_the_conformance_suite_ends_alike_in_version_2026_07_28() {
    compare("conformance 2026-07-28", "2026-07-28", 150);
}
