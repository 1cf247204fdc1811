//! In a SQLite ledger, one record that cannot be read stops neither a purge nor a listing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;

use common::unreadable::{DAMAGED, STATE_AT, fill, judge, list, purge, refuse_whoever_wants_it};
use common::{begin, complete, id, open};
use oncely_core::{Filter, LogQuery, Namespace, StateName};
use rusqlite::Connection;

/// A ledger with records of which two are damaged like this.
async fn damaged(path: &Path, damage: impl Fn(&Connection, &str)) {
    let store = open(path);
    fill(&store).await;
    drop(store);
    let connection = Connection::open(path).unwrap();
    for key in DAMAGED {
        damage(&connection, key);
    }
}

fn set(column: &'static str) -> impl Fn(&Connection, &str) {
    move |connection, key| {
        let sql = format!("UPDATE record SET {column} WHERE key = ?1");
        assert_eq!(connection.execute(&sql, [key]).unwrap(), 1);
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_stops_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    damaged(&path, set("body = x'09'")).await;
    judge(&open(&path), StateName::Succeeded).await;
}

#[tokio::test]
async fn a_state_that_only_a_newer_version_knows_stops_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    damaged(&path, |connection, key| {
        let sql = "SELECT body FROM record WHERE key = ?1";
        let mut body: Vec<u8> = connection.query_row(sql, [key], |row| row.get(0)).unwrap();
        let token = body.windows(16).position(|bytes| bytes == [9; 16]).unwrap();
        let at = token + STATE_AT[usize::from(key == DAMAGED[1])];
        assert!((1..=4).contains(&body[at]), "{body:?}");
        body[at] = 5;
        let sql = "UPDATE record SET body = ?1, state = 5 WHERE key = ?2";
        assert_eq!(connection.execute(sql, (body, key)).unwrap(), 1);
    })
    .await;
    judge(&open(&path), StateName::Running).await;
}

/// Whatever lies in a column: the record is told of under its own id, and the others are listed and purged.
#[tokio::test]
async fn a_column_of_another_type_or_length_stops_no_other() {
    for column in [
        "tail = x'0102'",
        "tail = 'text'",
        "version = 'text'",
        "version = -1",
        "state = 'text'",
        "changed_at = 'text'",
        "changed_at = x''",
        "scope = x'ff'",
        "tool = 77",
        "tool = 'text'",
        "body = 7",
        "result = 7.5",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        damaged(&path, set(column)).await;
        let store = open(&path);
        // A state of another type beside a body that is whole harms nobody.
        let is_readable = column.starts_with("state");
        if !is_readable {
            refuse_whoever_wants_it(&store).await;
        }
        let purged = purge(&store).await;
        let expected = match column {
            _ if is_readable => (4, 0),
            // What has no version is never known to be older than the purge.
            "version = 'text'" => (3, 0),
            _ => (3, 1),
        };
        assert_eq!((purged.records_removed, purged.unreadable), expected, "{column}");
        let everything = Filter::default();
        let of_a_namespace = Filter { namespace: Some(Namespace::default()), ..Filter::default() };
        for filter in [everything, of_a_namespace] {
            let (keys, unreadable) = list(&store, filter, 2).await;
            let ids: Vec<_> = unreadable.iter().map(|found| found.intent).collect();
            if is_readable {
                assert_eq!((&*keys, &*ids), (&["running".to_owned(), "kept".to_owned()][..], &[][..]));
            } else {
                assert_eq!(
                    (keys, ids),
                    (vec!["kept".to_owned()], vec![id("due-0"), id("running")]),
                    "{column}"
                );
            }
        }
    }
}

/// The half of an id by which records are found: whoever looks for that record finds none, but it is listed.
#[tokio::test]
async fn an_id_of_another_length_is_listed_under_the_id_that_its_name_makes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    damaged(&path, |connection, key| {
        let sql = "UPDATE record SET head = substr(head, 1, 15) WHERE key = ?1";
        assert_eq!(connection.execute(sql, [key]).unwrap(), 1);
    })
    .await;
    let store = open(&path);
    let purged = purge(&store).await;
    assert_eq!((purged.records_removed, purged.unreadable), (3, 1));
    let (keys, unreadable) = list(&store, Filter::default(), 100).await;
    let ids: Vec<_> = unreadable.iter().map(|found| found.intent).collect();
    assert_eq!((keys, ids), (vec!["kept".to_owned()], vec![id("due-0"), id("running")]));
}

#[tokio::test]
async fn a_trail_that_cannot_be_read_keeps_no_end_from_being_recorded() {
    for trail in ["x'80'", "'text'"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        let store = open(&path);
        let begun = begin(&store, "k").await;
        let connection = Connection::open(&path).unwrap();
        connection.execute(&format!("UPDATE record SET trail = {trail}"), []).unwrap();
        drop(connection);
        let query = LogQuery { intent: Some(id("k")), limit: 10, ..LogQuery::default() };
        store.log(query.clone()).await.unwrap();
        let ended = complete(&store, "k", begun.record.version, common::LONG).await;
        assert_eq!(store.log(query).await.unwrap().items.len(), 1, "the end is found");
        common::forget(&store, "k", ended.record.version).await;
    }
}
