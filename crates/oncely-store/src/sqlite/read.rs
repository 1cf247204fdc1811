//! Reading, beside the writer: a few connections, used on the calling thread.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use oncely_core::limits::PAGE_MAX;
use oncely_core::{
    Counter, Filter, IntentId, Key, LogQuery, LoggedEvent, Millis, Namespace, Record, StateName, StoreError,
    Tally, ToolName, Unreadable, Wrote,
};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::batch::read_forgotten;
use super::connect::{Use, open_again};
use super::errors::Trouble;
use super::files::Files;
use super::rows::{self, DUE_IN_DOUBT, DUE_RUNNING, select_records, state_number};
use crate::codec::{batch_of, derived_digest, unpack_events, unpack_trail};
use crate::listing::{exact_intent, id_range};
use crate::wire::Damaged;

/// Most connections kept open for readers; more are opened when needed and closed after.
const IDLE_MAX: usize = 8;

/// The reading connections.
#[derive(Default)]
pub(crate) struct Readers {
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// Runs a query on a connection of its own.
    pub(crate) fn with<T>(
        &self,
        files: &Files,
        query: impl FnOnce(&Connection) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        let idle = self.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => {
                files.still_the_same()?;
                open_again(files.path(), Use::Reading)?
            }
        };
        let result = query(&connection);
        if !matches!(result, Err(Trouble::Sqlite(_))) {
            let mut idle = self.lock();
            if idle.len() < IDLE_MAX {
                idle.push(connection);
            }
        }
        result.map_err(|trouble| trouble.at(files.path(), Wrote::No))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lists records in the order in which they were made, from after this place; also where the next page starts.
pub(crate) fn scan(
    connection: &Connection,
    filter: &Filter,
    from: u64,
    limit: usize,
) -> Result<Listed, Trouble> {
    let limit = limit.clamp(1, PAGE_MAX);
    if let Some(intent) = exact_intent(filter) {
        // The whole name is given: look it up, unless it is filed under another id, or cannot be read.
        let found = match rows::read(connection, &intent) {
            Err(Trouble::Unreadable(..)) => None,
            read => read?,
        };
        if let Some(record) = found.filter(|record| filter.accepts(record)) {
            let records = if from == 0 { vec![record] } else { Vec::new() };
            return Ok(Listed { records, ..Listed::default() });
        }
    }
    let (sql, values) = scan_sql(filter, from);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let (mut listed, mut last) = (Listed::default(), from);
    while let Some(row) = rows.next()? {
        let read = match rows::read_row(row) {
            Err(Trouble::Unreadable(intent, why)) => Err(rows::unreadable(row, intent, why)?),
            read => Ok(read?.1),
        };
        if read.as_ref().is_ok_and(|record| !filter.accepts(record)) {
            continue;
        }
        if listed.records.len() + listed.unreadable.len() == limit {
            listed.next = Some(last);
            return Ok(listed);
        }
        last = row.get::<_, i64>(0)? as u64;
        match read {
            Ok(record) => listed.records.push(record),
            Err(unreadable) => listed.unreadable.push(unreadable),
        }
    }
    Ok(listed)
}

/// One page of records, and where the next one starts.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) records: Vec<Record>,
    pub(crate) unreadable: Vec<Unreadable>,
    pub(crate) next: Option<u64>,
}

/// A query that leaves out most of what the filter would: open states and ids by their index, the rest in one pass.
fn scan_sql(filter: &Filter, from: u64) -> (String, Vec<Value>) {
    let mut sql = select_records!("WHERE r.id > ?1").to_owned();
    let mut values = vec![Value::Integer(i64::try_from(from).unwrap_or(i64::MAX))];
    let mut and = |condition: &str, value: Value| {
        values.push(value);
        let condition = condition.replace('?', &format!("?{}", values.len()));
        sql.push_str(&format!(" AND {condition}"));
    };
    match filter.state {
        Some(StateName::Running) => and("r.due = ?", Value::Integer(DUE_RUNNING)),
        Some(StateName::InDoubt) => and("r.due = ?", Value::Integer(DUE_IN_DOUBT)),
        // Spelled out, so that the index of rejected records is seen to fit.
        Some(StateName::Rejected) => and("r.state = 3 AND r.state = ?", Value::Integer(3)),
        Some(state) => and("r.state = ?", Value::Integer(state_number(state))),
        None => {}
    }
    if let Some(namespace) = &filter.namespace {
        // One whose tool is missing may be anybody's.
        and("(t.id IS NULL OR t.namespace = ?)", Value::Text(namespace.as_str().to_owned()));
    }
    if let Some(tool) = filter.tool.as_ref().filter(|tool| !tool.contains('*')) {
        and("(t.id IS NULL OR t.name = ?)", Value::Text(tool.clone()));
    }
    match filter.scope.as_deref() {
        Some("") => and("r.scope IS ?", Value::Null),
        Some(scope) => and("r.scope = ?", Value::Text(scope.to_owned())),
        None => {}
    }
    if let Some(key) = &filter.key {
        let digest = Key::from_stored(key).ok().as_ref().and_then(derived_digest);
        let stored = digest.map_or_else(|| Value::Text(key.clone()), |digest| Value::Blob(digest.to_vec()));
        and("r.key = ?", stored);
    }
    if let Some((low, high)) = filter.id_prefix.as_deref().and_then(id_range) {
        and("r.head >= ?", Value::Blob(rows::head(&low).to_vec()));
        and("r.head <= ?", Value::Blob(rows::head(&high).to_vec()));
    }
    if let Some(since) = filter.changed_since {
        and("r.changed_at >= ?", Value::Integer(since.0 as i64));
    }
    if let Some(before) = filter.changed_before {
        and("r.changed_at < ?", Value::Integer(i64::try_from(before.0).unwrap_or(i64::MAX)));
    }
    sql.push_str(" ORDER BY r.id");
    (sql, values)
}

/// Reads the log; also the place to go on after.
pub(crate) fn log(
    connection: &Connection,
    query: &LogQuery,
) -> Result<(Vec<LoggedEvent>, Option<u64>), Trouble> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    let mut found = Vec::new();
    let wanted = |event: &LoggedEvent| {
        event.seq > query.after && query.intent.is_none_or(|intent| event.event.intent == intent)
    };
    // One more than asked for tells whether there is more.
    let mut take = |mut events: Vec<LoggedEvent>| {
        events.retain(wanted);
        if query.newest {
            events.reverse();
        }
        found.extend(events);
        if found.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match query.intent.map(|intent| trail(connection, &intent)).transpose()?.flatten() {
        Some(mut batches) => {
            if query.newest {
                batches.reverse();
            }
            walk_trail(connection, &batches, &mut take)?;
        }
        None => walk_log(connection, query, &mut take)?,
    }
    let more = found.len() > limit;
    found.truncate(limit);
    if query.newest {
        found.reverse();
        return Ok((found, None));
    }
    let next = found.last().filter(|_| more).map(|event| event.seq);
    Ok((found, next))
}

/// The batches that tell of a record; `None` if there is neither a record nor the memory of one, or if it cannot be read:
/// then the whole log is.
fn trail(connection: &Connection, intent: &IntentId) -> Result<Option<Vec<u64>>, Trouble> {
    let forgotten = read_forgotten(connection, intent)?;
    let slot = rows::find(connection, intent)?;
    if forgotten.is_none() && slot.is_none() {
        return Ok(None);
    }
    let trails = [forgotten.unwrap_or_default(), slot.map(|slot| slot.trail).unwrap_or_default()];
    let Ok(batches) = trails.iter().map(|trail| unpack_trail(trail)).collect::<Result<Vec<_>, _>>() else {
        return Ok(None);
    };
    let mut batches = batches.concat();
    batches.sort_unstable();
    batches.dedup();
    Ok(Some(batches))
}

type Take<'a> = &'a mut dyn FnMut(Vec<LoggedEvent>) -> ControlFlow<()>;

fn walk_trail(connection: &Connection, batches: &[u64], take: Take<'_>) -> Result<(), Trouble> {
    let mut statement = connection.prepare_cached("SELECT seq, at, events FROM audit WHERE seq = ?1")?;
    for batch in batches {
        let mut rows = statement.query([*batch as i64])?;
        if let Some(row) = rows.next()?
            && take(read_events(row)?).is_break()
        {
            break;
        }
    }
    Ok(())
}

fn walk_log(connection: &Connection, query: &LogQuery, take: Take<'_>) -> Result<(), Trouble> {
    let sql = match query.newest {
        true => "SELECT seq, at, events FROM audit WHERE seq >= ?1 ORDER BY seq DESC",
        false => "SELECT seq, at, events FROM audit WHERE seq >= ?1 ORDER BY seq",
    };
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([batch_of(query.after) as i64])?;
    while let Some(row) = rows.next()? {
        if take(read_events(row)?).is_break() {
            break;
        }
    }
    Ok(())
}

fn read_events(row: &Row<'_>) -> Result<Vec<LoggedEvent>, Trouble> {
    let events = row.get_ref(2)?.as_blob().map_err(|_| Damaged("a column holds the wrong type"))?;
    Ok(unpack_events(row.get::<_, i64>(0)? as u64, Millis(row.get::<_, i64>(1)? as u64), events)?)
}

/// Reads the counters.
pub(crate) fn tallies(connection: &Connection) -> Result<Vec<Tally>, Trouble> {
    let mut statement = connection.prepare_cached(
        "SELECT t.namespace, t.name, c.counter, c.count FROM tally c JOIN tool t ON t.id = c.tool \
         ORDER BY t.namespace, t.name, c.counter",
    )?;
    let mut rows = statement.query([])?;
    let mut tallies = Vec::new();
    while let Some(row) = rows.next()? {
        let (namespace, tool): (String, String) = (row.get(0)?, row.get(1)?);
        // A counter that this version does not know is a later version's.
        if let Some(counter) = Counter::from_number(row.get(2)?) {
            tallies.push(Tally {
                namespace: Namespace::parse(&namespace).map_err(|_| Damaged("a namespace is not one"))?,
                tool: ToolName::parse(&tool).map_err(|_| Damaged("a tool name is not one"))?,
                counter,
                count: row.get::<_, i64>(3)? as u64,
            });
        }
    }
    Ok(tallies)
}

/// Counts records by state, all exactly: open and rejected ones by their index, the rest by one pass over the smallest.
pub(crate) fn census(connection: &Connection) -> Result<Vec<(StateName, u64)>, Trouble> {
    let count = |sql: &str| -> Result<u64, Trouble> {
        let count = connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0))?;
        Ok(count as u64)
    };
    let running = count("SELECT count(*) FROM record WHERE due = 0")?;
    let in_doubt = count("SELECT count(*) FROM record WHERE due = 1")?;
    let rejected = count("SELECT count(*) FROM record WHERE state = 3")?;
    let all = count("SELECT count(*) FROM record")?;
    Ok(vec![
        (StateName::Running, running),
        (StateName::Succeeded, all.saturating_sub(running + in_doubt + rejected)),
        (StateName::Rejected, rejected),
        (StateName::InDoubt, in_doubt),
    ])
}
