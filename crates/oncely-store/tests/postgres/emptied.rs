//! A ledger that was empty when the server last counted its rows. From then until it counts again, its plans are made for hardly
//! any rows, however many come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use oncely_core::{Change, Created, Replaced, Store, Version};
use oncely_store::postgres::PostgresStore;
use oncely_testkit::servers::Postgres;

use crate::common::{LONG, draft, id, succeeded};
use crate::{claim, open, until, with};

/// Enough that to read all of the index for each statement is far more than to look each record up.
const RECORDS: usize = 2_000;
/// As many at a time as share a few statements.
const CALLERS: usize = 256;

/// Entries of the index that were read so far.
const READ: &str =
    "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE indexrelname = 'record_pkey'";

/// Begins calls, ends them and loads what became of them, one after the other.
async fn call(store: Arc<PostgresStore>, keys: Arc<Mutex<VecDeque<String>>>) {
    loop {
        let Some(key) = keys.lock().unwrap().pop_front() else { return };
        let Created::New(begun) = claim(&*store, &key).await.unwrap() else { panic!("{key} was there") };
        let end = Change::Put(Box::new(draft(&key, succeeded(&key), LONG)));
        let ended = store.replace(id(&key), begun.record.version, end, Vec::new()).await.unwrap();
        assert!(matches!(ended, Replaced::Done(Some(_))), "{ended:?}");
        assert!(store.load(id(&key)).await.unwrap().is_some_and(|there| there.record.version > Version(0)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_was_counted_while_empty_still_looks_its_records_up_one_by_one() {
    let server = Postgres::builder().setting("autovacuum", "off").setting("fsync", "off").start().unwrap();
    let address = with(&server.url("postgres"), "durability=best-effort");
    let ask = |sql: &str| server.psql(sql).unwrap().trim().to_owned();
    drop(open(&address).await);
    // Pages remain, and no rows: as a purge leaves it that has dropped all.
    ask("VACUUM ANALYZE oncely.record");
    assert_eq!(
        ask("SELECT reltuples || ' ' || (relpages > 100) FROM pg_class WHERE relname = 'record'"),
        "0 true"
    );
    // Once more with few rows: the plan for one is made otherwise than the plan for none.
    let mut before = 0;
    for round in ["empty", "few"] {
        let store = open(&with(&address, "pool=2")).await;
        let keys = Arc::new(Mutex::new((0..RECORDS).map(|number| format!("{round}-{number}")).collect()));
        let callers = (0..CALLERS).map(|_| tokio::spawn(call(Arc::clone(&store), Arc::clone(&keys))));
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        // Its connections tell what they have read at the latest when they end.
        drop(store);
        let gone = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND backend_type = 'client backend'";
        until("only the one who asks is connected", async || ask(gone) == "1").await;
        let all: usize = ask(READ).parse().unwrap();
        let of_each = (all - before) / RECORDS;
        before = all;
        // Its end and its load find it, some of them also by its version before.
        assert!(
            (2..12).contains(&of_each),
            "{round}: {of_each} entries of the index were read for each record"
        );
        ask("DELETE FROM oncely.record WHERE id NOT IN (SELECT id FROM oncely.record LIMIT 3)");
        ask("VACUUM ANALYZE oncely.record");
    }
}
