//! Every promise of the store contract: on a direct connection, without names for statements, and through PgBouncer.

use std::sync::Arc;

use oncely_core::Store;
use oncely_store::postgres::{PostgresOptions, PostgresStore};
use oncely_testkit::conformance::Ledger;
use oncely_testkit::servers::Postgres;

/// A fresh ledger at an address.
pub(crate) async fn ledger(address: String) -> Ledger {
    let options = PostgresOptions::parse(&address).unwrap();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    Ledger::durable(store, move || {
        let options = options.clone();
        async move { Arc::new(PostgresStore::open(options).await.unwrap()) as Arc<dyn Store> }
    })
}

mod direct {
    use super::{Postgres, ledger};

    oncely_testkit::conformance_suite!(|| ledger(Postgres::shared().unwrap().fresh_database().unwrap()));
}
