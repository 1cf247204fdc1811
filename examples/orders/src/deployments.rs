//! Deployments: a wished state. Where it holds, nothing happens, whatever the key.

use clap::Args;
use oncely_clap::{
    Answer, Check, Cx, Declaration, Failure, Handler, OrFault, Planned, Query, ensure, updated, would_noop,
    would_update,
};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::Cli;

#[derive(Debug, Args)]
pub struct Deploy {
    /// Which service
    #[arg(long)]
    service: String,
    /// Which release of it
    #[arg(long)]
    release: String,
}

/// What is deployed of a service, and how many times something was.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Deployment {
    service: String,
    release: String,
    times: i64,
}

impl Handler<Cli> for Deploy {
    type Data = Deployment;

    fn declare() -> Declaration {
        Declaration::updates().check_first()
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<Deployment> {
        let mut db = cx.app().open().or_rejected("DATABASE_UNAVAILABLE")?;
        let transaction = db
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .or_rejected("DATABASE_UNAVAILABLE")?;
        let changed = ensure(|| self.find(&transaction).into(), || self.deploy(&transaction, cx))?;
        transaction.commit().or_unknown()?;
        Ok(changed)
    }

    fn check(&self, cx: &Cx<Cli>) -> Check<Deployment> {
        // Not by the state: somebody may have deployed the next release since.
        let done = cx.app().look().and_then(|db| {
            let select = "SELECT service, release, times FROM deployed WHERE request = ?1";
            db.query_row(select, [cx.downstream_key()], deployment_of).optional()
        });
        done.into()
    }

    fn plan(&self, app: &Cli) -> Planned {
        let change = json!({ "service": self.service, "release": self.release });
        match self.find(&app.look()?)? {
            Some(_) => would_noop("this release is there already").into(),
            None => would_update().change(change).into(),
        }
    }
}

impl Deploy {
    /// Brings the state about, and writes down for whom. Nothing has happened before the transaction is committed.
    fn deploy(&self, db: &Connection, cx: &Cx<Cli>) -> Answer<Deployment> {
        let upsert = "INSERT INTO deployments (service, release, times) VALUES (?1, ?2, 1)
            ON CONFLICT (service) DO UPDATE SET release = excluded.release, times = times + 1
            RETURNING service, release, times";
        let done = db
            .query_row(upsert, params![self.service, self.release], deployment_of)
            .or_rejected("DATABASE_UNAVAILABLE")?;
        let note = "INSERT INTO deployed (request, service, release, times) VALUES (?1, ?2, ?3, ?4)";
        db.execute(note, params![cx.downstream_key(), done.service, done.release, done.times])
            .or_rejected("DATABASE_UNAVAILABLE")?;
        updated(done)
    }

    /// The wished state, if it holds.
    fn find(&self, db: &Connection) -> rusqlite::Result<Option<Deployment>> {
        let select = "SELECT service, release, times FROM deployments WHERE service = ?1 AND release = ?2";
        db.query_row(select, params![self.service, self.release], deployment_of).optional()
    }
}

#[derive(Debug, Args)]
pub struct Status {}

/// All that is deployed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Deployments {
    deployments: Vec<Deployment>,
}

impl Query<Cli> for Status {
    type Data = Deployments;

    fn run(&self, app: &Cli) -> Result<Deployments, Failure> {
        let db = app.look()?;
        let mut select = db.prepare("SELECT service, release, times FROM deployments ORDER BY service")?;
        let deployments = select.query_map([], deployment_of)?.collect::<rusqlite::Result<_>>()?;
        Ok(Deployments { deployments })
    }
}

fn deployment_of(row: &Row<'_>) -> rusqlite::Result<Deployment> {
    Ok(Deployment { service: row.get(0)?, release: row.get(1)?, times: row.get(2)? })
}
