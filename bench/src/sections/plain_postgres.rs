//! What people write on PostgreSQL by themselves, and what our rows would cost if nothing were asked of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use super::postgres::{POOL, gather};
use crate::stats::Sample;
use crate::{Result, workload};

/// Two statements, and the tables that they need. Both get the key, begin also what a record and its events take, and complete
/// these and the result; a statement names those that it uses.
pub(super) struct Statements {
    tables: &'static str,
    begin: &'static str,
    complete: &'static str,
}

/// What people write: a claim, committed; the effect; its result, committed.
pub(super) const PLAIN: Statements = Statements {
    tables: "CREATE TABLE calls (key text PRIMARY KEY, state text NOT NULL, \
             created_at timestamptz NOT NULL DEFAULT now(), result bytea)",
    begin: "INSERT INTO calls (key, state) VALUES ($1, 'running') ON CONFLICT (key) DO NOTHING",
    complete: "UPDATE calls SET state = 'succeeded', result = $2 WHERE key = $1 AND state = 'running'",
};

/// The rows and index entries of a ledger, with its log, and nothing else: no answer to a duplicate, no clock, no look at who
/// waits, and nobody who asks what the answer is worth.
pub(super) const BARE: Statements = Statements {
    tables: "CREATE SEQUENCE bare_seq; \
             CREATE TABLE bare (LIKE oncely.record INCLUDING INDEXES INCLUDING STORAGE); \
             CREATE TABLE bare_log (LIKE oncely.audit INCLUDING INDEXES INCLUDING STORAGE)",
    begin: "WITH made AS (
  INSERT INTO bare SELECT md5($1)::uuid, md5($1)::uuid, s.seq << 16, s.seq, 0, 1, 1, 1, 1, 'default', 'tool', NULL, $1,
    int8send(s.seq), $2, NULL
  FROM (SELECT nextval('bare_seq') AS seq OFFSET 0) s ON CONFLICT (head) DO NOTHING RETURNING version
)
INSERT INTO bare_log SELECT version, 1, $3 FROM made",
    complete: "WITH made AS (
  UPDATE bare SET version = s.seq, due = s.seq, changed_at = 2, state = 2, body = $2, result = $4,
    trail = trail || int8send(s.seq)
  FROM (SELECT nextval('bare_seq') AS seq OFFSET 0) s WHERE head = md5($1)::uuid AND state = 1 RETURNING s.seq
)
INSERT INTO bare_log SELECT seq, 2, $3 FROM made",
};

/// The same, so many at a time.
const BARE_MANY: Statements = Statements {
    // Rows that were there make the server plan for a table that is not empty, as it does for a ledger's.
    tables: "CREATE SEQUENCE many_seq; \
             CREATE TABLE many (LIKE oncely.record INCLUDING INDEXES INCLUDING STORAGE); \
             CREATE TABLE many_log (LIKE oncely.audit INCLUDING INDEXES INCLUDING STORAGE); \
             INSERT INTO many SELECT md5(n::text)::uuid, md5('')::uuid, -n, 0, 0, 0, 0, 0, 0, '', '', NULL, '', '', \
               decode(repeat('00', 1800), 'hex'), NULL FROM generate_series(1, 1600) n; \
             DELETE FROM many",
    begin: "WITH s AS MATERIALIZED (SELECT nextval('many_seq') AS seq),
made AS (
  INSERT INTO many SELECT md5(i.key)::uuid, md5(i.key)::uuid, s.seq << 16 | i.n, s.seq, 0, 1, 1, 1, 1, 'default', 'tool', NULL,
    i.key, int8send(s.seq), i.body, NULL
  FROM s, unnest((SELECT $1::text[]), (SELECT $2::bytea[])) WITH ORDINALITY AS i(key, body, n)
  ON CONFLICT (head) DO NOTHING
)
INSERT INTO many_log SELECT s.seq, 1, $3 FROM s",
    complete: "WITH s AS MATERIALIZED (SELECT nextval('many_seq') AS seq),
made AS (
  UPDATE many SET version = s.seq, due = s.seq, changed_at = 2, state = 2, body = i.body, result = i.result,
    trail = trail || int8send(s.seq)
  FROM s, unnest((SELECT $1::text[]), (SELECT $2::bytea[]), (SELECT $4::bytea[])) AS i(key, body, result)
  WHERE head = md5(i.key)::uuid AND state = 1
)
INSERT INTO many_log SELECT s.seq, 2, $3 FROM s",
};

/// How many pairs a second a program makes that has nothing to do but to write rows like ours.
pub(super) struct Many {
    connections: Vec<Arc<Prepared>>,
    at_a_time: usize,
}

impl Many {
    /// So many rows at a time on each of so many connections.
    pub(super) async fn open(address: &str, at_a_time: usize, at_once: usize) -> Result<Self> {
        let mut connections = Vec::new();
        for at in 0..at_once {
            connections.push(Arc::new(connect(address, &BARE_MANY, at == 0).await?));
        }
        Ok(Self { connections, at_a_time })
    }

    pub(super) async fn run(&self, duration: Duration, first: u64) -> Result<Sample> {
        let start = Instant::now();
        let many = self.at_a_time;
        let writers = self.connections.iter().zip(0_u64..).map(|(connection, at)| {
            let connection = Arc::clone(connection);
            tokio::spawn(async move {
                let (mut latencies, mut next) = (Vec::new(), first + (at << 32));
                while start.elapsed() < duration {
                    let from = Instant::now();
                    connection.write_many(next, many as u64).await?;
                    next += many as u64;
                    latencies.extend(std::iter::repeat_n(from.elapsed(), many));
                }
                Ok(latencies)
            })
        });
        gather(start, writers.collect()).await
    }
}

impl Prepared {
    async fn write_many(&self, first: u64, many: u64) -> Result<()> {
        let numbers = first..first + many;
        let keys: Vec<String> = numbers.clone().map(workload::key).collect();
        let results: Vec<&[u8]> = numbers.map(workload::result).collect();
        let bodies: Vec<&[u8]> = results.iter().map(|result| &result[..BODY_BYTES]).collect();
        let events = results.iter().flat_map(|result| &result[..EVENT_BYTES]).copied().collect::<Vec<u8>>();
        self.client.execute(&self.begin, &[&keys, &bodies, &events]).await?;
        self.client.execute(&self.complete, &[&keys, &bodies, &events, &results]).await?;
        Ok(())
    }
}

/// What a record takes besides its names and its result, and what its events take, in bytes.
const BODY_BYTES: usize = 150;
const EVENT_BYTES: usize = 100;

/// Two statements on a pool of connections.
pub(super) struct Pattern {
    free: Semaphore,
    pool: Mutex<Vec<Prepared>>,
}

struct Prepared {
    client: Client,
    begin: Statement,
    complete: Statement,
}

/// A connection with its statements; the first makes the tables.
async fn connect(address: &str, statements: &Statements, is_first: bool) -> Result<Prepared> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
    tokio::spawn(connection);
    if is_first {
        client.batch_execute(statements.tables).await?;
    }
    let begin = client.prepare(statements.begin).await?;
    Ok(Prepared { begin, complete: client.prepare(statements.complete).await?, client })
}

impl Pattern {
    pub(super) async fn open(address: &str, statements: &Statements) -> Result<Self> {
        let mut pool = Vec::new();
        for at in 0..POOL {
            pool.push(connect(address, statements, at == 0).await?);
        }
        Ok(Self { free: Semaphore::new(POOL), pool: Mutex::new(pool) })
    }

    async fn call(&self, number: u64) -> Result<()> {
        let (key, result) = (workload::key(number), workload::result(number));
        let (body, events) = (&result[..BODY_BYTES], &result[..EVENT_BYTES]);
        let connection = self.take().await?;
        let begin: &[&(dyn ToSql + Sync)] = match connection.begin.params().len() {
            1 => &[&key],
            _ => &[&key, &body, &events],
        };
        let made = connection.client.execute(&connection.begin, begin).await;
        self.give_back(connection).await;
        if made? != 1 {
            return Err("a new key was there already".into());
        }
        let connection = self.take().await?;
        let complete: &[&(dyn ToSql + Sync)] = match connection.complete.params().len() {
            2 => &[&key, &result],
            _ => &[&key, &body, &events, &result],
        };
        let ended = connection.client.execute(&connection.complete, complete).await;
        self.give_back(connection).await;
        match ended? {
            1 => Ok(()),
            _ => Err("a claim was not there any more".into()),
        }
    }

    async fn take(&self) -> Result<Prepared> {
        self.free.acquire().await?.forget();
        self.pool.lock().await.pop().ok_or_else(|| "the pool is empty".into())
    }

    async fn give_back(&self, connection: Prepared) {
        self.pool.lock().await.push(connection);
        self.free.add_permits(1);
    }

    pub(super) async fn run(
        self: &Arc<Self>,
        callers: usize,
        duration: Duration,
        first: u64,
    ) -> Result<Sample> {
        let next = Arc::new(AtomicU64::new(first));
        let start = Instant::now();
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let (pattern, next) = (Arc::clone(self), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    while start.elapsed() < duration {
                        let from = Instant::now();
                        pattern.call(next.fetch_add(1, Ordering::Relaxed)).await?;
                        latencies.push(from.elapsed());
                    }
                    Ok(latencies)
                })
            })
            .collect();
        gather(start, tasks).await
    }
}
