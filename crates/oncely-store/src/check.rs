//! What can be said of a ledger before it is used: whether it is there, which version its tables have, and what of its
//! settings could lose a record.

use oncely_core::StoreError;

#[cfg(feature = "postgres")]
use crate::postgres;
#[cfg(feature = "redis")]
use crate::redis;
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
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            Ok(postgres::check(&postgres::PostgresOptions::parse(address)?).await)
        }
        #[cfg(feature = "redis")]
        Some((scheme, _)) if is_redis(scheme) => {
            redis::inspect(redis::RedisOptions::parse(address)?).await.map(of_redis)
        }
        _ => Err(crate::unknown(address)),
    }
}

/// What could still be lost on the servers of a ledger that was opened: remarks, and risks that the address accepts. For
/// programs that stay, to say once.
pub async fn remarks(address: &str) -> Vec<String> {
    match scheme(address) {
        #[cfg(feature = "redis")]
        Some((scheme, _)) if is_redis(scheme) => {
            let Ok(options) = redis::RedisOptions::parse(address) else { return Vec::new() };
            // A server that is gone by now is told by the calls that it refuses.
            let findings = redis::inspect(options).await.map(|report| report.findings).unwrap_or_default();
            findings.iter().map(told).collect()
        }
        _ => Vec::new(),
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
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            let done = postgres::migrate(&postgres::PostgresOptions::parse(address)?).await?;
            let from = u32::try_from(done.from).ok().filter(|version| *version > 0);
            Ok(Migrated { from, to: done.to.unsigned_abs() })
        }
        // There are no tables: what says that there is a ledger is made, and nothing else.
        #[cfg(feature = "redis")]
        Some((scheme, _)) if is_redis(scheme) => {
            let options = redis::RedisOptions::parse(address)?;
            let from = redis::inspect(options.clone()).await?.ledger;
            redis::RedisStore::open(options.clone()).await?;
            let to = redis::inspect(options).await?.ledger;
            Ok(Migrated { from, to: to.or(from).unwrap_or_default() })
        }
        _ => Err(crate::unknown(address)),
    }
}

/// The statements that make the tables of such a ledger, for people who run them by hand.
pub fn migration_sql(address: &str) -> Result<String, StoreError> {
    match scheme(address) {
        Some(("memory", "")) => Ok("-- a ledger in memory has no tables\n".to_owned()),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", _)) | None => Ok(sqlite::migration_sql()),
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            Ok(postgres::migration_sql(&postgres::PostgresOptions::parse(address)?.schema))
        }
        #[cfg(feature = "redis")]
        Some((scheme, _)) if is_redis(scheme) => Ok("-- a ledger on Redis has no tables\n".to_owned()),
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
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            postgres::is_absent(&postgres::PostgresOptions::parse(address)?).await
        }
        #[cfg(feature = "redis")]
        Some((scheme, _)) if is_redis(scheme) => {
            Ok(redis::inspect(redis::RedisOptions::parse(address)?).await?.ledger.is_none())
        }
        _ => Err(crate::unknown(address)),
    }
}

#[cfg(feature = "redis")]
fn is_redis(scheme: &str) -> bool {
    matches!(scheme, "redis" | "rediss" | "redis+cluster" | "rediss+cluster")
}

#[cfg(feature = "redis")]
fn told(finding: &redis::RedisFinding) -> String {
    format!("{}: {}; {}", finding.server, finding.what, finding.fix)
}

#[cfg(feature = "redis")]
fn of_redis(report: redis::RedisReport) -> Vec<Check> {
    let mut checks = Vec::new();
    for (server, what) in &report.servers {
        checks.push(Check::new("server", Health::Ok, format!("{server}: {what}")));
    }
    for finding in &report.findings {
        let health = match finding.concern {
            redis::RedisConcern::Risk => Health::Fail,
            redis::RedisConcern::Remark => Health::Warn,
        };
        checks.push(Check::new("durability", health, told(finding)));
    }
    if report.findings.iter().all(|finding| finding.concern != redis::RedisConcern::Risk) {
        checks.push(Check::new("durability", Health::Ok, "what is acknowledged is in the append-only file"));
    }
    let (health, message) = match report.ledger {
        Some(format) => (Health::Ok, format!("there is a ledger, of format {format}")),
        None => {
            let message = "there is no ledger yet; `oncely store migrate` or the first call makes it";
            (Health::Warn, message.to_owned())
        }
    };
    checks.push(Check::new("ledger", health, message));
    checks
}
