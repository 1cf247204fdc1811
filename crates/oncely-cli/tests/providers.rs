//! `oncely providers`, run as a user runs it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use serde_json::Value;

fn run(home: &tempfile::TempDir, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_oncely"))
        .args(arguments)
        .current_dir(home.path())
        .env_clear()
        .env("HOME", home.path())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_provider_is_listed_and_one_is_shown_in_full() {
    let home = tempfile::tempdir().unwrap();
    let (code, stdout, _) = run(&home, &["providers"]);
    assert_eq!(code, 0);
    let names: Vec<String> = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.len() >= 50 && names.contains(&"stripe".to_owned()));
    let (_, stdout, _) = run(&home, &["providers", "show", "discord"]);
    let discord: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(discord["key"]["json"]["pointer"], "/nonce");
    assert_eq!(discord["encoder"], "base64url22");
    assert_eq!(discord["retention_ms"], 180_000);
}

#[test]
fn an_unknown_name_says_which_are_similar() {
    let home = tempfile::tempdir().unwrap();
    let (code, _, stderr) = run(&home, &["providers", "show", "stripe-api"]);
    assert_eq!(code, 4);
    assert!(stderr.contains("similar: stripe"), "{stderr}");
}

#[test]
fn providers_of_the_configuration_are_listed_beside_the_known_ones() {
    let home = tempfile::tempdir().unwrap();
    let config = "[[provider]]\nname = \"ours\"\nkey = { header = \"X-Key\" }\nretention = \"2h\"\n";
    std::fs::write(home.path().join("oncely.toml"), config).unwrap();
    let (code, stdout, stderr) = run(&home, &["providers", "show", "ours"]);
    assert_eq!(code, 0, "{stderr}");
    let ours: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(ours["confidence"], "own");
    std::fs::write(home.path().join("oncely.toml"), config.replace("2h", "soon")).unwrap();
    let (code, _, stderr) = run(&home, &["providers"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("oncely.toml:4:13: provider[0].retention: "), "{stderr}");
}
