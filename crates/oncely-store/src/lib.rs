//! Ledgers for Oncely: memory, SQLite, PostgreSQL and Redis.
//!
//! Every ledger keeps the contract of [`oncely_core::Store`]. [`open`] finds the right one for an address:
//!
//! ```
//! # async fn example() -> Result<(), oncely_core::StoreError> {
//! let forgetful = oncely_store::open("memory:").await?;
//! assert_eq!(forgetful.describe(), "memory:");
//! # Ok(())
//! # }
//! ```
//!
//! A map: [`MemoryStore`] for tests, [`SqliteStore`] for the file that processes share, `postgres` and `redis` for the
//! servers that machines share; [`sealed`] encrypts what any ledger keeps of results; `clock` keeps the ledger's time,
//! `leap` watches a server's, `process` says who lives.
#![cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "parts that only some ledgers need")
)]

mod check;
mod clock;
mod codec;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod courier;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod leap;
mod listing;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod process;
#[cfg(feature = "redis")]
pub mod redis;
mod requests;
pub mod sealed;
#[cfg(feature = "sqlite")]
mod sqlite;
mod tallies;
mod unreadable;
mod watch;
mod wire;

use std::sync::Arc;

use oncely_core::{Store, StoreError, StoreErrorKind};

pub use check::{Check, Health, Migrated, check, is_absent, migrate, migration_sql, remarks};
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub use courier::bring_answers_together;
pub use memory::MemoryStore;
#[cfg(feature = "sqlx-postgres")]
pub use postgres::SqlxWithin;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore, PostgresWithin};
pub use process::{liveness, liveness_across_hosts, this_process};
#[cfg(feature = "redis")]
pub use redis::{RedisOptions, RedisStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteInside, SqliteOptions, SqliteStore, SqliteTransaction, WrittenBy};

/// Opens the ledger at an address: `memory:`, `sqlite:PATH[?min_free=32MiB&...]`, a bare path of a SQLite file, or
/// `postgres://USER@HOST/DATABASE[?schema=oncely&...]`.
pub async fn open(address: &str) -> Result<Arc<dyn Store>, StoreError> {
    #[cfg(feature = "sqlite")]
    if let Some(options) = sqlite_options(address) {
        return Ok(Arc::new(SqliteStore::open(options?)?));
    }
    match scheme(address) {
        Some(("memory", "")) => Ok(Arc::new(MemoryStore::new())),
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss" | "redis+cluster" | "rediss+cluster", _)) => {
            Ok(Arc::new(RedisStore::open(RedisOptions::parse(address)?).await?))
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            Ok(Arc::new(PostgresStore::open(PostgresOptions::parse(address)?).await?))
        }
        _ => Err(unknown(address)),
    }
}

/// The same for a process that makes one call and ends: nothing is set up that pays only with many. The thread that calls
/// waits for the disk. See [`WrittenBy::Caller`].
#[cfg(feature = "sqlite")]
pub async fn open_briefly(address: &str) -> Result<Arc<dyn Store>, StoreError> {
    match sqlite_options(address) {
        Some(options) => {
            let options = SqliteOptions { written_by: WrittenBy::Caller, ..options? };
            Ok(Arc::new(SqliteStore::open(options)?))
        }
        None => open(address).await,
    }
}

/// What the address of a SQLite ledger says, if it is one.
#[cfg(feature = "sqlite")]
fn sqlite_options(address: &str) -> Option<Result<SqliteOptions, StoreError>> {
    match scheme(address) {
        Some(("sqlite", rest)) => Some(SqliteOptions::parse(rest)),
        None => Some(SqliteOptions::parse(address)),
        Some(_) => None,
    }
}

fn unknown(address: &str) -> StoreError {
    // Only its beginning is repeated: the rest may hold a password.
    let address = scheme(address).map_or_else(|| address.to_owned(), |(scheme, _)| format!("{scheme}:…"));
    StoreError::before(
        StoreErrorKind::BadAddress,
        format!(
            "{address:?} is not an address of a ledger; nothing was opened; allowed: memory:, sqlite:PATH, \
             postgres://USER@HOST/DATABASE, redis://HOST, or a path"
        ),
    )
}

/// An address as it may be shown: without settings and without the password, however badly it is written.
pub fn without_secrets(address: &str) -> String {
    let plain = address.split_once('?').map_or(address, |(plain, _)| plain);
    let Some((scheme, rest)) = plain.split_once("://") else { return plain.to_owned() };
    match rest.rsplit_once('@') {
        Some((login, server)) => {
            let user = login.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{server}")
        }
        // What looks like a server may be the beginning of a password that holds a question mark.
        None if address.contains('@') => format!("{scheme}://…"),
        None => plain.to_owned(),
    }
}

/// The part before the colon, if it looks like a scheme and not like a path.
fn scheme(address: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = address.split_once(':')?;
    let named = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-".contains(&b));
    named.then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (address, shown) in [
            ("ledger.db?cache=0", "ledger.db"),
            ("sqlite:/a/b.db", "sqlite:/a/b.db"),
            ("postgres://app:s3cret@db:5432/shop?pool=3", "postgres://app@db:5432/shop"),
            ("postgres://app:a@b/s3cret@db/shop", "postgres://app@db/shop"),
            ("postgres://app:s3cret?x@db/shop", "postgres://…"),
            ("postgres://db/shop?listen=postgres://u:s3cret@h/d", "postgres://…"),
            ("redis://:s3cret@h:6379", "redis://@h:6379"),
            ("redis://h:6379", "redis://h:6379"),
        ] {
            assert_eq!(without_secrets(address), shown);
        }
    }
}
