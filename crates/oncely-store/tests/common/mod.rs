//! What the tests of this crate share: sample records, and short words for what is done with them.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod unreadable;

use std::path::Path;
use std::sync::Arc;

use oncely_core::{
    AttemptToken, Body, Change, Created, Digest, Draft, Effect, Event, EventKind, Fingerprint, IntentId,
    IntentName, Key, Namespace, Owner, Replaced, Retention, Scope, Settled, Stamp, State, Store, StoreError,
    Stored, ToolName, Version,
};
use oncely_store::{SqliteOptions, SqliteStore};

pub(crate) const LONG: Retention = Retention { replay_for_ms: 86_400_000, remember_for_ms: 10 * 86_400_000 };
pub(crate) const NOTHING_KEPT: Retention = Retention { replay_for_ms: 0, remember_for_ms: 0 };

pub(crate) fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(SqliteOptions::new(path)).unwrap())
}

pub(crate) fn refused(path: &Path) -> StoreError {
    match SqliteStore::open(SqliteOptions::new(path)) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

pub(crate) fn name(key: &str) -> IntentName {
    IntentName {
        namespace: Namespace::default(),
        scope: Scope::none(),
        tool: ToolName::parse("charge").unwrap(),
        key: Key::explicit(key).unwrap(),
    }
}

pub(crate) fn id(key: &str) -> IntentId {
    name(key).intent_id()
}

pub(crate) fn draft(key: &str, state: State, retention: Retention) -> Draft {
    let fingerprint = Fingerprint { canonical: Digest([1; 32]), raw: Digest([2; 32]) };
    let body = Body {
        name: name(key),
        fingerprint,
        generation: 1,
        attempts: 1,
        tries: 1,
        rejections: 0,
        token: AttemptToken([9; 16]),
        retention,
        state,
    };
    Draft { created: Stamp::OnWrite, sent: Stamp::OnWrite, changed: Stamp::OnWrite, body }
}

pub(crate) fn running() -> State {
    State::Running { owner: Owner::default(), lease_ms: 30_000 }
}

pub(crate) fn succeeded(result: &str) -> State {
    State::Succeeded {
        effect: Effect::Created,
        result: Some(result.as_bytes().into()),
        settled: Settled::Attempt,
    }
}

pub(crate) async fn begin(store: &Arc<dyn Store>, key: &str) -> Stored {
    let events = vec![Event::new(id(key), 1, EventKind::Began)];
    match store.create(id(key), draft(key, running(), LONG), events).await.unwrap() {
        Created::New(stored) => stored,
        Created::Exists(_) => panic!("{key} was there"),
    }
}

pub(crate) async fn complete(
    store: &Arc<dyn Store>,
    key: &str,
    from: Version,
    retention: Retention,
) -> Stored {
    let change = Change::Put(Box::new(draft(key, succeeded(key), retention)));
    let events = vec![Event::new(id(key), 1, EventKind::Succeeded)];
    match store.replace(id(key), from, change, events).await.unwrap() {
        Replaced::Done(Some(stored)) => stored,
        other => panic!("{key}: {other:?}"),
    }
}

pub(crate) async fn finish(store: &Arc<dyn Store>, key: &str) -> Stored {
    let begun = begin(store, key).await;
    complete(store, key, begun.record.version, LONG).await
}

pub(crate) async fn forget(store: &Arc<dyn Store>, key: &str, from: Version) {
    let events = vec![Event::new(id(key), 1, EventKind::Forgotten).by("ann")];
    let replaced = store.replace(id(key), from, Change::Remove, events).await.unwrap();
    assert!(matches!(replaced, Replaced::Done(None)), "{replaced:?}");
}
