//! A home of its own for each test, and an outside reader that counts effects in the program's database.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and not every test uses all of it"
)]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rusqlite::Connection;
use serde_json::Value;

pub const ORDERS: &str = env!("CARGO_BIN_EXE_orders");

/// Commands that change something, and how their effects are counted from outside.
pub const MUTATING: [(&[&str], &str); 4] = [
    (&["create-order", "--customer", "cust_1", "--amount", "9999"], "SELECT count(*) FROM orders"),
    (&["send-email", "--to", "a@example.com", "--subject", "Hello"], "SELECT count(*) FROM emails"),
    (&["increment-counter", "--name", "visits"], "SELECT coalesce(sum(by), 0) FROM increments"),
    (&["deploy", "--service", "web", "--release", "v2"], "SELECT coalesce(sum(times), 0) FROM deployments"),
];

/// What the program answered.
#[derive(Debug)]
pub struct Told {
    pub exit: i32,
    pub envelope: Value,
}

impl Told {
    pub fn effect(&self) -> &str {
        self.envelope["effect"].as_str().unwrap_or("null")
    }
}

/// A directory with a database and a ledger.
pub struct Home {
    pub directory: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn database(&self) -> PathBuf {
        self.directory.path().join("orders.db")
    }

    pub fn ledger(&self) -> PathBuf {
        self.directory.path().join(".local/state/oncely/orders.db")
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ORDERS);
        command
            .args(words)
            .current_dir(self.directory.path())
            .env_clear()
            .env("HOME", self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, words: &[&str]) -> Told {
        told(self.command(words).output().unwrap())
    }

    pub fn keyed(&self, words: &[&str], key: &str) -> Told {
        self.run(&[words, &["--idempotency-key", key]].concat())
    }

    pub fn start(&self, words: &[&str], key: &str) -> Child {
        self.command(&[words, &["--idempotency-key", key]].concat()).spawn().unwrap()
    }

    /// Counts effects, from outside.
    pub fn count(&self, select: &str) -> i64 {
        let connection = Connection::open(self.database()).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
        connection.query_row(select, [], |row| row.get(0)).unwrap()
    }

    /// Makes the database with all its tables, and a ledger.
    pub fn warm_up(&self) {
        let told = self.keyed(&["cancel-order", "--id", "0", "--confirm"], "warm-up");
        assert_eq!((told.exit, told.effect()), (0, "noop"), "{told:?}");
    }
}

/// Reads the one line of JSON that a program prints for programs.
pub fn told(output: Output) -> Told {
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "one line of JSON: {text:?} {said:?}");
    Told { exit: output.status.code().unwrap_or(-1), envelope: serde_json::from_str(&text).unwrap() }
}
