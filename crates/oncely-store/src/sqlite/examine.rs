//! Looking at a SQLite ledger without making or changing it, and bringing its tables up to date.

use std::path::Path;

use oncely_core::{StoreError, Wrote};
use rusqlite::{Connection, OpenFlags};

use super::errors::Trouble;
use super::schema::{self, APPLICATION_ID, SCHEMA_VERSION};
use super::{SqliteOptions, SqliteStore};
use crate::check::{Check, Health, Migrated};

/// What is seen of the ledger.
pub(crate) fn check(options: &SqliteOptions) -> Vec<Check> {
    let path = &options.path;
    if !path.exists() {
        let message =
            format!("{} is not there yet; `oncely store migrate` or the first call makes it", path.display());
        return vec![Check::new("tables", Health::Warn, message)];
    }
    let tables = match version(path) {
        Ok(SCHEMA_VERSION) => Check::new("tables", Health::Ok, format!("version {SCHEMA_VERSION}")),
        Ok(older) if older < SCHEMA_VERSION => {
            let message =
                format!("version {older}; `oncely store migrate` or the next call makes it {SCHEMA_VERSION}");
            Check::new("tables", Health::Warn, message)
        }
        Ok(newer) => {
            let message =
                format!("version {newer}, and this program knows {SCHEMA_VERSION}; use a newer program");
            return vec![Check::new("tables", Health::Fail, message)];
        }
        Err(error) => return vec![Check::new("tables", Health::Fail, error.message)],
    };
    let opens = match SqliteStore::open(options.clone()) {
        Ok(_) => {
            Check::new("durability", Health::Ok, "every commit is synced to disk before it is acknowledged")
        }
        Err(error) => Check::new("durability", Health::Fail, error.message),
    };
    let space = match space(options) {
        Ok(()) => Check::new(
            "space",
            Health::Ok,
            format!("more than {} MiB are free", options.min_free_bytes >> 20),
        ),
        Err(error) => Check::new("space", Health::Fail, error.message),
    };
    vec![tables, opens, space]
}

/// Opens the ledger, which brings its tables up to date.
pub(crate) fn migrate(options: SqliteOptions) -> Result<Migrated, StoreError> {
    let from = if options.path.exists() { u32::try_from(version(&options.path)?).ok() } else { None };
    SqliteStore::open(options)?;
    Ok(Migrated { from: from.filter(|version| *version > 0), to: SCHEMA_VERSION.unsigned_abs() })
}

/// What makes the tables.
pub(crate) fn migration_sql() -> String {
    schema::sql()
}

fn space(options: &SqliteOptions) -> Result<(), StoreError> {
    super::Files::prepare(&options.path)?.has_free(options.min_free_bytes)
}

/// The version of the tables in a file; 0 in an empty one.
fn version(path: &Path) -> Result<i32, StoreError> {
    let fail = |error: rusqlite::Error| Trouble::from(error).at(path, Wrote::No);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(fail)?;
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0)).map_err(fail);
    let (id, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    let empty = number("SELECT count(*) FROM sqlite_schema")? == 0;
    match id == APPLICATION_ID || (id == 0 && version == 0 && empty) {
        true => Ok(version),
        false => Err(StoreError::before(
            oncely_core::StoreErrorKind::Foreign,
            format!(
                "{} is a database of another program; nothing was written; name another file",
                path.display()
            ),
        )),
    }
}
