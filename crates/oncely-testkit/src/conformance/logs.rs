//! The audit log: written with the record or not at all, in order, and read in pages.

use oncely_core::{Change, Event, EventKind, IntentId, LogQuery, LoggedEvent, Store, Version};

use super::sample::{Random, began, create, events, in_doubt, next, running, succeeded};
use super::{Broken, Ledger, Verdict, hold};

pub(super) async fn events_are_written_with_their_record_and_in_order(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("logged", 1)?;
    let before = store.now().await?;
    let made = create(&**store, intent, draft).await?.record;
    let both = vec![Event::new(intent, 1, EventKind::InDoubt), Event::new(intent, 1, EventKind::ProbeUnsure)];
    store.replace(intent, made.version, Change::Put(next(&made, in_doubt())), both).await?;
    // Read through another handle: acknowledged means there for everybody.
    let logged = events(&*ledger.other().await, intent).await?;
    let after = store.now().await?;
    let kinds: Vec<EventKind> = logged.iter().map(|e| e.event.kind).collect();
    hold!(kinds == [EventKind::Began, EventKind::InDoubt, EventKind::ProbeUnsure], "the log says {kinds:?}");
    hold!(logged.windows(2).all(|e| e[0].seq < e[1].seq), "places in the log do not grow");
    hold!(logged.windows(2).all(|e| e[0].at <= e[1].at), "times in the log run backwards");
    hold!(
        logged.iter().all(|e| before <= e.at && e.at <= after),
        "an event is stamped outside of {before:?} to {after:?}"
    );
    Ok(())
}

pub(super) async fn events_of_a_lost_race_are_not_written(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("lost", 1)?;
    let made = create(&**store, intent, draft.clone()).await?.record;
    store.create(intent, draft, began(intent)).await?;
    let stale = Version(made.version.0 + 7);
    let change = Change::Put(next(&made, succeeded(None)));
    store.replace(intent, stale, change, vec![Event::new(intent, 1, EventKind::Succeeded)]).await?;
    store.replace(intent, stale, Change::Remove, vec![Event::new(intent, 1, EventKind::Forgotten)]).await?;
    let kinds: Vec<EventKind> = events(&**store, intent).await?.iter().map(|e| e.event.kind).collect();
    hold!(kinds == [EventKind::Began], "a call that changed nothing wrote events: {kinds:?}");
    Ok(())
}

pub(super) async fn every_event_reads_back_as_written(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let mut random = Random(1);
    let mut written = Vec::new();
    let (intent, _) = running("events", 1)?;
    for (round, kind) in EventKind::ALL.into_iter().cycle().take(EventKind::ALL.len() * 4).enumerate() {
        let mut event = Event::new(intent, [0, 1, 7, u32::MAX][round % 4], kind);
        if random.below(2) == 0 {
            event.actor = Some(random.text(30));
        }
        if random.below(2) == 0 {
            event.note = Some(random.text(100));
        }
        written.push(event);
    }
    store.note(written.clone()).await?;
    let read: Vec<Event> = events(&**store, intent).await?.into_iter().map(|e| e.event).collect();
    for (wrote, got) in written.iter().zip(&read) {
        hold!(wrote == got, "wrote {wrote:?}, got {got:?} (seed 1)");
    }
    hold!(read.len() == written.len(), "wrote {} events, read {}", written.len(), read.len());
    Ok(())
}

/// Twenty-three events of two records, interleaved.
async fn fill(store: &dyn Store) -> Result<[IntentId; 2], Broken> {
    let intents = [running("page-a", 1)?.0, running("page-b", 1)?.0];
    for attempt in 0..23_u32 {
        let intent = intents[(attempt % 3 % 2) as usize];
        store.note(vec![Event::new(intent, attempt, EventKind::ProbeUnsure)]).await?;
    }
    Ok(intents)
}

/// Follows the pages to the end.
async fn pages(store: &dyn Store, mut query: LogQuery) -> Result<Vec<LoggedEvent>, Broken> {
    let mut all = Vec::new();
    for _ in 0..100 {
        let page = store.log(query.clone()).await?;
        hold!(page.items.len() <= query.limit, "a page of {} exceeds {}", page.items.len(), query.limit);
        hold!(page.items.iter().all(|e| e.seq > query.after), "a page starts before its place");
        all.extend(page.items);
        match page.next {
            Some(next) => query.after = next,
            None => return Ok(all),
        }
    }
    Err(Broken("the pages of the log never end".into()))
}

pub(super) async fn the_log_pages_without_gaps(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let intents = fill(&**store).await?;
    let attempts = |log: &[LoggedEvent]| log.iter().map(|e| e.event.attempt).collect::<Vec<_>>();
    let expected: Vec<u32> = (0..23).collect();
    let mut all = Vec::new();
    for limit in [1, 2, 5, 22, 23, 24, 1_000] {
        all = pages(&**store, LogQuery { limit, ..LogQuery::default() }).await?;
        hold!(attempts(&all) == expected, "pages of {limit} give {:?}", attempts(&all));
    }
    for (which, intent) in intents.into_iter().enumerate() {
        let log = pages(&**store, LogQuery { limit: 4, intent: Some(intent), ..LogQuery::default() }).await?;
        let of_it: Vec<u32> = expected.iter().copied().filter(|a| (a % 3 % 2) as usize == which).collect();
        hold!(attempts(&log) == of_it, "the log of one record gives {:?}", attempts(&log));
    }
    let after = all[10].seq;
    let rest = pages(&**store, LogQuery { after, limit: 1_000, ..LogQuery::default() }).await?;
    hold!(rest == all[11..], "after place {after} come {:?}", attempts(&rest));
    Ok(())
}

pub(super) async fn the_newest_events_come_in_ascending_order(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let intents = fill(&**store).await?;
    let all = pages(&**store, LogQuery { limit: 1_000, ..LogQuery::default() }).await?;
    let newest = |limit, intent| LogQuery { limit, intent, newest: true, after: 0 };
    let three = store.log(newest(3, None)).await?.items;
    hold!(three == all[20..], "the newest three of {} are {three:?}", all.len());
    let every = store.log(newest(1_000, None)).await?.items;
    hold!(every == all, "the newest 1,000 of 23 are {} events", every.len());
    let of_one = store.log(newest(2, Some(intents[1]))).await?.items;
    let expected: Vec<LoggedEvent> = all.iter().filter(|e| e.event.intent == intents[1]).cloned().collect();
    hold!(of_one == expected[expected.len() - 2..], "the newest two of one record are {of_one:?}");
    Ok(())
}

pub(super) async fn notes_need_no_record(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, _) = running("noted", 1)?;
    store
        .note(vec![Event::new(intent, 3, EventKind::Superseded).with_note("nothing to do with a record")])
        .await?;
    store.note(Vec::new()).await?;
    hold!(store.load(intent).await?.is_none(), "a note made a record");
    let logged = events(&*ledger.other().await, intent).await?;
    hold!(logged.len() == 1 && logged[0].event.attempt == 3, "the note reads {logged:?}");
    Ok(())
}
