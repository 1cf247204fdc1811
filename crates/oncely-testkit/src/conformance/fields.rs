//! Every field of every state comes back as it was written.

use oncely_core::{Change, Draft, Filter, Millis, Replaced, Stamp, State};

use super::sample::{Random, create, draft, in_doubt, load, name, next, put, replace, running, succeeded};
use super::{Broken, Ledger, Verdict, hold};

const SEEDS: u64 = 120;

pub(super) async fn every_field_reads_back_as_written(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let mut latest = Vec::new();
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let name = name("default", "", "generated", &format!("seed-{seed}"))?;
        let intent = name.intent_id();
        let first = random.body(name.clone());
        let plain = draft(name.clone(), 1, first.state.clone());
        let made = create(&**store, intent, Draft { body: first.clone(), ..plain }).await?.record;
        hold!(made.body == first, "seed {seed}: wrote {first:?}, got {:?}", made.body);
        hold!(load(&**store, intent).await?.body == first, "seed {seed}: load differs from {first:?}");
        let second = random.body(name);
        let draft = Box::new(Draft { body: second.clone(), ..*next(&made, in_doubt()) });
        let changed = put(&**store, &made, draft).await?.record;
        hold!(changed.body == second, "seed {seed}: replaced by {second:?}, got {:?}", changed.body);
        latest.push(changed);
    }
    let other = ledger.other().await;
    for (seed, record) in latest.iter().enumerate() {
        let found = load(&*other, record.intent).await?;
        hold!(found == *record, "seed {seed}: another handle reads {found:?}, written was {record:?}");
    }
    let listed = other.scan(Filter::default(), 0, 1_000).await?.items;
    hold!(listed.len() == latest.len(), "{} of {} records are listed", listed.len(), latest.len());
    for item in listed {
        let same = latest.contains(&item.record);
        hold!(same, "scan lists {:?}, which nobody wrote", item.record);
    }
    Ok(())
}

pub(super) async fn no_result_is_taken_for_another(ledger: Ledger) -> Verdict {
    let large: Vec<u8> = (0..1024 * 1024_u32).map(|i| (i % 251) as u8).collect();
    let results: [Option<&[u8]>; 8] = [
        None,
        Some(b""),
        Some(b"0"),
        Some(b"null"),
        Some(b"false"),
        Some(b"\0"),
        Some(b"\xff\xfe not text"),
        Some(&large),
    ];
    let (store, other) = (ledger.store(), ledger.other().await);
    for (i, result) in results.into_iter().enumerate() {
        let (intent, draft) = running(&format!("result-{i}"), 1)?;
        let made = create(&**store, intent, draft).await?.record;
        replace(&**store, &made, succeeded(result)).await?;
        for handle in [store, &other] {
            let found = load(&**handle, intent).await?;
            let State::Succeeded { result: got, .. } = &found.body.state else {
                return Err(Broken(format!("result {i} reads back as {:?}", found.body.state)));
            };
            let lengths = (result.map(<[u8]>::len), got.as_deref().map(<[u8]>::len));
            hold!(got.as_deref() == result, "result {i}: wrote and read bytes differ; lengths {lengths:?}");
            if let Some(peeked) = handle.peek(&intent) {
                hold!(peeked.record == found, "result {i}: peek differs from load");
            }
        }
    }
    Ok(())
}

pub(super) async fn odd_names_are_kept_apart(ledger: Ledger) -> Verdict {
    let long = "x".repeat(255);
    let emoji = "😀".repeat(63);
    let odd = [
        "a", "A", "a ", "a%", "a_", "a*", "[a]", "a?", "a'b", "a\"b", "a\\b", "é", "e\u{301}", &emoji, &long,
    ];
    let store = ledger.store();
    let mut names = Vec::new();
    for text in odd {
        names.push(name("default", text, "t", "k")?);
        names.push(name("default", "", text, "k")?);
    }
    for text in ["A", "%", "_", "*", "'", "\"", "\\", "~", "DEFAULT", &"n".repeat(128)] {
        names.push(name(text, "", "t", "k")?);
        names.push(name("default", "", "t", text)?);
    }
    for name in &names {
        create(&**store, name.intent_id(), draft(name.clone(), 1, in_doubt())).await?;
    }
    for name in &names {
        let found = load(&**store, name.intent_id()).await?;
        hold!(found.body.name == *name, "wrote the name {name:?}, got {:?}", found.body.name);
        let exactly = Filter {
            namespace: Some(name.namespace.clone()),
            scope: Some(name.scope.as_str().to_owned()),
            key: Some(name.key.as_str().to_owned()),
            ..Filter::default()
        };
        let listed = store.scan(exactly.clone(), 0, 1_000).await?.items;
        let wanted: Vec<_> = names
            .iter()
            .filter(|n| n.namespace == name.namespace && n.scope == name.scope && n.key == name.key)
            .collect();
        hold!(listed.len() == wanted.len(), "{exactly:?} lists {}, not {}", listed.len(), wanted.len());
        let only_these = listed.iter().all(|s| wanted.contains(&&s.record.body.name));
        hold!(only_these, "{exactly:?} lists another name");
    }
    Ok(())
}

pub(super) async fn stamps_are_taken_at_the_write_and_kept_ones_stay(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let (intent, draft) = running("stamps", 1)?;
    let before = store.now().await?;
    let made = create(&**store, intent, draft).await?;
    let after = store.now().await?;
    let stamps = |r: &oncely_core::Record| [r.created_at, r.sent_at, r.changed_at];
    for at in stamps(&made.record) {
        hold!(before <= at && at <= after, "stamped {at:?}, written between {before:?} and {after:?}");
    }
    hold!(made.now >= made.record.changed_at, "a record was changed after the time of its reading");
    let kept = [Millis(before.0.saturating_sub(1)), Millis(before.0.saturating_sub(2)), Millis(0)];
    let old = Draft {
        created: Stamp::Kept(kept[0]),
        sent: Stamp::Kept(kept[1]),
        changed: Stamp::Kept(kept[2]),
        ..*next(&made.record, in_doubt())
    };
    let moved = put(&**store, &made.record, Box::new(old)).await?.record;
    hold!(stamps(&moved) == kept, "asked to keep {kept:?}, got {:?}", stamps(&moved));
    hold!(stamps(&*load(&**store, intent).await?) == kept, "load shows other stamps than were kept");
    let change = Change::Put(next(&moved, in_doubt()));
    let Replaced::Done(Some(last)) = store.replace(intent, moved.version, change, Vec::new()).await? else {
        return Err(Broken("a replace from the current version failed".into()));
    };
    let at = last.record.changed_at;
    hold!(after <= at && at <= store.now().await?, "a later write is stamped {at:?}");
    hold!(last.record.created_at == kept[0], "the time of creation did not stay");
    Ok(())
}
