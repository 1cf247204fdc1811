//! Purging by the machine's rule, counters, owners, and what is there after a restart.

use std::sync::Arc;

use oncely_core::machine::{self, Input, Write};
use oncely_core::{
    Counter, Event, EventKind, Liveness, Namespace, Owner, PurgeReport, Record, Retention, State, Store,
    Tally, ToolName,
};

use super::sample::{
    Random, create, draft, events, in_doubt, load, name, next, put, rejected, running, succeeded,
};
use super::{Broken, Ledger, Verdict, hold};

const NOW: Retention = Retention { replay_for_ms: 0, remember_for_ms: 0 };
const RESULT_NOW: Retention = Retention { replay_for_ms: 0, remember_for_ms: 86_400_000 };
const LATER: Retention = super::sample::DAY;

async fn ended(
    store: &dyn Store,
    key: &str,
    retention: Retention,
    state: State,
) -> Result<Arc<Record>, Broken> {
    let name = name("default", "", "purge", key)?;
    let intent = name.intent_id();
    let mut draft = draft(name, 1, state);
    draft.body.retention = retention;
    Ok(create(store, intent, draft).await?.record)
}

/// Purges until nothing more is due; says what was done in all.
async fn purge_all(store: &dyn Store, limit: usize) -> Result<PurgeReport, Broken> {
    let mut sum = PurgeReport::default();
    for _ in 0..1_000 {
        let report = store.purge(limit).await?;
        let done = report.results_dropped + report.records_removed;
        hold!(done <= limit as u64, "a purge of at most {limit} did {report:?}");
        sum.results_dropped += report.results_dropped;
        sum.records_removed += report.records_removed;
        if !report.more {
            return Ok(sum);
        }
    }
    Err(Broken("a purge never comes to its end".into()))
}

pub(super) async fn a_purge_follows_the_machine(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let gone = ended(&**store, "gone", NOW, succeeded(Some(b"r"))).await?;
    let refused = ended(&**store, "refused", NOW, rejected()).await?;
    let bare = ended(&**store, "bare", RESULT_NOW, succeeded(Some(b"r"))).await?;
    let bare_already = ended(&**store, "bare-already", RESULT_NOW, succeeded(None)).await?;
    let kept = ended(&**store, "kept", LATER, succeeded(Some(b"r"))).await?;
    load(&**store, bare.intent).await?;
    let report = purge_all(&**store, 100).await?;
    hold!(report.records_removed == 2, "2 records were due, the purge reports {report:?}");
    hold!(report.results_dropped == 1, "1 result was due, the purge reports {report:?}");
    for record in [&gone, &refused] {
        hold!(store.load(record.intent).await?.is_none(), "{} is still there", record.body.name.key.as_str());
        hold!(store.peek(&record.intent).is_none(), "peek shows a purged record");
    }
    for record in [&kept, &bare_already] {
        hold!(load(&**store, record.intent).await? == *record, "a record that was not due changed");
    }
    let dropped = load(&**store, bare.intent).await?;
    let without = matches!(&dropped.body.state, State::Succeeded { result: None, .. });
    hold!(without, "a result that was due is still there");
    hold!(dropped.changed_at == bare.changed_at, "dropping a result moved the time of the end");
    hold!(dropped.version > bare.version, "dropping a result did not raise the version");
    let peeked = store.peek(&bare.intent);
    hold!(peeked.is_none_or(|p| p.record == dropped), "peek still shows the dropped result");
    generated_records_follow_too(&**store).await
}

/// Any record: after a purge, the machine has nothing more to expire.
async fn generated_records_follow_too(store: &dyn Store) -> Verdict {
    for seed in 0..60 {
        let mut random = Random(seed);
        let name = name("default", "", "purge-any", &format!("seed-{seed}"))?;
        let mut body = random.body(name.clone());
        let pick = |random: &mut Random| [0, 1, 86_400_000][random.below(3) as usize];
        body.retention = Retention { replay_for_ms: pick(&mut random), remember_for_ms: pick(&mut random) };
        let plain = draft(name.clone(), 1, body.state.clone());
        create(store, name.intent_id(), oncely_core::Draft { body, ..plain }).await?;
    }
    let start = store.now().await?;
    while store.now().await?.since(start) < 2 {
        tokio::task::yield_now().await;
    }
    purge_all(store, 7).await?;
    let page = store.scan(Default::default(), 0, 1_000).await?;
    for item in page.items {
        let step = machine::step(Some(&item.record), &Input::Expire, item.now);
        hold!(step.write == Write::Nothing, "the purge left what is due: {:?}", item.record);
    }
    Ok(())
}

pub(super) async fn running_and_in_doubt_records_never_expire(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let run = State::Running { owner: Owner::default(), lease_ms: 0 };
    let running = ended(&**store, "running", NOW, run.clone()).await?;
    let doubtful = ended(&**store, "doubtful", NOW, in_doubt()).await?;
    // Due once, but a new attempt runs by now: what an index of due times remembers must not count.
    let first = ended(&**store, "again", NOW, succeeded(Some(b"r"))).await?;
    let again = put(&**store, &first, next(&first, run)).await?.record;
    let report = purge_all(&**store, 100).await?;
    hold!(report.records_removed == 0, "a record that never expires was removed: {report:?}");
    hold!(report.results_dropped == 0, "there was no result to drop: {report:?}");
    for record in [running, doubtful, again] {
        let found = store.load(record.intent).await?.map(|s| s.record);
        hold!(found.as_ref() == Some(&record), "{} changed to {found:?}", record.body.name.key.as_str());
    }
    Ok(())
}

pub(super) async fn a_purge_is_bounded(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    for i in 0..9 {
        ended(&**store, &format!("due-{i}"), NOW, rejected()).await?;
    }
    let first = store.purge(4).await?;
    hold!(first.records_removed == 4 && first.more, "9 due, a purge of at most 4 reports {first:?}");
    let rest = purge_all(&**store, 4).await?;
    hold!(rest.records_removed == 5, "5 more were due, the purge reports {rest:?}");
    let none = store.purge(4).await?;
    let idle = none.records_removed == 0 && none.results_dropped == 0 && !none.more;
    hold!(idle, "nothing is due, the purge reports {none:?}");
    Ok(())
}

pub(super) async fn a_purged_version_never_restarts(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let old = ended(&**store, "comes-back", NOW, rejected()).await?;
    purge_all(&**store, 10).await?;
    let new = ended(&**store, "comes-back", LATER, rejected()).await?;
    hold!(new.version > old.version, "version {:?} follows {:?} after a purge", new.version, old.version);
    Ok(())
}

fn tally(namespace: &str, tool: &str, counter: Counter, count: u64) -> Result<Tally, Broken> {
    let bad = |e| Broken(format!("the suite made a bad name: {e}"));
    let namespace = Namespace::parse(namespace).map_err(bad)?;
    Ok(Tally { namespace, tool: ToolName::parse(tool).map_err(bad)?, counter, count })
}

async fn total(store: &dyn Store, of: &Tally) -> Result<u64, Broken> {
    let same = |t: &&Tally| t.namespace == of.namespace && t.tool == of.tool && t.counter == of.counter;
    let found: Vec<u64> = store.tallies().await?.iter().filter(same).map(|t| t.count).collect();
    hold!(found.len() <= 1, "the counter {of:?} is listed {} times", found.len());
    Ok(found.first().copied().unwrap_or(0))
}

pub(super) async fn counters_add_up(ledger: Ledger) -> Verdict {
    let mut ledger = ledger;
    let mut expected = Vec::new();
    {
        let stores = [Arc::clone(ledger.store()), ledger.other().await];
        for (i, counter) in Counter::ALL.into_iter().enumerate() {
            for (namespace, tool) in [("default", "t"), ("default", "T'%"), ("other", "t")] {
                let one = tally(namespace, tool, counter, 1 + i as u64)?;
                stores[0].tally(&one.namespace, &one.tool, &[(counter, one.count), (counter, 1_000)]);
                stores[1].tally(&one.namespace, &one.tool, &[(counter, one.count)]);
                expected.push(Tally { count: 1_000 + 2 * (1 + i as u64), ..one });
            }
        }
        stores[0].tally(&expected[0].namespace, &expected[0].tool, &[]);
        for store in &stores {
            store.flush().await?;
        }
        for store in &stores {
            for tally in &expected {
                let got = total(&**store, tally).await?;
                hold!(got == tally.count, "expected {tally:?}, the ledger counts {got}");
            }
        }
    }
    ledger = match ledger.reopened().await {
        Some(again) => again,
        None => return Ok(()),
    };
    for tally in &expected {
        let got = total(&**ledger.store(), tally).await?;
        hold!(got == tally.count, "expected {tally:?} after a reopen, the ledger counts {got}");
    }
    Ok(())
}

pub(super) async fn this_process_is_alive_and_no_other_is_taken_for_it(ledger: Ledger) -> Verdict {
    let store = ledger.store();
    let own = store.owner();
    hold!(own == store.owner(), "the owner changes between two questions");
    hold!(
        store.liveness(&own) == Liveness::Alive,
        "this very process is taken for {:?}",
        store.liveness(&own)
    );
    let mut later = own.clone();
    later.process.started_ticks = later.process.started_ticks.wrapping_add(1);
    let mut rebooted = own.clone();
    rebooted.process.boot[0] ^= 0xff;
    let mut gone = own.clone();
    // Beyond the highest process number that a kernel gives.
    gone.process.pid = u32::MAX - 1;
    let mut container = own.clone();
    container.process.pid_namespace ^= 1;
    for (what, owner) in [
        ("one that started at another time", later),
        ("one of another boot", rebooted),
        ("one that does not exist", gone),
        ("one of another process namespace", container),
    ] {
        let seen = store.liveness(&owner);
        hold!(seen != Liveness::Alive, "this process stands in for {what}: {seen:?}");
    }
    Ok(())
}

pub(super) async fn what_was_acknowledged_survives_a_reopen(ledger: Ledger) -> Verdict {
    let mut written = Vec::new();
    {
        let store = ledger.store();
        for seed in 0..20 {
            let mut random = Random(seed);
            let (intent, first) = running(&format!("durable-{seed}"), 1)?;
            let made = create(&**store, intent, first).await?.record;
            let body = random.body(made.body.name.clone());
            let draft = Box::new(oncely_core::Draft { body, ..*next(&made, in_doubt()) });
            let events = vec![Event::new(intent, 1, EventKind::InDoubt).with_note(format!("seed {seed}"))];
            let change = oncely_core::Change::Put(draft);
            match store.replace(intent, made.version, change, events).await? {
                oncely_core::Replaced::Done(Some(done)) => written.push(done.record),
                other => return Err(Broken(format!("a replace answered {other:?}"))),
            }
        }
    }
    let Some(ledger) = ledger.reopened().await else { return Ok(()) };
    for (seed, record) in written.iter().enumerate() {
        let found = load(&**ledger.store(), record.intent).await?;
        hold!(found == *record, "seed {seed}: after a reopen there is {found:?}, written was {record:?}");
        let logged = events(&**ledger.store(), record.intent).await?;
        hold!(logged.len() == 2, "seed {seed}: after a reopen {} of 2 events are there", logged.len());
    }
    Ok(())
}

pub(super) async fn time_goes_on_after_a_reopen(ledger: Ledger) -> Verdict {
    let (intent, draft) = running("before", 1)?;
    let made = create(&**ledger.store(), intent, draft).await?;
    let before = ledger.store().now().await?.max(made.record.changed_at);
    let Some(ledger) = ledger.reopened().await else { return Ok(()) };
    let after = ledger.store().now().await?;
    hold!(after >= before, "the clock went from {before:?} back to {after:?} over a reopen");
    Ok(())
}
