//! Whoever reads the log on from the last place that it was told misses nothing, however long a transaction stays open that has
//! drawn an earlier one; and is held up by none that came later.

use std::sync::Arc;

use oncely_core::{Change, Created, Event, EventKind, IntentId, LogQuery, Replaced, Store, Within as _};
use oncely_store::{PostgresStore, PostgresWithin};
use tokio_postgres::Transaction;

use crate::common::{LONG, draft, id, running, succeeded};
use crate::{claim, connect, database, open, server, until};

/// Reads on from where it was.
struct Follower {
    store: Arc<PostgresStore>,
    intent: Option<IntentId>,
    after: u64,
}

impl Follower {
    fn of(store: &Arc<PostgresStore>, intent: Option<IntentId>) -> Self {
        Self { store: Arc::clone(store), intent, after: 0 }
    }

    /// What was added: of which of these keys each event tells.
    async fn told<'a>(&mut self, keys: &[&'a str]) -> Vec<&'a str> {
        let query = LogQuery { after: self.after, intent: self.intent, limit: 100, newest: false };
        let page = self.store.log(query).await.unwrap();
        self.after = page.items.last().map_or(self.after, |logged| logged.seq);
        let key = |intent: IntentId| keys.iter().copied().find(|key| id(key) == intent).unwrap();
        page.items.iter().map(|logged| key(logged.event.intent)).collect()
    }
}

/// Claims a key in somebody's own transaction.
async fn claim_within(transaction: &Transaction<'_>, key: &str) -> Created {
    let events = vec![Event::new(id(key), 1, EventKind::Began)];
    let mut within = PostgresWithin::new(transaction, "oncely");
    within.create(id(key), draft(key, running(), LONG), events).await.unwrap()
}

const NOTHING: [&str; 0] = [];

#[tokio::test]
async fn what_a_long_transaction_wrote_is_told_when_it_ends_and_what_came_after_it_then() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    let keys = ["first", "early", "late", "later"];
    let mut follower = Follower::of(&store, None);
    claim(&*store, "first").await.unwrap();
    assert_eq!(follower.told(&keys).await, ["first"]);
    let mut client = connect(&address).await;
    let transaction = client.transaction().await.unwrap();
    claim_within(&transaction, "early").await;
    claim(&*store, "late").await.unwrap();
    assert_eq!(follower.told(&keys).await, NOTHING);
    claim(&*store, "later").await.unwrap();
    assert_eq!(follower.told(&keys).await, NOTHING);
    // Who asks for the newest sees what there is.
    let newest = LogQuery { limit: 10, newest: true, ..LogQuery::default() };
    assert_eq!(store.log(newest).await.unwrap().items.len(), 3);
    transaction.commit().await.unwrap();
    assert_eq!(follower.told(&keys).await, ["early", "late", "later"]);
}

#[tokio::test]
async fn a_place_that_stays_empty_is_passed_however_many_transactions_were_begun_since() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    let keys = ["undone", "a", "open", "b"];
    let mut follower = Follower::of(&store, None);
    let (mut one, mut other) = (connect(&address).await, connect(&address).await);
    let undone = one.transaction().await.unwrap();
    claim_within(&undone, "undone").await;
    claim(&*store, "a").await.unwrap();
    assert_eq!(follower.told(&keys).await, NOTHING);
    let open = other.transaction().await.unwrap();
    claim_within(&open, "open").await;
    claim(&*store, "b").await.unwrap();
    assert_eq!(follower.told(&keys).await, NOTHING);
    undone.rollback().await.unwrap();
    assert_eq!(follower.told(&keys).await, ["a"]);
    open.commit().await.unwrap();
    assert_eq!(follower.told(&keys).await, ["open", "b"]);
}

#[tokio::test]
async fn a_claim_that_waits_for_another_of_its_key_has_drawn_its_place_already() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    let keys = ["k", "meanwhile"];
    let mut follower = Follower::of(&store, None);
    let (mut one, mut other) = (connect(&address).await, connect(&address).await);
    let holds = one.transaction().await.unwrap();
    claim_within(&holds, "k").await;
    let waits = other.transaction().await.unwrap();
    let blocked = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'",
        database(&address)
    );
    let meanwhile = async {
        until("it waits", async || server().psql(&blocked).unwrap().trim() == "1").await;
        claim(&*store, "meanwhile").await.unwrap();
        holds.rollback().await.unwrap();
    };
    let (made, ()) = tokio::join!(claim_within(&waits, "k"), meanwhile);
    assert!(matches!(made, Created::New(_)));
    assert_eq!(follower.told(&keys).await, NOTHING);
    waits.commit().await.unwrap();
    assert_eq!(follower.told(&keys).await, ["k", "meanwhile"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_that_waited_for_its_record_is_not_missed_by_who_follows_that_record() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    // In the order in which rows are locked.
    let mut keys = ["k1", "k2"];
    keys.sort_by_key(|key| id(key).0);
    let [followed, held] = keys;
    for key in keys {
        claim(&*store, key).await.unwrap();
    }
    let mut follower = Follower::of(&store, Some(id(followed)));
    assert_eq!(follower.told(&keys).await, [followed]);
    let (mut one, mut other) = (connect(&address).await, connect(&address).await);
    let (ends, holds) = (one.transaction().await.unwrap(), other.transaction().await.unwrap());
    let lock = "SELECT FROM oncely.record WHERE key = $1 FOR UPDATE";
    assert_eq!(ends.query(lock, &[&followed]).await.unwrap().len(), 1);
    assert_eq!(holds.query(lock, &[&held]).await.unwrap().len(), 1);
    let number = async |transaction: &Transaction<'_>| -> String {
        let row = transaction.query_one("SELECT pg_backend_pid()", &[]).await.unwrap();
        row.get::<_, i32>(0).to_string()
    };
    let (first, second) = (number(&ends).await, number(&holds).await);
    // From here on within the time that a note waits for a record.
    let noting = {
        let store = Arc::clone(&store);
        let events = keys.map(|key| Event::new(id(key), 1, EventKind::Superseded)).to_vec();
        tokio::spawn(async move { store.note(events).await })
    };
    let waits_for = |transaction: &str| {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'oncely' \
             AND {transaction} = ANY(pg_blocking_pids(pid))",
            database(&address)
        );
        server().psql(&sql).unwrap().trim() == "1"
    };
    until("the note has drawn its place", async || waits_for(&first)).await;
    let seen = store.load(id(followed)).await.unwrap().unwrap().record;
    let change = Change::Put(Box::new(draft(followed, succeeded(""), LONG)));
    let events = vec![Event::new(id(followed), 1, EventKind::Succeeded)];
    let mut within = PostgresWithin::new(&ends, "oncely");
    let ended = within.replace(id(followed), seen.version, change, events).await.unwrap();
    assert!(matches!(ended, Replaced::Done(Some(_))));
    ends.commit().await.unwrap();
    until("the note waits for the other record", async || waits_for(&second)).await;
    assert_eq!(follower.told(&keys).await, NOTHING);
    holds.rollback().await.unwrap();
    noting.await.unwrap().unwrap();
    assert_eq!(follower.told(&keys).await, [followed, followed]);
}
