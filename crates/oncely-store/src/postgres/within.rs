//! The ledger inside a transaction of the caller's own: record and effect commit together.
//!
//! The statements are those of the hot path, one request each. A create for a key that another open transaction is writing
//! waits at the unique index for that transaction's end, and then sees what it left. What the caller commits or rolls back
//! is the caller's; nothing is prepared and nothing is left behind in the session.
//!
//! Which driver the transaction is of makes no difference to what is asked and how answers are read: [`Inside`] does that
//! for all of them.

use std::sync::Arc;

use oncely_core::{
    Change, Created, Draft, Event, IntentId, Liveness, Millis, Owner, Replaced, StoreError, StoreErrorKind,
    StoreFuture, Stored, Version, Within,
};
use tokio_postgres::types::Type;
use tokio_postgres::{Row, Transaction};

use super::errors::{Doing, Trouble};
use super::exec::Entry;
use super::packed;
use super::params::{Creates, Puts};
use super::rows::{self, Fields, Half};
use super::session::{Param, proved};
use super::sql::{Hot, Statements};
use crate::process;

/// Times are the server's own, whatever this handle has seen.
const NO_FLOOR: i64 = 0;
/// How long a lock is waited for, the caller has said.
const OWN_PATIENCE: Option<&'static i64> = None;
/// How often a key is looked at again that others write and remove meanwhile.
const TRIES: usize = 8;

/// The ledger of a schema, inside a transaction of tokio-postgres. The transaction stays the caller's: run your own
/// statements on it, and commit it yourself.
pub struct PostgresWithin<'a, 't> {
    inside: Inside<&'a Transaction<'t>>,
}

impl<'a, 't> PostgresWithin<'a, 't> {
    /// The ledger in this schema (`oncely`, unless the address says otherwise), made by `oncely store migrate` or by the
    /// first program that opened it. The transaction must be in the isolation level *read committed*, the default: in a
    /// stricter one a duplicate fails with a serialization error instead of being answered, and nothing is written.
    pub fn new(transaction: &'a Transaction<'t>, schema: &str) -> Self {
        Self { inside: Inside::new(transaction, schema) }
    }
}

impl Ask for &Transaction<'_> {
    type Row = Row;

    async fn ask(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        Ok(self.query_typed(sql, params).await?)
    }
}

/// A transaction of some driver.
pub(crate) trait Ask: Send {
    /// What its answers consist of.
    type Row: Fields + Send + Sync;

    /// Runs a statement, without a name.
    fn ask(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> impl Future<Output = Result<Vec<Self::Row>, Trouble>> + Send;
}

/// The ledger of a schema inside a transaction.
pub(crate) struct Inside<A> {
    pub(crate) transaction: A,
    statements: Statements,
}

impl<A: Ask> Inside<A> {
    pub(crate) fn new(transaction: A, schema: &str) -> Self {
        // Which server it is on does not change within a transaction.
        Self { transaction, statements: Statements::new(schema, false) }
    }

    async fn ask(&mut self, which: Hot, params: &[Param<'_>]) -> Result<Vec<A::Row>, Trouble> {
        let params = proved(params, self.statements.proof(which));
        self.transaction.ask(self.statements.hot(which), &params).await
    }

    async fn find(&mut self, intent: &IntentId) -> Result<Option<Stored>, Trouble> {
        let head = rows::head(intent);
        let rows = self.ask(Hot::LoadOne, &[(&head, Type::UUID)]).await?;
        read(rows.first(), 1, intent)
    }

    async fn make(&mut self, entry: Entry) -> Result<Created, Trouble> {
        let intent = entry.intent;
        let entries = [entry];
        for _ in 0..TRIES {
            let creates = Creates::new(&entries);
            let rows = self.ask(Hot::CreateOne, &creates.one(&NO_FLOOR, OWN_PATIENCE)).await?;
            let Some(row) = rows.first() else { continue };
            if let Some(id) = row.field::<Option<i64>>(1)? {
                let (version, now) = (Version(u64::try_from(id >> 16).unwrap_or(0)), rows::now(row, 0)?);
                let record = Arc::new(entries[0].draft.clone().stamped(intent, version, now));
                return Ok(Created::New(Stored { record, now }));
            }
            if let Some(there) = read(Some(row), 2, &intent)? {
                return Ok(Created::Exists(there));
            }
            // Committed by another transaction while this one waited for it: seen from the next statement on.
            if let Some(there) = self.find(&intent).await? {
                return Ok(Created::Exists(there));
            }
        }
        Err(Trouble::Store(StoreError::before(
            StoreErrorKind::Overloaded,
            "others keep writing and removing the same record; nothing was written; roll back and try again",
        )))
    }

    async fn put(&mut self, entry: Entry) -> Result<Replaced, Trouble> {
        let intent = entry.intent;
        let entries = [entry];
        let puts = Puts::new(&entries);
        let rows = self.ask(Hot::PutOne, &puts.one(&NO_FLOOR, OWN_PATIENCE)).await?;
        if let Some(row) = rows.first()
            && row.field::<bool>(2)?
        {
            let version = Version(u64::try_from(row.field::<i64>(1)?).unwrap_or(0));
            let now = rows::now(row, 0)?;
            let record = Arc::new(entries[0].draft.clone().stamped(intent, version, now));
            return Ok(Replaced::Done(Some(Stored { record, now })));
        }
        Ok(Replaced::Stale(self.find(&intent).await?))
    }
}

/// The record in a row whose columns begin at this place.
fn read(row: Option<&impl Fields>, at: usize, intent: &IntentId) -> Result<Option<Stored>, Trouble> {
    let Some(row) = row else { return Ok(None) };
    match row.field::<Option<Half>>(at)? {
        Some(_) => Ok(Some(Stored { record: rows::read(row, at, intent)?, now: rows::now(row, 0)? })),
        None => Ok(None),
    }
}

/// Whatever goes wrong before the caller's commit has written nothing.
fn fail(trouble: &Trouble) -> StoreError {
    trouble.at("in this transaction", Doing::Reading)
}

impl<A: Ask> Within for Inside<A> {
    fn load(&mut self, intent: IntentId) -> StoreFuture<'_, Option<Stored>> {
        Box::pin(async move { self.find(&intent).await.map_err(|trouble| fail(&trouble)) })
    }

    fn create(&mut self, intent: IntentId, draft: Draft, events: Vec<Event>) -> StoreFuture<'_, Created> {
        Box::pin(async move {
            let entry =
                Entry { intent, expected: Version(0), draft: Box::new(draft), events: packed(&events)? };
            self.make(entry).await.map_err(|trouble| fail(&trouble))
        })
    }

    fn replace(
        &mut self,
        intent: IntentId,
        expected: Version,
        change: Change,
        events: Vec<Event>,
    ) -> StoreFuture<'_, Replaced> {
        Box::pin(async move {
            let Change::Put(draft) = change else {
                let message = "a record cannot be removed inside a transaction; nothing was written";
                return Err(StoreError::before(StoreErrorKind::Unsuitable, message));
            };
            let entry = Entry { intent, expected, draft, events: packed(&events)? };
            self.put(entry).await.map_err(|trouble| fail(&trouble))
        })
    }

    fn owner(&self) -> Owner {
        process::this_process()
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        process::liveness_across_hosts(owner)
    }

    fn steady_since(&self) -> Millis {
        // Not asked here. To believe no clock is to start nothing again that a downstream may have forgotten.
        Millis(u64::MAX)
    }
}

/// What a driver's own type answers is what [`Inside`] answers.
macro_rules! within_by_inside {
    ($of:ty) => {
        impl oncely_core::Within for $of {
            fn load(
                &mut self,
                intent: oncely_core::IntentId,
            ) -> oncely_core::StoreFuture<'_, Option<oncely_core::Stored>> {
                self.inside.load(intent)
            }

            fn create(
                &mut self,
                intent: oncely_core::IntentId,
                draft: oncely_core::Draft,
                events: Vec<oncely_core::Event>,
            ) -> oncely_core::StoreFuture<'_, oncely_core::Created> {
                self.inside.create(intent, draft, events)
            }

            fn replace(
                &mut self,
                intent: oncely_core::IntentId,
                expected: oncely_core::Version,
                change: oncely_core::Change,
                events: Vec<oncely_core::Event>,
            ) -> oncely_core::StoreFuture<'_, oncely_core::Replaced> {
                self.inside.replace(intent, expected, change, events)
            }

            fn owner(&self) -> oncely_core::Owner {
                self.inside.owner()
            }

            fn liveness(&self, owner: &oncely_core::Owner) -> oncely_core::Liveness {
                self.inside.liveness(owner)
            }

            fn steady_since(&self) -> oncely_core::Millis {
                self.inside.steady_since()
            }
        }
    };
}
#[cfg(feature = "sqlx-postgres")]
pub(super) use within_by_inside;

within_by_inside!(PostgresWithin<'_, '_>);
