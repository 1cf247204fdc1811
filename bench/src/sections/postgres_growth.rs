//! The ledger on PostgreSQL with little history and with much: the same calls, turn by turn on the same server.

use std::time::Instant;

use oncely::Oncely;
use oncely_testkit::servers::Postgres;

use crate::bench::{Bench, TURNS};
use crate::ours::{self, Style};
use crate::report::{Row, Target};
use crate::stats::{Series, Turns, Unit};
use crate::{Result, progress, workload};

/// How much of the log is kept, so that no checkpoint falls into the measurement.
pub(crate) const MAX_WAL: &str = "8GB";
/// Callers, and how many times slower they may be with much history.
const LINES: [(usize, f64); 2] = [(1, 1.3), (64, 2.0)];

/// The same calls on a small ledger and on a large one.
pub(crate) fn measure(bench: &mut Bench, server: &Postgres, pool: usize) -> Result<Vec<Row>> {
    let (small, large) = (bench.sizes.small, bench.sizes.largest);
    let ledgers = [load(bench, server, small, pool)?, load(bench, server, large, pool)?];
    let mut rows = Vec::new();
    for (callers, most) in LINES {
        let mut seen: [Series; 2] = Default::default();
        for round in 1..=bench.rounds {
            progress(&format!(
                "{small} and {large} records, {callers} callers, round {round} of {}",
                bench.rounds
            ));
            let mut turns: [Turns; 2] = Default::default();
            for _ in 0..TURNS {
                for (ledger, turns) in ledgers.iter().zip(&mut turns) {
                    let (turn, keys) = (bench.turn(), bench.keys());
                    let work = ours::closed_loop(ledger, Style::BeginComplete, callers, turn, keys);
                    turns.push(bench.runtime.block_on(work)?);
                }
            }
            for (seen, turns) in seen.iter_mut().zip(turns) {
                seen.push(turns.rate());
            }
        }
        let slower = seen[0].over(&seen[1]);
        rows.push(
            Row::new(
                format!("begin + complete, {callers} callers, {large} records"),
                &seen[1],
                Unit::PerSecond,
            )
            .against(&format!("{small} records"), &seen[0], Unit::PerSecond)
            .ratio(&slower, Unit::Times)
            .target(Target::AtMost(most, Unit::Times), &slower),
        );
    }
    Ok(rows)
}

/// A ledger with so many ended calls. One is made by the ledger itself; the server copies it.
fn load(bench: &mut Bench, server: &Postgres, records: u64, pool: usize) -> Result<Oncely> {
    progress(&format!("loading {records} records"));
    let start = Instant::now();
    let address = server.fresh_database()?;
    let first = bench.keys();
    let ledger = bench.runtime.block_on(async {
        let ledger =
            Oncely::new(oncely_store::open(&format!("{address}?pool={pool}&sslmode=disable")).await?);
        ours::begin_complete(&ledger, first, workload::small_payload(first)).await?;
        Result::Ok(ledger)
    })?;
    let database = address.rsplit('/').next().unwrap_or_default();
    // The log of what is copied need not be kept: it would take more room than the records.
    server.set("max_wal_size", "1GB")?;
    for sql in fill(records) {
        server.psql_in(database, &sql)?;
    }
    server.set("max_wal_size", MAX_WAL)?;
    let size = server.psql_in(database, "SELECT pg_size_pretty(pg_database_size(current_database()))")?;
    progress(&format!("loaded {records} records, {} in {} s", size.trim(), start.elapsed().as_secs()));
    Ok(ledger)
}

/// Bytes of result that a copied record keeps: ten million of them fit on a small disk.
pub(crate) const COPIED_RESULT: usize = 64;
/// Calls whose events share a row of the log, as they do under load.
const TOGETHER: u64 = 32;

/// Copies a record so many times, under scattered ids. The indexes are made afterwards, which takes a fraction of the time;
/// they are whatever the ledger has.
fn fill(records: u64) -> [String; 4] {
    [
        format!(
            "SET maintenance_work_mem = '512MB';
CREATE TEMPORARY TABLE known AS
  SELECT indexname, indexdef FROM pg_indexes
  WHERE schemaname = 'oncely' AND tablename = 'record' AND indexname <> 'record_pkey';
ALTER TABLE oncely.record DROP CONSTRAINT record_pkey;
DO $do$ DECLARE name text; BEGIN
  FOR name IN SELECT indexname FROM known LOOP EXECUTE format('DROP INDEX oncely.%I', name); END LOOP;
END $do$;
INSERT INTO oncely.record (head, tail, id, version, due, created_at, sent_at, changed_at, state, namespace, tool,
  scope, key, trail, body, result)
SELECT md5(n::text)::uuid, md5('tail' || n)::uuid, ((n / {TOGETHER} + 1000) << 16) + n % {TOGETHER}, n / {TOGETHER} + 1001,
  s.due + n, s.created_at, s.sent_at, s.changed_at, s.state, s.namespace, s.tool, s.scope, 'loaded-' || n,
  int8send(n / {TOGETHER} + 1000) || int8send(n / {TOGETHER} + 1001), s.body, substr(s.result, 1, {COPIED_RESULT})
FROM generate_series(1::int8, {records}) n, (SELECT * FROM oncely.record WHERE state = 2 LIMIT 1) s;
ALTER TABLE oncely.record ADD CONSTRAINT record_pkey PRIMARY KEY (head);
DO $do$ DECLARE made text; BEGIN
  FOR made IN SELECT indexdef FROM known LOOP EXECUTE made; END LOOP;
END $do$"
        ),
        format!(
            "INSERT INTO oncely.audit (seq, at, events)
SELECT n + 1000, s.at, s.events FROM generate_series(1::int8, {records} / {TOGETHER} + 2) n,
  (SELECT max(at) AS at, string_agg(events, '') AS events 
   FROM (SELECT * FROM oncely.audit ORDER BY seq LIMIT 2) a, generate_series(1, {TOGETHER})) s;
SELECT setval('oncely.commit_seq', {records} / {TOGETHER} + 3000)"
        ),
        // What autovacuum would else do while calls are measured.
        "VACUUM (ANALYZE) oncely.record, oncely.audit".to_owned(),
        "CHECKPOINT".to_owned(),
    ]
}
