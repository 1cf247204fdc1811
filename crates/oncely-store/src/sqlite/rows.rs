//! The SQL of records: one row in, one row out. No rule about states lives here.

use std::collections::HashMap;

use oncely_core::{
    IntentId, IntentName, Key, Millis, Namespace, Record, Scope, State, StateName, ToolName, Unreadable,
    Version,
};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, Statement, ToSql};

use super::errors::Trouble;
use crate::codec::{Columns, derived_digest, pack_body, unpack_record};
use crate::wire::Damaged;

/// A running record's place in the index of what is due: it never is.
pub(crate) const DUE_RUNNING: i64 = 0;
/// A record in doubt never is either.
pub(crate) const DUE_IN_DOUBT: i64 = 1;
/// The first place that is a time.
pub(crate) const DUE_FIRST: i64 = 2;

const HEAD_BYTES: usize = 16;

/// Selects what [`read_row`] wants, in its order.
macro_rules! select_records {
    ($rest:literal) => {
        concat!(
            "SELECT r.id, r.head, r.tail, r.version, r.changed_at, t.namespace, t.name, r.scope, r.key, r.body, ",
            // One whose tool is missing is there all the same.
            "r.result, r.state FROM record r LEFT JOIN tool t ON t.id = r.tool ",
            $rest
        )
    };
}
pub(crate) use select_records;

/// What a writer needs to know of a record that it is about to change.
pub(crate) struct Slot {
    pub(crate) id: i64,
    /// `None` where it cannot be read.
    pub(crate) version: Option<Version>,
    pub(crate) succeeded: bool,
    /// Empty where it cannot be read: it only says where in the log to look.
    pub(crate) trail: Vec<u8>,
}

/// The number of a state, as the column keeps it.
pub(crate) fn state_number(state: StateName) -> i64 {
    match state {
        StateName::Running => 1,
        StateName::Succeeded => 2,
        StateName::Rejected => 3,
        StateName::InDoubt => 4,
    }
}

/// The half of the id that is indexed.
pub(crate) fn head(intent: &IntentId) -> &[u8] {
    &intent.0[..HEAD_BYTES]
}

fn tail(intent: &IntentId) -> &[u8] {
    &intent.0[HEAD_BYTES..]
}

/// Finds a record's row.
pub(crate) fn find(connection: &Connection, intent: &IntentId) -> Result<Option<Slot>, Trouble> {
    let mut statement =
        connection.prepare_cached("SELECT id, tail, version, state, trail FROM record WHERE head = ?1")?;
    let mut rows = statement.query([head(intent)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let tail = row.get_ref(1)?;
    // One that is no half of an id at all is damage, and must not keep a person from having the record removed.
    if tail.as_blob().is_ok_and(|tail| tail.len() == HEAD_BYTES) {
        check_tail(tail, intent)?;
    }
    Ok(Some(Slot {
        id: row.get(0)?,
        version: version(row.get_ref(2)?).ok(),
        succeeded: row.get_ref(3)?.as_i64() == Ok(state_number(StateName::Succeeded)),
        trail: blob(row.get_ref(4)?).unwrap_or_default().to_vec(),
    }))
}

/// Reads a record.
pub(crate) fn read(connection: &Connection, intent: &IntentId) -> Result<Option<Record>, Trouble> {
    let mut statement = connection.prepare_cached(select_records!("WHERE r.head = ?1"))?;
    let mut rows = statement.query([head(intent)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    check_tail(row.get_ref(2)?, intent)?;
    Ok(Some(read_row(row)?.1))
}

/// Reads only a record's version.
pub(crate) fn read_version(connection: &Connection, intent: &IntentId) -> Result<Option<Version>, Trouble> {
    let mut statement = connection.prepare_cached("SELECT version FROM record WHERE head = ?1")?;
    let version = statement.query_row([head(intent)], |row| row.get::<_, i64>(0)).optional()?;
    Ok(version.map(|v| Version(v as u64)))
}

/// Reads a row of `select_records`: its place and its record.
pub(crate) fn read_row(row: &Row<'_>) -> Result<(i64, Record), Trouble> {
    read_id(row).and_then(|intent| unpack(row, intent)).map_err(|trouble| match trouble {
        Trouble::Damaged(Damaged(why)) => Trouble::Unreadable(likely_id(row), why),
        other => other,
    })
}

fn read_id(row: &Row<'_>) -> Result<IntentId, Trouble> {
    let mut intent = [0; 32];
    let (head, tail) = intent.split_at_mut(HEAD_BYTES);
    copy(head, row.get_ref(1)?)?;
    copy(tail, row.get_ref(2)?)?;
    Ok(IntentId(intent))
}

/// Which record a row is that cannot be read: by its id, else by the name that the id was made from, else by what is there
/// of the id.
fn likely_id(row: &Row<'_>) -> IntentId {
    let named = || read_name(row).map(|name| name.intent_id());
    read_id(row).or_else(|_| named()).unwrap_or_else(|_| {
        let mut intent = [0; 32];
        for (half, column) in intent.chunks_exact_mut(HEAD_BYTES).zip([1, 2]) {
            let there = row.get_ref(column).ok().and_then(|value| value.as_blob().ok()).unwrap_or_default();
            let length = there.len().min(HEAD_BYTES);
            half[..length].copy_from_slice(&there[..length]);
        }
        IntentId(intent)
    })
}

/// What is known of a row of `select_records` whose record cannot be read.
pub(crate) fn unreadable(row: &Row<'_>, intent: IntentId, why: &str) -> Result<Unreadable, Trouble> {
    let version = version(row.get_ref(3)?).ok();
    let filed = row.get_ref(11)?.as_i64();
    let state = StateName::ALL.into_iter().find(|state| filed == Ok(state_number(*state)));
    // One that is unknown here is a newer version's: careful.
    let state = state.unwrap_or(StateName::Running);
    Ok(Unreadable { intent, version, state, why: why.to_owned() })
}

fn unpack(row: &Row<'_>, intent: IntentId) -> Result<(i64, Record), Trouble> {
    let columns = Columns {
        intent,
        version: version(row.get_ref(3)?)?,
        changed_at: Millis(number(row.get_ref(4)?)?),
        name: read_name(row)?,
        body: blob(row.get_ref(9)?)?,
        kept: match row.get_ref(10)? {
            ValueRef::Null => None,
            kept => Some(blob(kept)?),
        },
    };
    Ok((row.get(0)?, unpack_record(columns)?))
}

fn read_name(row: &Row<'_>) -> Result<IntentName, Trouble> {
    Ok(IntentName {
        namespace: Namespace::parse(text(row.get_ref(5)?)?).map_err(|_| Damaged("a namespace is not one"))?,
        tool: ToolName::parse(text(row.get_ref(6)?)?).map_err(|_| Damaged("a tool name is not one"))?,
        scope: match row.get_ref(7)? {
            ValueRef::Null => Scope::none(),
            scope => Scope::parse(text(scope)?).map_err(|_| Damaged("a scope is not one"))?,
        },
        key: read_key(row.get_ref(8)?)?,
    })
}

/// Writes a new record; answers whether there was none.
pub(crate) fn insert(
    connection: &Connection,
    record: &Record,
    tool: i64,
    trail: &[u8],
) -> Result<bool, Trouble> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO record (version, state, due, changed_at, tool, scope, key, trail, body, result, head, tail) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (head) DO NOTHING",
    )?;
    bind(&mut statement, record, tool, trail)?;
    statement.raw_bind_parameter(11, head(&record.intent))?;
    statement.raw_bind_parameter(12, tail(&record.intent))?;
    Ok(statement.raw_execute()? > 0)
}

/// Writes a record in the place of what is there.
pub(crate) fn update(
    connection: &Connection,
    id: i64,
    record: &Record,
    tool: i64,
    trail: &[u8],
) -> Result<(), Trouble> {
    let mut statement = connection.prepare_cached(
        "UPDATE record SET version = ?1, state = ?2, due = ?3, changed_at = ?4, tool = ?5, scope = ?6, key = ?7, \
         trail = ?8, body = ?9, result = ?10 WHERE id = ?11",
    )?;
    bind(&mut statement, record, tool, trail)?;
    statement.raw_bind_parameter(11, id)?;
    statement.raw_execute()?;
    Ok(())
}

/// Binds what [`insert`] and [`update`] have in common: their first ten parameters.
fn bind(statement: &mut Statement<'_>, record: &Record, tool: i64, trail: &[u8]) -> rusqlite::Result<()> {
    let name = &record.body.name;
    statement.raw_bind_parameter(1, record.version.0 as i64)?;
    statement.raw_bind_parameter(2, state_number(record.body.state.name()))?;
    statement.raw_bind_parameter(3, due(record))?;
    statement.raw_bind_parameter(4, record.changed_at.0 as i64)?;
    statement.raw_bind_parameter(5, tool)?;
    statement.raw_bind_parameter(6, name.scope.is_named().then(|| name.scope.as_str()))?;
    statement.raw_bind_parameter(7, StoredKey(&name.key))?;
    statement.raw_bind_parameter(8, trail)?;
    statement.raw_bind_parameter(9, pack_body(record))?;
    statement.raw_bind_parameter(10, record.body.state.kept().map(|bytes| &bytes[..]))
}

/// Writes only a record's trail.
pub(crate) fn update_trail(connection: &Connection, id: i64, trail: &[u8]) -> Result<(), Trouble> {
    connection.prepare_cached("UPDATE record SET trail = ?2 WHERE id = ?1")?.execute((id, trail))?;
    Ok(())
}

/// Removes a record.
pub(crate) fn delete(connection: &Connection, id: i64) -> Result<(), Trouble> {
    connection.prepare_cached("DELETE FROM record WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// The numbers of tools, as records refer to them.
#[derive(Default)]
pub(crate) struct Tools(HashMap<Namespace, HashMap<ToolName, i64>>);

impl Tools {
    /// More are looked up again: a gateway may see any number of paths.
    const KNOWN_MAX: usize = 10_000;

    /// Forgets what was learned in a transaction that did not take place.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The number of a tool, which gets one if it has none.
    pub(crate) fn number(
        &mut self,
        connection: &Connection,
        namespace: &Namespace,
        tool: &ToolName,
    ) -> Result<i64, Trouble> {
        if let Some(number) = self.0.get(namespace).and_then(|tools| tools.get(tool)) {
            return Ok(*number);
        }
        let names = (namespace.as_str(), tool.as_str());
        connection
            .prepare_cached("INSERT INTO tool (namespace, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
            .execute(names)?;
        let number: i64 = connection
            .prepare_cached("SELECT id FROM tool WHERE namespace = ?1 AND name = ?2")?
            .query_row(names, |row| row.get(0))?;
        if self.0.values().map(HashMap::len).sum::<usize>() >= Self::KNOWN_MAX {
            self.0.clear();
        }
        self.0.entry(namespace.clone()).or_default().insert(tool.clone(), number);
        Ok(number)
    }
}

fn due(record: &Record) -> i64 {
    match (&record.body.state, record.body.due_after_ms()) {
        (State::Running { .. }, _) => DUE_RUNNING,
        (State::InDoubt { .. }, _) => DUE_IN_DOUBT,
        (_, after) => {
            let at = record.changed_at.plus(after.unwrap_or(u64::MAX)).0;
            i64::try_from(at).unwrap_or(i64::MAX).max(DUE_FIRST)
        }
    }
}

/// A key as it is stored: a text, or half as long as that the digest of a derived one.
struct StoredKey<'a>(&'a Key);

impl ToSql for StoredKey<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match derived_digest(self.0) {
            Some(digest) => ToSqlOutput::from(digest.to_vec()),
            None => ToSqlOutput::from(self.0.as_str()),
        })
    }
}

fn read_key(value: ValueRef<'_>) -> Result<Key, Trouble> {
    match value {
        ValueRef::Blob(digest) => {
            let digest = digest.try_into().map_err(|_| Damaged("a derived key has the wrong length"))?;
            Ok(Key::derived(digest))
        }
        other => Ok(Key::from_stored(text(other)?).map_err(|_| Damaged("a key is not one"))?),
    }
}

/// Two ids that begin alike have not been seen; if they ever are, neither gets the other's record.
fn check_tail(stored: ValueRef<'_>, intent: &IntentId) -> Result<(), Trouble> {
    match stored.as_blob() {
        Ok(stored) if stored == tail(intent) => Ok(()),
        _ => Err(Trouble::Unreadable(*intent, "its row holds another intent, or half of its id is damaged")),
    }
}

fn copy(to: &mut [u8], from: ValueRef<'_>) -> Result<(), Trouble> {
    let from = blob(from)?;
    if from.len() != to.len() {
        return Err(Damaged("an id has the wrong length").into());
    }
    to.copy_from_slice(from);
    Ok(())
}

fn version(value: ValueRef<'_>) -> Result<Version, Trouble> {
    number(value).map(Version)
}

fn number(value: ValueRef<'_>) -> Result<u64, Trouble> {
    let number = value.as_i64().ok().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| Damaged("a column holds the wrong type").into())
}

fn blob(value: ValueRef<'_>) -> Result<&[u8], Trouble> {
    value.as_blob().map_err(|_| Damaged("a column holds the wrong type").into())
}

fn text(value: ValueRef<'_>) -> Result<&str, Trouble> {
    value.as_str().map_err(|_| Damaged("a column holds the wrong type").into())
}
