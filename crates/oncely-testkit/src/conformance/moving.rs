//! The gate and what it guards: a ledger that moves claims nothing, is still read, and arrives whole.

use std::sync::Arc;

use oncely_core::{
    Change, Counter, Created, Event, EventKind, Gate, Import, LogQuery, LoggedEvent, Millis, Move, Namespace,
    Record, Store, StoreError, StoreErrorKind, Tally, ToolName, Version, Wrote,
};

use super::sample::{
    Random, began, create, events, in_doubt, load, name, next, put, rejected, replace, running, succeeded,
};
use super::{Broken, Ledger, Verdict, hold};

fn a_move(id: u8) -> Move {
    let other = "elsewhere:there".to_owned();
    Move { id: [id; 16], run: 1, other, shift_ms: -5, steady_since: Millis(77) }
}

/// Whether a ledger says that such ledgers cannot be moved: then it need not keep these promises.
async fn cannot_move(store: &dyn Store) -> Result<bool, Broken> {
    let nowhere = Gate::Filling(Move { other: String::new(), ..a_move(0) });
    match store.turn_gate(nowhere.clone(), nowhere).await {
        Err(error) if error.kind == StoreErrorKind::Unsuitable => Ok(true),
        answered => Ok(answered.map(|_| false)?),
    }
}

async fn turn(store: &dyn Store, from: Gate, to: Gate) -> Verdict {
    let now = store.turn_gate(from, to.clone()).await?;
    hold!(now == to, "the gate was turned to {to:?} and stands at {now:?}");
    Ok(())
}

fn refused<T>(what: &str, answer: Result<T, StoreError>) -> Verdict {
    match answer {
        Ok(_) => Err(Broken(format!("{what} was let in"))),
        Err(error) => {
            let (kind, wrote) = (error.kind, error.wrote);
            hold!(
                kind == StoreErrorKind::Moved && wrote == Wrote::No,
                "{what}: {error} ({kind:?}, {wrote:?})"
            );
            hold!(error.message.contains("elsewhere:there"), "{what}: the other end is not named: {error}");
            Ok(())
        }
    }
}

pub(super) async fn a_closing_ledger_lets_attempts_end_and_none_begin(ledger: Ledger) -> Verdict {
    if cannot_move(&**ledger.store()).await? {
        return Ok(());
    }
    let stores = [Arc::clone(ledger.store()), ledger.other().await];
    let (under_way, draft) = running("under-way", 1)?;
    let made = create(&*stores[0], under_way, draft).await?.record;
    let refusal = replace(
        &*stores[0],
        &create(&*stores[0], running("again", 1)?.0, running("again", 1)?.1).await?.record,
        rejected(),
    )
    .await?
    .record;
    hold!(stores[1].gate().await? == Gate::Open, "a new ledger is not open");
    turn(&*stores[0], Gate::Open, Gate::Closing(a_move(1))).await?;
    for store in &stores {
        let (fresh, draft) = running("fresh", 2)?;
        refused("a new attempt", store.create(fresh, draft, began(fresh)).await)?;
        hold!(store.load(fresh).await?.is_none(), "a refused claim is there");
        let retry = Change::Put(next(&refusal, running("again", 3)?.1.body.state));
        refused(
            "a next attempt",
            store.replace(refusal.intent, refusal.version, retry, began(refusal.intent)).await,
        )?;
    }
    // Word of an attempt that was superseded is the one sign of a double effect: it is taken while another is under way.
    for store in &stores {
        store.note(vec![Event::new(under_way, 1, EventKind::Superseded)]).await?;
    }
    let told = events(&*stores[0], under_way).await?;
    let superseded = told.iter().filter(|logged| logged.event.kind == EventKind::Superseded).count();
    hold!(superseded == 2, "{superseded} of 2 notes are found by their record: {told:?}");
    hold!(load(&*stores[1], under_way).await? == made, "a note has changed its record");
    // By the handle that did not turn the gate.
    let ended = replace(&*stores[1], &made, succeeded(Some(b"end"))).await?.record;
    hold!(load(&*stores[0], under_way).await? == ended, "an attempt could not end");
    turn(&*stores[1], Gate::Closing(a_move(1)), Gate::Open).await?;
    let (fresh, draft) = running("fresh", 2)?;
    create(&*stores[0], fresh, draft).await?;
    Ok(())
}

pub(super) async fn a_closed_ledger_is_read_and_never_written(ledger: Ledger) -> Verdict {
    if cannot_move(&**ledger.store()).await? {
        return Ok(());
    }
    let stores = [Arc::clone(ledger.store()), ledger.other().await];
    let (intent, draft) = running("there", 1)?;
    let made = create(&*stores[0], intent, draft.clone()).await?.record;
    let there = replace(&*stores[0], &made, in_doubt()).await?.record;
    turn(&*stores[1], Gate::Open, Gate::Closed(a_move(1))).await?;
    for store in &stores {
        let (fresh, fresh_draft) = running("fresh", 2)?;
        refused("a create", store.create(fresh, fresh_draft, began(fresh)).await)?;
        let end = Change::Put(next(&there, succeeded(None)));
        refused("a replace", store.replace(intent, there.version, end, Vec::new()).await)?;
        refused("a removal", store.replace(intent, there.version, Change::Remove, Vec::new()).await)?;
        refused("a note", store.note(vec![Event::new(intent, 1, EventKind::Superseded)]).await)?;
        refused("a purge", store.purge(10).await)?;
        match store.create(intent, draft.clone(), began(intent)).await? {
            Created::Exists(found) => hold!(found.record == there, "a create found {:?}", found.record),
            Created::New(_) => return Err(Broken("a closed ledger claimed a key that it knows".into())),
        }
        hold!(load(&**store, intent).await? == there, "the record has changed");
        hold!(events(&**store, intent).await?.len() == 1, "the log has changed");
        let listed = store.scan(Default::default(), 0, 10).await?.items.len();
        hold!(listed == 1, "a closed ledger lists {listed} of 1 records");
    }
    Ok(())
}

pub(super) async fn of_many_turns_of_the_gate_one_wins(ledger: Ledger) -> Verdict {
    if cannot_move(&**ledger.store()).await? {
        return Ok(());
    }
    let stores = [Arc::clone(ledger.store()), ledger.other().await];
    let mut turning = Vec::new();
    for id in 1..=16 {
        let store = Arc::clone(&stores[usize::from(id % 2)]);
        turning.push(tokio::spawn(async move {
            (id, store.turn_gate(Gate::Open, Gate::Filling(a_move(id))).await)
        }));
    }
    let mut won = Vec::new();
    for turned in turning {
        let (id, now) = turned.await.map_err(|e| Broken(format!("a turn panicked: {e}")))?;
        if now? == Gate::Filling(a_move(id)) {
            won.push(id);
        }
    }
    hold!(won.len() == 1, "{} of 16 turns of one gate won", won.len());
    for store in &stores {
        let stands = store.gate().await?;
        hold!(stands == Gate::Filling(a_move(won[0])), "{won:?} won and the gate stands at {stands:?}");
    }
    Ok(())
}

pub(super) async fn no_claim_slips_past_a_gate_that_closes(ledger: Ledger) -> Verdict {
    if cannot_move(&**ledger.store()).await? {
        return Ok(());
    }
    let stores = [Arc::clone(ledger.store()), ledger.other().await];
    for round in 0..4_u8 {
        let mut claims = Vec::new();
        for n in 0..48_u8 {
            let store = Arc::clone(&stores[usize::from(n % 2)]);
            let (intent, draft) = running(&format!("slip-{round}-{n}"), 1)?;
            claims.push(tokio::spawn(async move { store.create(intent, draft, began(intent)).await }));
            if n % 8 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let closed = Gate::Closed(a_move(round + 1));
        turn(&*stores[0], Gate::Open, closed.clone()).await?;
        // What is there once the gate is closed is all that there will ever be.
        let seen = keys(&*stores[0]).await?;
        for claim in claims {
            match claim.await.map_err(|e| Broken(format!("a claim panicked: {e}")))? {
                Ok(Created::New(won)) => {
                    let key = won.record.body.name.key.as_str().to_owned();
                    hold!(seen.contains(&key), "{key} was claimed and is not seen behind the closed gate");
                }
                Ok(Created::Exists(_)) => return Err(Broken("a claim met a record of nobody".into())),
                Err(error) => refused::<()>("a claim", Err(error))?,
            }
        }
        hold!(keys(&*stores[1]).await? == seen, "a record appeared behind a closed gate");
        turn(&*stores[1], closed, Gate::Open).await?;
    }
    Ok(())
}

async fn keys(store: &dyn Store) -> Result<Vec<String>, Broken> {
    let page = store.scan(Default::default(), 0, 1_000).await?;
    Ok(page.items.iter().map(|item| item.record.body.name.key.as_str().to_owned()).collect())
}

/// A record with times of its own and its events, as another ledger would have them.
fn foreign(seed: u64) -> Result<(Arc<Record>, Vec<LoggedEvent>), Broken> {
    let mut random = Random(seed);
    let name = name("default", "", "moved", &format!("seed-{seed}"))?;
    let mut body = random.body(name.clone());
    if let oncely_core::State::Running { .. } = body.state {
        body.state = in_doubt();
    }
    let intent = name.intent_id();
    let at = Millis(500_000 + 10 * seed);
    let record = Record {
        intent,
        version: Version(7_000_000 + seed),
        created_at: at,
        sent_at: Millis(seed % 3),
        changed_at: Millis(at.0 + 9),
        body,
    };
    let logged = |seq, at, kind| LoggedEvent {
        seq,
        at,
        event: Event::new(intent, 1, kind).with_note(random_note(seed)),
    };
    let events = vec![logged(1, at, EventKind::Began), logged(2, Millis(at.0 + 9), EventKind::InDoubt)];
    Ok((Arc::new(record), events))
}

fn random_note(seed: u64) -> String {
    Random(seed).text(30)
}

pub(super) async fn what_is_imported_keeps_its_times_and_order(ledger: Ledger) -> Verdict {
    if cannot_move(&**ledger.store()).await? {
        return Ok(());
    }
    let store = ledger.store();
    let gate = Gate::Filling(a_move(1));
    turn(&**store, Gate::Open, gate.clone()).await?;
    let (fresh, draft) = running("fresh", 2)?;
    refused("a claim while it is filled", store.create(fresh, draft.clone(), began(fresh)).await)?;
    let mut import = Import::default();
    for seed in 0..25 {
        let (record, logged) = foreign(seed)?;
        import.records.push(record);
        import.events.extend(logged);
    }
    let count = tally(5)?;
    import.tallies.push(count.clone());
    // In two parts, the records of the first brought twice: its answer was lost.
    let first = Import { records: import.records[..15].to_vec(), ..Import::default() };
    store.import(a_move(1), first.clone()).await?;
    store.import(a_move(1), first).await?;
    store.import(a_move(1), import.clone()).await?;
    store.import(a_move(1), Import { tallies: vec![tally(3)?], ..Import::default() }).await?;
    turn(&**store, gate, Gate::Open).await?;
    let Some(ledger) = arrived(ledger, &import, &count).await? else { return Ok(()) };
    arrived(ledger, &import, &count).await?;
    Ok(())
}

/// Compares what is there with what was brought; the ledger opened again, where that can be done.
async fn arrived(ledger: Ledger, import: &Import, count: &Tally) -> Result<Option<Ledger>, Broken> {
    let store = ledger.store();
    for brought in &import.records {
        let found = load(&**store, brought.intent).await?;
        let expected = Record { version: found.version, ..(**brought).clone() };
        hold!(*found == expected, "brought {expected:?}, there is {found:?}");
        let of_record = events(&**store, brought.intent).await?;
        hold!(of_record.len() == 2, "{} of 2 events of an imported record are found by it", of_record.len());
    }
    let log = store.log(LogQuery { limit: 1_000, ..LogQuery::default() }).await?.items;
    let times = |events: &[LoggedEvent]| events.iter().map(|e| (e.at, e.event.clone())).collect::<Vec<_>>();
    hold!(times(&log) == times(&import.events), "the log is another than was brought: {log:?}");
    let totals = store.tallies().await?;
    hold!(totals.iter().any(|t| t == count), "a counter brought as {count:?} reads {totals:?}");
    Ok(ledger.reopened().await)
}

fn tally(count: u64) -> Result<Tally, Broken> {
    let bad = |e| Broken(format!("the suite made a bad name: {e}"));
    let tool = ToolName::parse("moved").map_err(bad)?;
    Ok(Tally { namespace: Namespace::default(), tool, counter: Counter::Replays, count })
}

pub(super) async fn an_imported_record_lives_on_like_any_other(ledger: Ledger) -> Verdict {
    if cannot_move(&**ledger.store()).await? {
        return Ok(());
    }
    let store = ledger.store();
    turn(&**store, Gate::Open, Gate::Filling(a_move(1))).await?;
    let (record, logged) = foreign(4)?;
    let import = Import { records: vec![record.clone()], events: logged, tallies: Vec::new() };
    store.import(a_move(1), import).await?;
    turn(&**store, Gate::Filling(a_move(1)), Gate::Open).await?;
    let found = load(&**store, record.intent).await?;
    match store.create(record.intent, running("x", 1)?.1, began(record.intent)).await? {
        Created::Exists(there) => hold!(there.record == found, "a create met {:?}", there.record),
        Created::New(_) => return Err(Broken("a key that a move brought was claimed again".into())),
    }
    let ended = put(&**store, &found, next(&found, succeeded(Some(b"later")))).await?.record;
    hold!(ended.version > found.version, "version {:?} follows {:?}", ended.version, found.version);
    let (intent, draft) = running("new", 1)?;
    let made = create(&**store, intent, draft).await?.record;
    hold!(
        made.version > found.version,
        "a new record has the version {:?}, an older one {:?}",
        made.version,
        found.version
    );
    Ok(())
}

pub(super) async fn only_the_move_that_fills_a_ledger_may_import(ledger: Ledger) -> Verdict {
    if cannot_move(&**ledger.store()).await? {
        return Ok(());
    }
    let store = ledger.store();
    let (record, _) = foreign(1)?;
    let import = Import { records: vec![record.clone()], ..Import::default() };
    let refused =
        |answer: Result<(), StoreError>| matches!(answer, Err(e) if e.kind == StoreErrorKind::Moved);
    hold!(refused(store.import(a_move(1), import.clone()).await), "an open ledger took an import");
    turn(&**store, Gate::Open, Gate::Filling(Move { run: 2, ..a_move(1) })).await?;
    for other in [a_move(1), Move { run: 2, ..a_move(2) }] {
        hold!(
            refused(store.import(other.clone(), import.clone()).await),
            "{other:?} filled another's ledger"
        );
    }
    hold!(store.load(record.intent).await?.is_none(), "a refused import is there");
    Ok(())
}

pub(super) async fn the_gate_survives_a_reopen(ledger: Ledger) -> Verdict {
    if cannot_move(&**ledger.store()).await? {
        return Ok(());
    }
    let gate = Gate::Closed(Move { shift_ms: i64::MIN, run: u64::MAX, ..a_move(9) });
    turn(&**ledger.store(), Gate::Open, gate.clone()).await?;
    let stays = ledger.store().turn_gate(Gate::Open, Gate::Filling(a_move(2))).await?;
    hold!(stays == gate, "a gate that stood elsewhere was turned: {stays:?}");
    let Some(ledger) = ledger.reopened().await else { return Ok(()) };
    let stands = ledger.store().gate().await?;
    hold!(stands == gate, "the gate stood at {gate:?}, and after a reopen at {stands:?}");
    let (fresh, draft) = running("fresh", 2)?;
    refused("a create after a reopen", ledger.store().create(fresh, draft, began(fresh)).await)
}
