//! Listings: records in the order of their creation, and the log.

use std::sync::Arc;

use oncely_core::limits::PAGE_MAX;
use oncely_core::{
    Filter, IntentId, LogQuery, LoggedEvent, Millis, Page, Record, StateName, Stored, Unreadable, Version,
};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::errors::Trouble;
use super::exec::load_many;
use super::limits::BATCH_BYTES_MAX;
use super::session::{Param, Session};
use super::settled::settle;
use super::shared::Shared;
use super::sql::{COLUMN_COUNT, COLUMNS};
use super::{jobs, rows};
use crate::codec::{batch_of, unpack_events};
use crate::listing::{exact_intent, id_range};
use crate::wire::Damaged;

/// Rows that are read at once where the filter leaves some out: that is seen only here.
const CHUNK: usize = 256;
/// The bytes of a row that count: results may be large.
const SIZE: &str = "(length(r.body) + coalesce(length(r.result), 0))";
/// Reads records in this order, as many as `$2` says and as fit into one answer; one at least. Each comes with its place,
/// when it is due, its state, and the bytes up to it. The server knows how long a result is without reading it.
pub(crate) fn within_bytes(from: &str, order: &str) -> String {
    format!(
        "SELECT r.* FROM (
  SELECT r.*, sum({SIZE}) OVER (ORDER BY r.{order} ROWS UNBOUNDED PRECEDING) AS total
  FROM (SELECT {COLUMNS}, r.id, r.due, r.state FROM {from} ORDER BY r.{order} LIMIT $2) r
) r WHERE r.total - {SIZE} < {BATCH_BYTES_MAX} ORDER BY r.{order}"
    )
}

/// Whether such rows may have been cut short by their bytes.
pub(crate) fn is_cut(rows: &[Row]) -> Result<bool, Trouble> {
    let Some(last) = rows.last() else { return Ok(false) };
    let total: i64 = last.try_get(COLUMN_COUNT + 3)?;
    Ok(usize::try_from(total).unwrap_or(usize::MAX) >= BATCH_BYTES_MAX)
}

/// Lists records, oldest first.
pub(crate) async fn scan(
    shared: &Shared,
    session: &mut Session,
    filter: &Filter,
    from: u64,
    limit: usize,
) -> Result<Page<Stored>, Trouble> {
    if let Some(intent) = exact_intent(filter) {
        // The whole name is given: look it up, unless it is filed under another id, or cannot be read.
        let (now, mut found) = load_many(shared, session, &[intent]).await?;
        let record = found.remove(&intent).and_then(Result::ok);
        if let Some(record) = record.filter(|record| filter.accepts(record)) {
            let items = if from == 0 { vec![Stored { record, now }] } else { Vec::new() };
            return Ok(Page::of(items, None, now));
        }
    }
    let now = jobs::now(shared, session).await?;
    let mut page = Page::of(Vec::new(), None, now);
    let query = ScanQuery::new(filter, session.statements().schema.as_str());
    let (mut last, mut at) = (from, i64::try_from(from).unwrap_or(i64::MAX));
    // One more than asked for tells whether there is more.
    let mut chunk = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    loop {
        let rows = session.read_sql(&query.sql, &query.params(&at, &chunk)).await?;
        for row in &rows {
            at = row.try_get(COLUMN_COUNT)?;
            let read = readable(row)?;
            if read.as_ref().is_ok_and(|record| !filter.accepts(record)) {
                continue;
            }
            if page.items.len() + page.unreadable.len() == limit {
                page.next = Some(last);
                return Ok(page);
            }
            last = u64::try_from(at).unwrap_or(0);
            match read {
                Ok(record) => page.items.push(Stored { record: Arc::new(record), now }),
                Err(unreadable) => page.unreadable.push(unreadable),
            }
        }
        let (cut, empty) = (is_cut(&rows)?, page.items.is_empty() && page.unreadable.is_empty());
        if cut && !empty {
            // A shorter page, rather than one whose bytes nobody has bounded.
            page.next = u64::try_from(at).ok();
            return Ok(page);
        }
        if !cut && i64::try_from(rows.len()).unwrap_or(i64::MAX) < chunk {
            return Ok(page);
        }
        chunk = chunk.max(CHUNK as i64);
    }
}

/// The record of a row of a listing, or what is known of one that cannot be read.
fn readable(row: &Row) -> Result<Result<Record, Unreadable>, Trouble> {
    let (intent, Damaged(why)) = match rows::read_any(row, 0) {
        Err(Trouble::Unreadable(intent, damage)) => (intent, damage),
        read => return read.map(Ok),
    };
    let version = u64::try_from(row.try_get::<_, i64>(2)?).ok().map(Version);
    let state = rows::filed_state(row.try_get(COLUMN_COUNT + 1)?, row.try_get(COLUMN_COUNT + 2)?);
    Ok(Err(Unreadable { intent, version, state, why: why.to_owned() }))
}

/// A query that leaves out most of what the filter would: open states and ids by their index, the rest in one pass.
struct ScanQuery {
    sql: String,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl ScanQuery {
    fn new(filter: &Filter, schema: &str) -> Self {
        let mut query = Self { sql: format!("{schema}.record r WHERE r.id > $1"), values: Vec::new() };
        match filter.state {
            Some(StateName::Running) => query.sql.push_str(" AND r.due = 0"),
            Some(StateName::InDoubt) => query.sql.push_str(" AND r.due = 1"),
            Some(StateName::Rejected) => query.sql.push_str(" AND r.state = 3"),
            Some(StateName::Succeeded) => query.sql.push_str(" AND r.state = 2"),
            None => {}
        }
        if let Some(namespace) = &filter.namespace {
            query.and("r.namespace =", namespace.as_str().to_owned(), Type::TEXT);
        }
        if let Some(tool) = filter.tool.as_ref().filter(|tool| !tool.contains('*') && !tool.contains('\0')) {
            query.and("r.tool =", tool.clone(), Type::TEXT);
        }
        match filter.scope.as_deref() {
            Some("") => query.sql.push_str(" AND r.scope IS NULL"),
            Some(scope) if !scope.contains('\0') => query.and("r.scope =", scope.to_owned(), Type::TEXT),
            _ => {}
        }
        if let Some(key) = filter.key.as_ref().filter(|key| !key.contains('\0')) {
            query.and("r.key =", key.clone(), Type::TEXT);
        }
        if let Some((low, high)) = filter.id_prefix.as_deref().and_then(id_range) {
            query.and("r.head >=", rows::head(&low), Type::UUID);
            query.and("r.head <=", rows::head(&high), Type::UUID);
        }
        let time = |at: Millis| i64::try_from(at.0).unwrap_or(i64::MAX);
        if let Some(since) = filter.changed_since {
            query.and("r.changed_at >=", time(since), Type::INT8);
        }
        if let Some(before) = filter.changed_before {
            query.and("r.changed_at <", time(before), Type::INT8);
        }
        query.sql = within_bytes(&query.sql, "id");
        query
    }

    fn and(&mut self, condition: &str, value: impl ToSql + Sync + Send + 'static, of: Type) {
        self.values.push((Box::new(value), of));
        self.sql.push_str(&format!(" AND {condition} ${}", self.values.len() + 2));
    }

    fn params<'a>(&'a self, from: &'a i64, chunk: &'a i64) -> Vec<Param<'a>> {
        let mut params: Vec<Param<'a>> = vec![(from, Type::INT8), (chunk, Type::INT8)];
        for (value, of) in &self.values {
            params.push((&**value, of.clone()));
        }
        params
    }
}

/// Reads the log. Whoever reads on from a place is told nothing that comes after one which somebody may still fill.
pub(crate) async fn log(
    shared: &Shared,
    session: &mut Session,
    query: &LogQuery,
) -> Result<Page<LoggedEvent>, Trouble> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    let now = jobs::now(shared, session).await?;
    let trail = match &query.intent {
        Some(intent) => trail(shared, session, intent, query.newest).await?,
        None => None,
    };
    let mut found = match trail {
        Some(batches) => read_trail(session, batches, query).await?,
        None => walk(shared, session, query, limit).await?,
    };
    found.retain(|event| {
        event.seq > query.after && query.intent.is_none_or(|intent| event.event.intent == intent)
    });
    let more = found.len() > limit;
    if query.newest {
        found.drain(..found.len().saturating_sub(limit));
        return Ok(Page::of(found, None, now));
    }
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|event| event.seq);
    Ok(Page::of(found, next, now))
}

/// The statements that tell of a record; `None` if there is neither a record nor the memory of one. A note may have drawn its
/// place long before it could be written, so that those that are not settled are for who wants the newest.
async fn trail(
    shared: &Shared,
    session: &mut Session,
    intent: &IntentId,
    newest: bool,
) -> Result<Option<Vec<i64>>, Trouble> {
    // Asked before it is looked: what is settled since may not have been there to be seen.
    let settled = shared.settled.upto(session.timeline());
    let found = whole_trail(session, intent).await?;
    if newest || found.iter().flatten().all(|batch| *batch <= settled) {
        return Ok(found);
    }
    let settled = settle(shared, session).await?;
    let again = whole_trail(session, intent).await?;
    Ok(again.map(|batches| batches.into_iter().filter(|batch| *batch <= settled).collect()))
}

async fn whole_trail(session: &mut Session, intent: &IntentId) -> Result<Option<Vec<i64>>, Trouble> {
    let schema = session.statements().schema.clone();
    let sql = format!(
        "SELECT trail FROM {schema}.forgotten WHERE head = $1 UNION ALL SELECT trail FROM {schema}.record WHERE head = $1"
    );
    let rows = session.read_sql(&sql, &[(&rows::head(intent), Type::UUID)]).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut batches = Vec::new();
    for row in &rows {
        let trail: &[u8] = row.try_get(0)?;
        batches.extend(trail.as_chunks::<8>().0.iter().map(|place| i64::from_be_bytes(*place)));
    }
    Ok(Some(batches))
}

async fn read_trail(
    session: &mut Session,
    batches: Vec<i64>,
    query: &LogQuery,
) -> Result<Vec<LoggedEvent>, Trouble> {
    let schema = session.statements().schema.clone();
    let sql =
        format!("SELECT seq, at, events FROM {schema}.audit WHERE seq = ANY($1) AND seq >= $2 ORDER BY seq");
    let from = first_batch(query);
    unpack(&session.read_sql(&sql, &[(&batches, Type::INT8_ARRAY), (&from, Type::INT8)]).await?)
}

fn first_batch(query: &LogQuery) -> i64 {
    i64::try_from(batch_of(query.after)).unwrap_or(i64::MAX)
}

fn unpack(rows: &[Row]) -> Result<Vec<LoggedEvent>, Trouble> {
    let mut events = Vec::new();
    for row in rows {
        let batch = u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
        events.extend(unpack_events(batch, rows::now(row, 1)?, row.try_get(2)?)?);
    }
    Ok(events)
}

/// Walks the log until enough has been found.
async fn walk(
    shared: &Shared,
    session: &mut Session,
    query: &LogQuery,
    limit: usize,
) -> Result<Vec<LoggedEvent>, Trouble> {
    let schema = session.statements().schema.clone();
    let (from, chunk) = (first_batch(query), i64::try_from(CHUNK).unwrap_or(i64::MAX));
    let (condition, order) = if query.newest { ("seq < $3", "DESC") } else { ("seq > $3", "ASC") };
    let sql = format!(
        "SELECT seq, at, events FROM {schema}.audit WHERE seq >= $1 AND {condition} ORDER BY seq {order} LIMIT $2"
    );
    let mut at = if query.newest { i64::MAX } else { from.saturating_sub(1) };
    let mut found: Vec<LoggedEvent> = Vec::new();
    let mut looked = false;
    loop {
        // Asked before it is looked: what is settled since may not have been there to be seen.
        let settled = if query.newest { i64::MAX } else { shared.settled.upto(session.timeline()) };
        let mut rows =
            session.read_sql(&sql, &[(&from, Type::INT8), (&chunk, Type::INT8), (&at, Type::INT8)]).await?;
        let mut goes_on = rows.len() == CHUNK;
        if let Some(gap) = first_gap(&rows, at.max(settled))? {
            if !looked {
                looked = true;
                settle(shared, session).await?;
                continue;
            }
            // Somebody may still write there. What follows is told when that is known.
            rows.truncate(gap);
            goes_on = false;
        }
        at = rows.last().map_or(Ok(at), |row| row.try_get(0))?;
        if query.newest {
            rows.reverse();
            found.splice(0..0, unpack(&rows)?);
        } else {
            found.extend(unpack(&rows)?);
        }
        let wanted = found
            .iter()
            .filter(|event| query.intent.is_none_or(|intent| event.event.intent == intent))
            .count();
        if wanted > limit || !goes_on {
            return Ok(found);
        }
    }
}

/// The first of these rows before which a place is empty, after one up to which that does not matter.
fn first_gap(rows: &[Row], after: i64) -> Result<Option<usize>, Trouble> {
    let mut before = after;
    for (number, row) in rows.iter().enumerate() {
        let batch: i64 = row.try_get(0)?;
        if batch > before.saturating_add(1) {
            return Ok(Some(number));
        }
        before = before.max(batch);
    }
    Ok(None)
}
