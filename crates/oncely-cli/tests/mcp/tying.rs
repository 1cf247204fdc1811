//! A server and the proxy that started it: what is left of one when the other ends, and signals on their way.

use std::cell::RefCell;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::json;

use crate::web::{Web, call, front, open, server};
use crate::world::{Client, Home, ONCELY, script};

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

/// A process, as far as it matters here.
#[derive(Debug)]
struct Process {
    group: i32,
    command: String,
    /// The signals that it has handlers for, as the kernel writes them.
    caught: u64,
}

/// A process that has not ended.
fn process(pid: &str) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = stat.rsplit(") ").next()?.split(' ');
    let (state, group) = (rest.next()?, rest.nth(1)?);
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"))?;
    let caught = u64::from_str_radix(caught, 16).unwrap();
    (state != "Z").then(|| Process { group: group.parse().unwrap(), command, caught })
}

/// Who is in a group.
fn members(group: i32) -> Vec<Process> {
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| process(entry.ok()?.file_name().to_str()?));
    all.filter(|process| process.group == group).collect()
}

/// Whether somebody in a group would see that the proxy is gone, and has come so far that no signal to the group ends it.
fn is_watched(group: i32) -> bool {
    let is_ready = |process: &Process| process.caught & (1 << (Signal::SIGALRM as u64 - 1)) != 0;
    members(group).iter().any(|process| process.command.contains("mcp-watch") && is_ready(process))
}

/// Writes a server that never reads and never ends by itself, and does this first.
fn write_server(home: &Home, first: &str) {
    let program = format!(
        "import os, signal, sys, time\n{first}\n\
         open(os.environ['FLAGS'] + '/server.pid', 'w').write(str(os.getpid()))\n\
         open(os.environ['FLAGS'] + '/up', 'w').close()\nwhile True: time.sleep(1)\n"
    );
    home.write("server.py", &program);
}

/// The group of that server, once it is up.
fn group(home: &Home) -> i32 {
    home.until(|| home.path("up").exists());
    process(home.read("server.pid").trim()).unwrap().group
}

const DEAF: &str = "signal.signal(signal.SIGTERM, signal.SIG_IGN)";
/// As `npx` and others do: it waits for the server, and passes no signals on.
const LAUNCHER: [&str; 3] = ["sh", "-c", "trap '' USR1 USR2 ALRM; python3 server.py; true"];

fn started(home: &Home, server: &[&str]) -> Client {
    let mut command = home.command(ONCELY);
    command.args(["mcp", "--drain", "10ms", "--"]).args(server);
    Client::start(command)
}

#[test]
fn a_server_behind_a_launcher_does_not_outlive_a_proxy_that_is_killed_even_if_it_is_deaf() {
    for first in ["", DEAF] {
        let home = Home::new();
        write_server(&home, first);
        let mut client = started(&home, &LAUNCHER);
        let group = group(&home);
        home.until(|| is_watched(group));
        // As servers with several processes do; whoever watches them stays.
        for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM] {
            killpg(Pid::from_raw(group), signal).unwrap();
        }
        kill(pid(&client.child), Signal::SIGKILL).unwrap();
        client.child.wait().unwrap();
        // Neither the launcher nor the server, nor who watched them.
        home.until(|| members(group).is_empty());
    }
}

#[test]
fn nor_do_servers_that_were_started_for_clients_that_connect() {
    let home = Home::new();
    write_server(&home, DEAF);
    let arguments: Vec<&str> = ["--"].into_iter().chain(LAUNCHER).collect();
    let mut front = front(&home, &arguments);
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {} }).to_string();
    let waiting = open(front.port, "POST", "/mcp", &[], &hello);
    let group = group(&home);
    home.until(|| is_watched(group));
    kill(pid(&front.child), Signal::SIGKILL).unwrap();
    front.child.wait().unwrap();
    home.until(|| members(group).is_empty());
    drop(waiting);
}

#[test]
fn an_end_in_order_leaves_nobody_behind() {
    let home = Home::new();
    write_server(&home, "");
    let client = started(&home, &LAUNCHER);
    let group = group(&home);
    home.until(|| is_watched(group));
    // The shell ends by the signal, as the server does.
    assert_eq!(client.end().code(), Some(128 + 15));
    home.until(|| members(group).is_empty());
}

#[test]
fn what_a_server_left_behind_ends_even_if_the_proxy_is_killed_while_it_sees_to_that() {
    let home = Home::new();
    write_server(&home, DEAF);
    // It ends with its input, and leaves a server that is deaf to signals.
    let parent = "import os, subprocess, sys\n\
                  subprocess.Popen([sys.executable, 'server.py'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)\n\
                  open(os.environ['FLAGS'] + '/parent.pid', 'w').write(str(os.getpid()))\nsys.stdin.read()\n";
    home.write("parent.py", parent);
    let mut client = started(&home, &["python3", "parent.py"]);
    let group = group(&home);
    home.until(|| is_watched(group));
    let parent = home.read("parent.pid");
    client.close();
    home.until(|| process(&parent).is_none());
    kill(pid(&client.child), Signal::SIGKILL).unwrap();
    client.child.wait().unwrap();
    home.until(|| members(group).is_empty());
}

#[test]
fn every_signal_that_asks_for_an_end_reaches_the_server() {
    for (signal, name) in [
        (Signal::SIGINT, "SIGINT"),
        (Signal::SIGHUP, "SIGHUP"),
        (Signal::SIGTERM, "SIGTERM"),
        (Signal::SIGQUIT, "SIGQUIT"),
    ] {
        let home = Home::new();
        let note = format!(
            "def note(*_):\n    open(os.environ['FLAGS'] + '/got', 'w').write('{name}')\n    os._exit(3)\n\
             signal.signal(signal.{name}, note)"
        );
        write_server(&home, &note);
        let mut client = started(&home, &["python3", "server.py"]);
        home.until(|| home.path("up").exists());
        kill(pid(&client.child), signal).unwrap();
        assert_eq!(client.child.wait().unwrap().code(), Some(3), "{name}");
        assert_eq!(home.read("got"), name);
    }
}

/// A write that does not end.
fn slow() -> serde_json::Value {
    call("pay", json!({ "amount": 7, "until": "never" }))
}

/// Signals that something with a running write is to end, and then that it is to end now. Two signals of a kind may come as
/// one, so they are of two kinds; where both have come by the time we look, SIGTERM is seen first (`PassedSignals`), and the
/// exit code is of the first.
fn insist(home: &Home, child: &mut Child) -> i32 {
    home.until_reached("never");
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        kill(pid(child), signal).unwrap();
    }
    let child = RefCell::new(child);
    home.until(|| child.borrow_mut().try_wait().unwrap().is_some());
    let status = child.borrow_mut().wait().unwrap();
    status.code().unwrap()
}

/// Longer than any test waits.
const DRAIN: [&str; 2] = ["--drain", "1d"];

#[test]
fn a_second_signal_ends_the_wait_for_running_writes_and_leaves_them_in_doubt() {
    let home = Home::new();
    let mut command: Command = home.command(ONCELY);
    command.arg("mcp").args(DRAIN).args(["--", "python3"]).arg(script());
    let mut client = Client::start(command);
    client.initialize();
    client.send(&slow());
    let code = insist(&home, &mut client.child);
    assert!([128 + 15, 128 + 1].contains(&code), "the server ends by one of them: {code}");
    assert_eq!(home.states(), [("pay".into(), "in_doubt".into())]);
    assert_eq!(home.effects(), ["pay 7"]);
}

#[test]
fn a_second_signal_ends_the_wait_for_a_server_at_an_address_too() {
    let home = Home::new();
    let server = server(&home, "sse");
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let mut command: Command = home.command(ONCELY);
    command.arg("mcp").args(DRAIN).args(["--url", &url]);
    let mut client = Client::start(command);
    client.initialize();
    client.send(&slow());
    assert_eq!(insist(&home, &mut client.child), 128 + 15);
    assert_eq!(home.states(), [("pay".into(), "in_doubt".into())]);
    assert_eq!(home.effects(), ["pay 7"]);
}

#[test]
fn a_second_signal_ends_the_wait_where_clients_connect_too() {
    for behind in ["a command", "an address"] {
        let home = Home::new();
        let server = server(&home, "sse");
        let url = format!("http://127.0.0.1:{}/mcp", server.port);
        let script = script();
        let arguments = match behind {
            "a command" => vec!["--", "python3", script.to_str().unwrap()],
            _ => vec!["--url", &url],
        };
        let mut front = front(&home, &DRAIN.into_iter().chain(arguments).collect::<Vec<_>>());
        let web = Web::begin(front.port);
        let session = [("Mcp-Session-Id", web.session.as_str())];
        let waiting = open(front.port, "POST", "/mcp", &session, &slow().to_string());
        assert_eq!(insist(&home, &mut front.child), 128 + 15, "{behind}");
        assert_eq!(home.states(), [("pay".into(), "in_doubt".into())], "{behind}");
        assert_eq!(home.effects(), ["pay 7"], "{behind}");
        drop(waiting);
    }
}
