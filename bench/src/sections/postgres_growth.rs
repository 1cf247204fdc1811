//! The ledger on PostgreSQL with little history and with much: the same calls, turn by turn on the same server.

use oncely::Oncely;
use oncely_testkit::servers::Postgres;

use crate::bench::{Bench, TURNS};
use crate::ours::{self, Style};
use crate::report::{Row, Target};
use crate::stats::{Series, Turns, Unit};
use crate::{Result, progress, workload};

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
    let address = server.fresh_database()?;
    let first = bench.keys();
    let ledger = bench.runtime.block_on(async {
        let ledger =
            Oncely::new(oncely_store::open(&format!("{address}?pool={pool}&sslmode=disable")).await?);
        ours::begin_complete(&ledger, first, workload::small_payload(first)).await?;
        Result::Ok(ledger)
    })?;
    let database = address.rsplit('/').next().unwrap_or_default();
    for sql in fill(records) {
        server.psql_in(database, &sql)?;
    }
    Ok(ledger)
}

/// Keys spread evenly over all that there can be, in two ascending runs, so that the index is filled and not searched.
fn fill(records: u64) -> [String; 4] {
    let step = u64::MAX / (records + 2);
    [
        format!(
            "INSERT INTO oncely.record (head, tail, id, version, due, created_at, sent_at, changed_at, state, namespace, tool,
  scope, key, trail, body, result)
SELECT (lpad(to_hex((n - {records} / 2) * {step}), 16, '0') || substr(md5(n::text), 1, 16))::uuid, md5(n::text)::uuid,
  (n + 1000) << 16, n + 1000, s.due + n, s.created_at, s.sent_at, s.changed_at, s.state, s.namespace, s.tool, s.scope,
  'loaded-' || n, int8send(n + 1000) || int8send(n + 1000), s.body, s.result
FROM generate_series(1::int8, {records}) n, (SELECT * FROM oncely.record WHERE state = 2 LIMIT 1) s"
        ),
        format!(
            "INSERT INTO oncely.audit (seq, at, events)
SELECT n + 1000, s.at, s.events FROM generate_series(1::int8, {records}) n, (SELECT * FROM oncely.audit LIMIT 1) s;
SELECT setval('oncely.commit_seq', {records} + 2000)"
        ),
        // What autovacuum would else do while calls are measured.
        "VACUUM (FREEZE, ANALYZE) oncely.record, oncely.audit".to_owned(),
        "CHECKPOINT".to_owned(),
    ]
}
