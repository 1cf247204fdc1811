//! The gate of a PostgreSQL ledger, and what a move brings.
//!
//! The gate is one row. Triggers on the tables look at it, and are enabled only while it is not open: a call costs nothing
//! more, and no program passes it, however old. To enable or disable them, the tables are locked against writers, so that
//! statements under way have ended, and those that come later see the gate as it stands then.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use oncely_core::{Draft, Event, Gate, Import, LoggedEvent, Millis, Move, Record, Stamp, Tally, Version};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::batch::TRIES;
use super::errors::Trouble;
use super::exec::{Entry, Patience, create_all};
use super::limits::{BATCH_BYTES_MAX, BATCH_MAX};
use super::request::bytes_of;
use super::rows::{self, Half};
use super::session::{Param, Session};
use super::shared::Shared;
use super::sql::LISTED;
use crate::codec::pack_events;
use crate::wire::Damaged;

/// How long writers under way are waited for before a turn of the gate is given up.
const LOCK_WITHIN: &str = "SET LOCAL lock_timeout = '10s'";
const COLUMNS: &str = "phase, id, run, other, shift_ms, steady_since";

/// Reads the gate.
pub(crate) async fn gate(session: &mut Session) -> Result<Gate, Trouble> {
    let sql = format!("SELECT {COLUMNS} FROM {}.gate", session.statements().schema);
    of_rows(&session.read_sql(&sql, &[]).await?)
}

/// Turns the gate if it stands as expected; answers how it stands then.
pub(crate) async fn turn(session: &mut Session, from: &Gate, to: Gate) -> Result<Gate, Trouble> {
    session.begin().await?;
    let turned = turn_inside(session, from, to).await;
    session.end(turned).await
}

async fn turn_inside(session: &mut Session, from: &Gate, to: Gate) -> Result<Gate, Trouble> {
    let schema = session.statements().schema.clone();
    session.write_sql(LOCK_WITHIN, &[]).await?;
    let lock = format!("LOCK TABLE {schema}.record, {schema}.audit IN SHARE ROW EXCLUSIVE MODE");
    session.write_sql(&lock, &[]).await?;
    let sql = format!("SELECT {COLUMNS} FROM {schema}.gate FOR UPDATE");
    let stands = of_rows(&session.write_sql(&sql, &[]).await?)?;
    if stands != *from {
        return Ok(stands);
    }
    session.write_sql(&format!("DELETE FROM {schema}.gate"), &[]).await?;
    if let Some((phase, of)) = parts(&to) {
        let sql = format!(
            "INSERT INTO {schema}.gate (phase, id, run, other, shift_ms, steady_since) \
                           VALUES ($1, $2, $3, $4, $5, $6)"
        );
        let (id, run, steady) = (of.id.to_vec(), of.run as i64, of.steady_since.0 as i64);
        let params: [Param<'_>; 6] = [
            (&phase, Type::INT2),
            (&id, Type::BYTEA),
            (&run, Type::INT8),
            (&of.other, Type::TEXT),
            (&of.shift_ms, Type::INT8),
            (&steady, Type::INT8),
        ];
        session.write_sql(&sql, &params).await?;
    }
    let set = if to == Gate::Open { "DISABLE" } else { "ENABLE" };
    for table in ["record", "audit"] {
        session.write_sql(&format!("ALTER TABLE {schema}.{table} {set} TRIGGER gate"), &[]).await?;
    }
    Ok(to)
}

/// Takes what a move brings, in one transaction. If the same was being brought already, over a connection that was lost, this
/// finds it there when that has ended.
pub(crate) async fn import(
    shared: &Shared,
    session: &mut Session,
    under: &Move,
    import: &Import,
) -> Result<(), Trouble> {
    let mut tries = 0;
    loop {
        session.begin().await?;
        let brought = import_inside(shared, session, under, import).await;
        tries += 1;
        match session.end(brought).await {
            Err(trouble) if trouble.is_overtaken() && tries < TRIES => {}
            ended => return ended,
        }
    }
}

async fn import_inside(
    shared: &Shared,
    session: &mut Session,
    under: &Move,
    import: &Import,
) -> Result<(), Trouble> {
    let schema = session.statements().schema.clone();
    // Shared: whoever turns the gate waits for this import's end.
    let sql = format!("SELECT {COLUMNS} FROM {schema}.gate FOR SHARE");
    let stands = of_rows(&session.write_sql(&sql, &[]).await?)?;
    stands.admits_import(&shared.address, under)?;
    let run = (under.run as i64).to_string();
    session.write_sql("SELECT set_config('oncely.run', $1, true)", &[(&run, Type::TEXT)]).await?;
    for piece in pieces(&import.records) {
        let kept = |at: Millis| Stamp::Kept(at);
        let mut entries: Vec<Entry> = piece
            .iter()
            .map(|record| Entry {
                intent: record.intent,
                expected: Version(0),
                draft: Box::new(Draft {
                    created: kept(record.created_at),
                    sent: kept(record.sent_at),
                    changed: kept(record.changed_at),
                    body: record.body.clone(),
                }),
                events: None,
            })
            .collect();
        // In the order in which they came: their places in listings are given in it.
        let mut seen = HashSet::new();
        entries.retain(|entry| seen.insert(entry.intent));
        create_all(shared, session, &entries, Patience::Among).await?;
    }
    log(session, &import.events).await?;
    raise(session, &import.tallies).await
}

/// Records in the order in which they came, no more at once than a statement carries for callers.
fn pieces(mut records: &[Arc<Record>]) -> Vec<&[Arc<Record>]> {
    let mut pieces = Vec::new();
    while !records.is_empty() {
        let mut bytes = 0;
        let fits = |record: &&Arc<Record>| {
            bytes += bytes_of(&record.body);
            bytes <= BATCH_BYTES_MAX
        };
        let fit = records.iter().take(BATCH_MAX).take_while(fits).count();
        let (piece, rest) = records.split_at(fit.max(1));
        pieces.push(piece);
        records = rest;
    }
    pieces
}

/// Logs events with their own times, after all that are there, and adds them to their records' trails.
async fn log(session: &mut Session, events: &[LoggedEvent]) -> Result<(), Trouble> {
    let statements = Arc::clone(session.statements());
    let (schema, seq) = (&statements.schema, &statements.seq);
    let at_once: Vec<&[LoggedEvent]> = events.chunk_by(|a, b| a.at == b.at).collect();
    if at_once.is_empty() {
        return Ok(());
    }
    let times: Vec<i64> = at_once.iter().map(|some| some[0].at.0 as i64).collect();
    let packed: Vec<Vec<u8>> = at_once
        .iter()
        .map(|some| pack_events(&some.iter().map(|e| e.event.clone()).collect::<Vec<Event>>()))
        .collect();
    let sql = format!(
        "INSERT INTO {schema}.audit (seq, at, events)
SELECT nextval({seq}), i.at, i.events FROM (SELECT * FROM unnest($1, $2) WITH ORDINALITY AS u(at, events, n) ORDER BY n) i
RETURNING seq"
    );
    let params: [Param<'_>; 2] = [(&times, Type::INT8_ARRAY), (&packed, Type::BYTEA_ARRAY)];
    let mut seqs = Vec::new();
    for row in session.write_sql(&sql, &params).await? {
        seqs.push(row.try_get::<_, i64>(0)?);
    }
    seqs.sort_unstable();
    let mut trails: BTreeMap<Half, Vec<u8>> = BTreeMap::new();
    for (some, seq) in at_once.iter().zip(seqs) {
        let mut heads: Vec<Half> = some.iter().map(|e| rows::head(&e.event.intent)).collect();
        heads.sort_unstable();
        heads.dedup();
        for head in heads {
            trails.entry(head).or_default().extend(seq.to_be_bytes());
        }
    }
    let (heads, more): (Vec<Half>, Vec<Vec<u8>>) = trails.into_iter().unzip();
    let sql = format!(
        "UPDATE {schema}.record r
SET trail = substr(r.trail || i.more, greatest(1, length(r.trail || i.more) - 511))
FROM unnest($1, $2) AS i(head, more) WHERE {LISTED}"
    );
    session.write_sql(&sql, &[(&heads, Type::UUID_ARRAY), (&more, Type::BYTEA_ARRAY)]).await.map(drop)
}

async fn raise(session: &mut Session, tallies: &[Tally]) -> Result<(), Trouble> {
    let schema = session.statements().schema.clone();
    let sql = format!(
        "INSERT INTO {schema}.tally AS t (namespace, tool, counter, count) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, tool, counter) DO UPDATE SET count = greatest(t.count, excluded.count)"
    );
    for tally in tallies {
        let (namespace, tool) = (tally.namespace.as_str(), tally.tool.as_str());
        let (counter, count) = (tally.counter as i16, i64::try_from(tally.count).unwrap_or(i64::MAX));
        let params: [Param<'_>; 4] =
            [(&namespace, Type::TEXT), (&tool, Type::TEXT), (&counter, Type::INT2), (&count, Type::INT8)];
        session.write_sql(&sql, &params).await?;
    }
    Ok(())
}

fn of_rows(rows: &[Row]) -> Result<Gate, Trouble> {
    let Some(row) = rows.first() else { return Ok(Gate::Open) };
    let id: Vec<u8> = row.try_get(1)?;
    let of = Move {
        id: id.try_into().map_err(|_| Damaged("a move has a name of the wrong length"))?,
        run: row.try_get::<_, i64>(2)? as u64,
        other: row.try_get(3)?,
        shift_ms: row.try_get(4)?,
        steady_since: Millis(row.try_get::<_, i64>(5)? as u64),
    };
    match row.try_get::<_, i16>(0)? {
        1 => Ok(Gate::Closing(of)),
        2 => Ok(Gate::Closed(of)),
        3 => Ok(Gate::Filling(of)),
        _ => Err(Damaged("the gate has an unknown number").into()),
    }
}

fn parts(gate: &Gate) -> Option<(i16, &Move)> {
    match gate {
        Gate::Open => None,
        Gate::Closing(of) => Some((1, of)),
        Gate::Closed(of) => Some((2, of)),
        Gate::Filling(of) => Some((3, of)),
    }
}
