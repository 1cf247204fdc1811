//! The statements of the hot path, for one schema. No rule about states lives here.
//!
//! Each kind of request has one statement for a single request and one for many, so that a lone caller pays for no
//! arrays. They do everything in one round trip and one commit: look, write, and log what was written. What is there
//! already is found by reading, so that a duplicate writes nothing, not even to the sequence. Last comes what the answer is
//! worth ([`super::worth`]); before that, where something was written, the clock.
//!
//! Arrays come in through sub-selects: the planner then does not see how long they are, so that a plan made for one
//! length is as good as for another, and the server keeps it instead of planning each time.
//!
//! A statement does not wait long for a record that somebody's open transaction holds, and least if others would wait with
//! it. It says so to the server itself, for its own transaction only: between it and the server may stand something that
//! gives each transaction another session. To say it costs a lone request a tenth of its time, so that where the session is
//! surely ours it is said once, and from then on the statement for one is silent about it; and so it is inside a
//! caller's own transaction, where what is set there holds.
//!
//! **Every statement has another number of parameters, and proves itself.** Where something between hands out sessions, a name
//! can mean another program's statement, or another one of ours; a server refuses to run one with the wrong number of
//! parameters. That of another ledger has the same number: so the last one has to be what the statement itself says, or it
//! divides by nothing and is undone.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::schema::{literal, quoted};
use super::worth::{BORN, COMMIT, STANDING, UNTOLD};

/// What [`super::rows::read`] wants, in its order.
pub(crate) const COLUMNS: &str = "r.head, r.tail, r.version, r.created_at, r.sent_at, r.changed_at, r.namespace, \
                                  r.tool, r.scope, r.key, r.body, r.result";
/// How many they are.
pub(crate) const COLUMN_COUNT: usize = 12;
/// The server's clock, in milliseconds. What it says is judged here ([`crate::leap`]): nobody can do so there.
pub(crate) const CLOCK: &str = "floor(date_part('epoch', clock_timestamp()) * 1000)::int8";
/// What a write is stamped with: the server's clock, but nothing below what this handle has rightly seen, so that what it
/// writes later is never stamped earlier. To others a stamp above their clock looks young, which is the careful side.
/// Ages are never taken from it: those of what others wrote would grow by as much as the floor is above the clock.
const NOW: &str = "greatest($floor, {clock})";
/// When something of a record is due, from when it was changed and what [`super::rows::due_after`] says.
const DUE: &str = "CASE $after WHEN -1 THEN 0 WHEN -2 THEN 1 ELSE greatest(2, $changed + $after) END";
/// Which records a list names, each found by the index. Plain equality could be met from both sides: where the table was all but
/// empty when the server last counted its rows, it would rather read the whole index, and go through the list for every entry.
pub(crate) const LISTED: &str = "r.head = ANY (ARRAY[i.head])";
/// A trail with one more commit, of the last 64.
const TRAIL: &str = "substr(r.trail || int8send(c.seq), greatest(1, length(r.trail) - 503))";

/// Which statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hot {
    CreateOne,
    CreateOneBounded,
    CreateMany,
    PutOne,
    PutOneBounded,
    PutMany,
    LoadOne,
    LoadMany,
}

/// How many they are.
pub(crate) const HOT: usize = 8;

/// What the server says of a statement that another one's name has brought there.
pub(crate) const NOT_PROVED: &str = "22012";

/// What it says of a record that has been made since the statement looked for it.
pub(crate) const OVERTAKEN: &str = "23505";

/// The statements of one ledger.
pub(crate) struct Statements {
    /// The schema's name, quoted.
    pub(crate) schema: String,
    /// What to call to have the next version, as a literal.
    pub(crate) seq: String,
    /// Asks how the server stands.
    pub(crate) look: String,
    hot: [(String, i64); HOT],
}

impl Statements {
    /// Their answers say which server gave them if `told`.
    pub(crate) fn new(schema: &str, told: bool) -> Self {
        let schema = quoted(schema);
        let born = if told { BORN } else { UNTOLD };
        // With the number of the parameter that proves it.
        let hot = [
            (create_one(""), 16),
            (create_one(&patience("$16")), 17),
            (create_many(), 18),
            (put_one(""), 13),
            (put_one(&patience("$13")), 14),
            (put_many(), 15),
            (load_one(), 2),
            (load_many(), 3),
        ];
        let seq = literal(&format!("{schema}.commit_seq"));
        let whole = |(sql, last): (String, usize)| {
            let sql = sql.replace("{schema}", &schema).replace("{seq}", &seq).replace("{born}", born);
            let proof = digest(&sql);
            let clock = format!("{CLOCK} / (${last} = {proof})::int4");
            (sql.replace("{proved clock}", &clock), proof)
        };
        let look = format!("SELECT {STANDING}").replace("{born}", born);
        Self { hot: hot.map(whole), look, seq, schema }
    }

    pub(crate) fn hot(&self, which: Hot) -> &str {
        &self.hot[which as usize].0
    }

    /// What its last parameter has to be.
    pub(crate) fn proof(&self, which: Hot) -> &i64 {
        &self.hot[which as usize].1
    }
}

/// A number of a text. Another program may count otherwise: its statement and its parameter then agree with each other.
fn digest(text: &str) -> i64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    i64::try_from(hasher.finish() >> 1).unwrap_or(i64::MAX)
}

fn now(floor: &str) -> String {
    NOW.replace("$floor", floor).replace("{clock}", CLOCK)
}

/// Bounds how long the statement waits for each record that is held; evaluated before the first is asked for, like the clock
/// beside it.
fn patience(parameter: &str) -> String {
    format!(", set_config('lock_timeout', {parameter}::text, true) AS patience")
}

fn due(after: &str, changed: &str) -> String {
    DUE.replace("$after", after).replace("$changed", changed)
}

/// Parameters: head, tail, changed, created, sent, after, state, namespace, tool, scope, key, body, result, events, floor;
/// then how long to wait for a lock, where the statement says so itself; and last, as everywhere, the proof.
/// Answers: the stamp, the new id or null, the record that is there or nulls.
///
/// What was inserted says when that was, unless all of its times are the caller's; then no two times have to agree.
fn create_one(patience: &str) -> String {
    format!(
        "WITH won AS (
  INSERT INTO {{schema}}.record (head, tail, id, version, due, created_at, sent_at, changed_at, state, namespace, tool,
    scope, key, trail, body, result)
  SELECT $1, $2, s.seq << 16, s.seq, {due}, coalesce($4, s.now), coalesce($5, s.now), coalesce($3, s.now), $7, $8, $9, $10,
    $11, CASE WHEN $14 IS NULL THEN '' ELSE int8send(s.seq) END, $12, $13
  FROM (
    SELECT nextval({{seq}}) AS seq, {now} AS now{patience}
    WHERE NOT EXISTS (SELECT FROM {{schema}}.record t WHERE t.head = $1) OFFSET 0
  ) s
  ON CONFLICT (head) DO NOTHING
  RETURNING id, version, CASE WHEN $3 IS NULL THEN changed_at WHEN $4 IS NULL THEN created_at
    WHEN $5 IS NULL THEN sent_at ELSE {now} END AS now
),
noted AS (
  INSERT INTO {{schema}}.audit (seq, at, events) SELECT won.version, won.now, $14 FROM won WHERE $14 IS NOT NULL
)
SELECT coalesce(won.now, {now}), won.id, {COLUMNS}, {{proved clock}}, {COMMIT}
FROM (SELECT) one LEFT JOIN won ON true LEFT JOIN {{schema}}.record r ON r.head = $1",
        now = now("$15"),
        due = due("$6", "coalesce($3, s.now)"),
    )
}

/// The same with arrays, their length and how long to wait. Answers: the stamp, the new ids, a record that is there or nulls;
/// one row for each that is there, or one without any.
///
/// What somebody else commits between the look and the insert is refused with all of the statement ([`OVERTAKEN`]), and found
/// when it is run again. To let the server skip it would cost every one that is new a second look into the index and a mark that
/// it stays: a ninth of the statement, for what happens where two machines are asked for the same at the same moment.
fn create_many() -> String {
    format!(
        "WITH c AS MATERIALIZED (SELECT {now} AS now{patience}),
i AS MATERIALIZED (
  SELECT * FROM unnest((SELECT $1), (SELECT $2), (SELECT $3), (SELECT $4), (SELECT $5), (SELECT $6), (SELECT $7),
    (SELECT $8), (SELECT $9), (SELECT $10), (SELECT $11), (SELECT $12), (SELECT $13), (SELECT $14)) WITH ORDINALITY
    AS i(head, tail, changed, created, sent, after, state, namespace, tool, scope, key, body, result, events, n)
  WHERE n <= $16
),
there AS MATERIALIZED (SELECT {COLUMNS} FROM i JOIN {{schema}}.record r ON {LISTED}),
s AS MATERIALIZED (
  SELECT nextval({{seq}}) AS seq, c.now FROM c
  WHERE EXISTS (SELECT FROM i WHERE i.head NOT IN (SELECT there.head FROM there))
),
won AS (
  INSERT INTO {{schema}}.record (head, tail, id, version, due, created_at, sent_at, changed_at, state, namespace, tool,
    scope, key, trail, body, result)
  SELECT i.head, i.tail, s.seq << 16 | i.n, s.seq, {due}, coalesce(i.created, s.now), coalesce(i.sent, s.now),
    coalesce(i.changed, s.now), i.state, i.namespace, i.tool, i.scope, i.key,
    CASE WHEN i.events IS NULL THEN '' ELSE int8send(s.seq) END, i.body, i.result
  FROM s CROSS JOIN i WHERE i.head NOT IN (SELECT there.head FROM there) RETURNING id
),
noted AS (
  INSERT INTO {{schema}}.audit (seq, at, events)
  SELECT s.seq, s.now, e.events
  FROM s, (SELECT string_agg(i.events, '') AS events FROM i WHERE i.n IN (SELECT won.id & 65535 FROM won)) e
  WHERE e.events IS NOT NULL
)
SELECT c.now, (SELECT array_agg(won.id) FROM won), r.*, {{proved clock}}, {COMMIT} FROM c LEFT JOIN there r ON true",
        now = now("$15"),
        patience = patience("$17"),
        due = due("i.after", "coalesce(i.changed, s.now)"),
    )
}

/// Parameters: head, tail, expected, changed, created, sent, after, state, body, result, events, floor; then how long to
/// wait for a lock, where the statement says so itself.
/// Answers: the stamp, the new version, whether it was taken, and whether somebody waits for it.
fn put_one(patience: &str) -> String {
    format!(
        "WITH won AS (
  UPDATE {{schema}}.record r SET version = c.seq, due = {due}, created_at = coalesce($5, c.now),
    sent_at = coalesce($6, c.now), changed_at = coalesce($4, c.now), state = $8, body = $9, result = $10,
    trail = CASE WHEN $11 IS NULL THEN r.trail ELSE {TRAIL} END
  FROM (SELECT nextval({{seq}}) AS seq, {now} AS now{patience} OFFSET 0) c
  WHERE r.head = $1 AND r.tail = $2 AND r.version = $3 AND r.version < c.seq RETURNING c.seq, c.now
),
noted AS (
  INSERT INTO {{schema}}.audit (seq, at, events) SELECT won.seq, won.now, $11 FROM won WHERE $11 IS NOT NULL
)
SELECT coalesce(won.now, 0), coalesce(won.seq, 0), won.seq IS NOT NULL,
  won.seq IS NOT NULL AND EXISTS (SELECT FROM {{schema}}.waiting w WHERE w.head = $1), {{proved clock}}, {COMMIT}
FROM (SELECT) one LEFT JOIN won ON true",
        now = now("$12"),
        due = due("$7", "coalesce($4, c.now)"),
    )
}

/// The same with arrays, their length and how long to wait. Answers: the stamp, the new version, the numbers of those that were
/// taken, and of those the numbers that somebody waits for.
fn put_many() -> String {
    format!(
        "WITH c AS MATERIALIZED (SELECT nextval({{seq}}) AS seq, {now} AS now{patience}),
won AS (
  UPDATE {{schema}}.record r SET version = c.seq, due = {due}, created_at = coalesce(i.created, c.now),
    sent_at = coalesce(i.sent, c.now), changed_at = coalesce(i.changed, c.now), state = i.state, body = i.body,
    result = i.result, trail = CASE WHEN i.events IS NULL THEN r.trail ELSE {TRAIL} END
  FROM c CROSS JOIN unnest((SELECT $1), (SELECT $2), (SELECT $3), (SELECT $4), (SELECT $5), (SELECT $6), (SELECT $7),
    (SELECT $8), (SELECT $9), (SELECT $10), (SELECT $11)) WITH ORDINALITY
    AS i(head, tail, expected, changed, created, sent, after, state, body, result, events, n)
  WHERE i.n <= $13 AND {LISTED} AND r.tail = i.tail AND r.version = i.expected AND r.version < c.seq
  RETURNING i.n, i.head, i.events
),
noted AS (
  INSERT INTO {{schema}}.audit (seq, at, events)
  SELECT c.seq, c.now, e.events FROM c, (SELECT string_agg(won.events, '') AS events FROM won) e
  WHERE e.events IS NOT NULL
)
SELECT c.now, c.seq, (SELECT array_agg(won.n) FROM won),
  (SELECT array_agg(won.n) FROM won JOIN {{schema}}.waiting w ON w.head = ANY (ARRAY[won.head])), {{proved clock}}, {COMMIT}
FROM c",
        now = now("$12"),
        patience = patience("$14"),
        due = due("i.after", "coalesce(i.changed, c.now)"),
    )
}

/// Parameters: head. Answers: the clock, a record or nulls, and how the server stands.
fn load_one() -> String {
    format!(
        "SELECT {{proved clock}}, {COLUMNS}, {STANDING} FROM (SELECT) one LEFT JOIN {{schema}}.record r ON r.head = $1"
    )
}

/// Parameters: heads, how many. Answers the same: one row for each record, or one without any.
fn load_many() -> String {
    format!(
        "WITH i AS MATERIALIZED (SELECT * FROM unnest((SELECT $1)) WITH ORDINALITY AS i(head, n) WHERE n <= $2)
SELECT c.clock, {COLUMNS}, {STANDING} FROM (SELECT {{proved clock}} AS clock) c
LEFT JOIN (i JOIN {{schema}}.record r ON {LISTED}) ON true"
    )
}
