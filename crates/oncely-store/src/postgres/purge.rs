//! Dropping what is due, a bounded step at a time.

use oncely_core::limits::AUDIT_FOR_MS;
use oncely_core::machine::{Input, Write, step};
use oncely_core::{Millis, PurgeReport, Record};
use tokio_postgres::types::Type;

use super::errors::Trouble;
use super::exec::{Entry, put_quietly};
use super::read::{is_cut, within_bytes};
use super::rows::{self, Half};
use super::session::{Param, Session};
use super::shared::Shared;
use super::sql::LISTED;
use super::{jobs, moving};
use crate::codec::unpack_events;
use crate::unreadable;

/// How much later the purge looks again at a record that it was told to keep.
const LOOK_AGAIN_MS: i64 = 60_000;

/// Drops what is due: looks, asks the machine, and writes back what has not changed meanwhile. No lock is held between,
/// so that several may purge at once, and one that is killed leaves nothing behind.
pub(crate) async fn purge(
    shared: &Shared,
    session: &mut Session,
    limit: usize,
) -> Result<PurgeReport, Trouble> {
    let schema = session.statements().schema.clone();
    // Where nothing is due the triggers would not be asked.
    moving::gate(session).await?.admits_purge(&shared.address)?;
    let now = jobs::now(shared, session).await?;
    let (until, most) = (i64::try_from(now.0).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
    let sql = within_bytes(&format!("{schema}.record r WHERE r.due BETWEEN 2 AND $1"), "due");
    let due = session.read_sql(&sql, &[(&until, Type::INT8), (&most, Type::INT8)]).await?;
    let mut report = PurgeReport::default();
    let (mut gone, mut lighter, mut later) = (Vec::new(), Vec::new(), Vec::new());
    let mut unreadable = Vec::new();
    for row in &due {
        let record = match rows::read_any(row, 0) {
            Ok(record) => record,
            // It may be all that tells of an effect: it stays, out of the way of the others.
            Err(Trouble::Unreadable(intent, _)) => {
                unreadable.push((rows::head(&intent), row.try_get::<_, i64>(2)?));
                continue;
            }
            Err(trouble) => return Err(trouble),
        };
        match step(Some(&record), &Input::Expire, now).write {
            Write::Remove => gone.push(place(&record)),
            Write::Put(draft) => {
                lighter.push(Entry { intent: record.intent, expected: record.version, draft, events: None });
            }
            Write::Nothing => later.push(place(&record)),
        }
    }
    report.records_removed = drop_records(session, gone, None).await?;
    let postponed = drop_records(session, later, Some(until.saturating_add(LOOK_AGAIN_MS))).await?;
    let much_later = until.saturating_add(unreadable::LOOK_AGAIN_MS as i64);
    report.unreadable = drop_records(session, unreadable, Some(much_later)).await?;
    report.results_dropped = put_quietly(shared, session, &mut lighter).await?;
    let changed = report.records_removed + postponed + report.unreadable + report.results_dropped;
    // Where all of it is held, the next step would find the same again, for as long as somebody holds it.
    report.more = changed > 0 && (due.len() >= limit || is_cut(&due)?);
    purge_log(session, until, most, &mut report).await?;
    Ok(report)
}

/// A row as whoever writes to it names it.
fn place(record: &Record) -> (Half, i64) {
    (rows::head(&record.intent), i64::try_from(record.version.0).unwrap_or(-1))
}

/// Removes records that have not changed, or looks at them again at a later time. What another transaction holds is left
/// alone.
async fn drop_records(
    session: &mut Session,
    mut records: Vec<(Half, i64)>,
    later: Option<i64>,
) -> Result<u64, Trouble> {
    if records.is_empty() {
        return Ok(0);
    }
    let schema = session.statements().schema.clone();
    let which = format!("{LISTED} AND r.version = i.version");
    let change = match later {
        None => format!("DELETE FROM {schema}.record r USING i WHERE {which} AND $3 IS NULL RETURNING 1"),
        Some(_) => format!("UPDATE {schema}.record r SET due = $3 FROM i WHERE {which} RETURNING 1"),
    };
    let sql = format!(
        "WITH i AS MATERIALIZED (
  SELECT r.head, r.version FROM unnest((SELECT $1), (SELECT $2)) AS i(head, version)
  JOIN {schema}.record r ON {which} FOR UPDATE OF r SKIP LOCKED
),
won AS ({change}) SELECT count(*) FROM won"
    );
    records.sort_unstable();
    let (heads, versions): (Vec<Half>, Vec<i64>) = records.into_iter().unzip();
    let params: [Param<'_>; 3] =
        [(&heads, Type::UUID_ARRAY), (&versions, Type::INT8_ARRAY), (&later, Type::INT8)];
    let rows = session.write_sql(&sql, &params).await?;
    let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// The log is in order of time: as soon as one is young, all that follow are. What goes by its age beside it is bounded like
/// everything else, and what somebody holds is left for the next time. Lists are met from their side alone ([`LISTED`]).
async fn purge_log(
    session: &mut Session,
    now: i64,
    limit: i64,
    report: &mut PurgeReport,
) -> Result<(), Trouble> {
    let schema = session.statements().schema.clone();
    let before = now.saturating_sub(AUDIT_FOR_MS as i64);
    let sql = format!(
        "WITH oldest AS MATERIALIZED (SELECT seq, at FROM {schema}.audit ORDER BY seq LIMIT $2),
won AS (
  DELETE FROM {schema}.audit a USING oldest o WHERE a.seq = ANY (ARRAY[o.seq]) AND o.at < $1 RETURNING a.events
),
old_trails AS MATERIALIZED (
  SELECT head FROM {schema}.forgotten WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED
),
forgotten AS (DELETE FROM {schema}.forgotten f USING old_trails o WHERE f.head = ANY (ARRAY[o.head]) RETURNING 1),
not_waited_for AS MATERIALIZED (
  SELECT head FROM {schema}.waiting WHERE until < $3 ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED
),
waiting AS (DELETE FROM {schema}.waiting w USING not_waited_for n WHERE w.head = ANY (ARRAY[n.head]) RETURNING 1)
SELECT won.events, counts.most FROM (
  SELECT greatest((SELECT count(*) FROM forgotten), (SELECT count(*) FROM waiting), (SELECT count(*) FROM won)) AS most
) counts LEFT JOIN won ON true"
    );
    let params: [Param<'_>; 3] = [(&before, Type::INT8), (&limit, Type::INT8), (&now, Type::INT8)];
    let rows = session.write_sql(&sql, &params).await?;
    for row in &rows {
        if let Some(events) = row.try_get::<_, Option<&[u8]>>(0)? {
            // They are gone, whether or not they could be read.
            report.events_removed +=
                unpack_events(0, Millis(0), events).map_or(0, |events| events.len() as u64);
        }
        report.more |= row.try_get::<_, i64>(1)? >= limit;
    }
    Ok(())
}
