//! Listings: every filter, in pages, oldest first.

use std::sync::Arc;

use oncely_core::{Filter, IntentId, Millis, Namespace, Record, StateName, Store};

use super::sample::{create, draft, in_doubt, name, next, put, rejected, running, succeeded};
use super::{Broken, Ledger, Verdict, hold};

/// Records that differ in everything a filter can ask for, with stamps that lie apart.
async fn fill(store: &dyn Store) -> Result<Vec<Arc<Record>>, Broken> {
    const TOOLS: [&str; 6] = ["cmd:pay", "cmd:p%y", "cmd:p_y", "POST /a/*", "mcp:[x]?", "cmd:payment"];
    let mut all = Vec::new();
    for i in 0..36_usize {
        let scope = ["", "session-1", "session-2"][i / 3 % 3];
        let namespace = ["default", "tenant-b"][i % 2];
        let name = name(namespace, scope, TOOLS[i % 6], &format!("key-{}", i % 5 + i / 9 * 5))?;
        let state = [succeeded(Some(b"r")), rejected(), in_doubt(), succeeded(None)][i % 4].clone();
        let intent = name.intent_id();
        let made = create(store, intent, draft(name, i as u8, state.clone())).await?.record;
        let mut spread = next(&made, state);
        spread.changed =
            oncely_core::Stamp::Kept(Millis(made.created_at.0.saturating_sub(i as u64 % 7 * 1_000)));
        all.push(put(store, &made, spread).await?.record);
    }
    Ok(all)
}

/// Follows the pages to the end.
async fn pages(store: &dyn Store, filter: &Filter, limit: usize) -> Result<Vec<Arc<Record>>, Broken> {
    let (mut all, mut from) = (Vec::new(), 0);
    for _ in 0..200 {
        let page = store.scan(filter.clone(), from, limit).await?;
        hold!(page.items.len() <= limit, "a page of {} exceeds {limit}", page.items.len());
        all.extend(page.items.into_iter().map(|s| s.record));
        match page.next {
            Some(next) => from = next,
            None => return Ok(all),
        }
    }
    Err(Broken("the pages of the listing never end".into()))
}

fn sorted(records: &[Arc<Record>]) -> Vec<IntentId> {
    let mut ids: Vec<IntentId> = records.iter().map(|r| r.intent).collect();
    ids.sort_unstable();
    ids
}

fn filters(all: &[Arc<Record>]) -> Result<Vec<Filter>, Broken> {
    let bad = |e| Broken(format!("the suite made a bad namespace: {e}"));
    let id = all[7].intent.to_string();
    let middle = all[10].changed_at;
    let tool = |t: &str| Filter { tool: Some(t.into()), ..Filter::default() };
    let key = |k: &str| Filter { key: Some(k.into()), ..Filter::default() };
    let scope = |s: &str| Filter { scope: Some(s.into()), ..Filter::default() };
    let prefix = |p: &str| Filter { id_prefix: Some(p.into()), ..Filter::default() };
    let mut filters = vec![Filter::default()];
    filters.extend(StateName::ALL.map(|s| Filter { state: Some(s), ..Filter::default() }));
    for namespace in ["default", "tenant-b", "tenant-c"] {
        let namespace = Some(Namespace::parse(namespace).map_err(bad)?);
        filters.push(Filter { namespace, ..Filter::default() });
    }
    filters.extend(
        [
            "cmd:pay",
            "cmd:p%y",
            "cmd:p_y",
            "cmd:p*y",
            "cmd:*",
            "*",
            "*pay*",
            "[x]",
            "mcp:[x]?",
            "POST /a/*",
            "",
        ]
        .map(tool),
    );
    filters.extend(["key-1", "key", "KEY-1", "key_1", ""].map(key));
    filters.extend(["session-1", "session", "session%", ""].map(scope));
    filters.extend([&id[..1], &id[..2], &id[..7], &id, "g", "%", ""].map(prefix));
    filters.push(Filter { changed_since: Some(middle), ..Filter::default() });
    filters.push(Filter { changed_before: Some(middle), ..Filter::default() });
    filters.push(Filter {
        state: Some(StateName::Succeeded),
        tool: Some("cmd:*".into()),
        scope: Some("session-1".into()),
        changed_since: Some(Millis(0)),
        ..Filter::default()
    });
    Ok(filters)
}

pub(super) async fn a_scan_finds_what_the_filter_accepts(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let all = fill(&**store).await?;
    for filter in filters(&all)? {
        let expected: Vec<Arc<Record>> = all.iter().filter(|r| filter.accepts(r)).cloned().collect();
        let found = pages(&**store, &filter, 1_000).await?;
        let (want, got) = (expected.len(), found.len());
        hold!(sorted(&found) == sorted(&expected), "{filter:?} lists {got} records, {want} match");
        hold!(found.iter().all(|r| expected.contains(r)), "{filter:?} lists a record that is not current");
    }
    Ok(())
}

pub(super) async fn a_scan_pages_without_gaps(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let all = fill(&**store).await?;
    let in_doubt = Filter { state: Some(StateName::InDoubt), ..Filter::default() };
    let pays = Filter { tool: Some("cmd:p*".into()), ..Filter::default() };
    for filter in [Filter::default(), in_doubt, pays] {
        let expected: Vec<Arc<Record>> = all.iter().filter(|r| filter.accepts(r)).cloned().collect();
        for limit in [1, 2, 7, 35, 36, 37] {
            let found = pages(&**store, &filter, limit).await?;
            let (want, got) = (expected.len(), found.len());
            let same = sorted(&found) == sorted(&expected);
            hold!(same, "pages of {limit} list {got} records in all, {want} match {filter:?}");
        }
    }
    Ok(())
}

pub(super) async fn a_scan_is_oldest_first(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let mut intents = Vec::new();
    for i in 0..12 {
        let (intent, draft) = running(&format!("order-{i}"), 1)?;
        create(&**store, intent, draft).await?;
        intents.push(intent);
    }
    for limit in [1, 5, 100] {
        let found: Vec<IntentId> =
            pages(&**store, &Filter::default(), limit).await?.iter().map(|r| r.intent).collect();
        hold!(found == intents, "pages of {limit} are not in the order of creation");
    }
    Ok(())
}

pub(super) async fn the_census_counts_what_is_open(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    for (i, state) in [in_doubt(), in_doubt(), succeeded(None), rejected()].into_iter().enumerate() {
        let name = name("default", "", "census", &format!("k{i}"))?;
        create(&**store, name.intent_id(), draft(name, 1, state)).await?;
    }
    for i in 0..3 {
        let (intent, draft) = running(&format!("open-{i}"), 1)?;
        create(&**store, intent, draft).await?;
    }
    let census = store.census().await?;
    let count = |state| census.iter().filter(|(s, _)| *s == state).map(|(_, n)| n).sum::<u64>();
    hold!(count(StateName::Running) == 3, "3 records run, the census says {census:?}");
    hold!(count(StateName::InDoubt) == 2, "2 records are in doubt, the census says {census:?}");
    Ok(())
}
