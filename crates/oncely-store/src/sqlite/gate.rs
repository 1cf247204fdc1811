//! The gate of a SQLite ledger: one row, read in every transaction that writes; none says that it is open.

use oncely_core::{Gate, Millis, Move};
use rusqlite::{Connection, OptionalExtension};

use super::errors::Trouble;
use crate::wire::Damaged;

/// Reads the gate.
pub(crate) fn read(connection: &Connection) -> Result<Gate, Trouble> {
    let mut statement =
        connection.prepare_cached("SELECT phase, id, run, other, shift_ms, steady_since FROM gate")?;
    let row = statement.query_row([], |row| {
        let of = Move {
            id: row.get(1)?,
            run: row.get::<_, i64>(2)? as u64,
            other: row.get(3)?,
            shift_ms: row.get(4)?,
            steady_since: Millis(row.get::<_, i64>(5)? as u64),
        };
        Ok((row.get::<_, i64>(0)?, of))
    });
    match row.optional()? {
        None => Ok(Gate::Open),
        Some((1, of)) => Ok(Gate::Closing(of)),
        Some((2, of)) => Ok(Gate::Closed(of)),
        Some((3, of)) => Ok(Gate::Filling(of)),
        Some(_) => Err(Damaged("the gate has an unknown number").into()),
    }
}

/// Programs of before the gate do not look at it. What they would write is refused by the file itself: a ledger that is
/// left has triggers for as long as it is closed. One that is filled was made by a program that knows the gate. While one is
/// closing, what is only logged of a record leaves its version, and is let in; an attempt that begins changes it.
const NO_TRIGGERS: &str = "DROP TRIGGER IF EXISTS gate_insert; DROP TRIGGER IF EXISTS gate_update; DROP TRIGGER IF EXISTS gate_delete";
const NONE_BEGIN: &str = "CREATE TRIGGER gate_insert BEFORE INSERT ON record \
     BEGIN SELECT RAISE(ABORT, 'the ledger has moved'); END; \
     CREATE TRIGGER gate_update BEFORE UPDATE ON record \
     WHEN NEW.state = 1 AND NEW.trail <> OLD.trail AND NEW.version <> OLD.version \
     BEGIN SELECT RAISE(ABORT, 'the ledger has moved'); END";
const NOTHING_CHANGES: &str = "CREATE TRIGGER gate_insert BEFORE INSERT ON record \
     BEGIN SELECT RAISE(ABORT, 'the ledger has moved'); END; \
     CREATE TRIGGER gate_update BEFORE UPDATE ON record BEGIN SELECT RAISE(ABORT, 'the ledger has moved'); END; \
     CREATE TRIGGER gate_delete BEFORE DELETE ON record BEGIN SELECT RAISE(ABORT, 'the ledger has moved'); END";

/// Writes the gate.
pub(crate) fn write(connection: &Connection, gate: &Gate) -> Result<(), Trouble> {
    connection.execute_batch(NO_TRIGGERS)?;
    match gate {
        Gate::Closing(_) => connection.execute_batch(NONE_BEGIN)?,
        Gate::Closed(_) => connection.execute_batch(NOTHING_CHANGES)?,
        Gate::Open | Gate::Filling(_) => {}
    }
    let (phase, of) = match gate {
        Gate::Open => {
            connection.execute("DELETE FROM gate", [])?;
            return Ok(());
        }
        Gate::Closing(of) => (1, of),
        Gate::Closed(of) => (2, of),
        Gate::Filling(of) => (3, of),
    };
    connection.execute(
        "INSERT OR REPLACE INTO gate (only, phase, id, run, other, shift_ms, steady_since) \
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)",
        (phase, of.id, of.run as i64, &of.other, of.shift_ms, of.steady_since.0 as i64),
    )?;
    Ok(())
}
