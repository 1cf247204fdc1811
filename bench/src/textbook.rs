//! The textbook pattern on the same SQLite: what people write when they have no library.
//!
//! It gets every advantage: prepared statements, one statement per transaction, and of one shared connection and one
//! connection per caller the faster. It keeps no fingerprint, no audit trail and no retention.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use crate::Result;
use crate::stats::Sample;
use crate::workload;

/// How the textbook remembers a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Insert a claim, commit; run; update with the result, commit.
    Safe,
    /// Look up; run; insert the result, commit. Loses a crash between the last two.
    Unsafe,
}

/// How its callers share the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connections {
    /// One connection behind a mutex, held for one statement at a time.
    Shared,
    /// One connection per caller; SQLite's own lock and busy handler decide who is next.
    PerCaller,
}

impl Connections {
    pub(crate) const ALL: [Self; 2] = [Self::Shared, Self::PerCaller];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "one connection behind a mutex",
            Self::PerCaller => "one connection per caller",
        }
    }
}

/// The textbook with its connections open: they stay open between turns, so that its log is reused as it would be in
/// a long-lived program.
pub(crate) struct Textbook {
    pattern: Pattern,
    callers: usize,
    pool: Vec<Mutex<Connection>>,
    next: AtomicU64,
}

impl Textbook {
    pub(crate) fn open(
        path: &Path,
        pattern: Pattern,
        connections: Connections,
        callers: usize,
        first_key: u64,
    ) -> Result<Self> {
        let pool = match connections {
            Connections::Shared => vec![Mutex::new(open(path)?)],
            Connections::PerCaller => {
                (0..callers).map(|_| open(path).map(Mutex::new)).collect::<Result<_>>()?
            }
        };
        Ok(Self { pattern, callers, pool, next: AtomicU64::new(first_key) })
    }

    /// All callers, each in its own thread, one call after the other for a while.
    pub(crate) fn run(&self, duration: Duration) -> Result<Sample> {
        let start = Instant::now();
        let latencies: Vec<Result<Latencies>> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..self.callers)
                .map(|caller| {
                    let connection = &self.pool[caller % self.pool.len()];
                    scope.spawn(move || call_until(connection, self.pattern, &self.next, start + duration))
                })
                .collect();
            let ended = callers.into_iter().map(|caller| caller.join());
            ended.map(|end| end.unwrap_or_else(|_| Err("a textbook caller panicked".into()))).collect()
        });
        let elapsed = start.elapsed();
        let (mut pairs, mut begins) = (Vec::new(), Vec::new());
        for of_caller in latencies {
            let of_caller = of_caller?;
            pairs.extend(of_caller.pairs);
            begins.extend(of_caller.begins);
        }
        Ok(Sample::of(elapsed, pairs, begins))
    }
}

#[derive(Default)]
struct Latencies {
    pairs: Vec<Duration>,
    begins: Vec<Duration>,
}

fn call_until(
    connection: &Mutex<Connection>,
    pattern: Pattern,
    next: &AtomicU64,
    deadline: Instant,
) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    while Instant::now() < deadline {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let (key, result) = (workload::key(number), workload::result(number));
        let start = Instant::now();
        with(connection, |c| begin(c, pattern, &key))?;
        latencies.begins.push(start.elapsed());
        with(connection, |c| complete(c, pattern, &key, result))?;
        latencies.pairs.push(start.elapsed());
    }
    Ok(latencies)
}

/// One statement on the connection; a busy database is asked again, as a careful author would.
fn with<T>(connection: &Mutex<Connection>, act: impl Fn(&Connection) -> rusqlite::Result<T>) -> Result<T> {
    loop {
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        match act(&connection) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            other => return other.map_err(Into::into),
        }
    }
}

fn begin(connection: &Connection, pattern: Pattern, key: &str) -> rusqlite::Result<()> {
    match pattern {
        Pattern::Safe => {
            let sql = "INSERT INTO calls (key, state, created_at) VALUES (?1, 'running', ?2)";
            connection.prepare_cached(sql)?.execute(params![key, 0])?;
        }
        Pattern::Unsafe => {
            let sql = "SELECT result FROM calls WHERE key = ?1";
            connection.prepare_cached(sql)?.query_row([key], |row| row.get::<_, Vec<u8>>(0)).optional()?;
        }
    }
    Ok(())
}

fn complete(connection: &Connection, pattern: Pattern, key: &str, result: &[u8]) -> rusqlite::Result<()> {
    let sql = match pattern {
        Pattern::Safe => "UPDATE calls SET state = 'succeeded', result = ?2 WHERE key = ?1",
        Pattern::Unsafe => {
            "INSERT INTO calls (key, state, created_at, result) VALUES (?1, 'succeeded', 0, ?2)"
        }
    };
    connection.prepare_cached(sql)?.execute(params![key, result])?;
    Ok(())
}

fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    let sync: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if mode != "wal" || sync != 2 {
        return Err(format!("SQLite did not take WAL with full sync: {mode}, {sync}").into());
    }
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS calls (
           key TEXT PRIMARY KEY, state TEXT NOT NULL, created_at INTEGER NOT NULL, result BLOB)",
    )?;
    Ok(connection)
}

/// Fills a table with ended calls, quickly.
pub(crate) fn fill(path: &Path, records: u64) -> Result<()> {
    const CHUNK: u64 = 50_000;
    let mut connection = open(path)?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000")?;
    let mut done = 0;
    while done < records {
        let end = (done + CHUNK).min(records);
        let transaction = connection.transaction()?;
        for number in done..end {
            complete(&transaction, Pattern::Unsafe, &workload::key(number), workload::result(number))?;
        }
        transaction.commit()?;
        done = end;
        crate::progress(&format!("filling the textbook table: {done} of {records}"));
    }
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    std::fs::File::open(path)?.sync_all()?;
    Ok(())
}
