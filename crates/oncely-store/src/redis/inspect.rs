//! What can be said of the servers of a ledger before it is used. Nothing is changed, and nothing made.

use oncely_core::{StoreError, StoreErrorKind};

use super::checks;
use super::connect::Dialer;
use super::head::Head;
use super::keys::Keys;
use super::options::{RedisOptions, RedisServer};
use super::resp::{Value, command};
use super::slots;
use super::thread::IoThread;

/// How much something matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisConcern {
    /// It can lose or evict a record: refused, unless the address accepts it.
    Risk,
    /// Somebody should know of it.
    Remark,
}

/// One thing about a server that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisFinding {
    /// Which server.
    pub server: RedisServer,
    /// How much it matters.
    pub concern: RedisConcern,
    /// What it is.
    pub what: String,
    /// What mends it.
    pub fix: String,
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct RedisReport {
    /// The primaries, each with what it is.
    pub servers: Vec<(RedisServer, String)>,
    /// What is not as it should be.
    pub findings: Vec<RedisFinding>,
    /// The format of the ledger, if there is one.
    pub ledger: Option<u32>,
}

/// Looks at the servers of an address, also where they would be refused.
pub async fn inspect(options: RedisOptions) -> Result<RedisReport, StoreError> {
    let options = options.checked()?;
    let failed =
        |_| StoreError::before(StoreErrorKind::Unavailable, "no thread to look with could be started");
    let (_thread, runtime) = IoThread::start().map_err(failed)?;
    let looking = runtime.spawn(look(options));
    let stopped = |_| StoreError::before(StoreErrorKind::Unavailable, "looking was stopped");
    looking.await.map_err(stopped)?
}

async fn look(options: RedisOptions) -> Result<RedisReport, StoreError> {
    let dialer = Dialer::new(options)?;
    let ranges = slots::ranges(&dialer).await?;
    let mut report = RedisReport { servers: Vec::new(), findings: Vec::new(), ledger: None };
    for server in slots::primaries(&ranges) {
        let mut wire = dialer.dial(&server).await?;
        let profile = checks::look(&mut wire, &dialer.options, &server).await?;
        profile.check_kind(&dialer.options, &server)?;
        for (concern, found) in [
            (RedisConcern::Risk, profile.risks()),
            (RedisConcern::Remark, profile.remarks(dialer.options.wait)),
        ] {
            report.findings.extend(found.into_iter().map(|finding| RedisFinding {
                server: server.clone(),
                concern,
                what: finding.what,
                fix: finding.fix,
            }));
        }
        let key = Keys::new(&dialer.options.prefix, 1).head(0);
        let replies = wire.ask(&[command(&[b"GET", &key])], dialer.options.timeout, &server).await?;
        if let Some(text) = replies.first().and_then(Value::text) {
            report.ledger = Some(Head::parse(text)?.format);
        }
        report.servers.push((server, profile.name));
    }
    Ok(report)
}
