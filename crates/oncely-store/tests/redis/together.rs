//! Many callers at once: their writes go together, and each is still its own.

use std::collections::HashSet;
use std::sync::Arc;

use oncely_core::{Created, Event, EventKind, LogQuery, LoggedEvent, Store};
use oncely_testkit::servers::Redis;

use crate::common::{LONG, complete, draft, id, running};
use crate::{fresh, open};

const CALLERS: u32 = 150;

/// One claim and one end for every caller, and a second claim for some of the keys meanwhile.
async fn all_at_once(store: &Arc<dyn Store>) {
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let store = store.clone();
            tokio::spawn(async move {
                // Every tenth key is claimed by two callers in the same pipeline.
                let key = format!("k{}", if caller % 10 == 1 { caller - 1 } else { caller });
                let intent = id(&key);
                // Some have several events, and some none.
                let events = (0..caller % 3).map(|n| Event::new(intent, n, EventKind::Began)).collect();
                match store.create(intent, draft(&key, running(), LONG), events).await.unwrap() {
                    Created::New(made) => {
                        let ended = complete(&store, &key, made.record.version, LONG).await;
                        assert!(ended.record.version > made.record.version);
                        Some((key, caller % 3, ended.record))
                    }
                    Created::Exists(there) => {
                        assert_eq!(there.record.body.name.key.as_str(), key);
                        None
                    }
                }
            })
        })
        .collect();
    let mut ended = Vec::new();
    for caller in callers {
        ended.extend(caller.await.unwrap());
    }
    assert_eq!(ended.len() as u32, CALLERS - CALLERS / 10, "of two claims for one key one wins");
    for (key, began, record) in &ended {
        let stored = store.load(id(key)).await.unwrap().unwrap();
        assert_eq!(stored.record, *record);
        let query = LogQuery { intent: Some(id(key)), limit: 10, ..LogQuery::default() };
        let log = store.log(query).await.unwrap().items;
        assert_eq!(log.len() as u32, began + 1, "{key}: {log:?}");
        assert!(log.iter().all(|event| event.event.intent == id(key)));
    }
    let events: u32 = ended.iter().map(|(_, began, _)| began + 1).sum();
    pages_are_complete(store, ended.len(), events as usize).await;
}

/// Whatever the size of a page, everything is on exactly one.
async fn pages_are_complete(store: &Arc<dyn Store>, records: usize, events: usize) {
    for limit in [1, 3, 7, 64, 1_000] {
        let (mut found, mut from) = (Vec::new(), 0);
        loop {
            let page = store.scan(Default::default(), from, limit).await.unwrap();
            found.extend(page.items.into_iter().map(|stored| stored.record.intent));
            match page.next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!(found.len(), records, "pages of {limit}");
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), records, "pages of {limit}");
        let (mut log, mut after) = (Vec::<LoggedEvent>::new(), 0);
        loop {
            let page = store.log(LogQuery { after, limit, ..LogQuery::default() }).await.unwrap();
            log.extend(page.items);
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(log.len(), events, "pages of {limit}");
        assert!(log.windows(2).all(|pair| pair[0].seq < pair[1].seq), "pages of {limit}");
        let newest = store.log(LogQuery { limit, newest: true, ..LogQuery::default() }).await.unwrap().items;
        assert_eq!(newest, log[log.len().saturating_sub(limit)..], "the newest {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_go_together_are_won_and_logged_one_by_one() {
    let server = Redis::shared().unwrap();
    for settings in ["connections=1", "connections=1&shards=3", "connections=8"] {
        let store = open(&format!("{}?{settings}&prefix={}", server.url(), fresh())).await;
        all_at_once(&store).await;
    }
}
