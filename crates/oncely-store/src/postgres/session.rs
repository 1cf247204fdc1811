//! A connection in use: runs statements, prepared where that is possible, and minds what the server says meanwhile.
//!
//! An answer is worth what the server's settings make it ([`super::worth`]), and those can change under a living connection. So
//! the statements of the hot path bring them along. Where commits wait for a standby, a look at the settings follows each
//! write on its heels: a server whose list of standbys is emptied acknowledges all that were waiting, without a word, and
//! only a look *after* the commit can tell. What is asked for seldom is always followed by a look.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use super::connect::{Door, Link};
use super::errors::Trouble;
use super::limits::HELD_ALONE;
use super::options::Durability;
use super::sql::{HOT, Hot, Statements};
use super::timeline::Newest;
use super::worth::{self, Worth};

/// Why nothing more is asked of a server, and nothing that it says counts.
const SUCCEEDED: &str = "another server has taken over from it";

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
    newest: Arc<Newest>,
    durability: Durability,
    answer_within: Duration,
    prepared: [Use; HOT],
    bound: Bound,
    /// Whether a transaction of several statements was begun of which it is not known that it has ended.
    inside: bool,
    /// Whether its server has other settings than those that were judged.
    outdated: AtomicBool,
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
    pub(crate) fn new(link: Link, statements: Arc<Statements>, names: Arc<Names>, door: &Door) -> Self {
        let (durability, answer_within) = (door.options.durability, door.options.answer_within);
        let prepared = Default::default();
        Self {
            link,
            statements,
            names,
            newest: Arc::clone(&door.newest),
            durability,
            answer_within,
            prepared,
            bound: Bound::Not,
            inside: false,
            outdated: AtomicBool::new(false),
        }
    }

    /// Whether the connection is of use: it stands, it is in nobody's transaction, and its server is as it was judged and has
    /// not been replaced by another since.
    pub(crate) fn is_current(&self) -> bool {
        let outdated = self.outdated.load(Ordering::Relaxed);
        !self.link.client.is_closed() && !self.inside && !outdated && !self.is_replaced()
    }

    /// Whether another server has taken over from its one.
    fn is_replaced(&self) -> bool {
        self.newest.is_past(self.timeline())
    }

    /// Begins a transaction of several statements. Until the server has said that it is over, the connection serves nobody
    /// else: what others wrote on it would be acknowledged, and lost with the transaction.
    pub(crate) async fn begin(&mut self) -> Result<(), Trouble> {
        self.inside = true;
        self.write_sql("BEGIN", &[]).await.map(drop)
    }

    /// Ends it with what became of it. An error after the commit was asked for proves nothing.
    pub(crate) async fn end<T>(&mut self, done: Result<T, Trouble>) -> Result<T, Trouble> {
        match &done {
            Ok(_) => {
                self.forget_warning();
                let commit = self.bounded(self.link.client.query_typed("COMMIT", &[]));
                self.with_a_look(commit).await.map(drop)?;
            }
            // The server takes it back when it finds that nobody is there any more.
            Err(trouble) if trouble.ends_connection() => return done,
            Err(_) => drop(self.bounded(self.link.client.query_typed("ROLLBACK", &[])).await?),
        }
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

    /// The timeline that its server was on when it was judged.
    pub(crate) fn timeline(&self) -> u64 {
        self.link.server.timeline
    }

    /// The ledger's statements.
    pub(crate) fn statements(&self) -> &Arc<Statements> {
        &self.statements
    }

    /// Returns when the server has answered what was asked before, or another one has taken over from it; answers whether the
    /// connection can be used on. One that fell silent within a transaction cannot: it is left for the server to end.
    pub(crate) async fn recover(&self) -> bool {
        if self.inside {
            return false;
        }
        tokio::select! {
            answered = self.link.client.query_typed("SELECT 1", &[]) => answered.is_ok(),
            () = self.newest.passes(self.timeline()) => false,
        }
    }

    /// Runs a statement of the hot path that writes.
    pub(crate) async fn write(&mut self, which: Hot, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        let statements = Arc::clone(&self.statements);
        let params = &proved(params, statements.proof(which));
        self.prepare(which, params).await?;
        self.prepare_to_write()?;
        let written = self.send(which, params);
        let rows = match self.link.server.has_standbys && !self.inside {
            true => self.with_a_look(written).await?,
            false => self.without_a_look(written).await?,
        };
        rows.first().map_or(Ok(()), |row| self.mind_worth(row))?;
        Ok(rows)
    }

    /// Runs a statement of the hot path that only reads.
    pub(crate) async fn read(&mut self, which: Hot, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        let statements = Arc::clone(&self.statements);
        let params = &proved(params, statements.proof(which));
        self.prepare(which, params).await?;
        let rows = self.send(which, params).await?;
        rows.first().map_or(Ok(()), |row| self.mind_standing(row))?;
        Ok(rows)
    }

    /// Runs another statement that writes, without a name. Within a transaction only its end is looked at.
    pub(crate) async fn write_sql(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        self.prepare_to_write()?;
        let written = self.bounded(self.link.client.query_typed(sql, params));
        match self.inside {
            true => self.without_a_look(written).await,
            false => self.with_a_look(written).await,
        }
    }

    /// Runs another statement that only reads, without a name.
    pub(crate) async fn read_sql(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        let read = self.bounded(self.link.client.query_typed(sql, params));
        let (rows, looked) = one_behind_the_other(read, self.look()).await;
        let rows = rows?;
        self.mind_standing(&looked?)?;
        Ok(rows)
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

    /// A write, and what the server says meanwhile.
    async fn without_a_look(
        &self,
        write: impl Future<Output = Result<Vec<Row>, Trouble>>,
    ) -> Result<Vec<Row>, Trouble> {
        let rows = write.await?;
        self.mind_warning().map(|()| rows)
    }

    /// A write, and how the server stands after its commit.
    async fn with_a_look(
        &self,
        write: impl Future<Output = Result<Vec<Row>, Trouble>>,
    ) -> Result<Vec<Row>, Trouble> {
        if self.durability == Durability::BestEffort {
            return self.without_a_look(write).await;
        }
        let had_names = self.uses_names();
        let (written, looked) = one_behind_the_other(write, self.look()).await;
        let rows = written?;
        // Sent again without its name, it came after the look.
        let looked = if had_names == self.uses_names() { looked? } else { self.look().await? };
        self.mind_warning()?;
        self.mind_worth(&looked).map(|()| rows)
    }

    /// How the server stands.
    async fn look(&self) -> Result<Row, Trouble> {
        let rows = self.bounded(self.link.client.query_typed(&self.statements.look, &[])).await;
        // What was asked before it is not undone by what becomes of the look.
        let rows = rows.map_err(|trouble| match trouble {
            Trouble::Silent(why) => Trouble::Silent(why),
            other => Trouble::Lost(format!("after the request: {other:?}")),
        })?;
        rows.into_iter()
            .next()
            .ok_or_else(|| Trouble::Lost("the server does not say how it stands".to_owned()))
    }

    /// What a read says of the server.
    fn mind_standing(&self, row: &Row) -> Result<(), Trouble> {
        worth::refuse_read_only(row)?;
        self.mind_worth(row)
    }

    /// What a commit is worth. If less than it was, this one may be lost; if it is only another, the server is judged anew when
    /// its answer has been given.
    fn mind_worth(&self, row: &Row) -> Result<(), Trouble> {
        worth::refuse_another(row, &self.link.server)?;
        if self.durability == Durability::BestEffort {
            return Ok(());
        }
        match worth::of(row, &self.link.server)? {
            Worth::Same => {}
            Worth::Other => self.outdated.store(true, Ordering::Relaxed),
            Worth::Less(why) => return Err(Trouble::Warned(why)),
        }
        Ok(())
    }

    /// An end to waiting for an answer: it takes too long, or another server has taken over. What the old one says from then on
    /// may be past, and what it wrote is lost; it may hang for ever, or come to life and not know.
    async fn bounded<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Trouble> {
        let answered = tokio::select! {
            biased;
            () = self.newest.passes(self.timeline()) => return Err(Trouble::Lost(SUCCEEDED.to_owned())),
            answered = tokio::time::timeout(self.answer_within, answer) => answered,
        };
        match answered {
            Ok(answered) => Ok(answered?),
            Err(_) => Err(Trouble::Silent(format!("no answer within {} s", self.answer_within.as_secs()))),
        }
    }

    /// What is said from here on is of the write that follows. None goes to a server from which another has taken over.
    fn prepare_to_write(&self) -> Result<(), Trouble> {
        self.forget_warning();
        match self.is_replaced() {
            true => Err(Trouble::Unsent(SUCCEEDED.to_owned())),
            false => Ok(()),
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

/// The parameters of a statement, with the one that proves it.
pub(crate) fn proved<'a>(params: &[Param<'a>], proof: &'a i64) -> Vec<Param<'a>> {
    let mut proved = Vec::with_capacity(params.len() + 1);
    proved.extend_from_slice(params);
    proved.push((proof, Type::INT8));
    proved
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
