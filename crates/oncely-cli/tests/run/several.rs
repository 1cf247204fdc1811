//! Several at once: duplicates that wait, runners that are killed, and signals.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{Home, text};

/// Starts a call whose command says that it has begun, and then waits for a line in a pipe.
fn start_slow(home: &Home, key: &str) -> (Child, PathBuf) {
    let gate = home.path(&format!("gate-{key}"));
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let script = format!("echo x >> effects; echo begun; read line < {}; echo $line", gate.display());
    let mut child = home
        .command(&["run", "--key", key, "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = String::new();
    // Byte by byte, so that nothing of what follows is taken away.
    let out = child.stdout.as_mut().unwrap();
    while !begun.ends_with('\n') {
        let mut byte = [0];
        std::io::Read::read_exact(out, &mut byte).unwrap();
        begun.push(byte[0] as char);
    }
    assert_eq!(begun, "begun\n");
    (child, gate)
}

fn slow_line(gate: &std::path::Path) -> String {
    format!("echo x >> effects; echo begun; read line < {}; echo $line", gate.display())
}

#[test]
fn a_second_call_waits_and_replays_and_one_that_will_not_wait_exits_with_15() {
    let home = Home::new();
    let (first, gate) = start_slow(&home, "k");
    let script = slow_line(&gate);
    let arguments = ["run", "--key", "k", "--wait", "60s", "--", "sh", "-c", &script];
    let waiter = home.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(home.code(&["run", "--key", "k", "--wait", "0s", "--", "sh", "-c", &script]), 15);
    std::fs::write(&gate, "done\n").unwrap();
    let first = first.wait_with_output().unwrap();
    assert_eq!((first.status.code(), text(&first.stdout)), (Some(0), "done\n".into()));
    let second = waiter.wait_with_output().unwrap();
    assert_eq!((second.status.code(), text(&second.stdout)), (Some(0), "begun\ndone\n".into()));
    assert_eq!(home.effects(), 1);
}

#[test]
fn a_killed_runner_is_found_dead_at_once_and_the_answer_is_unknown() {
    let home = Home::new();
    let (mut runner, gate) = start_slow(&home, "k");
    runner.kill().unwrap();
    runner.wait().unwrap();
    let script = slow_line(&gate);
    let arguments = ["run", "--key", "k", "--wait", "1h", "--", "sh", "-c", &script];
    assert_eq!(home.code(&arguments), 16);
    // The command outlived its runner: letting it run again while it still works is refused.
    let refused = home.run(&["run", "--key", "k", "--retry-unknown", "--", "sh", "-c", &script]);
    assert_eq!(refused.status.code(), Some(16));
    assert!(text(&refused.stderr).contains("still running"), "{}", text(&refused.stderr));
    // Nor can anybody say yet that it did not happen, or have it forgotten.
    let record = home.json(&["ls", "--state", "in_doubt", "--json"]);
    let id = record["id"].as_str().unwrap();
    for wish in [&["resolve", id, "--rejected", "--yes"][..], &["forget", id, "--yes"]] {
        assert_eq!(home.code(wish), 4, "{wish:?}");
    }
    // And a check that finds nothing is not believed.
    let checked = ["run", "--key", "k", "--check", "exit 1", "--", "sh", "-c", &script];
    assert_eq!(home.code(&checked), 16);
    std::fs::write(&gate, "late\n").unwrap();
    assert_eq!(home.effects(), 1);
}

#[test]
fn a_signal_to_the_runner_reaches_the_command_and_its_end_is_recorded() {
    let home = Home::new();
    let script =
        "trap 'echo stopped; exit 0' TERM; echo x >> effects; echo begun; while :; do sleep 0.01; done";
    let arguments = ["run", "--key", "k", "--", "sh", "-c", script];
    let mut runner = home.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(runner.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(runner.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "stopped");
    assert_eq!(runner.wait().unwrap().code(), Some(0));
    let replay = home.run(&arguments);
    assert_eq!((replay.status.code(), text(&replay.stdout)), (Some(0), "begun\nstopped\n".into()));
    assert_eq!(home.effects(), 1);
}

#[test]
fn a_signal_that_does_not_ask_for_the_end_reaches_the_command_alone_and_ends_nobody() {
    let home = Home::new();
    let script = "trap 'echo heard' USR1; trap 'echo stopped; exit 0' TERM; echo x >> effects; echo begun; \
                  while :; do sleep 0.01; done";
    let arguments = ["run", "--key", "k", "--", "sh", "-c", script];
    let mut runner = home.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(runner.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(runner.id()).unwrap());
    for (signal, said) in
        [(nix::sys::signal::Signal::SIGUSR1, "heard"), (nix::sys::signal::Signal::SIGTERM, "stopped")]
    {
        nix::sys::signal::kill(pid, signal).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), said);
    }
    assert_eq!(runner.wait().unwrap().code(), Some(0));
    assert_eq!(home.effects(), 1);
}

#[test]
fn a_signal_after_the_commands_end_does_not_cut_its_last_output() {
    let home = Home::new();
    // More than one pipe holds, less than two: it can end while part of it is still to be passed on.
    let bytes = 100_000;
    let script = format!("echo x >> effects; echo $$ > pid; head -c {bytes} /dev/zero");
    let arguments = ["run", "--key", "k", "--", "sh", "-c", &script];
    let runner = home.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let of_child = || std::fs::read_to_string(home.path("pid")).unwrap_or_default();
    let is_over = |pid: &str| !pid.is_empty() && !std::path::Path::new("/proc").join(pid).exists();
    while !is_over(of_child().trim()) {
        std::thread::yield_now();
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(runner.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let first = runner.wait_with_output().unwrap();
    assert_eq!((first.status.code(), first.stdout.len()), (Some(0), bytes));
    let replay = home.run(&arguments);
    assert_eq!((replay.status.code(), replay.stdout.len()), (Some(0), bytes));
    assert_eq!(home.effects(), 1);
}

#[test]
fn a_signal_to_a_waiter_ends_only_the_waiter() {
    let home = Home::new();
    let (first, gate) = start_slow(&home, "k");
    let script = slow_line(&gate);
    let mut waiter =
        home.command(&["run", "--key", "k", "--wait", "60s", "--", "sh", "-c", &script]).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(waiter.id()).unwrap());
    // Whether it is waiting yet or still starting: it ends, and the other does not.
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_ne!(waiter.wait().unwrap().code(), Some(0));
    std::fs::write(&gate, "done\n").unwrap();
    assert_eq!(first.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(home.effects(), 1);
}
