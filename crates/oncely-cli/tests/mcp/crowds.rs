//! Many messages at once, and long ones: each is answered once, in bounded memory.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{Home, ONCELY, script, text};

/// So many calls are under way at once.
const AT_ONCE: i64 = 64;

fn read(id: i64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "balance", "arguments": { "n": id } } })
}

fn write(id: i64) -> Value {
    let arguments = json!({ "n": id, "idempotency_key": format!("k{id}") });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "get_paid", "arguments": arguments } })
}

#[test]
fn in_a_crowd_of_reads_and_writes_every_call_gets_its_own_answer_once() {
    let home = Home::new();
    let mut client = home.ready();
    let (first, last) = (1_000, 5_000);
    let is_write = |id: i64| id % 40 == 0;
    let message = |id: i64| if is_write(id) { write(id) } else { read(id) };
    let mut answers: HashMap<i64, Value> = HashMap::new();
    let mut next = first;
    while next < first + AT_ONCE {
        client.send(&message(next));
        next += 1;
    }
    while answers.len() < (last - first) as usize {
        let answer = client.receive();
        let id = answer["id"].as_i64().unwrap_or_else(|| panic!("{answer}"));
        assert!(answers.insert(id, answer["result"].clone()).is_none(), "{id} was answered twice");
        if next < last {
            client.send(&message(next));
            next += 1;
        }
    }
    for (id, result) in answers {
        let said = text(&result, 0);
        if is_write(id) {
            assert_eq!(said, format!("done {{\"n\": {id}}}"));
        } else {
            assert!(said.parse::<u64>().is_ok(), "{said}");
        }
    }
    drop(client);
    assert_eq!(home.effects().len() as i64, (last - first) / 40);
}

#[test]
fn every_byte_of_a_server_that_says_much_at_once_reaches_the_client() {
    let home = Home::new();
    // What it writes comes in pieces that end anywhere, with lines of all lengths, and the last has no end.
    let program = "import sys\nfor n in range(20000):\n  sys.stdout.write('{\"n\":%d,\"x\":\"%s\"}\\n' % (n, 'y' * (n % 700)))\n\
                   sys.stdout.write('{\"last\":1}')\n";
    let output = home.command(ONCELY).args(["mcp", "--", "python3", "-c", program]).output().unwrap();
    let direct = home.command("python3").args(["-c", program]).output().unwrap();
    assert!(output.stdout == direct.stdout, "{} bytes of {}", output.stdout.len(), direct.stdout.len());
    assert!(output.status.success());
}

#[test]
fn memory_does_not_grow_with_the_number_of_large_results() {
    let home = Home::new();
    let mut client = home.ready();
    let mut peak_after = |results: usize| {
        for _ in 0..results {
            assert_eq!(text(&client.call("big", json!({ "bytes": 10_000_000 })), 0).len(), 10_000_000);
        }
        peak(&client.child)
    };
    let few = peak_after(3);
    let many = peak_after(12);
    assert!(many < few + 12_000_000, "{few} bytes after 3 results of 10 MB, {many} after 15");
    // Less than one that keeps the message in a few copies would need.
    assert!(many < 120_000_000, "{many} bytes");
}

/// Two clients that send duplicates and do not read: one whose tools are known before, so that each is answered as it comes,
/// and one whose duplicates all wait for the list of tools and are then answered together.
#[test]
fn a_client_that_sends_duplicates_and_does_not_read_is_not_remembered_for_ever() {
    const DUPLICATES: i64 = 300;
    const BYTES: usize = 900_000;
    let home = Home::new();
    let mut first = home.ready();
    let arguments = json!({ "amount": 1, "bytes": BYTES, "idempotency_key": "one" });
    let result = first.call("pay", arguments.clone());
    assert!(text(&result, 0).len() > BYTES, "it is long: {} bytes", text(&result, 0).len());
    drop(first);
    // Longer than they need to be, so that a pipe holds only a few of them.
    let params = json!({ "name": "pay", "arguments": arguments, "_meta": { "padding": "x".repeat(4_000) } });
    let call = move |id: i64| {
        format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))
    };

    for asks_before in [true, false] {
        let mut command = home.command(ONCELY);
        command.args(["mcp", "--", "python3"]).arg(script()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        let mut from = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut receive = || -> Value { serde_json::from_str(&from.next().unwrap().unwrap()).unwrap() };
        if asks_before {
            to.write_all(call(0).as_bytes()).unwrap();
            assert_eq!(receive()["id"], 0);
        }
        let (sent, all_sent) = channel();
        let call = call.clone();
        let sending = std::thread::spawn(move || {
            (1..=DUPLICATES).for_each(|id| to.write_all(call(id).as_bytes()).unwrap());
            // Whoever was to hear it may have gone on.
            let _ = sent.send(());
            to
        });
        // One that takes everything takes it now; one that does not would keep us waiting for ever.
        let _ = all_sent.recv_timeout(Duration::from_secs(5));
        // The first of the answers shows that the tools are known; the others are being made, unless they are held back.
        let mut answered: Vec<i64> = Vec::new();
        for _ in 0..DUPLICATES {
            let answer = receive();
            assert_eq!(text(&answer["result"], 0), text(&result, 0));
            answered.push(answer["id"].as_i64().unwrap());
        }
        answered.sort_unstable();
        assert!(answered.into_iter().eq(1..=DUPLICATES), "each is answered once");
        let held = peak(&child);
        drop(sending.join().unwrap());
        assert!(child.wait().unwrap().success());
        // 16 MiB may wait, and the program has some tens of MB of its own; all of them are 270 MB.
        assert!(held < 100_000_000, "{held} bytes; asks before: {asks_before}");
    }
    assert_eq!(home.effects().len(), 1);
}

/// The most memory that a process has held so far, in bytes.
fn peak(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}
