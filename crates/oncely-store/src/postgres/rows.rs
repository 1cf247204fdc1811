//! Records as rows: what goes into a statement's parameters, and what comes back.

use std::sync::Arc;

use bytes::BytesMut;
use oncely_core::{
    Draft, IntentId, IntentName, Key, Millis, Namespace, Record, Scope, Stamp, State, StateName, ToolName,
    Version,
};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::errors::Trouble;
use crate::codec::{Columns, unpack_record};
use crate::wire::Damaged;

/// Half of an id, as the type that PostgreSQL compares quickest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Half(pub(crate) [u8; 16]);

impl ToSql for Half {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Half {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }
}

/// A row of an answer, whichever driver brought it.
pub(crate) trait Fields {
    /// A field of it.
    fn field<'a, T: FromSql<'a>>(&'a self, at: usize) -> Result<T, Trouble>;
}

impl Fields for Row {
    fn field<'a, T: FromSql<'a>>(&'a self, at: usize) -> Result<T, Trouble> {
        Ok(self.try_get(at)?)
    }
}

/// The half of an id that is indexed.
pub(crate) fn head(intent: &IntentId) -> Half {
    let mut half = [0; 16];
    half.copy_from_slice(&intent.0[..16]);
    Half(half)
}

/// The other half.
pub(crate) fn tail(intent: &IntentId) -> Half {
    let mut half = [0; 16];
    half.copy_from_slice(&intent.0[16..]);
    Half(half)
}

fn whole(head: Half, tail: Half) -> IntentId {
    let mut id = [0; 32];
    id[..16].copy_from_slice(&head.0);
    id[16..].copy_from_slice(&tail.0);
    IntentId(id)
}

/// The number of a state, as the column keeps it.
pub(crate) fn state_number(state: StateName) -> i16 {
    match state {
        StateName::Running => 1,
        StateName::Succeeded => 2,
        StateName::Rejected => 3,
        StateName::InDoubt => 4,
    }
}

/// The state that a row is filed under, by when it is due and the number of its state.
pub(crate) fn filed_state(due: i64, number: i16) -> StateName {
    match (due, number) {
        (0, _) => StateName::Running,
        (1, _) => StateName::InDoubt,
        (_, 2) => StateName::Succeeded,
        (_, 3) => StateName::Rejected,
        // A newer version's: careful.
        _ => StateName::Running,
    }
}

/// How long after its last write something of a record is due; -1 while running, -2 in doubt.
pub(crate) fn due_after(draft: &Draft) -> i64 {
    match (&draft.body.state, draft.body.due_after_ms()) {
        (State::Running { .. }, _) => -1,
        (State::InDoubt { .. }, _) => -2,
        (_, after) => i64::try_from(after.unwrap_or(u64::MAX)).unwrap_or(i64::MAX).min(i64::MAX / 4),
    }
}

/// A time that a caller wants kept; the server's clock stamps the others.
pub(crate) fn stamp(stamp: Stamp) -> Option<i64> {
    match stamp {
        Stamp::OnWrite => None,
        Stamp::Kept(at) => Some(i64::try_from(at.0).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)),
    }
}

/// The bytes that a draft keeps for a caller.
pub(crate) fn result(draft: &Draft) -> Option<&[u8]> {
    draft.body.state.kept().map(|bytes| &bytes[..])
}

/// Reads the record of an intent from a row whose `COLUMNS` begin at this place.
pub(crate) fn read(row: &impl Fields, at: usize, intent: &IntentId) -> Result<Arc<Record>, Trouble> {
    let record = read_any(row, at)?;
    // Two ids that begin alike have not been seen; if they ever are, neither gets the other's record.
    if record.intent == *intent {
        Ok(Arc::new(record))
    } else {
        Err(Damaged("a row holds another intent").into())
    }
}

/// Reads whatever record a row holds.
pub(crate) fn read_any(row: &impl Fields, at: usize) -> Result<Record, Trouble> {
    let intent = whole(row.field(at)?, row.field(at + 1)?);
    unpack(row, at, intent).map_err(|trouble| match trouble {
        Trouble::Damaged(damage) => Trouble::Unreadable(intent, damage),
        other => other,
    })
}

fn unpack(row: &impl Fields, at: usize, intent: IntentId) -> Result<Record, Trouble> {
    let time = |column: usize| -> Result<Millis, Trouble> {
        Ok(Millis(u64::try_from(row.field::<i64>(column)?).unwrap_or(0)))
    };
    let scope: Option<&str> = row.field(at + 8)?;
    let name = IntentName {
        namespace: Namespace::parse(row.field(at + 6)?).map_err(|_| Damaged("a namespace is not one"))?,
        tool: ToolName::parse(row.field(at + 7)?).map_err(|_| Damaged("a tool name is not one"))?,
        scope: match scope {
            None => Scope::none(),
            Some(scope) => Scope::parse(scope).map_err(|_| Damaged("a scope is not one"))?,
        },
        key: Key::from_stored(row.field(at + 9)?).map_err(|_| Damaged("a key is not one"))?,
    };
    let version = Version(u64::try_from(row.field::<i64>(at + 2)?).unwrap_or(0));
    let changed_at = time(at + 5)?;
    let columns =
        Columns { intent, version, changed_at, name, body: row.field(at + 10)?, kept: row.field(at + 11)? };
    let record = unpack_record(columns)?;
    Ok(Record { created_at: time(at + 3)?, sent_at: time(at + 4)?, ..record })
}

/// The server's clock, before what says what an answer to a write is worth.
pub(crate) fn clock(row: &Row) -> Result<Millis, Trouble> {
    now(row, row.len().saturating_sub(4))
}

/// A time, in a row's column.
pub(crate) fn now(row: &impl Fields, at: usize) -> Result<Millis, Trouble> {
    Ok(Millis(u64::try_from(row.field::<i64>(at)?).unwrap_or(0)))
}
