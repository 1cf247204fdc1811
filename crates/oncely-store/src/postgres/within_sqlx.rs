//! The ledger inside a transaction of sqlx: parameters and answers cross over as bytes, the rest is `within`'s.

use bytes::BytesMut;
use sqlx_core::encode::{Encode, IsNull};
use sqlx_core::error::BoxDynError;
use sqlx_core::query::query_with;
use sqlx_core::row::Row as _;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_core::transaction::Transaction;
use sqlx_core::types::Type as SqlxType;
use sqlx_core::value::ValueRef as _;
use sqlx_postgres::types::Oid;
use sqlx_postgres::{
    PgArgumentBuffer, PgArguments, PgConnection, PgDatabaseError, PgRow, PgSeverity, PgTypeInfo,
    PgValueFormat, Postgres,
};
use tokio_postgres::types::{self, FromSql, Type};

use super::errors::{Said, Trouble, full_text};
use super::rows::Fields;
use super::session::Param;
use super::within::{Ask, Inside, within_by_inside};
use crate::wire::Damaged;

/// The ledger of a schema, inside a transaction of sqlx. The transaction stays the caller's: run your own statements on
/// [`connection`](Self::connection), and commit it yourself.
pub struct SqlxWithin<'a> {
    inside: Inside<&'a mut PgConnection>,
}

impl<'a> SqlxWithin<'a> {
    /// The ledger in this schema (`oncely`, unless the address says otherwise), made by `oncely store migrate` or by the
    /// first program that opened it. The transaction must be in the isolation level *read committed*, the default: in a
    /// stricter one a duplicate fails with a serialization error instead of being answered, and nothing is written.
    pub fn new(transaction: &'a mut Transaction<'_, Postgres>, schema: &str) -> Self {
        Self { inside: Inside::new(&mut **transaction, schema) }
    }

    /// The transaction's connection, for statements of your own.
    pub fn connection(&mut self) -> &mut PgConnection {
        self.inside.transaction
    }
}

within_by_inside!(SqlxWithin<'_>);

impl Ask for &mut PgConnection {
    type Row = PgRow;

    async fn ask(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<PgRow>, Trouble> {
        let mut arguments = PgArguments::default();
        for param in params {
            sqlx_core::arguments::Arguments::add(&mut arguments, Parameter(param))
                .map_err(|error| Trouble::Unsent(error.to_string()))?;
        }
        // Ours, with nothing in it but the quoted name of a schema. Without a name, so that nothing stays in the session.
        let query = query_with::<Postgres, _>(AssertSqlSafe(sql), arguments).persistent(false);
        query.fetch_all(&mut **self).await.map_err(trouble)
    }
}

fn trouble(error: sqlx_core::Error) -> Trouble {
    let said = error.as_database_error().and_then(|said| said.try_downcast_ref::<PgDatabaseError>());
    match said {
        Some(said) => Trouble::Server(Box::new(Said {
            is_error: said.severity() == PgSeverity::Error,
            code: said.code().to_owned(),
            message: said.message().to_owned(),
            detail: said.detail().map(str::to_owned),
        })),
        None => Trouble::Lost(full_text(&error)),
    }
}

/// A parameter, in the bytes that both drivers send.
struct Parameter<'a>(&'a Param<'a>);

impl SqlxType<Postgres> for Parameter<'_> {
    /// Each says what it is: see `produces`.
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl Encode<'_, Postgres> for Parameter<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let (value, of) = self.0;
        let mut bytes = BytesMut::new();
        match value.to_sql_checked(of, &mut bytes)? {
            types::IsNull::Yes => Ok(IsNull::Yes),
            types::IsNull::No => {
                buffer.extend_from_slice(&bytes);
                Ok(IsNull::No)
            }
        }
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(Oid(self.0.1.oid())))
    }
}

impl Fields for PgRow {
    fn field<'a, T: FromSql<'a>>(&'a self, at: usize) -> Result<T, Trouble> {
        let value = self.try_get_raw(at).map_err(trouble)?;
        let of = value.type_info().oid().and_then(|oid| Type::from_oid(oid.0));
        let of = of.filter(T::accepts).filter(|_| value.format() == PgValueFormat::Binary);
        let of = of.ok_or(Damaged("a column has another type"))?;
        let bytes = if value.is_null() { None } else { value.as_bytes().ok() };
        T::from_sql_nullable(&of, bytes).map_err(|_| Damaged("a value is not of its column's type").into())
    }
}
