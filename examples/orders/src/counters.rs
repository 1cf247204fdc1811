//! Counters: each increment carries the name of its intent, so that the database itself takes it once.

use std::time::Duration;

use clap::Args;
use oncely_clap::{Answer, Cx, Declaration, Failure, Handler, OrFault, Query, noop_with, updated};
use rusqlite::{Connection, params};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Cli;

/// Rows of increments are never removed; ten years is the longest that can be said.
const KEPT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

#[derive(Debug, Args)]
pub struct IncrementCounter {
    /// Which counter
    #[arg(long)]
    name: String,
    /// By how much
    #[arg(long, default_value_t = 1)]
    by: i64,
}

/// A counter.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Counter {
    name: String,
    value: i64,
}

impl Handler<Cli> for IncrementCounter {
    type Data = Counter;

    fn declare() -> Declaration {
        Declaration::updates().forwards_key_for(KEPT)
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<Counter> {
        let db = cx.app().open().or_rejected("DATABASE_UNAVAILABLE")?;
        let insert = "INSERT OR IGNORE INTO increments (request, name, by) VALUES (?1, ?2, ?3)";
        let rows = db.execute(insert, params![cx.downstream_key(), self.name, self.by]).or_unknown()?;
        // It is counted, whatever becomes of reading the sum.
        let counter = Counter { name: self.name.clone(), value: value_of(&db, &self.name).or_unknown()? };
        if rows == 0 { noop_with("this increment is counted already", counter) } else { updated(counter) }
    }
}

fn value_of(db: &Connection, name: &str) -> rusqlite::Result<i64> {
    db.query_row("SELECT coalesce(sum(by), 0) FROM increments WHERE name = ?1", [name], |row| row.get(0))
}

#[derive(Debug, Args)]
pub struct Counters {}

/// All counters.
#[derive(Debug, Serialize, JsonSchema)]
pub struct List {
    counters: Vec<Counter>,
}

impl Query<Cli> for Counters {
    type Data = List;

    fn run(&self, app: &Cli) -> Result<List, Failure> {
        let db = app.look()?;
        let mut select = db.prepare("SELECT name, sum(by) FROM increments GROUP BY name ORDER BY name")?;
        let counter = |row: &rusqlite::Row<'_>| Ok(Counter { name: row.get(0)?, value: row.get(1)? });
        let counters = select.query_map([], counter)?.collect::<rusqlite::Result<_>>()?;
        Ok(List { counters })
    }
}
