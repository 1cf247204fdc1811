//! What every ledger does with a record that is there and cannot be read: the damage itself is each ledger's own.

use std::sync::Arc;

use oncely_core::{
    Change, Event, EventKind, Filter, LogQuery, PurgeReport, StateName, Store, StoreErrorKind,
};
use oncely_core::{Replaced, Unreadable, Version, Wrote};

use super::{LONG, NOTHING_KEPT, begin, complete, draft, finish, id, running};

/// The keys of the records that are to be damaged: the first that a purge comes to, and one that is running.
pub(crate) const DAMAGED: [&str; 2] = ["due-0", "running"];

/// Where the number of the state stands in the body of each, counted from the token of its attempt, sixteen nines.
pub(crate) const STATE_AT: [usize; 2] = [18, 25];

/// Makes records that are due, one that is not, and one that is running.
pub(crate) async fn fill(store: &Arc<dyn Store>) {
    for number in 0..4 {
        let key = format!("due-{number}");
        let begun = begin(store, &key).await;
        complete(store, &key, begun.record.version, NOTHING_KEPT).await;
    }
    begin(store, "running").await;
    finish(store, "kept").await;
    store.flush().await.unwrap();
}

/// Looks at a ledger that was filled and damaged since, so that the ended one is filed under this state.
pub(crate) async fn judge(store: &Arc<dyn Store>, filed: StateName) {
    refuse_whoever_wants_it(store).await;
    let all = list(store, Filter::default(), 1).await;
    assert_eq!(all.1.len(), 2, "{all:?}");
    // One at a time, so that what is left of a step would be seen at the front of the next one.
    let purged = purge(store).await;
    assert_eq!((purged.records_removed, purged.unreadable), (3, 1), "{purged:?}");
    let again = purge(store).await;
    assert_eq!((again.records_removed, again.unreadable), (0, 0), "it is looked at again and again");
    for limit in [1, 2, 100] {
        let (keys, unreadable) = list(store, Filter::default(), limit).await;
        assert_eq!(keys, ["kept"], "{limit}");
        let states: Vec<_> = unreadable.iter().map(|found| (found.intent, found.state)).collect();
        let expected = [(id("due-0"), filed), (id("running"), StateName::Running)];
        assert_eq!(states, expected, "pages of {limit}");
    }
    let of_state = Filter { state: Some(StateName::Running), ..Filter::default() };
    assert_eq!(list(store, of_state, 100).await.1[0].intent, id("running"));
    let exactly = Filter { id_prefix: Some(id("due-0").to_string()), ..Filter::default() };
    let (_, found) = list(store, exactly, 100).await;
    assert_eq!((found.len(), found[0].intent), (1, id("due-0")));
    assert!(found[0].why.contains("a newer oncely may have written it"), "{found:?}");
    refuse_whoever_wants_it(store).await;
    use EventKind::{Began, Succeeded};
    assert_eq!(told(store, "due-0").await, [Began, Succeeded], "what is known of it can be read");
    assert_eq!(told(store, "running").await, [Began]);
    remove(store, found[0].version.unwrap()).await;
}

/// What the log tells of a record.
pub(crate) async fn told(store: &Arc<dyn Store>, key: &str) -> Vec<EventKind> {
    let query = LogQuery { intent: Some(id(key)), limit: 10, ..LogQuery::default() };
    store.log(query).await.unwrap().items.iter().map(|event| event.event.kind).collect()
}

pub(crate) async fn refuse_whoever_wants_it(store: &Arc<dyn Store>) {
    for key in DAMAGED {
        let created = store.create(id(key), draft(key, running(), LONG), Vec::new()).await;
        for error in [created.unwrap_err(), store.load(id(key)).await.unwrap_err()] {
            assert_eq!((error.kind, error.wrote), (StoreErrorKind::Corrupt, Wrote::No), "{error}");
            assert!(error.message.contains(&id(key).to_string()), "it is named: {error}");
            assert!(error.message.contains("do not delete it"), "{error}");
        }
    }
}

/// A person has it forgotten: its key is new, and its trail says so.
async fn remove(store: &Arc<dyn Store>, version: Version) {
    let key = DAMAGED[0];
    let stale = store.replace(id(key), Version(version.0 + 1), Change::Remove, Vec::new()).await;
    assert!(stale.is_err(), "another version is not removed");
    let events = vec![Event::new(id(key), 0, EventKind::Forgotten).by("ann")];
    let removed = store.replace(id(key), version, Change::Remove, events).await.unwrap();
    assert!(matches!(removed, Replaced::Done(None)), "{removed:?}");
    begin(store, key).await;
    use EventKind::{Began, Forgotten, Succeeded};
    assert_eq!(told(store, key).await, [Began, Succeeded, Forgotten, Began]);
}

pub(crate) async fn purge(store: &Arc<dyn Store>) -> PurgeReport {
    let mut total = PurgeReport::default();
    // Four records can be due: whoever never comes to an end goes round and round.
    for _ in 0..20 {
        let step = store.purge(1).await.unwrap();
        total.records_removed += step.records_removed;
        total.unreadable += step.unreadable;
        if !step.more {
            return total;
        }
    }
    panic!("the purge does not end: {total:?}");
}

pub(crate) async fn list(
    store: &Arc<dyn Store>,
    filter: Filter,
    limit: usize,
) -> (Vec<String>, Vec<Unreadable>) {
    let (mut keys, mut unreadable, mut from) = (Vec::new(), Vec::new(), Some(0));
    while let Some(at) = from {
        let page = store.scan(filter.clone(), at, limit).await.unwrap();
        assert!(page.items.len() + page.unreadable.len() <= limit);
        keys.extend(page.items.iter().map(|stored| stored.record.body.name.key.as_str().to_owned()));
        unreadable.extend(page.unreadable);
        from = page.next;
    }
    (keys, unreadable)
}
