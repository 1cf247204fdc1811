//! In a SQLite ledger, one record that cannot be read stops neither a purge nor a listing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::open;
use common::unreadable::{DAMAGED, fill, judge};

#[tokio::test]
async fn a_record_that_cannot_be_read_stops_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let store = open(&path);
    fill(&store).await;
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    for key in DAMAGED {
        let damaged = connection.execute("UPDATE record SET body = x'09' WHERE key = ?1", [key]).unwrap();
        assert_eq!(damaged, 1);
    }
    drop(connection);
    judge(&open(&path)).await;
}
