//! What can be said of a ledger before it is used: whether it is there, which version its tables have, and what of its
//! settings could lose a record.

use oncely_core::StoreError;

use crate::scheme;
#[cfg(feature = "sqlite")]
use crate::sqlite::{self, SqliteOptions};

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Well.
    Ok,
    /// Somebody should look.
    Warn,
    /// It keeps the ledger from being used.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub what: String,
    /// How it stands.
    pub health: Health,
    /// What was seen, and what to do.
    pub message: String,
}

impl Check {
    /// A finding.
    pub fn new(what: impl Into<String>, health: Health, message: impl Into<String>) -> Self {
        Self { what: what.into(), health, message: message.into() }
    }
}

/// From which version of its tables to which a ledger was brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// What it had; `None` where there was no ledger.
    pub from: Option<u32>,
    /// What it has now.
    pub to: u32,
}

/// Looks at the ledger at an address. Changes nothing, and makes nothing that is not there.
pub async fn check(address: &str) -> Result<Vec<Check>, StoreError> {
    match scheme(address) {
        Some(("memory", "")) => {
            let message = "ends with the process that opens it: for tests";
            Ok(vec![Check::new("durability", Health::Warn, message)])
        }
        #[cfg(feature = "sqlite")]
        Some(("sqlite", rest)) => Ok(sqlite::check(&SqliteOptions::parse(rest)?)),
        #[cfg(feature = "sqlite")]
        None => Ok(sqlite::check(&SqliteOptions::parse(address)?)),
        _ => Err(crate::unknown(address)),
    }
}

/// Makes the tables of the ledger at an address, or brings them to the version that this program knows.
pub async fn migrate(address: &str) -> Result<Migrated, StoreError> {
    match scheme(address) {
        Some(("memory", "")) => Ok(Migrated { from: None, to: 0 }),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", rest)) => sqlite::migrate(SqliteOptions::parse(rest)?),
        #[cfg(feature = "sqlite")]
        None => sqlite::migrate(SqliteOptions::parse(address)?),
        _ => Err(crate::unknown(address)),
    }
}

/// The statements that make the tables of such a ledger, for people who run them by hand.
pub fn migration_sql(address: &str) -> Result<String, StoreError> {
    match scheme(address) {
        Some(("memory", "")) => Ok("-- a ledger in memory has no tables\n".to_owned()),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", _)) | None => Ok(sqlite::migration_sql()),
        _ => Err(crate::unknown(address)),
    }
}

/// Whether there is certainly no ledger at an address: to open one that is not there would make it.
pub async fn is_absent(address: &str) -> Result<bool, StoreError> {
    match scheme(address) {
        Some(("memory", "")) => Ok(true),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", rest)) => Ok(!SqliteOptions::parse(rest)?.path.exists()),
        #[cfg(feature = "sqlite")]
        None => Ok(!SqliteOptions::parse(address)?.path.exists()),
        _ => Err(crate::unknown(address)),
    }
}
