//! The tables, as a list of versioned steps.
//!
//! `record` holds one row per intent. `head` and `tail` are the two halves of its id; only the first is indexed, which
//! keeps the index half as large. `due` is 0 while running, 1 in doubt, else the time when something of it is due to be
//! dropped: one index serves the purge and the listing of open records. `key` is a text, or a digest where the key was
//! derived. `result` stands last, so that the columns before it are read without it.
//!
//! `audit` holds one row per commit, with all of its events packed. Its `seq` is the version of every record written
//! in that commit; the newest row is never removed, so that versions never restart. What a move brought has a row for each
//! time at which something had happened.

use rusqlite::Connection;

/// Marks the file as ours ("Oncl").
pub(crate) const APPLICATION_ID: i32 = 0x4f6e_636c;
/// The version that this program reads and writes.
pub(crate) const SCHEMA_VERSION: i32 = STEPS.len() as i32;

/// Step n leads from version n to version n + 1. A released step is never changed.
const STEPS: [&str; 2] = [
    "
CREATE TABLE record (
  id INTEGER PRIMARY KEY,
  head BLOB NOT NULL UNIQUE,
  tail BLOB NOT NULL,
  version INTEGER NOT NULL,
  state INTEGER NOT NULL,
  due INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  tool INTEGER NOT NULL,
  scope TEXT,
  key NOT NULL,
  trail BLOB NOT NULL,
  body BLOB NOT NULL,
  result BLOB
);
CREATE INDEX record_due ON record (due);
CREATE INDEX record_rejected ON record (state) WHERE state = 3;
CREATE TABLE tool (
  id INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  UNIQUE (namespace, name)
);
CREATE TABLE audit (
  seq INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  events BLOB NOT NULL
);
CREATE TABLE forgotten (
  head BLOB PRIMARY KEY,
  at INTEGER NOT NULL,
  trail BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE tally (
  tool INTEGER NOT NULL,
  counter INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (tool, counter)
) WITHOUT ROWID;
CREATE TABLE anchor (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  boot BLOB NOT NULL,
  boottime_ms INTEGER NOT NULL,
  ledger_ms INTEGER NOT NULL
);
CREATE TABLE barrier (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  count INTEGER NOT NULL
);
INSERT INTO barrier VALUES (1, 0);
",
    "
CREATE TABLE gate (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  phase INTEGER NOT NULL,
  id BLOB NOT NULL,
  run INTEGER NOT NULL,
  other TEXT NOT NULL,
  shift_ms INTEGER NOT NULL,
  steady_since INTEGER NOT NULL
);
",
];

/// Brings the tables from this version to the newest. To be called inside a write transaction.
pub(crate) fn migrate(connection: &Connection, from: i32) -> rusqlite::Result<()> {
    let done = usize::try_from(from).unwrap_or(0);
    for step in STEPS.iter().skip(done) {
        connection.execute_batch(step)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)
}

/// All steps as text, with the two numbers that mark the file.
pub(crate) fn sql() -> String {
    let mut sql = String::from("PRAGMA journal_mode = WAL;\nBEGIN IMMEDIATE;\n");
    for (version, step) in STEPS.iter().enumerate() {
        sql.push_str(&format!("-- version {}\n{}\n", version + 1, step.trim()));
    }
    sql.push_str(&format!(
        "PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {SCHEMA_VERSION};\nCOMMIT;\n"
    ));
    sql
}
