//! Load, peek, watch and the clock.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::{Millis, Record, Store, Version};

use super::sample::{create, draft, in_doubt, load, name, rejected, remove, replace, running, succeeded};
use super::{Broken, Ledger, Verdict, hold};

/// How long a change may take to be seen by a watch through another handle.
const NOTICE_WITHIN: Duration = Duration::from_secs(10);

pub(super) async fn nothing_is_read_where_nothing_is(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, _) = running("absent", 1)?;
    hold!(store.peek(&intent).is_none(), "peek shows a record in an empty ledger");
    hold!(store.load(intent).await?.is_none(), "load shows a record in an empty ledger");
    let page = store.scan(Default::default(), 0, 10).await?;
    hold!(page.items.is_empty() && page.next.is_none(), "an empty ledger lists something");
    hold!(store.tallies().await?.iter().all(|t| t.count == 0), "an empty ledger has counted something");
    hold!(!store.describe().is_empty(), "the ledger does not say what it is");
    Ok(())
}

pub(super) async fn time_never_runs_backwards(ledger: Ledger) -> Verdict {
    let stores = [Arc::clone(ledger.store()), ledger.other().await];
    let mut latest = Millis(0);
    for round in 0..20_usize {
        let store = &stores[round % 2];
        let (intent, draft) = running(&format!("time-{round}"), 1)?;
        let made = create(&**store, intent, draft).await?;
        let seen = [
            store.now().await?,
            store.load(intent).await?.map_or(latest, |s| s.now),
            store.scan(Default::default(), 0, 1).await?.now,
            store.log(oncely_core::LogQuery { limit: 1, ..Default::default() }).await?.now,
            store.now().await?,
        ];
        hold!(made.record.changed_at >= latest, "written at {:?} after {latest:?}", made.record.changed_at);
        latest = made.now.max(latest);
        for now in seen {
            hold!(now >= latest, "the clock went from {latest:?} back to {now:?}");
            latest = now;
        }
    }
    Ok(())
}

/// Watches until the version is another, as a waiter does. Removal counts as a change.
async fn wait_for_change(store: &dyn Store, seen: &Record) -> Result<Option<Arc<Record>>, Broken> {
    loop {
        store.watch(seen.intent, seen.version).await?;
        let found = store.load(seen.intent).await?.map(|s| s.record);
        if found.as_ref().is_none_or(|r| r.version != seen.version) {
            return Ok(found);
        }
        // A watch may return early; a store whose watch never suspends must still let the writer run.
        tokio::task::yield_now().await;
    }
}

pub(super) async fn a_watch_returns_after_a_change_by_another_handle(ledger: Ledger) -> Verdict {
    let (store, other) = (Arc::clone(ledger.store()), ledger.other().await);
    let (intent, draft) = running("watched", 1)?;
    let mut latest = create(&*store, intent, draft).await?.record;
    for round in 0..8 {
        let (watching, seen) = (Arc::clone(&store), Arc::clone(&latest));
        let watcher = tokio::spawn(async move { wait_for_change(&*watching, &seen).await });
        tokio::task::yield_now().await;
        if round == 7 {
            remove(&*other, &latest).await?;
        } else {
            let state = if round % 2 == 0 { in_doubt() } else { succeeded(Some(b"x")) };
            latest = replace(&*other, &latest, state).await?.record;
        }
        let seen = tokio::time::timeout(NOTICE_WITHIN, watcher)
            .await
            .map_err(|_| Broken(format!("a change was not noticed within {NOTICE_WITHIN:?}")))?
            .map_err(|e| Broken(format!("a watch panicked: {e}")))??;
        match (round, seen) {
            (7, None) => {}
            (_, Some(record)) if record == latest => {}
            (_, seen) => return Err(Broken(format!("after the change, the watcher read {seen:?}"))),
        }
    }
    Ok(())
}

async fn ends(what: &str, watch: oncely_core::StoreFuture<'_, ()>) -> Verdict {
    match tokio::time::timeout(NOTICE_WITHIN, watch).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Broken(format!("{what} did not return within {NOTICE_WITHIN:?}"))),
    }
}

pub(super) async fn a_watch_returns_at_once_when_the_version_is_old(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("already", 1)?;
    let made = create(&**store, intent, draft).await?.record;
    let ended = replace(&**store, &made, succeeded(None)).await?.record;
    // A hundred in a row: a watch that sleeps to its bound although the version is old would take far longer.
    let many = async {
        for _ in 0..100 {
            store.watch(intent, made.version).await?;
        }
        Ok(())
    };
    ends("a hundred watches from an old version", Box::pin(many)).await?;
    remove(&**store, &ended).await?;
    ends("a watch of a removed record", store.watch(intent, ended.version)).await
}

pub(super) async fn a_watch_ends_by_itself(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("quiet", 1)?;
    let made = create(&**store, intent, draft).await?.record;
    ends("a watch of a record that does not change", store.watch(intent, made.version)).await?;
    let (absent, _) = running("absent", 1)?;
    ends("a watch of nothing", store.watch(absent, Version(0))).await
}

pub(super) async fn a_peek_is_never_older_than_what_was_acknowledged(ledger: Ledger) -> Verdict {
    let stores = [Arc::clone(ledger.store()), ledger.other().await];
    let (intent, draft) = running("peeked", 1)?;
    let mut latest = create(&*stores[0], intent, draft.clone()).await?.record;
    let states = [succeeded(Some(b"one")), rejected(), succeeded(None), in_doubt(), succeeded(Some(b"two"))];
    for (round, state) in states.iter().cycle().take(20).enumerate() {
        latest = replace(&*stores[round % 2], &latest, state.clone()).await?.record;
        for store in &stores {
            // Peeked before and after a load: a load is what fills caches.
            for _ in 0..2 {
                if let Some(peeked) = store.peek(&intent) {
                    let (old, new) = (peeked.record.version, latest.version);
                    hold!(
                        peeked.record == latest,
                        "round {round}: peek shows {old:?}, acknowledged is {new:?}"
                    );
                }
                load(&**store, intent).await?;
            }
        }
    }
    remove(&*stores[0], &latest).await?;
    for store in &stores {
        hold!(store.peek(&intent).is_none(), "peek shows a removed record");
    }
    let again = create(&*stores[1], intent, draft).await?.record;
    for store in &stores {
        let peeked = store.peek(&intent);
        hold!(peeked.is_none_or(|p| p.record == again), "peek shows the record from before the removal");
    }
    Ok(())
}

pub(super) async fn a_peek_shows_only_ended_records(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    for (key, state) in [("doubt", in_doubt()), ("done", succeeded(Some(b"x"))), ("refused", rejected())] {
        let name = name("default", "", "peek", key)?;
        let intent = name.intent_id();
        create(&**store, intent, draft(name, 1, state)).await?;
        load(&**store, intent).await?;
        if let Some(peeked) = store.peek(&intent) {
            hold!(peeked.record.body.state.has_ended(), "peek shows a record that is not ended: {key}");
            hold!(peeked.record.intent == intent, "peek shows another intent's record");
            hold!(peeked.now >= peeked.record.changed_at, "peek's clock is behind the record");
        }
    }
    Ok(())
}
