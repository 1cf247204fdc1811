//! A purge takes a bounded number of everything, and what it has to clean up is found without reading whole tables. What is left
//! to vacuum is little, and seen to early.

use oncely_core::{Change, Created, Replaced, Store};
use oncely_testkit::servers::Postgres;

use crate::common::{LONG, draft, running};
use crate::{claim, database, open, server, until, with};

/// What one step is allowed to take.
const LIMIT: usize = 100;

#[tokio::test]
async fn a_step_drops_a_bounded_number_of_forgotten_trails_and_of_waiters() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    let ask = |sql: &str| server().psql_in(database(&address), sql).unwrap().trim().to_owned();
    for table in ["forgotten (head, at, trail)", "waiting (head, until)"] {
        let trail = if table.starts_with('f') { ", ''::bytea" } else { "" };
        // Old ones, and ten that are from a time to come.
        ask(&format!(
            "INSERT INTO oncely.{table} SELECT md5(n::text)::uuid, CASE WHEN n > 250 THEN 9000000000000000 ELSE n END{trail} \
             FROM generate_series(1, 260) n"
        ));
    }
    let left = || {
        let count =
            |table: &str| ask(&format!("SELECT count(*) FROM oncely.{table}")).parse::<u64>().unwrap();
        (count("forgotten"), count("waiting"))
    };
    let mut steps = Vec::new();
    loop {
        let report = store.purge(LIMIT).await.unwrap();
        steps.push(left());
        if !report.more {
            break;
        }
    }
    assert_eq!(steps, [(160, 160), (60, 60), (10, 10)]);
}

#[tokio::test]
async fn what_goes_by_its_age_is_found_by_an_index() {
    let address = server().fresh_database().unwrap();
    open(&address).await;
    let ask = |sql: &str| server().psql_in(database(&address), sql).unwrap();
    for (table, column, index) in [("forgotten", "at", "forgotten_at"), ("waiting", "until", "waiting_until")]
    {
        let plan = ask(&format!(
            "SET enable_seqscan = off; EXPLAIN SELECT head FROM oncely.{table} WHERE {column} < 7 ORDER BY {column} LIMIT 5"
        ));
        assert!(plan.contains(index) && !plan.contains("Sort"), "{plan}");
    }
}

/// A ledger is written all the time: its tables are vacuumed long before the server's own settings would have it.
#[tokio::test]
async fn the_tables_ask_to_be_vacuumed_early_and_never_to_be_cut_short() {
    let address = server().fresh_database().unwrap();
    open(&address).await;
    let options = |table: &str| {
        let sql = format!(
            "SELECT array_to_string(reloptions, ' ') FROM pg_class WHERE oid = 'oncely.{table}'::regclass"
        );
        server().psql_in(database(&address), &sql).unwrap()
    };
    let (record, audit) = (options("record"), options("audit"));
    for both in
        ["autovacuum_vacuum_scale_factor=0.02", "autovacuum_vacuum_threshold=5000", "vacuum_truncate=off"]
    {
        assert!(record.contains(both) && audit.contains(both), "{both}: {record}, {audit}");
    }
    for of_records in ["fillfactor=100", "autovacuum_analyze_scale_factor=0.05"] {
        assert!(record.contains(of_records), "{of_records}: {record}");
    }
}

/// A heartbeat changes no index, and finds the room that one before it has left: nothing grows while attempts are under way. On a
/// server of its own: a transaction that is open somewhere on a server keeps all of it from making room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_of_long_attempts_are_written_in_place() {
    const ATTEMPTS: usize = 100;
    const BEATS: usize = 20;
    let server = Postgres::builder().setting("autovacuum", "off").setting("fsync", "off").start().unwrap();
    let store = open(&with(&server.url("postgres"), "pool=1&durability=best-effort")).await;
    let mut begun = Vec::new();
    for number in 0..ATTEMPTS {
        let Created::New(new) = claim(&*store, &format!("k{number}")).await.unwrap() else {
            panic!("it was there")
        };
        begun.push(new.record);
    }
    for _ in 0..BEATS {
        for record in &mut begun {
            let beat = Change::Put(Box::new(draft(record.body.name.key.as_str(), running(), LONG)));
            let beaten = store.replace(record.intent, record.version, beat, Vec::new()).await.unwrap();
            let Replaced::Done(Some(done)) = beaten else { panic!("{beaten:?}") };
            *record = done.record;
        }
    }
    drop(store);
    let count = "SELECT n_tup_upd || ' ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'record'";
    let updates = async || {
        let counts = server.psql(count).unwrap();
        let (all, in_place) = counts.trim().split_once(' ').unwrap();
        (all.parse::<usize>().unwrap(), in_place.parse::<usize>().unwrap())
    };
    until("the server has counted them", async || updates().await.0 >= ATTEMPTS * BEATS).await;
    let (all, in_place) = updates().await;
    assert!(in_place * 10 >= all * 9, "{in_place} of {all}");
}
