//! A connection in use: runs statements, prepared where that is possible, and minds what the server says meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use super::connect::Link;
use super::errors::Trouble;
use super::sql::{Hot, Statements};

/// How long an answer is awaited: less than a caller waits for its claim.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A parameter and its type.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Whether names of statements have been lost once: then nobody uses them any more.
#[derive(Default)]
pub(crate) struct Names(AtomicBool);

/// A connection in use.
pub(crate) struct Session {
    link: Link,
    statements: Arc<Statements>,
    names: Arc<Names>,
    prepared: [Use; 6],
}

/// How far a statement has come on a connection.
#[derive(Default)]
enum Use {
    /// A process that makes one call needs no name for it, and saves a round trip.
    #[default]
    Never,
    Once,
    Named(Statement),
}

impl Session {
    pub(crate) fn new(link: Link, statements: Arc<Statements>, names: Arc<Names>) -> Self {
        Self { link, statements, names, prepared: Default::default() }
    }

    /// Whether the connection has ended: nothing was sent yet of what comes next.
    pub(crate) fn is_closed(&self) -> bool {
        self.link.client.is_closed()
    }

    /// The statements' schema, quoted.
    pub(crate) fn statements(&self) -> &Arc<Statements> {
        &self.statements
    }

    /// Runs a statement of the hot path that writes.
    pub(crate) async fn write(&mut self, which: Hot, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        self.forget_warning();
        let answered = self.hot(which, params).await;
        self.mind_warning(answered)
    }

    /// Runs a statement of the hot path that only reads.
    pub(crate) async fn read(&mut self, which: Hot, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        self.hot(which, params).await
    }

    /// Runs another statement that writes, without a name.
    pub(crate) async fn write_sql(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        self.forget_warning();
        let answered = bounded(self.link.client.query_typed(sql, params)).await;
        self.mind_warning(answered)
    }

    /// Runs another statement that only reads, without a name.
    pub(crate) async fn read_sql(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        bounded(self.link.client.query_typed(sql, params)).await
    }

    async fn hot(&mut self, which: Hot, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        let sql = self.statements.hot(which);
        let named = self.link.named && !self.names.0.load(Ordering::Relaxed);
        let used = &mut self.prepared[which as usize];
        match used {
            Use::Never => *used = Use::Once,
            Use::Once if named => {
                let types: Vec<Type> = params.iter().map(|(_, of)| of.clone()).collect();
                match bounded(self.link.client.prepare_typed(sql, &types)).await {
                    Ok(statement) => *used = Use::Named(statement),
                    Err(trouble) if trouble.is_lost_name() => self.names.0.store(true, Ordering::Relaxed),
                    // Nothing of the request itself was sent.
                    Err(trouble) => return Err(not_sent(trouble)),
                }
            }
            _ => {}
        }
        if let (Use::Named(statement), true) = (&*used, named) {
            let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
            match bounded(self.link.client.query(statement, &values)).await {
                // Refused before it was run: without a name it means the same everywhere.
                Err(trouble) if trouble.is_lost_name() => self.names.0.store(true, Ordering::Relaxed),
                answered => return answered,
            }
        }
        bounded(self.link.client.query_typed(sql, params)).await
    }

    fn forget_warning(&self) {
        *self.link.warning.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A commit that stopped waiting for its standby succeeds with a warning, and is lost when that takes over.
    fn mind_warning(&self, answered: Result<Vec<Row>, Trouble>) -> Result<Vec<Row>, Trouble> {
        let rows = answered?;
        match self.link.warning.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(warning) => Err(Trouble::Warned(warning)),
            None => Ok(rows),
        }
    }
}

/// A lost connection before the request itself was sent.
fn not_sent(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Lost(why) => Trouble::Unsent(why),
        other => other,
    }
}

async fn bounded<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Trouble> {
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(Trouble::Lost(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
    }
}
