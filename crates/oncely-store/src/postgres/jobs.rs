//! What is asked for seldom, each with a statement of its own.

use std::collections::HashMap;
use std::sync::Arc;

use oncely_core::limits::PAGE_MAX;
use oncely_core::name::hex;
use oncely_core::{
    Counter, Event, IntentId, Millis, Namespace, Replaced, StateName, Stored, Tally, ToolName, Version,
};
use tokio_postgres::types::Type;

use super::batch::Afterwards;
use super::errors::{Doing, Trouble};
use super::exec::load_many;
use super::queue::Reply;
use super::request::{Answer, Job};
use super::rows::{self, Half};
use super::session::{Param, Session};
use super::shared::Shared;
use super::sql::{CLOCK, LISTED};
use super::{moving, purge, read};
use crate::codec::pack_events;
use crate::leap::Asked;
use crate::wire::Damaged;

/// How long a machine that waits for a record is told of its change, unless it says again that it waits.
const TELL_FOR_MS: i64 = 30_000;
/// Who removes a record or logs something of it waits longer than a call for whoever holds it, on a connection of its own.
const LOCK_WITHIN: &str = "set_config('lock_timeout', '10s', true) AS patience";
/// Most heads in one message: its text has a limit.
const HEADS_PER_MESSAGE: usize = 200;

/// Runs a job and answers its caller.
pub(crate) async fn run(shared: &Shared, session: &mut Session, job: Job, reply: Reply) -> Afterwards {
    let doing = match &job {
        Job::Scan { .. } | Job::Log(_) | Job::Tallies | Job::Census | Job::Now | Job::Gate => Doing::Reading,
        _ => Doing::Writing,
    };
    let answered = perform(shared, session, job).await;
    let afterwards = answered.as_ref().err().map_or(Afterwards::GoOn, Afterwards::of);
    reply.send(answered.map_err(|trouble| trouble.at(&shared.address, doing)));
    afterwards
}

async fn perform(shared: &Shared, session: &mut Session, job: Job) -> Result<Answer, Trouble> {
    match job {
        Job::Remove { intent, expected, events } => {
            shared.likely.missed(&intent);
            remove(shared, session, intent, expected, events).await.map(Answer::Replaced)
        }
        Job::Note { events } => note(shared, session, events).await.map(|()| Answer::Done),
        Job::Scan { filter, from, limit } => {
            read::scan(shared, session, &filter, from, limit.clamp(1, PAGE_MAX)).await.map(Answer::Scanned)
        }
        Job::Log(query) => read::log(shared, session, &query).await.map(Answer::Logged),
        Job::Purge { limit } => {
            purge::purge(shared, session, limit).await.map(Answer::Purged).map_err(partly_written)
        }
        Job::Count(tallies) => count(session, &tallies).await.map(|()| Answer::Done),
        Job::Tallies => tallies(session).await.map(Answer::Tallies),
        Job::Census => census(session).await.map(Answer::Census),
        Job::Now => now(shared, session).await.map(Answer::Now),
        Job::Look { intents } => look(session, &intents).await.map(Answer::Versions),
        Job::Tell { heads } => tell(shared, session, &heads).await.map(|()| Answer::Done),
        Job::Gate => moving::gate(session).await.map(Answer::Gate),
        Job::TurnGate { from, to } => moving::turn(session, &from, to).await.map(Answer::Gate),
        Job::Import { under, import } => {
            moving::import(shared, session, &under, &import).await.map(|()| Answer::Done)
        }
        Job::Say(text) => say(shared, session, &text).await.map(|()| Answer::Done),
    }
}

pub(crate) async fn now(shared: &Shared, session: &mut Session) -> Result<Millis, Trouble> {
    let asked = Asked::now();
    let rows = session.read_sql(&format!("SELECT {CLOCK}"), &[]).await?;
    let row = rows.first().ok_or(Damaged("the server does not tell the time"))?;
    Ok(shared.judged(rows::now(row, 0)?, asked)?)
}

/// Removes a record and keeps its trail: what was done must stay readable.
async fn remove(
    shared: &Shared,
    session: &mut Session,
    intent: IntentId,
    expected: Version,
    events: Option<Vec<u8>>,
) -> Result<Replaced, Trouble> {
    let statements = Arc::clone(session.statements());
    let (schema, seq) = (&statements.schema, &statements.seq);
    let sql = format!(
        "WITH c AS MATERIALIZED (
  SELECT nextval({seq}) AS seq, greatest($5, {CLOCK}) AS now,
    {LOCK_WITHIN}
),
won AS (
  DELETE FROM {schema}.record r WHERE r.head = $1 AND r.tail = $2 AND r.version = $3 RETURNING r.trail
),
kept AS (
  INSERT INTO {schema}.forgotten AS f (head, at, trail)
  SELECT $1, c.now, won.trail || CASE WHEN $4 IS NULL THEN '' ELSE int8send(c.seq) END FROM c, won
  ON CONFLICT (head) DO UPDATE SET at = excluded.at, trail =
    substr(f.trail || excluded.trail, greatest(1, length(f.trail || excluded.trail) - 511))
),
noted AS (
  INSERT INTO {schema}.audit (seq, at, events) SELECT c.seq, c.now, $4 FROM c, won WHERE $4 IS NOT NULL
)
SELECT {CLOCK}, won.trail IS NOT NULL FROM c LEFT JOIN won ON true"
    );
    let (head, tail) = (rows::head(&intent), rows::tail(&intent));
    let (version, floor) = (i64::try_from(expected.0).unwrap_or(-1), shared.floor());
    let params: [Param<'_>; 5] = [
        (&head, Type::UUID),
        (&tail, Type::UUID),
        (&version, Type::INT8),
        (&events, Type::BYTEA),
        (&floor, Type::INT8),
    ];
    let asked = Asked::now();
    let answered = session.write_sql(&sql, &params).await?;
    if let Some(row) = answered.first() {
        shared.door.clock.written(rows::now(row, 0)?, asked);
        if row.try_get(1)? {
            shared.watchers.changed(&intent, None);
            shared.tell_others(vec![head]);
            return Ok(Replaced::Done(None));
        }
    }
    let (now, mut found) = load_many(shared, session, &[intent]).await.map_err(unwritten)?;
    let there = found.remove(&intent).transpose()?;
    Ok(Replaced::Stale(there.map(|record| Stored { record, now })))
}

/// A look after a write that changed nothing: whatever becomes of it, nothing was written.
fn unwritten(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Lost(why) => Trouble::Unsent(why),
        other => other,
    }
}

/// Of several writes: that one was not sent says nothing of those before it.
fn partly_written(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Unsent(why) => Trouble::Lost(why),
        other => other,
    }
}

/// Logs events that change no record; the records that they are about remember where. They are met in the order of the list, as
/// by every statement that writes to several: two that met them in other orders could wait for each other.
async fn note(shared: &Shared, session: &mut Session, events: Vec<Event>) -> Result<(), Trouble> {
    if events.is_empty() {
        return Ok(());
    }
    let statements = Arc::clone(session.statements());
    let (schema, seq) = (&statements.schema, &statements.seq);
    let sql = format!(
        "WITH c AS MATERIALIZED (
  SELECT nextval({seq}) AS seq, greatest($3, {CLOCK}) AS now,
    {LOCK_WITHIN}
),
told AS (
  UPDATE {schema}.record r
  SET trail = substr(r.trail || int8send(c.seq), greatest(1, length(r.trail) - 503))
  FROM c CROSS JOIN unnest((SELECT $1)) AS i(head) WHERE {LISTED}
)
INSERT INTO {schema}.audit (seq, at, events) SELECT c.seq, c.now, $2 FROM c RETURNING {CLOCK}"
    );
    let mut heads: Vec<Half> = events.iter().map(|event| rows::head(&event.intent)).collect();
    heads.sort_unstable();
    heads.dedup();
    let (packed, floor, asked) = (pack_events(&events), shared.floor(), Asked::now());
    let answered = session
        .write_sql(&sql, &[(&heads, Type::UUID_ARRAY), (&packed, Type::BYTEA), (&floor, Type::INT8)])
        .await?;
    if let Some(row) = answered.first() {
        shared.door.clock.written(rows::now(row, 0)?, asked);
    }
    Ok(())
}

/// Adds to the counters.
async fn count(session: &mut Session, tallies: &[Tally]) -> Result<(), Trouble> {
    let schema = session.statements().schema.clone();
    let sql = format!(
        "INSERT INTO {schema}.tally AS t (namespace, tool, counter, count)
SELECT * FROM unnest($1, $2, $3, $4) ON CONFLICT (namespace, tool, counter) DO UPDATE SET count = t.count + excluded.count"
    );
    let namespaces: Vec<&str> = tallies.iter().map(|tally| tally.namespace.as_str()).collect();
    let tools: Vec<&str> = tallies.iter().map(|tally| tally.tool.as_str()).collect();
    let counters: Vec<i16> = tallies.iter().map(|tally| tally.counter as i16).collect();
    let counts: Vec<i64> =
        tallies.iter().map(|tally| i64::try_from(tally.count).unwrap_or(i64::MAX)).collect();
    let params: [Param<'_>; 4] = [
        (&namespaces, Type::TEXT_ARRAY),
        (&tools, Type::TEXT_ARRAY),
        (&counters, Type::INT2_ARRAY),
        (&counts, Type::INT8_ARRAY),
    ];
    session.write_sql(&sql, &params).await.map(drop)
}

async fn tallies(session: &mut Session) -> Result<Vec<Tally>, Trouble> {
    let schema = &session.statements().schema;
    let sql = format!("SELECT namespace, tool, counter, count FROM {schema}.tally ORDER BY 1, 2, 3");
    let mut tallies = Vec::new();
    for row in session.read_sql(&sql, &[]).await? {
        let (counter, count): (i16, i64) = (row.try_get(2)?, row.try_get(3)?);
        // A counter that this version does not know is a later version's.
        let Some(counter) = u8::try_from(counter).ok().and_then(Counter::from_number) else { continue };
        tallies.push(Tally {
            namespace: Namespace::parse(row.try_get(0)?).map_err(|_| Damaged("a namespace is not one"))?,
            tool: ToolName::parse(row.try_get(1)?).map_err(|_| Damaged("a tool name is not one"))?,
            counter,
            count: u64::try_from(count).unwrap_or(0),
        });
    }
    Ok(tallies)
}

/// Counts open and rejected records by their indexes; how many have succeeded is the table's own estimate where there
/// are many.
async fn census(session: &mut Session) -> Result<Vec<(StateName, u64)>, Trouble> {
    let statements = Arc::clone(session.statements());
    let schema = &statements.schema;
    let sql = format!(
        "SELECT (SELECT count(*) FROM {schema}.record WHERE due = 0), (SELECT count(*) FROM {schema}.record WHERE due = 1),
  (SELECT count(*) FROM {schema}.record WHERE state = 3),
  CASE WHEN c.reltuples < 100000 THEN (SELECT count(*) FROM {schema}.record) ELSE c.reltuples::int8 END
FROM pg_class c WHERE c.oid = $1::regclass"
    );
    let table = format!("{schema}.record");
    let rows = session.read_sql(&sql, &[(&table, Type::TEXT)]).await?;
    let row = rows.first().ok_or(Damaged("the table of records is missing"))?;
    let count =
        |at: usize| -> Result<u64, Trouble> { Ok(u64::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0)) };
    let (running, in_doubt, rejected, all) = (count(0)?, count(1)?, count(2)?, count(3)?);
    Ok(vec![
        (StateName::Running, running),
        (StateName::Succeeded, all.saturating_sub(running + in_doubt + rejected)),
        (StateName::Rejected, rejected),
        (StateName::InDoubt, in_doubt),
    ])
}

/// Says that these are waited for, and reads their versions.
async fn look(session: &mut Session, intents: &[IntentId]) -> Result<HashMap<IntentId, Version>, Trouble> {
    let schema = session.statements().schema.clone();
    let sql = format!(
        "WITH w AS (
  INSERT INTO {schema}.waiting AS w (head, until)
  SELECT i.head, {CLOCK} + $2 FROM unnest($1) AS i(head)
  ON CONFLICT (head) DO UPDATE SET until = excluded.until WHERE w.until < excluded.until - $2 / 2
)
SELECT r.head, r.version FROM {schema}.record r WHERE r.head = ANY($1)"
    );
    let mut heads: Vec<Half> = intents.iter().map(rows::head).collect();
    heads.sort_unstable();
    heads.dedup();
    let rows = session.write_sql(&sql, &[(&heads, Type::UUID_ARRAY), (&TELL_FOR_MS, Type::INT8)]).await?;
    let mut versions: HashMap<Half, Version> = HashMap::new();
    for row in &rows {
        versions.insert(row.try_get(0)?, Version(u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0)));
    }
    let version = |intent: &IntentId| versions.get(&rows::head(intent)).map(|version| (*intent, *version));
    Ok(intents.iter().filter_map(version).collect())
}

/// Tells the machines that wait, after the fact and apart from it: a message sent in the same transaction would make
/// every commit wait for the one before it.
async fn tell(shared: &Shared, session: &mut Session, heads: &[Half]) -> Result<(), Trouble> {
    for some in heads.chunks(HEADS_PER_MESSAGE) {
        let text: Vec<String> = some.iter().map(|head| hex(&head.0)).collect();
        say(shared, session, &text.join(" ")).await?;
    }
    let schema = session.statements().schema.clone();
    let heads = heads.to_vec();
    let sql = format!("DELETE FROM {schema}.waiting WHERE head = ANY($1)");
    session.write_sql(&sql, &[(&heads, Type::UUID_ARRAY)]).await.map(drop)
}

async fn say(shared: &Shared, session: &mut Session, text: &str) -> Result<(), Trouble> {
    let params: [Param<'_>; 2] = [(&shared.channel, Type::TEXT), (&text, Type::TEXT)];
    session.write_sql("SELECT pg_notify($1, $2)", &params).await.map(drop)
}
