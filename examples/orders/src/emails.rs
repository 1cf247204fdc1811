//! An outbox of emails: known by whom they go to and what they are about, however a retry words them.

use clap::Args;
use oncely_clap::{
    Answer, Check, Cx, Declaration, Failure, Handler, OrFault, Planned, Problems, Query, sent, would_send,
};
use rusqlite::{OptionalExtension, Row, params};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::Cli;

#[derive(Debug, Args)]
pub struct SendEmail {
    /// Whom it goes to
    #[arg(long)]
    to: String,
    /// What it is about
    #[arg(long)]
    subject: String,
    /// What it says
    #[arg(long, default_value = "")]
    body: String,
}

/// An email in the outbox.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Email {
    id: i64,
    to: String,
    subject: String,
}

impl Handler<Cli> for SendEmail {
    type Data = Email;

    fn declare() -> Declaration {
        Declaration::sends().check_first().key_from(["to", "subject"])
    }

    fn validate(&self, _app: &Cli, problems: &mut Problems) {
        if !self.to.contains('@') {
            problems.add("--to", "is not an address");
        }
        if self.subject.trim().is_empty() {
            problems.add("--subject", "must not be empty");
        }
    }

    fn run(&self, cx: &Cx<Cli>) -> Answer<Email> {
        let mut db = cx.app().open().or_rejected("DATABASE_UNAVAILABLE")?;
        let insert = "INSERT INTO emails (recipient, subject, body, request) VALUES (?1, ?2, ?3, ?4)";
        let transaction = db.transaction().or_rejected("DATABASE_UNAVAILABLE")?;
        transaction
            .execute(insert, params![self.to, self.subject, self.body, cx.downstream_key()])
            .or_rejected("DATABASE_UNAVAILABLE")?;
        let id = transaction.last_insert_rowid();
        transaction.commit().or_unknown()?;
        sent(Email { id, to: self.to.clone(), subject: self.subject.clone() })
    }

    fn check(&self, cx: &Cx<Cli>) -> Check<Email> {
        let there = cx.app().look().and_then(|db| {
            let select = "SELECT id, recipient, subject FROM emails WHERE request = ?1";
            db.query_row(select, [cx.downstream_key()], email_of).optional()
        });
        there.into()
    }

    fn plan(&self, _app: &Cli) -> Planned {
        would_send().change(json!({ "email": { "to": self.to, "subject": self.subject } })).into()
    }
}

#[derive(Debug, Args)]
pub struct ListEmails {}

/// The outbox.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Emails {
    emails: Vec<Email>,
}

impl Query<Cli> for ListEmails {
    type Data = Emails;

    fn run(&self, app: &Cli) -> Result<Emails, Failure> {
        let db = app.look()?;
        let mut select = db.prepare("SELECT id, recipient, subject FROM emails ORDER BY id")?;
        let emails = select.query_map([], email_of)?.collect::<rusqlite::Result<_>>()?;
        Ok(Emails { emails })
    }
}

fn email_of(row: &Row<'_>) -> rusqlite::Result<Email> {
    Ok(Email { id: row.get(0)?, to: row.get(1)?, subject: row.get(2)? })
}
