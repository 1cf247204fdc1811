//! Connections that are lost, servers that die, are slow, or stop waiting for their standby: an answer always says
//! whether something may have been written, and the ledger heals by itself.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::{Change, Created, Replaced, Store, StoreErrorKind, Within, Wrote};
use oncely_store::{PostgresStore, PostgresWithin};
use oncely_testkit::servers::{Postgres, Tap};

use crate::common::{LONG, draft, id, running, succeeded};
use crate::{claim, connect, database, open, server, until, with};

#[tokio::test]
async fn an_answer_that_is_lost_leaves_a_maybe_and_the_record() {
    let address = server().fresh_database().unwrap();
    let tap = Tap::to_port(server().port()).unwrap();
    // One connection: what a second one is greeted with would be cut instead of the answer.
    let store = open(&with(&server().url_through(tap.port(), database(&address)), "pool=1")).await;
    claim(&*store, "before").await.unwrap();
    tap.cut_after_answered(0);
    let error = claim(&*store, "lost").await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::Maybe), "{error}");
    assert!(error.message.contains("it is not known whether the write took place"), "{error}");
    tap.pass();
    // It was written: whoever looks finds its own token.
    let found = store.load(id("lost")).await.unwrap().unwrap();
    assert_eq!(found.record.body.token, draft("lost", succeeded(""), LONG).body.token);
    assert!(matches!(claim(&*store, "after").await.unwrap(), Created::New(_)));
}

#[tokio::test]
async fn a_request_waits_for_a_server_that_comes_back() {
    let server = Postgres::start().unwrap();
    // However long a busy machine takes to start it again.
    let store = open(&with(&server.url("postgres"), "wait=180")).await;
    claim(&*store, "before").await.unwrap();
    server.kill().unwrap();
    let waiting = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            // A connection that was not yet known to be gone may still be tried: then it is a maybe.
            match claim(&*store, "meanwhile").await {
                Err(error) if error.wrote == Wrote::Maybe => claim(&*store, "meanwhile").await,
                other => other,
            }
        })
    };
    server.start_again().unwrap();
    assert!(matches!(waiting.await.unwrap().unwrap(), Created::New(_)));
    assert!(store.load(id("before")).await.unwrap().is_some(), "what was acknowledged is there");
    assert!(store.health().reconnects > 0);
}

#[tokio::test]
async fn a_request_does_not_wait_for_ever() {
    let server = Postgres::start().unwrap();
    let store = open(&with(&server.url("postgres"), "wait=1")).await;
    claim(&*store, "before").await.unwrap();
    server.stop().unwrap();
    until("the lost connection is known", async || {
        store.health().connected == 0 || {
            let _ = claim(&*store, "probe").await;
            false
        }
    })
    .await;
    let error = claim(&*store, "never").await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No), "{error}");
    assert!(error.message.contains("cannot be reached"), "{error}");
    assert!(error.message.contains("nothing was written"), "{error}");
    server.start_again().unwrap();
    until("it heals", async || claim(&*store, "healed").await.is_ok()).await;
    assert!(store.load(id("never")).await.unwrap().is_none());
}

#[tokio::test]
async fn an_end_that_was_handed_in_survives_its_caller_and_a_restart() {
    let server = Postgres::start().unwrap();
    let store = open(&server.url("postgres")).await;
    let Created::New(made) = claim(&*store, "k").await.unwrap() else { panic!("it was there") };
    server.restart().unwrap();
    let change = || Change::Put(Box::new(draft("k", succeeded("done"), LONG)));
    drop(store.replace(id("k"), made.record.version, change(), Vec::new()));
    store.flush().await.unwrap();
    // The first try may have met the old connection; an engine tries again.
    let again = store.replace(id("k"), made.record.version, change(), Vec::new()).await.unwrap();
    let (Replaced::Done(Some(there)) | Replaced::Stale(Some(there))) = again else { panic!("it is gone") };
    assert_eq!(there.record.body.state, succeeded("done"));
}

#[tokio::test]
async fn a_slow_server_is_waited_for() {
    let address = server().fresh_database().unwrap();
    let tap = Tap::to_port(server().port()).unwrap();
    let store = open(&server().url_through(tap.port(), database(&address))).await;
    tap.delay(Duration::from_millis(300));
    assert!(matches!(claim(&*store, "slow").await.unwrap(), Created::New(_)));
    tap.pass();
    assert_eq!(store.health().reconnects, 0);
}

/// From now on every commit waits for a standby that does not exist. One process of the server tells the others so, and it may
/// be late: it is tried out, and whoever waits then is let go.
async fn wait_for_nobody(server: &Postgres) {
    server.set("synchronous_standby_names", "nobody").unwrap();
    let writes = "COMMENT ON SCHEMA public IS 'written'";
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("commits wait", async || {
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| server.psql(writes));
            let mut waited = false;
            while !commit.is_finished() {
                waited |= server.psql(cancel).unwrap().trim() != "0";
            }
            commit.join().unwrap().unwrap();
            waited
        })
    })
    .await;
}

#[tokio::test]
async fn a_commit_that_stopped_waiting_for_its_standby_is_a_maybe() {
    let server = Postgres::start().unwrap();
    let store = open(&server.url("postgres")).await;
    claim(&*store, "before").await.unwrap();
    wait_for_nobody(&server).await;
    let claiming = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { claim(&*store, "unreplicated").await })
    };
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("the commit waits, and is cancelled", async || server.psql(cancel).unwrap().trim() != "0").await;
    let error = claiming.await.unwrap().unwrap_err();
    assert_eq!(error.wrote, Wrote::Maybe, "{error}");
    assert!(error.message.contains("it warned"), "{error}");
}

#[tokio::test]
async fn a_session_that_the_server_ends_is_replaced() {
    let address = server().fresh_database().unwrap();
    let store = open(&address).await;
    claim(&*store, "before").await.unwrap();
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()",
        database(&address)
    );
    assert_ne!(server().psql(&end).unwrap().trim(), "0");
    until("it heals", async || {
        matches!(claim(&*store, "after").await, Ok(Created::New(_) | Created::Exists(_)))
    })
    .await;
}

#[tokio::test]
async fn after_a_change_of_roles_the_new_primary_is_found_and_the_old_one_is_past() {
    let primary = Postgres::start().unwrap();
    let standby = primary.standby().unwrap();
    let (first, second) = (primary.port(), standby.port());
    let address = format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres");
    // The one that takes over has no standby of its own for a while.
    let address = with(&address, "durability=best-effort");
    // With several servers in the address a ledger is not made by itself.
    drop(open(&primary.url("postgres")).await);
    let store = open(&address).await;
    assert!(matches!(claim(&*store, "before").await.unwrap(), Created::New(_)));
    primary.kill().unwrap();
    standby.set("synchronous_standby_names", "").unwrap();
    standby.promote().unwrap();
    until("the other one takes writes", async || {
        matches!(claim(&*store, "after").await, Ok(Created::New(_) | Created::Exists(_)))
    })
    .await;
    assert!(store.load(id("before")).await.unwrap().is_some(), "what was acknowledged is there");
    // The old one comes back and calls itself primary; it is named first, and does not know the second key.
    primary.start_again().unwrap();
    primary.set("synchronous_standby_names", "").unwrap();
    let fresh = open(&address).await;
    for store in [&fresh, &store] {
        assert!(matches!(claim(&**store, "after").await.unwrap(), Created::Exists(_)));
    }
}

#[tokio::test]
async fn several_servers_without_a_synchronous_standby_are_refused() {
    let server = Postgres::start().unwrap();
    let address = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:1/postgres", server.port());
    let error = crate::refusal(&address).await;
    assert!(error.message.contains("set synchronous_standby_names"), "{error}");
}

/// A ledger whose commits wait for a standby that does not exist.
async fn waiting_for_nobody(server: &Postgres, settings: &str) -> Arc<PostgresStore> {
    // Made while nothing is waited for.
    drop(open(&server.url("postgres")).await);
    wait_for_nobody(server).await;
    open(&with(&server.url("postgres"), settings)).await
}

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

#[tokio::test]
async fn commits_that_are_let_go_when_the_list_of_standbys_is_emptied_are_a_maybe() {
    let server = Postgres::start().unwrap();
    let store = waiting_for_nobody(&server, "pool=1").await;
    let claiming = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { claim(&*store, "let-go").await })
    };
    until("the commit waits", async || server.psql(WAITING).unwrap().trim() == "1").await;
    server.set("synchronous_standby_names", "").unwrap();
    let error = claiming.await.unwrap().unwrap_err();
    assert_eq!(error.wrote, Wrote::Maybe, "{error}");
    assert!(error.message.contains("stopped waiting for a standby"), "{error}");
    // Judged anew, as a server without standbys.
    assert!(matches!(claim(&*store, "afterwards").await.unwrap(), Created::New(_)));
}

#[tokio::test]
async fn a_setting_that_is_weakened_under_a_living_connection_is_noticed() {
    let server = Postgres::start().unwrap();
    let store = open(&server.url("postgres")).await;
    claim(&*store, "before").await.unwrap();
    server.set("synchronous_commit", "off").unwrap();
    until("the setting is there", async || server.psql("SHOW synchronous_commit").unwrap().trim() == "off")
        .await;
    let error = claim(&*store, "unsafe").await.unwrap_err();
    assert!(error.message.contains("synchronous_commit"), "{error}");
    until("it is refused", async || {
        matches!(claim(&*store, "refused").await, Err(error) if error.kind == StoreErrorKind::Unsuitable)
    })
    .await;
    server.set("synchronous_commit", "on").unwrap();
    until("it heals", async || claim(&*store, "healed").await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_is_not_given_ever_more_connections() {
    let server = Postgres::start().unwrap();
    let store = waiting_for_nobody(&server, "pool=2&wait=3").await;
    // For longer than an answer is awaited.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(26);
    let mut callers = Vec::new();
    for number in 0..6 {
        let store = Arc::clone(&store);
        callers.push(tokio::spawn(async move {
            while tokio::time::Instant::now() < deadline {
                assert!(claim(&*store, &format!("k{number}")).await.is_err());
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oncely'";
    let ours = server.psql(ours).unwrap();
    assert!(["2", "3"].contains(&ours.trim()), "{ours}: two, and perhaps the one that looks around");
}

/// Has the ledger open a second connection: the first is busy with a key that somebody holds. Both are idle then.
async fn open_a_second(store: &Arc<PostgresStore>, address: &str) {
    let mut client = connect(address).await;
    let transaction = client.transaction().await.unwrap();
    let mut within = PostgresWithin::new(&transaction, "oncely");
    within.create(id("held"), draft("held", running(), LONG), Vec::new()).await.unwrap();
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'",
        database(address)
    );
    until("there are two connections", async || {
        let holding = Arc::clone(store);
        let waiting = tokio::spawn(async move { claim(&*holding, "held").await });
        until("it waits, or has given up", async || {
            waiting.is_finished() || server().psql(&waits).unwrap().trim() == "1"
        })
        .await;
        claim(&**store, "free").await.unwrap();
        assert!(waiting.await.unwrap().is_err(), "a key that is held was claimed");
        store.health().connected == 2
    })
    .await;
    transaction.rollback().await.unwrap();
}

/// Loses the connection that is asked next, while new ones are not answered; what a caller is told then.
async fn ask_the_lost_one(round: usize) -> Result<Created, oncely_core::StoreError> {
    let address = server().fresh_database().unwrap();
    let tap = Tap::to_port(server().port()).unwrap();
    let through = server().url_through(tap.port(), database(&address));
    let store = open(&with(&through, "pool=2&wait=20&connect_timeout=60")).await;
    open_a_second(&store, &address).await;
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    tap.point_at(silent.local_addr().unwrap());
    let lose = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'oncely'
         ORDER BY state_change DESC LIMIT 1",
        database(&address)
    );
    assert_eq!(server().psql(&lose).unwrap().trim(), "t");
    until("it is lost", async || tap.connections() == 1).await;
    claim(&*store, &format!("k{round}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_connection_was_to_do_is_done_by_an_idle_one() {
    // To connect again takes longer than a request may wait. Whoever wakes the idle one, it is woken in time.
    for round in 0..20 {
        match ask_the_lost_one(round).await {
            Ok(created) => return assert!(matches!(created, Created::New(_))),
            // It was not yet known to be lost, and was used.
            Err(error) => assert_eq!(error.wrote, Wrote::Maybe, "{error}"),
        }
    }
    panic!("it was used every time");
}
