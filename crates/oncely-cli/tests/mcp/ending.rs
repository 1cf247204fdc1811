//! Ends: of the client, of the server, by cancellation and by signal.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::world::{Client, Home, ONCELY, code, script, text};

fn pid(client: &Client) -> Pid {
    Pid::from_raw(i32::try_from(client.child.id()).unwrap())
}

const SLOW: &str = r#"{"jsonrpc":"2.0","id":70,"method":"tools/call","params":{"name":"pay","arguments":{"amount":7,"until":"go"}}}"#;

#[test]
fn a_write_that_was_cancelled_is_let_finish_and_the_retry_gets_its_result() {
    let home = Home::new();
    let mut client = home.ready();
    client.send_raw(format!("{SLOW}\n").as_bytes());
    home.until_reached("go");
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 70, "reason": "timeout" } }));
    let retry =
        client.begin("tools/call", json!({ "name": "pay", "arguments": { "amount": 7, "until": "go" } }));
    home.raise("go");
    let (answer, before) = client.answer_to(&retry);
    assert_eq!(text(&answer["result"], 0), "paid 7, effect 1");
    assert!(before.is_empty(), "a request that was cancelled is not answered: {before:?}");
    drop(client);
    assert_eq!(home.effects(), ["pay 7"]);
    assert!(home.seen().iter().all(|line| !line.contains("cancelled")), "{:?}", home.seen());
}

#[test]
fn the_policy_can_pass_a_cancellation_on_under_our_id() {
    let home = Home::new();
    home.write("oncely.toml", "[tool.pay]\nforward_cancel = true\n");
    let mut client = home.ready();
    client.send_raw(format!("{SLOW}\n").as_bytes());
    home.until_reached("go");
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 70 } }),
    );
    home.until(|| home.read("seen").contains("notifications/cancelled"));
    let seen = home.seen();
    let of = |part: &str| -> serde_json::Value {
        serde_json::from_str(seen.iter().rev().find(|line| line.contains(part)).unwrap()).unwrap()
    };
    assert_eq!(of("notifications/cancelled")["params"]["requestId"], of("\"amount\":7")["id"]);
    home.raise("go");
}

#[test]
fn a_read_that_is_cancelled_is_cancelled_at_the_server() {
    let home = Home::new();
    let mut client = home.ready();
    client.call("balance", json!({}));
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } });
    client.send(&cancel);
    client.end();
    assert_eq!(home.seen().last().unwrap(), &cancel.to_string());
}

#[test]
fn a_client_that_goes_away_leaves_its_write_to_finish_and_be_recorded() {
    let home = Home::new();
    let mut client = home.ready();
    client.send_raw(format!("{SLOW}\n").as_bytes());
    home.until_reached("go");
    client.close();
    // Nobody waits for it any more; a person looks at the ledger.
    assert_eq!(home.states(), [("pay".into(), "running".into())]);
    home.raise("go");
    assert!(client.child.wait().unwrap().success());
    assert_eq!(home.states(), [("pay".into(), "succeeded".into())]);
    let mut next = home.ready();
    let result = next.call("pay", json!({ "amount": 7, "until": "go" }));
    assert_eq!(text(&result, 0), "paid 7, effect 1");
    assert_eq!(home.effects(), ["pay 7"]);
}

#[test]
fn the_wait_for_running_writes_is_bounded_and_leaves_them_in_doubt() {
    let home = Home::new();
    let mut client = home.client_of(&["mcp", "--drain", "50ms", "--"], &[script().to_str().unwrap()]);
    client.initialize();
    client.send_raw(format!("{SLOW}\n").as_bytes());
    home.until_reached("go");
    client.close();
    client.child.wait().unwrap();
    assert_eq!(home.states(), [("pay".into(), "in_doubt".into())]);
    let mut next = home.client_of(&["mcp", "--drain", "50ms", "--"], &[script().to_str().unwrap()]);
    next.initialize();
    let again = next.call("pay", json!({ "amount": 7, "until": "go" }));
    assert_eq!(code(&again), "OUTCOME_UNKNOWN");
    assert_eq!(home.effects(), ["pay 7"]);
}

#[test]
fn a_server_that_dies_leaves_the_call_in_doubt_and_its_exit_code_to_us() {
    let home = Home::new();
    let mut client = home.ready();
    let result = client.call("die", json!({}));
    assert_eq!((result["isError"].as_bool(), code(&result)), (Some(true), "OUTCOME_UNKNOWN"));
    assert_eq!(client.child.wait().unwrap().code(), Some(7));
    let mut next = home.ready();
    assert_eq!(code(&next.call("die", json!({}))), "OUTCOME_UNKNOWN");
    drop(next);
    assert_eq!(home.effects(), ["die"]);
}

#[test]
fn kill_9_of_the_proxy_leaves_an_unknown_outcome_and_no_second_effect() {
    let home = Home::new();
    let mut client = home.ready();
    client.send_raw(format!("{SLOW}\n").as_bytes());
    home.until_reached("go");
    kill(pid(&client), Signal::SIGKILL).unwrap();
    client.child.wait().unwrap();
    let mut next = home.ready();
    let again = next.call("pay", json!({ "amount": 7, "until": "go" }));
    assert_eq!(code(&again), "OUTCOME_UNKNOWN");
    home.raise("go");
    drop(next);
    assert_eq!(home.effects(), ["pay 7"]);
}

#[test]
fn a_server_does_not_outlive_a_proxy_that_is_killed() {
    let home = Home::new();
    let program = "import os, time\nopen(os.environ['FLAGS'] + '/server.pid', 'w').write(str(os.getpid()))\n\
                   open(os.environ['FLAGS'] + '/up', 'w').close()\nwhile True: time.sleep(1)\n";
    home.write("deaf.py", program);
    let mut client = home.client_of(&["mcp", "--"], &["deaf.py"]);
    home.until(|| home.path("up").exists());
    let server: u32 = home.read("server.pid").parse().unwrap();
    kill(pid(&client), Signal::SIGKILL).unwrap();
    client.child.wait().unwrap();
    home.until(|| !std::path::Path::new(&format!("/proc/{server}")).exists());
}

#[test]
fn a_signal_waits_for_running_writes_and_then_reaches_the_server() {
    let home = Home::new();
    let mut client = home.ready();
    client.send_raw(format!("{SLOW}\n").as_bytes());
    home.until_reached("go");
    kill(pid(&client), Signal::SIGTERM).unwrap();
    home.raise("go");
    let status = client.child.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 15), "the server ends by the signal, and we as it does");
    assert_eq!(home.states(), [("pay".into(), "succeeded".into())]);
    assert_eq!(home.effects(), ["pay 7"]);
}

#[test]
fn signals_that_do_not_ask_for_the_end_reach_the_server_and_end_nobody() {
    let home = Home::new();
    let program = "import os, runpy, signal, sys\n\
                   note = lambda number, _: open(os.environ['FLAGS'] + '/got.' + str(number), 'w').close()\n\
                   for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH): signal.signal(number, note)\n\
                   open(os.environ['FLAGS'] + '/up', 'w').close()\n\
                   runpy.run_path(sys.argv[1], run_name='__main__')\n";
    home.write("hearing.py", program);
    let mut client = home.client_of(&["mcp", "--"], &["hearing.py", script().to_str().unwrap()]);
    home.until(|| home.path("up").exists());
    client.initialize();
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH] {
        kill(pid(&client), signal).unwrap();
        home.until(|| home.path(&format!("got.{}", signal as i32)).exists());
    }
    assert_eq!(text(&client.call("pay", json!({ "amount": 1 })), 0), "paid 1, effect 1");
    assert!(client.end().success());
}

#[test]
fn they_do_not_end_a_proxy_of_a_server_at_an_address_either() {
    let home = Home::new();
    let server = crate::web::server(&home, "json");
    let mut client = home.client_of(&["mcp", "--url", &format!("http://127.0.0.1:{}/mcp", server.port)], &[]);
    client.initialize();
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH] {
        kill(pid(&client), signal).unwrap();
        assert_eq!(text(&client.call("pay", json!({ "amount": 1 })), 0), "paid 1, effect 1");
    }
    assert!(client.end().success());
}

#[test]
fn a_server_that_ignores_the_end_is_stopped() {
    let home = Home::new();
    let program = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                   open(os.environ['FLAGS'] + '/up', 'w').close()\nwhile True: time.sleep(1)\n";
    home.write("stubborn.py", program);
    let client = home.client_of(&["mcp", "--drain", "10ms", "--"], &["stubborn.py"]);
    home.until(|| home.path("up").exists());
    assert_eq!(client.end().code(), Some(128 + 9));
}

#[test]
fn what_a_server_leaves_behind_ends_with_it_even_if_it_is_deaf_to_signals() {
    let home = Home::new();
    let deaf = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                open(os.environ['FLAGS'] + '/deaf.pid', 'w').write(str(os.getpid()))\n\
                open(os.environ['FLAGS'] + '/up', 'w').close()\nwhile True: time.sleep(1)\n";
    home.write("deaf.py", deaf);
    home.write(
        "parent.py",
        "import subprocess, sys\n\
         subprocess.Popen([sys.executable, 'deaf.py'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)\n\
         sys.stdin.read()\n",
    );
    let client = home.client_of(&["mcp", "--"], &["parent.py"]);
    home.until(|| home.path("up").exists());
    let left: u32 = home.read("deaf.pid").parse().unwrap();
    assert_eq!(client.end().code(), Some(0));
    // Whoever takes care of orphans may not have looked at it yet.
    home.until(|| {
        let status = std::fs::read_to_string(format!("/proc/{left}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    });
}

#[test]
fn standard_error_and_the_exit_code_of_the_server_are_ours() {
    let home = Home::new();
    let mut client = home.client();
    assert_eq!(client.error_line(), "scripted server started");
    let mut command = home.command(ONCELY);
    command.args(["mcp", "--", "sh", "-c", "exit 5"]);
    assert_eq!(Client::start(command).end().code(), Some(5));
    let mut command = home.command(ONCELY);
    command.args(["mcp", "--", "./no-such-server"]);
    let mut missing = Client::start(command);
    assert!(missing.error_line().contains("could not be started"));
    assert_eq!(missing.end().code(), Some(127));
}

#[test]
fn a_server_that_does_not_read_does_not_keep_us_from_ending() {
    let home = Home::new();
    let mut command = home.command(ONCELY);
    command.args(["mcp", "--drain", "1s", "--", "sleep", "1000"]);
    let mut client = Client::start(command);
    // As long as the handshake is not over, the server is not asked for its tools.
    client.begin("initialize", json!({}));
    client.begin("tools/call", json!({ "name": "pay", "arguments": { "text": "x".repeat(1_000_000) } }));
    home.until(|| home.path("ledger.db").exists() && !home.oncely(&["ls"]).is_empty());
    // It ends with its client, or the test fails.
    drop(client);
}
