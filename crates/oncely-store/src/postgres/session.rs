//! A connection in use: runs statements, prepared where that is possible, and minds what the server says meanwhile.
//!
//! A commit is worth what the server's settings make it, and those can change under a living connection: a reload, an
//! `ALTER ROLE`, another session behind a pooler. So every write brings back what its commit waits for. Where commits wait
//! for a standby, a look at the settings follows each write on its heels: a server whose list of standbys is emptied
//! acknowledges all that were waiting, without a word, and only a look *after* the commit can tell.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use super::connect::Link;
use super::errors::Trouble;
use super::limits::HELD_ALONE;
use super::options::{Durability, PostgresOptions};
use super::sql::{HOT, Hot, Statements};

/// Whether commits still wait for a standby, and for as much as when the connection was judged.
const STILL_WAITS: &str = "SELECT current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') = $1";

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
    durability: Durability,
    answer_within: Duration,
    prepared: [Use; HOT],
    bound: Bound,
    /// Whether a transaction of several statements was begun of which it is not known that it has ended.
    inside: bool,
}

/// Whether the session itself bounds how long a statement waits for what somebody holds.
#[derive(Default, PartialEq, Eq)]
enum Bound {
    /// A process that makes one call says so in the statement, and saves a round trip.
    #[default]
    Not,
    Soon,
    Set,
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
    pub(crate) fn new(
        link: Link,
        statements: Arc<Statements>,
        names: Arc<Names>,
        options: &PostgresOptions,
    ) -> Self {
        let (durability, answer_within) = (options.durability, options.answer_within);
        let prepared = Default::default();
        Self {
            link,
            statements,
            names,
            durability,
            answer_within,
            prepared,
            bound: Bound::Not,
            inside: false,
        }
    }

    /// Whether the connection is of use: it stands, it is in nobody's transaction, and its server has not been replaced by
    /// another since.
    pub(crate) fn is_current(&self, newest_timeline: u64) -> bool {
        !self.link.client.is_closed() && !self.inside && self.link.server.timeline >= newest_timeline
    }

    /// Begins a transaction of several statements. Until the server has said that it is over, the connection serves nobody
    /// else: what others wrote on it would be acknowledged, and lost with the transaction.
    pub(crate) async fn begin(&mut self) -> Result<(), Trouble> {
        self.inside = true;
        self.write_sql("BEGIN", &[]).await.map(drop)
    }

    /// Ends it with what became of it. An error after the commit was asked for proves nothing.
    pub(crate) async fn end<T>(&mut self, done: Result<T, Trouble>) -> Result<T, Trouble> {
        let how = match &done {
            Ok(_) => "COMMIT",
            // The server takes it back when it finds that nobody is there any more.
            Err(trouble) if trouble.ends_connection() => return done,
            Err(_) => "ROLLBACK",
        };
        self.write_sql(how, &[]).await?;
        self.inside = false;
        done
    }

    /// Whether a lone write need not say itself how long it waits for a record that is held: from the second one on, where
    /// nobody else can be given the session. Not to be asked inside a transaction, which may be undone.
    pub(crate) async fn bounds_lone_writes(&mut self) -> Result<bool, Trouble> {
        match self.bound {
            _ if !self.link.server.is_ours_alone => return Ok(false),
            Bound::Not => self.bound = Bound::Soon,
            Bound::Soon => {
                let sql = format!("SET lock_timeout = {}", HELD_ALONE.as_millis());
                let set = self.bounded(self.link.client.batch_execute(&sql)).await;
                set.map_err(|trouble| match trouble {
                    // Nothing of the request itself was sent.
                    Trouble::Lost(why) => Trouble::Unsent(why),
                    other => other,
                })?;
                self.bound = Bound::Set;
            }
            Bound::Set => {}
        }
        Ok(self.bound == Bound::Set)
    }

    /// The ledger's statements.
    pub(crate) fn statements(&self) -> &Arc<Statements> {
        &self.statements
    }

    /// Returns when the server has answered what was asked before; answers whether the connection can be used on. One that
    /// fell silent within a transaction cannot: it is left for the server to end.
    pub(crate) async fn recover(&self) -> bool {
        !self.inside && self.link.client.query_typed("SELECT 1", &[]).await.is_ok()
    }

    /// Runs a statement of the hot path that writes.
    pub(crate) async fn write(&mut self, which: Hot, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        self.prepare(which, params).await?;
        self.forget_warning();
        let rows = self.send_and_look(self.send(which, params)).await?;
        // Last in every answer to a write.
        let commit = rows.first().and_then(|row| row.try_get::<_, &str>(row.len() - 1).ok());
        if self.durability == Durability::Strict && commit == Some("off") {
            return Err(Trouble::Warned("synchronous_commit has been set to off".to_owned()));
        }
        Ok(rows)
    }

    /// Runs a statement of the hot path that only reads.
    pub(crate) async fn read(&mut self, which: Hot, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        self.prepare(which, params).await?;
        self.send(which, params).await
    }

    /// Runs another statement that writes, without a name.
    pub(crate) async fn write_sql(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        self.forget_warning();
        self.send_and_look(self.bounded(self.link.client.query_typed(sql, params))).await
    }

    /// Runs another statement that only reads, without a name.
    pub(crate) async fn read_sql(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        self.bounded(self.link.client.query_typed(sql, params)).await
    }

    fn uses_names(&self) -> bool {
        self.link.named && !self.names.0.load(Ordering::Relaxed)
    }

    /// Gives a statement a name from its second use on.
    async fn prepare(&mut self, which: Hot, params: &[Param<'_>]) -> Result<(), Trouble> {
        let named = self.uses_names();
        match self.prepared[which as usize] {
            Use::Never => self.prepared[which as usize] = Use::Once,
            Use::Once if named => {
                let types: Vec<Type> = params.iter().map(|(_, of)| of.clone()).collect();
                let prepared = self.link.client.prepare_typed(self.statements.hot(which), &types);
                match self.bounded(prepared).await {
                    Ok(statement) => self.prepared[which as usize] = Use::Named(statement),
                    Err(trouble) if trouble.is_lost_name() => self.names.0.store(true, Ordering::Relaxed),
                    // Nothing of the request itself was sent.
                    Err(Trouble::Lost(why)) => return Err(Trouble::Unsent(why)),
                    Err(trouble) => return Err(trouble),
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn send(&self, which: Hot, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        if let (Use::Named(statement), true) = (&self.prepared[which as usize], self.uses_names()) {
            let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
            match self.bounded(self.link.client.query(statement, &values)).await {
                // Refused before it was run: without a name it means the same everywhere.
                Err(trouble) if trouble.is_lost_name() => self.names.0.store(true, Ordering::Relaxed),
                answered => return answered,
            }
        }
        self.bounded(self.link.client.query_typed(self.statements.hot(which), params)).await
    }

    /// A write, and what there is to mind about it.
    async fn send_and_look(
        &self,
        write: impl Future<Output = Result<Vec<Row>, Trouble>>,
    ) -> Result<Vec<Row>, Trouble> {
        let server = &self.link.server;
        if self.durability == Durability::BestEffort || !server.has_standbys {
            let rows = write.await?;
            return self.mind_warning().map(|()| rows);
        }
        let had_names = self.uses_names();
        let (written, looked) = one_behind_the_other(write, self.still_waits()).await;
        let rows = written?;
        // Sent again without its name, it came after the look.
        let still = if had_names == self.uses_names() { looked? } else { self.still_waits().await? };
        self.mind_warning()?;
        match still {
            true => Ok(rows),
            false => Err(Trouble::Warned("commits have stopped waiting for a standby".to_owned())),
        }
    }

    async fn still_waits(&self) -> Result<bool, Trouble> {
        let judged = &self.link.server.synchronous_commit;
        let rows = self.bounded(self.link.client.query_typed(STILL_WAITS, &[(judged, Type::TEXT)])).await;
        // The write itself is not undone by what becomes of the look.
        let rows = rows.map_err(|trouble| match trouble {
            Trouble::Silent(why) => Trouble::Silent(why),
            other => Trouble::Lost(format!("after the write: {other:?}")),
        })?;
        Ok(rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
    }

    /// An end to waiting for an answer.
    async fn bounded<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Trouble> {
        match tokio::time::timeout(self.answer_within, answer).await {
            Ok(answered) => Ok(answered?),
            Err(_) => Err(Trouble::Silent(format!("no answer within {} s", self.answer_within.as_secs()))),
        }
    }

    fn forget_warning(&self) {
        *self.link.warning.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A commit that was told not to wait for its standby succeeds with a warning, and is lost when that takes over.
    fn mind_warning(&self) -> Result<(), Trouble> {
        match self.link.warning.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(warning) => Err(Trouble::Warned(warning)),
            None => Ok(()),
        }
    }
}

/// Runs both, the second sent right behind the first.
async fn one_behind_the_other<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> (A, B) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut a, mut b) = (None, None);
    std::future::poll_fn(|cx| {
        poll_into(first.as_mut(), &mut a, cx);
        poll_into(second.as_mut(), &mut b, cx);
        match (a.take(), b.take()) {
            (Some(one), Some(other)) => Poll::Ready((one, other)),
            (one, other) => {
                (a, b) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

fn poll_into<T>(
    future: Pin<&mut impl Future<Output = T>>,
    into: &mut Option<T>,
    cx: &mut std::task::Context<'_>,
) {
    if into.is_none()
        && let Poll::Ready(value) = future.poll(cx)
    {
        *into = Some(value);
    }
}
