//! Opening connections: what the file is, that it is ours, and that what is committed is really on disk.

use std::path::Path;
use std::time::Duration;

use oncely_core::{Millis, StoreError, StoreErrorKind, Wrote};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::errors::Trouble;
use super::schema::{APPLICATION_ID, SCHEMA_VERSION, migrate};
use super::turnstile::Turnstile;
use crate::clock::{Anchor, Readings};

/// Older libraries can lose commits when two connections write or checkpoint at once.
const SQLITE_MIN: i32 = 3_051_003;
/// Writers queue at the turnstile; this is only for a foreign program that holds the file.
const BUSY: Duration = Duration::from_secs(5);
/// The first result code of `PRAGMA synchronous`: FULL.
const FULL: i64 = 2;
/// On macOS a sync ends where the drive has the data, not where the data is kept, unless it is asked for that. Elsewhere this
/// changes nothing.
pub(crate) const SYNC_TO_DISK: &str = "PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It writes, and keeps much of the index in memory.
    Writing,
    /// It reads.
    Reading,
}

/// What a file turned out to be.
enum Found {
    Empty,
    Ours(i32),
}

/// Opens the file for the first time in this process: checks it, makes or migrates the tables, finds the clock.
pub(crate) fn open_ledger(path: &Path, stile: &mut Turnstile) -> Result<(Connection, Anchor), StoreError> {
    check_library(rusqlite::version_number())?;
    let fail = |trouble: Trouble| trouble.at(path, Wrote::No);
    let connection = connect(path).map_err(|e| fail(e.into()))?;
    // Another process may be making the ledger at this moment: only a whole one is believed without taking a turn.
    if !matches!(look(&connection, path), Ok(Found::Ours(SCHEMA_VERSION))) {
        let _turn = stile.enter_for_opening().map_err(|e| fail(e.into()))?;
        if !matches!(look(&connection, path)?, Found::Ours(SCHEMA_VERSION)) {
            set_wal(&connection).map_err(fail)?;
            upgrade(&connection, path)?;
        }
    }
    verify(&connection, path, Use::Writing)?;
    let anchor = find_anchor(&connection, stile).map_err(fail)?;
    Ok((connection, anchor))
}

/// Opens another connection to a ledger that [`open_ledger`] has checked.
pub(crate) fn open_again(path: &Path, purpose: Use) -> Result<Connection, StoreError> {
    let connection = connect(path).map_err(|e| Trouble::from(e).at(path, Wrote::No))?;
    verify(&connection, path, purpose)?;
    Ok(connection)
}

fn check_library(version: i32) -> Result<(), StoreError> {
    if version >= SQLITE_MIN {
        return Ok(());
    }
    Err(StoreError::before(
        StoreErrorKind::Unsuitable,
        format!("SQLite {version} can lose commits; nothing was written; build with {SQLITE_MIN} or newer"),
    ))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // Without the create flag: the file was made beforehand, with private permissions.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // A process that lives for a moment must not copy the whole log when it leaves.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // One plan for each statement, whatever is bound: with a partial index in the schema it would otherwise be planned
    // again on every call.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Says what a file is, without changing it.
fn look(connection: &Connection, path: &Path) -> Result<Found, StoreError> {
    let fail = |e: rusqlite::Error| Trouble::from(e).at(path, Wrote::No);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0));
    let id = number("PRAGMA application_id").map_err(fail)?;
    let version = number("PRAGMA user_version").map_err(fail)?;
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(fail)?;
    match (id, version, tables) {
        (0, 0, 0) => Ok(Found::Empty),
        (APPLICATION_ID, 1..=SCHEMA_VERSION, 1..) => Ok(Found::Ours(version)),
        (APPLICATION_ID, version, _) if version > SCHEMA_VERSION => Err(StoreError::before(
            StoreErrorKind::TooNew,
            format!(
                "the ledger {} has version {version} and this program knows {SCHEMA_VERSION}; nothing was written; \
                 use a newer program",
                path.display()
            ),
        )),
        (APPLICATION_ID, ..) => Err(StoreError::before(
            StoreErrorKind::Corrupt,
            format!(
                "the ledger {} has lost its tables; nothing was written; restore it from a copy",
                path.display()
            ),
        )),
        _ => Err(StoreError::before(
            StoreErrorKind::Foreign,
            format!(
                "{} is a database of another program; nothing was written; name another file",
                path.display()
            ),
        )),
    }
}

fn set_wal(connection: &Connection) -> Result<(), Trouble> {
    let deadline = std::time::Instant::now() + BUSY;
    loop {
        let set = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match set {
            // Others who look at a file whose maker was killed lock it for a moment to clear its journal away, and
            // SQLite does not wait for them here.
            Err(e) if is_busy(&e) && std::time::Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return Ok(other.map(|_| ())?),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

fn upgrade(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let fail = |e: rusqlite::Error| Trouble::from(e).at(path, Wrote::No);
    let begin = format!("PRAGMA synchronous = FULL; {SYNC_TO_DISK}; BEGIN IMMEDIATE");
    connection.execute_batch(&begin).map_err(fail)?;
    let result = look(connection, path).and_then(|found| {
        let from = match found {
            Found::Empty => 0,
            Found::Ours(version) => version,
        };
        migrate(connection, from).map_err(fail)
    });
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(fail)?;
    result
}

/// Sets what a connection needs and reads it back: a setting that did not take would lose commits silently.
fn verify(connection: &Connection, path: &Path, purpose: Use) -> Result<(), StoreError> {
    let fail = |e: rusqlite::Error| Trouble::from(e).at(path, Wrote::No);
    if connection.is_readonly("main").map_err(fail)? {
        let read_only = rustix::io::Errno::ACCESS;
        return Err(Trouble::from(read_only).at(path, Wrote::No));
    }
    let cache_kib = match purpose {
        // Not more: SQLite goes through its whole page table in every commit that has rebalanced a tree.
        Use::Writing => 16 * 1024,
        Use::Reading => 8 * 1024,
    };
    let settings = format!(
        "PRAGMA synchronous = FULL; {SYNC_TO_DISK}; PRAGMA wal_autocheckpoint = 0; PRAGMA mmap_size = 0; PRAGMA cache_size = \
         -{cache_kib}"
    );
    connection.execute_batch(&settings).map_err(fail)?;
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(fail)?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(fail)?;
    if mode == "wal" && synchronous == FULL {
        return Ok(());
    }
    Err(StoreError::before(
        StoreErrorKind::Unsuitable,
        format!(
            "the ledger {} runs with journal mode {mode} and synchronous {synchronous}, which would lose records; \
             nothing was written; name a file on a local disk",
            path.display()
        ),
    ))
}

/// The clock's anchor for this boot; the first to open the ledger after a boot writes it.
fn find_anchor(connection: &Connection, stile: &mut Turnstile) -> Result<Anchor, Trouble> {
    let readings = Readings::take();
    if let Some(anchor) = read_anchor(connection)?.filter(|anchor| anchor.holds(&readings)) {
        return Ok(anchor);
    }
    let _turn = stile.enter_for_opening()?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let result = write_anchor(connection, &readings);
    connection.execute_batch(if result.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    result
}

fn write_anchor(connection: &Connection, readings: &Readings) -> Result<Anchor, Trouble> {
    let anchor = match read_anchor(connection)? {
        Some(anchor) if anchor.holds(readings) => return Ok(anchor),
        Some(anchor) => anchor.next(newest(connection)?.1.0, readings),
        None => Anchor::first(readings),
    };
    connection.execute(
        "INSERT OR REPLACE INTO anchor (only, boot, boottime_ms, ledger_ms) VALUES (1, ?1, ?2, ?3)",
        (anchor.boot, anchor.boottime_ms as i64, anchor.ledger_ms as i64),
    )?;
    Ok(anchor)
}

fn read_anchor(connection: &Connection) -> Result<Option<Anchor>, Trouble> {
    let mut statement = connection.prepare_cached("SELECT boot, boottime_ms, ledger_ms FROM anchor")?;
    let anchor = statement.query_row([], |row| {
        Ok(Anchor {
            boot: row.get(0)?,
            boottime_ms: row.get::<_, i64>(1)? as u64,
            ledger_ms: row.get::<_, i64>(2)? as u64,
        })
    });
    Ok(anchor.optional()?)
}

/// The newest commit in the log, and when it was.
pub(crate) fn newest(connection: &Connection) -> rusqlite::Result<(u64, Millis)> {
    let mut statement = connection.prepare_cached("SELECT seq, at FROM audit ORDER BY seq DESC LIMIT 1")?;
    let newest = statement
        .query_row([], |row| Ok((row.get::<_, i64>(0)? as u64, Millis(row.get::<_, i64>(1)? as u64))));
    Ok(newest.optional()?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{Use, check_library, connect, open_again, set_wal, verify};

    #[test]
    fn a_library_that_loses_commits_is_refused() {
        assert!(check_library(3_051_002).is_err());
        assert!(check_library(3_051_003).is_ok());
        assert!(check_library(rusqlite::version_number()).is_ok(), "the bundled one");
    }

    #[test]
    fn every_connection_syncs_as_far_as_the_system_can() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        std::fs::write(&path, "").unwrap();
        let first = connect(&path).unwrap();
        set_wal(&first).unwrap();
        verify(&first, &path, Use::Writing).unwrap();
        for connection in [first, open_again(&path, Use::Reading).unwrap()] {
            for setting in ["synchronous", "fullfsync", "checkpoint_fullfsync"] {
                let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
                let value = connection.query_row(&format!("PRAGMA {setting}"), [], read).unwrap();
                assert_eq!(value, if setting == "synchronous" { super::FULL } else { 1 }, "{setting}");
            }
        }
    }
}
