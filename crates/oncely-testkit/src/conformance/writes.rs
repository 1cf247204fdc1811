//! Create, replace, remove: one winner, versions that only grow, and calls that are dropped half-way.

use std::sync::Arc;

use oncely_core::{AttemptToken, Change, Created, Event, EventKind, Replaced, Version};

use super::sample::{
    began, create, events, in_doubt, load, next, rejected, remove, replace, running, succeeded,
};
use super::{Broken, Ledger, Verdict, hold};

const RACERS: u8 = 32;

pub(super) async fn a_new_record_is_stored_as_written(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("new", 1)?;
    let made = create(&**store, intent, draft.clone()).await?;
    hold!(made.record.intent == intent, "the record carries another intent");
    hold!(made.record.body == draft.body, "wrote {:?}, got {:?}", draft.body, made.record.body);
    let found = load(&*ledger.other().await, intent).await?;
    hold!(found == made.record, "create answered {:?}, load {:?}", made.record, found);
    Ok(())
}

pub(super) async fn a_second_create_returns_what_is_there(ledger: Ledger) -> Verdict {
    let (intent, first) = running("twice", 1)?;
    let made = create(&**ledger.store(), intent, first).await?;
    let (_, second) = running("twice", 2)?;
    for store in [ledger.store(), &ledger.other().await] {
        match store.create(intent, second.clone(), began(intent)).await? {
            Created::Exists(found) => {
                hold!(
                    found.record == made.record,
                    "the first was {:?}, found {:?}",
                    made.record,
                    found.record
                );
            }
            Created::New(_) => return Err(Broken("a second create of one intent succeeded".into())),
        }
    }
    let found = load(&**ledger.store(), intent).await?;
    hold!(found == made.record, "a second create changed the record to {found:?}");
    Ok(())
}

pub(super) async fn of_many_concurrent_creates_one_wins(ledger: Ledger) -> Verdict {
    let stores = [Arc::clone(ledger.store()), ledger.other().await];
    let (intent, _) = running("race", 0)?;
    let mut racers = Vec::new();
    for token in 1..=RACERS {
        let store = Arc::clone(&stores[usize::from(token % 2)]);
        let (_, draft) = running("race", token)?;
        let event = Event::new(intent, 1, EventKind::Began).with_note(token.to_string());
        racers.push(tokio::spawn(async move { store.create(intent, draft, vec![event]).await }));
    }
    let (mut won, mut lost) = (Vec::new(), Vec::new());
    for racer in racers {
        match racer.await.map_err(|e| Broken(format!("a create panicked: {e}")))?? {
            Created::New(made) => won.push(made.record),
            Created::Exists(found) => lost.push(found.record),
        }
    }
    hold!(won.len() == 1, "{} of {RACERS} concurrent creates won", won.len());
    hold!(lost.iter().all(|r| *r == won[0]), "a loser saw another record than the winner's");
    let logged = events(&*stores[0], intent).await?;
    hold!(logged.len() == 1, "{} events for one winner", logged.len());
    let note = won[0].body.token.0[0].to_string();
    hold!(logged[0].event.note.as_deref() == Some(&*note), "the event logged is not the winner's");
    Ok(())
}

pub(super) async fn a_replace_from_the_current_version_is_done(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("replace", 1)?;
    let mut latest = create(&**store, intent, draft).await?.record;
    let other = ledger.other().await;
    for (round, state) in
        [in_doubt(), succeeded(Some(b"done")), rejected(), in_doubt()].into_iter().enumerate()
    {
        let handle = if round % 2 == 0 { &other } else { store };
        let done = replace(&**handle, &latest, state.clone()).await?.record;
        hold!(done.version > latest.version, "version {:?} follows {:?}", done.version, latest.version);
        hold!(done.body.state == state, "wrote {state:?}, got {:?}", done.body.state);
        hold!(load(&**store, intent).await? == done, "load does not show what replace answered");
        latest = done;
    }
    Ok(())
}

pub(super) async fn a_replace_from_another_version_changes_nothing(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("stale", 1)?;
    let first = create(&**store, intent, draft).await?.record;
    let second = replace(&**store, &first, in_doubt()).await?.record;
    let ahead = Version(second.version.0 + 1);
    for expected in [first.version, ahead, Version(0), Version(u64::MAX >> 1)] {
        for change in [Change::Put(next(&first, succeeded(None))), Change::Remove] {
            match store.replace(intent, expected, change, began(intent)).await? {
                Replaced::Stale(Some(found)) => {
                    hold!(found.record == second, "a stale replace was shown {:?}", found.record);
                }
                other => return Err(Broken(format!("a replace from {expected:?} answered {other:?}"))),
            }
        }
    }
    hold!(load(&**store, intent).await? == second, "a stale replace changed the record");
    Ok(())
}

pub(super) async fn a_replace_of_nothing_is_stale(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("nothing", 1)?;
    for change in [Change::Put(Box::new(draft)), Change::Remove] {
        let answer = store.replace(intent, Version(0), change, began(intent)).await?;
        hold!(matches!(answer, Replaced::Stale(None)), "a replace of nothing answered {answer:?}");
    }
    hold!(store.load(intent).await?.is_none(), "a replace of nothing made a record");
    Ok(())
}

pub(super) async fn of_many_concurrent_replaces_one_wins(ledger: Ledger) -> Verdict {
    let stores = [Arc::clone(ledger.store()), ledger.other().await];
    let (intent, draft) = running("swap", 0)?;
    let first = create(&*stores[0], intent, draft).await?.record;
    let mut racers = Vec::new();
    for token in 1..=RACERS {
        let store = Arc::clone(&stores[usize::from(token % 2)]);
        let mut draft = next(&first, in_doubt());
        draft.body.token = AttemptToken([token; 16]);
        let events = vec![Event::new(intent, 1, EventKind::InDoubt)];
        let version = first.version;
        racers.push(tokio::spawn(
            async move { store.replace(intent, version, Change::Put(draft), events).await },
        ));
    }
    let mut won = Vec::new();
    let mut seen = Vec::new();
    for racer in racers {
        match racer.await.map_err(|e| Broken(format!("a replace panicked: {e}")))?? {
            Replaced::Done(Some(stored)) => won.push(stored.record),
            Replaced::Stale(Some(stored)) => seen.push(stored.record),
            other => return Err(Broken(format!("a concurrent replace answered {other:?}"))),
        }
    }
    hold!(won.len() == 1, "{} of {RACERS} concurrent replaces from one version won", won.len());
    hold!(seen.iter().all(|r| *r == won[0]), "a loser was shown another record than the winner's");
    hold!(load(&*stores[0], intent).await? == won[0], "the record is not the winner's");
    let logged = events(&*stores[0], intent).await?;
    hold!(logged.len() == 2, "{} events for one create and one winner", logged.len());
    Ok(())
}

pub(super) async fn a_removed_record_is_gone(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("removed", 1)?;
    let made = create(&**store, intent, draft).await?.record;
    let ended = replace(&**store, &made, succeeded(Some(b"x"))).await?.record;
    store.load(intent).await?;
    let forgotten = vec![Event::new(intent, 1, EventKind::Forgotten).by("somebody")];
    let answer = store.replace(intent, ended.version, Change::Remove, forgotten).await?;
    hold!(matches!(answer, Replaced::Done(None)), "a removal answered {answer:?}");
    for handle in [store, &ledger.other().await] {
        hold!(handle.peek(&intent).is_none(), "peek shows a removed record");
        hold!(handle.load(intent).await?.is_none(), "load shows a removed record");
        let listed = handle.scan(Default::default(), 0, 10).await?.items;
        hold!(listed.is_empty(), "scan lists a removed record");
        let kinds: Vec<EventKind> = events(&**handle, intent).await?.iter().map(|e| e.event.kind).collect();
        hold!(kinds == [EventKind::Began, EventKind::Forgotten], "the log of a removed record is {kinds:?}");
    }
    Ok(())
}

pub(super) async fn a_version_never_restarts(ledger: Ledger) -> Verdict {
    let (intent, draft) = running("again", 1)?;
    let mut ledger = ledger;
    let mut highest = Version(0);
    for round in 0..4 {
        let store = Arc::clone(ledger.store());
        let made = create(&*store, intent, draft.clone()).await?.record;
        hold!(round == 0 || made.version > highest, "version {:?} follows {highest:?}", made.version);
        let old = highest;
        let ended = replace(&*store, &made, in_doubt()).await?.record;
        hold!(ended.version > made.version, "a replace did not raise the version");
        if round > 0 {
            let answer = store.replace(intent, old, Change::Remove, Vec::new()).await?;
            hold!(
                matches!(answer, Replaced::Stale(Some(_))),
                "a version from before the removal counts again"
            );
        }
        highest = ended.version;
        remove(&*store, &ended).await?;
        drop(store);
        if round == 1 {
            ledger = match ledger.reopened().await {
                Some(again) => again,
                None => return Ok(()),
            };
        }
    }
    Ok(())
}

pub(super) async fn a_replace_is_requested_when_it_is_called(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("torn-down", 1)?;
    let made = create(&**store, intent, draft).await?.record;
    let ended = next(&made, succeeded(Some(b"end")));
    // Never polled: the caller is being torn down, and still hands in its end.
    drop(store.replace(intent, made.version, Change::Put(ended.clone()), Vec::new()));
    store.flush().await?;
    let found = load(&**store, intent).await?;
    hold!(
        found.body == ended.body,
        "a replace whose future was never polled is lost: {:?}",
        found.body.state
    );
    Ok(())
}

pub(super) async fn a_dropped_call_leaves_no_lock(ledger: Ledger) -> Verdict {
    let stores = [Arc::clone(ledger.store()), ledger.other().await];
    for round in 0..24_u8 {
        let store = &stores[usize::from(round % 2)];
        let (intent, draft) = running(&format!("dropped-{round}"), 1)?;
        let future = store.create(intent, draft.clone(), began(intent));
        if round % 3 == 0 {
            drop(future);
        } else {
            // Polled once and then given up, somewhere in the middle.
            tokio::select! { biased; answer = future => { answer?; } () = std::future::ready(()) => {} }
        }
        drop(store.load(intent));
        drop(store.scan(Default::default(), 0, 10));
        let other = &stores[usize::from((round + 1) % 2)];
        let (free, draft_of_free) = running(&format!("free-{round}"), 1)?;
        create(&**other, free, draft_of_free).await?;
        // Whether it happened is settled by creating again: then it is there, with one event.
        other.create(intent, draft.clone(), began(intent)).await?;
        let found = load(&**store, intent).await?;
        hold!(found.body == draft.body, "a dropped create left {:?}", found.body);
        let logged = events(&**store, intent).await?.len();
        hold!(logged == 1, "a dropped create and another left {logged} events");
    }
    Ok(())
}
