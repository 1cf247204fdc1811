//! What programs do on Redis without Oncely: a bare script with the same writes, and the usual `SET NX`, then `SET`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, Script};

use crate::Result;
use crate::stats::Sample;
use crate::workload;

/// As much as a running record of ours has.
const CLAIM: [u8; 190] = [b'c'; 190];
/// As much as our events have.
const EVENT: [u8; 40] = [b'e'; 40];

/// The same reads and writes as a begin of ours: the record, the log, and one index.
const BEGIN: &str = "\
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('GET', KEYS[1]) end
local id = redis.call('XADD', KEYS[2], 'MAXLEN', '~', 1000000, '*', 'e', ARGV[2])
redis.call('SET', KEYS[1], id .. ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[3], KEYS[1])
return id";

/// The same as a complete of ours.
const COMPLETE: &str = "\
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[4] - 1) ~= ARGV[4] then return redis.call('GET', KEYS[1]) end
local id = redis.call('XADD', KEYS[2], 'MAXLEN', '~', 1000000, '*', 'e', ARGV[2])
redis.call('SET', KEYS[1], id .. ARGV[1], 'PX', 3628800000)
redis.call('ZADD', KEYS[3], ARGV[3], KEYS[1])
return id";

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Two scripts.
    Script,
    /// `SET NX`, then `SET`.
    SetNx,
}

/// How callers share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// All write into one.
    One,
    /// Each has its own.
    Own,
}

impl Sharing {
    pub(crate) const ALL: [Self; 2] = [Self::One, Self::Own];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::One => "one connection",
            Self::Own => "a connection per caller",
        }
    }
}

/// Callers on a server.
pub(crate) struct Plain {
    pattern: Pattern,
    connections: Vec<MultiplexedConnection>,
    scripts: Arc<[Script; 2]>,
}

impl Plain {
    pub(crate) async fn open(url: &str, pattern: Pattern, sharing: Sharing, callers: usize) -> Result<Self> {
        let client = Client::open(url)?;
        let mut connections = Vec::new();
        let first = client.get_multiplexed_async_connection().await?;
        for caller in 0..callers {
            connections.push(match sharing {
                Sharing::Own if caller > 0 => client.get_multiplexed_async_connection().await?,
                _ => first.clone(),
            });
        }
        let scripts = Arc::new([Script::new(BEGIN), Script::new(COMPLETE)]);
        for script in scripts.iter() {
            script.prepare_invoke().load_async(&mut connections[0]).await?;
        }
        Ok(Self { pattern, connections, scripts })
    }

    /// Every caller does one pair after the other for a while.
    pub(crate) async fn run(&self, duration: Duration, first_key: u64) -> Result<Sample> {
        let next = Arc::new(AtomicU64::new(first_key));
        let start = Instant::now();
        let tasks: Vec<_> = self
            .connections
            .iter()
            .cloned()
            .map(|mut connection| {
                let (next, scripts, pattern) = (Arc::clone(&next), Arc::clone(&self.scripts), self.pattern);
                tokio::spawn(async move {
                    let mut seen = Vec::new();
                    while start.elapsed() < duration {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let from = Instant::now();
                        match pattern {
                            Pattern::Script => scripted(&mut connection, &scripts, number).await?,
                            Pattern::SetNx => set_nx(&mut connection, number).await?,
                        }
                        seen.push(from.elapsed());
                    }
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>(seen)
                })
            })
            .collect();
        let mut pairs = Vec::new();
        for task in tasks {
            pairs.extend(task.await??);
        }
        Ok(Sample::of(start.elapsed(), pairs, Vec::new()))
    }
}

async fn scripted(connection: &mut MultiplexedConnection, scripts: &[Script; 2], number: u64) -> Result<()> {
    let key = format!("{{plain}}:{}", workload::key(number));
    let [begin, complete] = scripts;
    let id: String = begin
        .key(&key)
        .key("{plain}:log")
        .key("{plain}:order")
        .arg(&CLAIM[..])
        .arg(&EVENT[..])
        .arg(number)
        .invoke_async(connection)
        .await?;
    let mut body = CLAIM.to_vec();
    body.extend_from_slice(workload::result(number));
    let _: String = complete
        .key(&key)
        .key("{plain}:log")
        .key("{plain}:due")
        .arg(body)
        .arg(&EVENT[..])
        .arg(number)
        .arg(id)
        .invoke_async(connection)
        .await?;
    Ok(())
}

async fn set_nx(connection: &mut MultiplexedConnection, number: u64) -> Result<()> {
    let key = format!("plain:{}", workload::key(number));
    let won: Option<String> =
        redis::cmd("SET").arg(&key).arg("running").arg("NX").query_async(connection).await?;
    if won.is_none() {
        return Err(format!("{key} was new, but it is there").into());
    }
    let _: String = redis::cmd("SET").arg(&key).arg(workload::result(number)).query_async(connection).await?;
    Ok(())
}
