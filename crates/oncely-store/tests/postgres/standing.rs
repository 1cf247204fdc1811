//! Servers whose settings change under a living connection: what is past is not told, and what can be lost is not
//! acknowledged.

use std::sync::Arc;

use oncely_core::{Change, Created, Event, EventKind, Filter, Gate, LogQuery, Move, Store, StoreErrorKind};
use oncely_core::{Millis, StoreError, Wrote};
use oncely_store::PostgresStore;
use oncely_testkit::servers::Postgres;

use crate::common::id;
use crate::{claim, open, until, with};

/// Ledgers on a server, each with a connection that has been used.
async fn opened(server: &Postgres, settings: &str, count: usize) -> Vec<Arc<PostgresStore>> {
    let mut stores = Vec::new();
    for _ in 0..count {
        let store = open(&with(&server.url("postgres"), settings)).await;
        claim(&*store, "before").await.unwrap();
        // Prepared from its second use on.
        for _ in 0..3 {
            store.load(id("before")).await.unwrap();
        }
        stores.push(store);
    }
    stores
}

#[tokio::test]
async fn a_server_that_takes_no_writes_any_more_is_not_believed() {
    let server = Postgres::start().unwrap();
    let stores = opened(&server, "pool=1&wait=1", 5).await;
    server.set("default_transaction_read_only", "on").unwrap();
    for (store, error) in [
        (&stores[0], stores[0].load(id("before")).await.map(drop)),
        (&stores[1], stores[1].gate().await.map(drop)),
        (&stores[2], stores[2].scan(Filter::default(), 0, 10).await.map(drop)),
        (&stores[3], stores[3].log(LogQuery { limit: 10, ..LogQuery::default() }).await.map(drop)),
        (&stores[4], stores[4].now().await.map(drop)),
    ] {
        let error = error.unwrap_err();
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::ReadOnly, Wrote::No), "{error}");
        let again = store.load(id("before")).await.unwrap_err();
        assert_eq!(again.kind, StoreErrorKind::ReadOnly, "the session was not replaced: {again}");
    }
    server.set("default_transaction_read_only", "off").unwrap();
    until("it heals", async || matches!(stores[0].load(id("before")).await, Ok(Some(_)))).await;
}

fn closing() -> Gate {
    Gate::Closing(Move {
        id: [7; 16],
        run: 1,
        other: "elsewhere:".into(),
        shift_ms: 0,
        steady_since: Millis(0),
    })
}

#[tokio::test]
async fn nothing_is_acknowledged_once_commits_do_not_wait_for_the_disk() {
    let server = Postgres::start().unwrap();
    let stores = opened(&server, "pool=1", 4).await;
    let Created::New(made) = claim(&*stores[0], "to-remove").await.unwrap() else { panic!("it was there") };
    server.set("synchronous_commit", "off").unwrap();
    let refused = |what: &str, error: StoreError, wrote| {
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, wrote), "{what}: {error}");
        assert!(error.message.contains("synchronous_commit has been set to off"), "{what}: {error}");
    };
    let removed = stores[0].replace(id("to-remove"), made.record.version, Change::Remove, Vec::new()).await;
    refused("remove", removed.unwrap_err(), Wrote::Maybe);
    let events = vec![Event::new(id("before"), 1, EventKind::Superseded)];
    refused("note", stores[1].note(events).await.unwrap_err(), Wrote::Maybe);
    refused("turn", stores[2].turn_gate(Gate::Open, closing()).await.unwrap_err(), Wrote::Maybe);
    refused("load", stores[3].load(id("before")).await.unwrap_err(), Wrote::No);
}

#[tokio::test]
async fn a_standby_that_comes_later_is_waited_for_and_missed_when_it_goes() {
    let primary = Postgres::start().unwrap();
    let store = opened(&primary, "pool=1", 1).await.remove(0);
    let _standby = primary.standby().unwrap();
    assert!(matches!(claim(&*store, "answered").await.unwrap(), Created::New(_)), "this is no loss");
    assert!(matches!(claim(&*store, "judged-anew").await.unwrap(), Created::New(_)));
    assert_eq!(store.health().reconnects, 1);
    primary.set("synchronous_standby_names", "").unwrap();
    let error = claim(&*store, "alone").await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{error}");
    assert!(error.message.contains("stopped waiting for a standby"), "{error}");
}
