//! A purge of a SQLite ledger takes a bounded number of everything in each step.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{finish, open};
use rusqlite::Connection;

/// What one step is allowed to take.
const LIMIT: usize = 100;

#[tokio::test]
async fn a_step_drops_a_bounded_number_of_forgotten_trails_and_then_of_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let store = open(&path);
    for number in 0..3 {
        finish(&store, &format!("k{number}")).await;
    }
    let connection = Connection::open(&path).unwrap();
    // Old ones, and ten that are from a time to come. Some of the log cannot be read: it goes all the same.
    connection
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 260)
             INSERT INTO forgotten SELECT randomblob(16), iif(i > 250, 9000000000000000, i), x'' FROM n;
             UPDATE audit SET at = 1 WHERE seq < (SELECT max(seq) FROM audit);
             UPDATE audit SET events = 'text' WHERE seq = (SELECT min(seq) FROM audit);
             UPDATE audit SET events = x'ff' WHERE seq = (SELECT min(seq) + 1 FROM audit);",
        )
        .unwrap();
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let before = count("audit");
    assert!(before > 3);
    let mut steps = Vec::new();
    loop {
        let report = store.purge(LIMIT).await.unwrap();
        steps.push((count("forgotten"), count("audit")));
        if !report.more {
            break;
        }
    }
    assert_eq!(steps, [(160, before), (60, before), (10, 1)]);
}
