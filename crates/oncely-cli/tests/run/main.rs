//! `oncely run` as people and agents meet it: real processes, effects counted in a file of the command's own.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod several;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const ONCELY: &str = env!("CARGO_BIN_EXE_oncely");

/// A home with a ledger of its own, and a file in which effects are counted.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ONCELY);
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env_clear()
            .env("HOME", self.0.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn code(&self, arguments: &[&str]) -> i32 {
        self.run(arguments).status.code().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}{}", text(&output.stdout), text(&output.stderr)))
    }

    /// How many effects there were.
    fn effects(&self) -> usize {
        std::fs::read_to_string(self.path("effects")).map_or(0, |text| text.lines().count())
    }

    /// A shell command that has one effect and then does something else.
    fn effect(&self, then: &str) -> Vec<String> {
        ["sh", "-c", &format!("echo x >> effects; {then}")].map(str::to_owned).to_vec()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `oncely run` with options, and a command with one effect that then does something else.
fn line<'a>(options: &[&'a str], command: &'a [String]) -> Vec<&'a str> {
    let mut line = vec!["run"];
    line.extend(options);
    line.push("--");
    line.extend(command.iter().map(String::as_str));
    line
}

#[test]
fn a_replay_writes_the_same_bytes_to_the_same_streams_and_exits_alike() {
    let home = Home::new();
    let command = home.effect(r"printf '\377\000out'; printf 'err' >&2");
    let first = home.run(&line(&["--key", "k"], &command));
    assert_eq!(first.status.code(), Some(0));
    assert_eq!(first.stdout, b"\xff\0out");
    assert_eq!(first.stderr, b"err");
    let second = home.run(&line(&["--key", "k"], &command));
    assert_eq!(second.status.code(), Some(0));
    assert_eq!(second.stdout, first.stdout);
    let said = text(&second.stderr);
    assert!(said.starts_with("err") && said.contains("replayed") && said.contains("another key"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(home.effects(), 1);
}

#[test]
fn a_key_reused_for_another_payload_exits_with_6_and_runs_nothing() {
    let home = Home::new();
    home.run(&line(&["--key", "k"], &home.effect("true")));
    let other = home.run(&line(&["--key", "k"], &home.effect("false")));
    assert_eq!(other.status.code(), Some(6));
    assert!(text(&other.stderr).contains("nothing ran"));
    assert_eq!(home.effects(), 1);
}

#[test]
fn exit_codes_decide_between_rejected_and_unknown() {
    let home = Home::new();
    for (key, end, options, again) in [
        ("usage", "exit 2", &[][..], 2),
        ("usage64", "exit 64", &[], 64),
        ("missing", "exit 127", &[], 127),
        ("named", "exit 67", &["--rejected-on", "3,65-69"], 67),
        ("one", "exit 1", &[], 16),
        ("unnamed", "exit 70", &["--rejected-on", "3,65-69"], 16),
        ("signal", "kill -9 $$", &[], 16),
    ] {
        let before = home.effects();
        let options = [&["--key", key], options].concat();
        let command = home.effect(end);
        home.run(&line(&options, &command));
        assert_eq!(home.code(&line(&options, &command)), again, "{key}");
        let ran = home.effects() - before;
        assert_eq!(ran, if again == 16 { 1 } else { 2 }, "{key}");
    }
}

#[test]
fn stated_exit_codes_replace_the_conventional_ones() {
    let home = Home::new();
    let command = home.effect("exit 2");
    for expected in [2, 16] {
        assert_eq!(home.code(&line(&["--key", "k", "--rejected-on", "3"], &command)), expected);
    }
    assert_eq!(home.effects(), 1);
}

#[test]
fn what_a_command_leaves_in_the_background_does_not_hold_up_its_end() {
    let home = Home::new();
    for (key, left) in [("chatty", "while echo y; do sleep 0.01; done"), ("silent", "sleep 600")] {
        let command = home.effect(&format!("({left}) & echo $! >> left; echo out"));
        let output = home.run(&line(&["--key", key], &command));
        assert_eq!(output.status.code(), Some(0), "{key}");
        assert!(text(&output.stdout).contains("out\n"), "{key}");
    }
    assert_eq!(home.effects(), 2);
    for pid in std::fs::read_to_string(home.path("left")).unwrap().lines() {
        // It may have ended by itself when nobody read its output any more.
        let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_command_that_cannot_be_started_is_rejected() {
    let home = Home::new();
    let missing = home.run(&["run", "--key", "k", "--", "./no-such-thing"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("nothing happened"));
    std::fs::write(home.path("plain"), "text").unwrap();
    assert_eq!(home.code(&["run", "--key", "p", "--", "./plain"]), 126);
    // It costs no retry, however often. Once it is there, the same call runs.
    for _ in 0..7 {
        assert_eq!(home.code(&["run", "--key", "k", "--", "./no-such-thing"]), 127);
    }
    std::fs::write(home.path("no-such-thing"), "#!/bin/sh\necho here\n").unwrap();
    std::fs::set_permissions(home.path("no-such-thing"), PermissionsExt::from_mode(0o755)).unwrap();
    let found = home.run(&["run", "--key", "k", "--", "./no-such-thing"]);
    assert_eq!((found.status.code(), text(&found.stdout)), (Some(0), "here\n".into()));
}

#[test]
fn an_unknown_outcome_says_how_to_settle_it_and_the_ways_out_work() {
    let home = Home::new();
    let command = home.effect("exit 1");
    assert_eq!(home.code(&line(&["--key", "k"], &command)), 1);
    let halted = home.run(&line(&["--key", "k"], &command));
    assert_eq!(halted.status.code(), Some(16));
    let said = text(&halted.stderr);
    for part in ["Nothing ran now", "--succeeded", "--rejected", "--retry-unknown"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(home.effects(), 1);
    assert_eq!(home.code(&line(&["--key", "k", "--retry-unknown"], &command)), 1);
    assert_eq!(home.effects(), 2);
    let record = home.json(&["ls", "--state", "in_doubt", "--json"]);
    let id = record["id"].as_str().unwrap();
    std::fs::write(home.path("result"), "receipt 9").unwrap();
    assert_eq!(home.code(&["resolve", id, "--succeeded", "--result", "result", "--yes"]), 0);
    let replay = home.run(&line(&["--key", "k"], &command));
    assert_eq!((replay.status.code(), text(&replay.stdout)), (Some(0), "receipt 9".into()));
    assert_eq!(home.effects(), 2);
}

#[test]
fn a_timeout_ends_the_whole_process_group_and_is_unknown() {
    let home = Home::new();
    let marked = format!("sleep 600; echo late-{} >> effects", std::process::id());
    let command = home.effect(&format!("sh -c '{marked}' & wait"));
    let options = ["--key", "k", "--timeout", "2s"];
    let output = home.run(&line(&options, &command));
    assert_eq!(output.status.code(), Some(16), "{}", text(&output.stderr));
    assert_eq!(home.code(&line(&options, &command)), 16);
    assert_eq!(home.effects(), 1);
    // What was killed may still be on its way out.
    let patience = Instant::now() + Duration::from_secs(60);
    while Command::new("pgrep").args(["-f", &marked]).output().unwrap().status.code() != Some(1) {
        assert!(Instant::now() < patience, "something of the group lives on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_child_sees_its_key_attempt_and_downstream_key() {
    let home = Home::new();
    let show = "echo $ONCELY_KEY $ONCELY_ATTEMPT $ONCELY_DOWNSTREAM_KEY $1; exit $2";
    let run = |code: &str| {
        let output = home.run(&[
            "run",
            "--key",
            "k",
            "--rejected-on",
            "3",
            "--",
            "sh",
            "-c",
            show,
            "sh",
            "id={downstream_key}",
            code,
        ]);
        text(&output.stdout)
    };
    let words: Vec<String> = run("0").split_whitespace().map(str::to_owned).collect();
    assert_eq!((words[0].as_str(), words[1].as_str()), ("k", "1"));
    assert_eq!(words[2].len(), 36);
    assert_eq!(words[3], format!("id={}", words[2]));
}

#[test]
fn a_check_is_asked_before_acting_and_settles_an_unknown() {
    let home = Home::new();
    let command = home.effect("exit 1");
    let check = ["--key", "k", "--check", "test -s effects && echo found"];
    assert_eq!(home.code(&line(&check, &command)), 1);
    let settled = home.run(&line(&check, &command));
    assert_eq!((settled.status.code(), text(&settled.stdout)), (Some(0), "found\n".into()));
    assert_eq!(home.effects(), 1);
    let held = home.run(&line(&["--key", "other", "--check", "echo held"], &command));
    assert_eq!((held.status.code(), text(&held.stdout)), (Some(0), "held\n".into()));
    let unsure = home.run(&line(&["--key", "third", "--check", "exit 7"], &command));
    assert_eq!(unsure.status.code(), Some(4));
    assert_eq!(home.effects(), 1);
}

#[test]
fn without_a_key_scope_directory_command_and_arguments_decide() {
    let home = Home::new();
    let command = home.effect("true");
    for (options, expected) in
        [(&[][..], 1), (&[], 1), (&["--scope", "a"], 2), (&["--scope", "a"], 2), (&["--scope", "b"], 3)]
    {
        assert_eq!(home.code(&line(options, &command)), 0);
        assert_eq!(home.effects(), expected, "{options:?}");
    }
    std::fs::create_dir(home.path("elsewhere")).unwrap();
    let mut moved = home.command(&line(&[], &command));
    assert!(moved.current_dir(home.path("elsewhere")).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(home.path("elsewhere/effects")).unwrap(), "x\n");
}

#[test]
fn chosen_variables_and_standard_input_are_part_of_the_payload() {
    let home = Home::new();
    let command = home.effect("cat");
    let run = |region: &str, input: &str| {
        let mut child = home
            .command(&line(&["--key", "k", "--env", "REGION", "--stdin"], &command))
            .env("REGION", region)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout))
    };
    assert_eq!(run("eu", "body"), (0, "body".into()));
    assert_eq!(run("eu", "body"), (0, "body".into()));
    assert_eq!(run("us", "body").0, 6);
    assert_eq!(run("eu", "other").0, 6);
    assert_eq!(home.effects(), 1);
}

#[test]
fn json_prints_the_envelope_and_takes_the_commands_own_over() {
    let home = Home::new();
    let plain = home.effect("echo hello");
    let first = home.json(&line(&["--json", "--key", "k", "--effect", "created"], &plain));
    assert_eq!((&first["ok"], &first["effect"]), (&true.into(), &"created".into()));
    assert_eq!(first["data"]["stdout"], "hello\n");
    let again = home.json(&line(&["--json", "--key", "k"], &plain));
    assert_eq!((&again["ok"], &again["effect"]), (&true.into(), &"noop".into()));
    assert_eq!(again["meta"]["first_effect"], "created");
    assert_eq!(again["data"], first["data"]);

    let own = home.effect(r#"echo '{"ok":true,"effect":"sent","data":{"id":7}}'"#);
    let sent = home.json(&line(&["--json", "--key", "own"], &own));
    assert_eq!((&sent["effect"], &sent["data"]["id"]), (&"sent".into(), &7.into()));

    let busy = home
        .effect(r#"echo '{"ok":false,"error":{"code":"BUSY","message":"later","retryable":true}}'; exit 1"#);
    let rejected = home.json(&line(&["--json", "--key", "busy"], &busy));
    assert_eq!((&rejected["error"]["code"], &rejected["error"]["retryable"]), (&"BUSY".into(), &true.into()));
    let effects = home.effects();
    home.json(&line(&["--json", "--key", "busy"], &busy));
    assert_eq!(home.effects(), effects + 1, "a certain rejection runs again");

    let conflict = home.json(&line(&["--json", "--key", "k"], &own));
    assert_eq!((&conflict["ok"], &conflict["error"]["code"]), (&false.into(), &"KEY_REUSED".into()));
}

#[test]
fn a_dry_run_runs_and_writes_nothing() {
    let home = Home::new();
    let command = home.effect("true");
    let dry = home.json(&line(&["--json", "--dry-run", "--key", "k", "--effect", "created"], &command));
    assert_eq!(dry["effect"], "would_create");
    assert_eq!(home.effects(), 0);
    assert_eq!(text(&home.run(&["ls", "--json"]).stdout), "");
    home.run(&line(&["--key", "k"], &command));
    assert_eq!(home.json(&line(&["--json", "--dry-run", "--key", "k"], &command))["effect"], "noop");
    let other = home.effect("false");
    assert_eq!(home.code(&line(&["--dry-run", "--key", "k"], &other)), 6);
    assert_eq!(home.effects(), 1);
}

#[test]
fn the_ledger_is_private_and_bad_input_runs_nothing() {
    let home = Home::new();
    let command = home.effect("true");
    home.run(&line(&["--key", "k"], &command));
    let ledger = home.path(".local/state/oncely/ledger.db");
    assert_eq!(std::fs::metadata(&ledger).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(ledger.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let long = "k".repeat(256);
    for (options, code) in [
        (&["--key", ""][..], 2),
        (&["--key", &long], 2),
        (&["--key", "a b"], 2),
        (&["--scope", "a\nb"], 2),
        (&["--timeout", "5"], 2),
        (&["--effect", "made"], 2),
        (&["--rejected-on", "1-"], 2),
        (&["--store", "nosuch:thing"], 2),
        (&["--store", "/proc/nowhere/ledger.db"], 12),
    ] {
        let output = home.run(&line(options, &command));
        assert_eq!(output.status.code(), Some(code), "{options:?}: {}", text(&output.stderr));
    }
    assert_eq!(home.code(&["run"]), 2);
    assert_eq!(home.effects(), 1);
}

#[test]
fn a_policy_file_is_found_upward_and_strict_mode_refuses_undeclared_tools() {
    let home = Home::new();
    std::fs::write(
        home.path("oncely.toml"),
        "strict = true\n[tool.\"cmd:sh\"]\nidempotent = false\nmax_retries = 1\nrejected_on = [9]\nrequire_key = true\n",
    )
    .unwrap();
    std::fs::create_dir(home.path("sub")).unwrap();
    let run =
        |arguments: &[&str]| home.command(arguments).current_dir(home.path("sub")).status().unwrap().code();
    assert_eq!(run(&["run", "--key", "k", "--", "true"]), Some(4));
    assert_eq!(run(&["run", "--", "sh", "-c", "exit 0"]), Some(2), "a key is required");
    let rejected = ["run", "--key", "k", "--", "sh", "-c", "echo x >> ../effects; exit 9"];
    for _ in 0..4 {
        assert_eq!(run(&rejected), Some(9));
    }
    assert_eq!(home.effects(), 2, "the retry budget is 1");
}
