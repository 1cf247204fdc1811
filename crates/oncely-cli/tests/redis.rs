//! `oncely run` on a Redis ledger: several processes, servers and replicas that are gone; effects are counted in a file. And
//! what the commands that stay say of the servers.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use oncely_testkit::servers::{Redis, Tap};

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Starts a call whose effect is one line in a file, and then something else.
    fn start(&self, store: &str, key: &str, then: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_oncely"))
            .args(["run", "--store", store, "--key", key, "--", "sh", "-c"])
            .arg(format!("echo x >> effects; {then}"))
            .current_dir(self.0.path())
            .env_clear()
            .env("HOME", self.0.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self, store: &str, key: &str) -> Output {
        self.start(store, key, "echo done").wait_with_output().unwrap()
    }

    fn effects(&self) -> usize {
        std::fs::read_to_string(self.0.path().join("effects")).map_or(0, |text| text.lines().count())
    }
}

fn check(output: &Output, code: i32, words: &str) {
    let shown =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{shown}");
    assert!(shown.contains(words), "{words:?} is not in {shown}");
}

#[test]
fn many_processes_with_one_key_have_one_effect() {
    let (server, home) = (Redis::start().unwrap(), Home::new());
    let calls: Vec<Child> = (0..8).map(|_| home.start(&server.url(), "k", "sleep 0.3; echo done")).collect();
    for call in calls {
        check(&call.wait_with_output().unwrap(), 0, "done");
    }
    let again = home.start(&server.url(), "k", "sleep 0.3; echo done");
    check(&again.wait_with_output().unwrap(), 0, "done");
    assert_eq!(home.effects(), 1);
}

#[test]
fn without_a_replica_that_confirms_nothing_runs() {
    let (primary, home) = (Redis::start().unwrap(), Home::new());
    let replica = primary.replica().unwrap();
    // Long enough for a busy machine where a replica is there to confirm, short where none is.
    let store = format!("{}?wait=1&wait_timeout=60s", primary.url());
    check(&home.run(&store, "before"), 0, "done");
    replica.kill().unwrap();
    let impatient = format!("{}?wait=1&wait_timeout=200ms", primary.url());
    check(&home.run(&impatient, "during"), 12, "0 of 1 replicas confirmed it");
    assert_eq!(home.effects(), 1);
    // A duplicate needs no write.
    check(&home.run(&store, "before"), 0, "done");
    replica.start_again().unwrap();
    while !replica.cli(&["INFO", "replication"]).unwrap().contains("master_link_status:up") {
        std::thread::yield_now();
    }
    // What was not confirmed in time did not run, so it can be tried until it is.
    while home.run(&store, "after").status.code() != Some(0) {}
    assert_eq!(home.effects(), 2);
}

#[test]
fn one_replica_is_too_few_where_two_have_to_confirm_and_nothing_runs() {
    let (primary, home) = (Redis::start().unwrap(), Home::new());
    let _replica = primary.replica().unwrap();
    let impatient = format!("{}?wait=2&wait_timeout=200ms", primary.url());
    check(&home.run(&impatient, "k"), 12, "of 2 replicas confirmed it");
    assert_eq!(home.effects(), 0);
    let _second = primary.replica().unwrap();
    let patient = format!("{}?wait=2&wait_timeout=60s", primary.url());
    check(&home.run(&patient, "other"), 0, "done");
    assert_eq!(home.effects(), 1);
}

#[test]
fn a_server_that_is_gone_or_unfit_runs_nothing() {
    let (server, home) = (Redis::start().unwrap(), Home::new());
    server.cli(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
    check(&home.run(&server.url(), "k"), 12, "CONFIG SET appendfsync always");
    server.kill().unwrap();
    check(&home.run(&server.url(), "k"), 12, "cannot be reached");
    assert_eq!(home.effects(), 0);
}

#[test]
fn a_process_that_was_killed_leaves_its_key_in_doubt_on_the_server() {
    let (server, home) = (Redis::start().unwrap(), Home::new());
    let mut call = home.start(&server.url(), "k", "sleep 10");
    while home.effects() == 0 {
        std::thread::yield_now();
    }
    call.kill().unwrap();
    call.wait().unwrap();
    check(&home.start(&server.url(), "k", "sleep 10").wait_with_output().unwrap(), 16, "unknown");
    assert_eq!(home.effects(), 1);
}

/// What is said about an end that had to wait is what became of it, and not what might have.
#[test]
fn a_ledger_that_comes_back_after_the_effect_gets_the_end_and_nothing_else_is_said() {
    let (server, home) = (Redis::start().unwrap(), Home::new());
    let tap = Tap::to_port(server.port()).unwrap();
    let store = server.url_through(tap.port());
    let effect = "until test -e go; do sleep 0.05; done; echo done";
    let mut call = home.start(&store, "k", effect);
    while home.effects() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    tap.cut();
    std::fs::write(home.0.path().join("go"), "").unwrap();
    let mut said = BufReader::new(call.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = said.next().unwrap();
    assert!(first.contains("the end of attempt 1 could not be recorded yet"), "{first}");
    tap.pass();
    let rest: Vec<String> = said.collect();
    assert_eq!(
        rest,
        ["oncely: warning: the ledger was away when the command ended; the end of attempt 1 is recorded now"]
    );
    check(&call.wait_with_output().unwrap(), 0, "done");
    check(&home.start(&server.url(), "k", effect).wait_with_output().unwrap(), 0, "done");
    assert_eq!(home.effects(), 1);
}

/// All that a command says until it listens; it is ended then.
fn said_at_start(store: &str, command: &[&str]) -> String {
    let home = Home::new();
    let mut child = Command::new("sh")
        .args(["-c", "exec \"$0\" \"$@\" 2>&1", env!("CARGO_BIN_EXE_oncely")])
        .args(command)
        .current_dir(home.0.path())
        .env_clear()
        .env("HOME", home.0.path())
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("ONCELY_STORE", store)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
        said += &format!("{line}\n");
        if line.contains("listening") {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.contains("listening"), "it did not start: {said}");
    said
}

#[test]
fn what_a_server_could_still_lose_is_said_once_by_commands_that_stay() {
    let (primary, home) = (Redis::start().unwrap(), Home::new());
    let _replicas = [primary.replica().unwrap(), primary.replica().unwrap()];
    let store = |wait: u32| format!("{}?wait={wait}&wait_timeout=60s", primary.url());
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--upstream", "http://127.0.0.1:9"];
    let mcp = ["mcp", "--listen", "127.0.0.1:0", "--", "cat"];
    for command in [&serve[..], &mcp] {
        let said = said_at_start(&store(1), command);
        for words in ["2 replicas are connected, and wait is 1", "?wait=2", "maxmemory is 0"] {
            assert_eq!(said.matches(words).count(), 1, "{words:?} in {said}");
        }
    }
    // One call is no place for it.
    let ran = home.run(&store(1), "k");
    check(&ran, 0, "done");
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "");
    primary.cli(&["CONFIG", "SET", "maxmemory", "1gb"]).unwrap();
    for command in [&serve[..], &mcp] {
        let said = said_at_start(&store(2), command);
        assert!(!said.contains("warning: the ledger"), "{said}");
    }
    // A risk that the address accepts is one all the same.
    primary.cli(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
    let said = said_at_start(&format!("{}&durability=best-effort", store(2)), &serve);
    assert!(said.contains("appendfsync is everysec: a power cut loses acknowledged records"), "{said}");
}
