//! The tables, as a list of versioned steps, and how a ledger gets from one version to the next while others use it.
//!
//! `record` holds one row per intent. `head` and `tail` are the two halves of its id; only the first is indexed. `id` is
//! its place in the order of creation, and never changes. `due` is 0 while running, 1 in doubt, else the time when
//! something of it is due to be dropped: one index serves the purge and the listing of open records; a heartbeat leaves
//! it alone, so that it can be written in place. `trail` names the commits that tell of the record, eight bytes each.
//!
//! `audit` holds one row per statement, with all of its events packed. Its `seq` comes from `commit_seq` and is the
//! version of every record written by that statement: the sequence never goes back, whatever is removed.
//!
//! `waiting` says which records somebody on some machine waits for, so that nobody is told of anything otherwise. It is
//! not logged: after a crash it is empty, and waiters look by themselves.

use oncely_core::{StoreError, StoreErrorKind};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::connect::Door;
use super::errors::{Doing, Trouble};
use super::options::PostgresOptions;
use super::rows::Half;

/// The version that this program writes.
pub(crate) const SCHEMA_VERSION: i32 = STEPS.len() as i32;

/// A step on the way from one version to the next. A released step is never changed.
///
/// Two versions of the program run at once while they are being replaced. So a step first only adds (`oldest` stays),
/// and what nobody uses any more goes with a later one, which raises `oldest`: the oldest program that can still use it.
struct Step {
    sql: &'static str,
    oldest: i32,
}

/// Step n leads from version n to version n + 1.
///
/// The filler rows make the file of `record` large enough that no plan prefers to read all of it, also when it was
/// planned while the table was empty and is used until the next ANALYZE; `vacuum_truncate` keeps it so, and spares the
/// exclusive lock of a truncation. Pages are filled: an end seldom fits beside its claim, and a heartbeat finds the room that
/// one before it has left. Ledgers from before that leave a tenth of each page free (`fillfactor` 90), and may go on to.
const STEPS: [Step; 5] = [
    Step {
        oldest: 1,
        sql: r#"
CREATE SEQUENCE {schema}.commit_seq;
CREATE TABLE {schema}.record (
  head uuid NOT NULL CONSTRAINT record_pkey PRIMARY KEY,
  tail uuid NOT NULL,
  id bigint NOT NULL,
  version bigint NOT NULL,
  due bigint NOT NULL,
  created_at bigint NOT NULL,
  sent_at bigint NOT NULL,
  changed_at bigint NOT NULL,
  state smallint NOT NULL,
  namespace text COLLATE "C" NOT NULL,
  tool text COLLATE "C" NOT NULL,
  scope text COLLATE "C",
  key text COLLATE "C" NOT NULL,
  trail bytea NOT NULL,
  body bytea NOT NULL,
  result bytea
) WITH (
  fillfactor = 100, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 5000
);
ALTER TABLE {schema}.record ALTER body SET STORAGE EXTERNAL;
INSERT INTO {schema}.record
  SELECT md5('filler ' || n)::uuid, md5('')::uuid, -n, 0, 0, 0, 0, 0, 0, '', '', NULL, '', '',
    decode(repeat('00', 1800), 'hex'), NULL FROM generate_series(1, 1600) n;
DELETE FROM {schema}.record;
CREATE UNIQUE INDEX record_id ON {schema}.record (id);
CREATE INDEX record_due ON {schema}.record (due);
CREATE INDEX record_rejected ON {schema}.record (id) WHERE state = 3;
CREATE TABLE {schema}.audit (
  seq bigint NOT NULL CONSTRAINT audit_pkey PRIMARY KEY,
  at bigint NOT NULL,
  events bytea NOT NULL
) WITH (
  toast_tuple_target = 8160, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 5000
);
ALTER TABLE {schema}.audit ALTER events SET STORAGE EXTERNAL;
CREATE TABLE {schema}.forgotten (
  head uuid NOT NULL CONSTRAINT forgotten_pkey PRIMARY KEY,
  at bigint NOT NULL,
  trail bytea NOT NULL
);
CREATE TABLE {schema}.tally (
  namespace text COLLATE "C" NOT NULL,
  tool text COLLATE "C" NOT NULL,
  counter smallint NOT NULL,
  count bigint NOT NULL,
  CONSTRAINT tally_pkey PRIMARY KEY (namespace, tool, counter)
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE {schema}.waiting (
  head uuid NOT NULL CONSTRAINT waiting_pkey PRIMARY KEY,
  until bigint NOT NULL
) WITH (fillfactor = 50);
"#,
    },
    // The gate: see `moving`. Its triggers are asked only while it is not open.
    Step {
        oldest: 1,
        sql: r#"
CREATE TABLE {schema}.gate (
  one boolean NOT NULL DEFAULT true CONSTRAINT gate_pkey PRIMARY KEY CHECK (one),
  phase smallint NOT NULL,
  id bytea NOT NULL,
  run bigint NOT NULL,
  other text NOT NULL,
  shift_ms bigint NOT NULL,
  steady_since bigint NOT NULL
);
CREATE FUNCTION {schema}.gate() RETURNS trigger LANGUAGE plpgsql AS $gate$
DECLARE
  g {schema}.gate%ROWTYPE;
BEGIN
  SELECT * INTO g FROM {schema}.gate;
  IF g.phase = 1 AND (TG_TABLE_NAME = 'audit' OR TG_OP = 'DELETE') THEN
    RETURN coalesce(NEW, OLD);
  END IF;
  -- An attempt that begins is a row that is new, or one that is running from now on and has an event that tells of it.
  IF g.phase = 1 AND TG_OP = 'UPDATE' THEN
    IF NEW.state <> 1 OR NEW.trail = OLD.trail THEN
      RETURN NEW;
    END IF;
  END IF;
  IF g.phase = 3 AND current_setting('oncely.run', true) = g.run::text THEN
    RETURN coalesce(NEW, OLD);
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'ON001', MESSAGE = coalesce(g.other, ''), DETAIL = coalesce(g.phase, 0)::text;
END
$gate$;
CREATE TRIGGER gate BEFORE INSERT OR UPDATE OR DELETE ON {schema}.record
  FOR EACH ROW EXECUTE FUNCTION {schema}.gate();
CREATE TRIGGER gate BEFORE INSERT OR DELETE ON {schema}.audit FOR EACH ROW EXECUTE FUNCTION {schema}.gate();
ALTER TABLE {schema}.record DISABLE TRIGGER gate;
ALTER TABLE {schema}.audit DISABLE TRIGGER gate;
"#,
    },
    // Which ledger it is: who has opened one notices when another stands in its place.
    Step {
        oldest: 1,
        sql: r#"
ALTER TABLE {schema}.ledger ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid();
"#,
    },
    // What a purge drops by its age is found by its age.
    Step {
        oldest: 1,
        sql: r#"
CREATE INDEX forgotten_at ON {schema}.forgotten (at);
CREATE INDEX waiting_until ON {schema}.waiting (until);
"#,
    },
    // A closing ledger takes what is logged of an attempt under way: that one was superseded is the one sign of a double
    // effect. A write that makes a record another one gives it a new version; what is only logged leaves its version.
    Step {
        oldest: 1,
        sql: r#"
CREATE OR REPLACE FUNCTION {schema}.gate() RETURNS trigger LANGUAGE plpgsql AS $gate$
DECLARE
  g {schema}.gate%ROWTYPE;
BEGIN
  SELECT * INTO g FROM {schema}.gate;
  IF g.phase = 1 AND (TG_TABLE_NAME = 'audit' OR TG_OP = 'DELETE') THEN
    RETURN coalesce(NEW, OLD);
  END IF;
  -- An attempt that begins is a row that is new, or one that has a new version, is running from now on, and has an event
  -- that tells of it.
  IF g.phase = 1 AND TG_OP = 'UPDATE' THEN
    IF NEW.state <> 1 OR NEW.trail = OLD.trail OR NEW.version = OLD.version THEN
      RETURN NEW;
    END IF;
  END IF;
  IF g.phase = 3 AND current_setting('oncely.run', true) = g.run::text THEN
    RETURN coalesce(NEW, OLD);
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'ON001', MESSAGE = coalesce(g.other, ''), DETAIL = coalesce(g.phase, 0)::text;
END
$gate$;
"#,
    },
];

const MAKE_SCHEMA: &str = "CREATE SCHEMA {schema};
";
const MAKE_LEDGER: &str = "CREATE TABLE {schema}.ledger (
  one boolean NOT NULL DEFAULT true CONSTRAINT ledger_pkey PRIMARY KEY CHECK (one),
  version integer NOT NULL,
  oldest integer NOT NULL
);
INSERT INTO {schema}.ledger (version, oldest) VALUES (0, 0);
";

/// A step that changes a table waits for who uses it, and others wait behind it: not for long.
const LOCK_WITHIN: &str = "SET LOCAL lock_timeout = '10s'";

/// What is in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing of ours.
    Nothing,
    /// A ledger that this program can use.
    Ledger(Ledger),
}

/// What a ledger says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) version: i32,
    /// Which one it is; none before version 3.
    pub(crate) id: Option<Half>,
}

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; 0 for none.
    pub from: i32,
    /// The version now.
    pub to: i32,
}

/// A name as SQL has it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// All steps from nothing to the newest version, as SQL to be run by hand: in one transaction, on an empty schema.
pub fn migration_sql(schema: &str) -> String {
    let mut sql = format!("BEGIN;\n{MAKE_SCHEMA}{MAKE_LEDGER}");
    for (at, step) in STEPS.iter().enumerate() {
        sql.push_str(&format!("-- Version {}\n{}", at + 1, step.sql.trim_start()));
    }
    sql.push_str(&format!("{}COMMIT;\n", set_version()));
    sql.replace("{schema}", &quoted(schema))
}

fn set_version() -> String {
    let oldest = STEPS.iter().map(|step| step.oldest).max().unwrap_or(0);
    format!("UPDATE {{schema}}.ledger SET version = {SCHEMA_VERSION}, oldest = {oldest};\n")
}

/// Makes the tables, or brings them to the newest version; others may use the ledger meanwhile.
///
/// To be called on a tokio runtime.
pub async fn migrate(options: &PostgresOptions) -> Result<Migrated, StoreError> {
    let door = Door::new(options.clone())?;
    let link = door.open().await?;
    if options.names_several() && look(&link.client, options).await? == Found::Nothing {
        door.certainly_absent().await?;
    }
    migrate_with(&link.client, options).await
}

/// Looks at the ledger, and brings it up to date. Where there is none it is made, unless the address names several servers:
/// which of them happens to answer must not decide where a new one begins.
pub(crate) async fn look_or_make(client: &Client, options: &PostgresOptions) -> Result<Ledger, StoreError> {
    match look(client, options).await? {
        Found::Ledger(ledger) if ledger.version >= SCHEMA_VERSION => return Ok(ledger),
        Found::Nothing if options.names_several() => return Err(nowhere(options)),
        _ => drop(migrate_with(client, options).await?),
    }
    match look(client, options).await? {
        Found::Ledger(ledger) => Ok(ledger),
        Found::Nothing => Err(nowhere(options)),
    }
}

fn nowhere(options: &PostgresOptions) -> StoreError {
    let message = format!(
        "there is no ledger {} on the primary that answered; nothing was written; if it is a new one, make it with \
         `oncely store migrate` while all of its servers are up; if not, this is not the server that has it",
        options.describe()
    );
    StoreError::before(StoreErrorKind::Foreign, message)
}

/// Looks without changing anything. A ledger that is too new is an error.
pub(crate) async fn look(client: &Client, options: &PostgresOptions) -> Result<Found, StoreError> {
    // As JSON, for an older ledger has no such column.
    let sql = format!(
        "SELECT l.version, l.oldest, (to_jsonb(l) ->> 'id')::uuid FROM {}.ledger l",
        quoted(&options.schema)
    );
    let address = options.describe();
    let rows = match client.query_typed(&sql, &[]).await.map_err(Trouble::from) {
        Ok(rows) => rows,
        Err(trouble) if matches!(trouble.code(), Some("42P01" | "3F000")) => return Ok(Found::Nothing),
        Err(trouble) => return Err(trouble.at(&address, Doing::Reading)),
    };
    let fail = |error: tokio_postgres::Error| Trouble::from(error).at(&address, Doing::Reading);
    let Some(row) = rows.first() else { return Ok(Found::Nothing) };
    let (version, oldest): (i32, i32) = (row.try_get(0).map_err(fail)?, row.try_get(1).map_err(fail)?);
    if oldest > SCHEMA_VERSION {
        let message = format!(
            "the ledger {address} has version {version}, which programs that know version {oldest} can use, and this \
             one knows {SCHEMA_VERSION}; nothing was written; use a newer program"
        );
        return Err(StoreError::before(StoreErrorKind::TooNew, message));
    }
    let id = row.try_get(2).map_err(fail)?;
    Ok(if version == 0 { Found::Nothing } else { Found::Ledger(Ledger { version, id }) })
}

pub(crate) async fn migrate_with(client: &Client, options: &PostgresOptions) -> Result<Migrated, StoreError> {
    let address = options.describe();
    let migrated = try_migrate(client, options).await;
    migrated.map_err(|trouble| {
        let StoreError { kind, message, wrote } = trouble.at(&address, Doing::Writing);
        let (kind, advice) = match trouble.code() {
            Some("42501") => (
                StoreErrorKind::ReadOnly,
                "; let a role that may create schemas run `oncely store migrate`, or apply what \
                 `oncely store migrate --print` prints",
            ),
            Some("42P07" | "42710") => (
                StoreErrorKind::Foreign,
                "; the schema holds tables of another program: name another with ?schema=",
            ),
            _ => (kind, ""),
        };
        StoreError { kind, message: format!("{message}{advice}"), wrote }
    })
}

/// One transaction. Whoever else migrates waits at its lock, which is the transaction's own and not the session's.
async fn try_migrate(client: &Client, options: &PostgresOptions) -> Result<Migrated, Trouble> {
    let lock = format!("SELECT pg_advisory_xact_lock(1332634476, hashtext({}))", literal(&options.schema));
    client.batch_execute(&format!("BEGIN; SET LOCAL lock_timeout = 0; {lock}; {LOCK_WITHIN}")).await?;
    let done = take_steps(client, options).await;
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    client.batch_execute(end).await?;
    done
}

/// Inside the transaction that holds the lock: takes the steps that are missing.
async fn take_steps(client: &Client, options: &PostgresOptions) -> Result<Migrated, Trouble> {
    let schema = quoted(&options.schema);
    let run = async |sql: &str| client.batch_execute(&sql.replace("{schema}", &schema)).await;
    // Looked for first: to make what is there needs rights, even where nothing is then made.
    let looked = client
        .query_typed(
            "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($2) IS NOT NULL",
            &[(&schema, Type::TEXT), (&format!("{schema}.ledger"), Type::TEXT)],
        )
        .await?;
    let there = |at: usize| looked.first().map_or(Ok(false), |row| row.try_get::<_, bool>(at));
    if !there(0)? {
        run(MAKE_SCHEMA).await?;
    }
    if !there(1)? {
        run(MAKE_LEDGER).await?;
    }
    let from = match look(client, options).await? {
        Found::Ledger(ledger) => ledger.version,
        Found::Nothing => 0,
    };
    for step in STEPS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        run(step.sql).await?;
    }
    if from < SCHEMA_VERSION {
        run(&set_version()).await?;
    }
    Ok(Migrated { from, to: from.max(SCHEMA_VERSION) })
}

/// A text as SQL has it.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
