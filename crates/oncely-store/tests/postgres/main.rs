//! The ledger on a real PostgreSQL server, which the tests start themselves on a free port.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;

mod batching;
mod clock;
mod conformance;
mod crowded;
mod emptied;
mod following;
mod frozen;
mod held;
mod lost;
mod migrating;
mod moving;
mod page;
mod pooler;
mod purging;
mod refused;
mod secrets;
mod several;
mod standing;
mod unreadable;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use oncely_core::{Created, Event, EventKind, Store, StoreError};
use oncely_store::postgres::{PostgresOptions, PostgresStore};
use oncely_testkit::servers::Postgres;

/// The server that tests share which do not change it.
pub(crate) fn server() -> &'static Postgres {
    Postgres::shared().unwrap()
}

/// Opens a ledger.
pub(crate) async fn open(address: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(PostgresOptions::parse(address).unwrap()).await.unwrap())
}

/// Why a ledger is not opened.
pub(crate) async fn refusal(address: &str) -> StoreError {
    let options = match PostgresOptions::parse(address) {
        Ok(options) => options,
        Err(error) => return error,
    };
    match PostgresStore::open(options).await {
        Ok(_) => panic!("{address} was opened"),
        Err(error) => error,
    }
}

/// Claims a key.
pub(crate) async fn claim(store: &dyn Store, key: &str) -> Result<Created, StoreError> {
    let id = common::id(key);
    let events = vec![Event::new(id, 1, EventKind::Began)];
    store.create(id, common::draft(key, common::running(), common::LONG), events).await
}

/// A connection of the test's own.
pub(crate) async fn connect(address: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// An address with one more setting.
pub(crate) fn with(address: &str, setting: &str) -> String {
    let mark = if address.contains('?') { '&' } else { '?' };
    format!("{address}{mark}{setting}")
}

/// Whether somebody in the database waits for what another transaction holds.
pub(crate) async fn somebody_waits(client: &tokio_postgres::Client) -> bool {
    let waiting =
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    !client.query(waiting, &[]).await.unwrap().is_empty()
}

/// The database that an address names.
pub(crate) fn database(address: &str) -> &str {
    let address = address.split('?').next().unwrap();
    address.rsplit('/').next().unwrap()
}

/// Asks again until the answer is yes.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(180), asked).await.is_err() {
        panic!("not within 180 s: {what}");
    }
}
