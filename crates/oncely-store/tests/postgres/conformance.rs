//! Every promise of the store contract: on a direct connection, and through PgBouncer in transaction mode.

use std::sync::{Arc, OnceLock};

use oncely_core::Store;
use oncely_store::postgres::{PostgresOptions, PostgresStore};
use oncely_testkit::conformance::Ledger;
use oncely_testkit::servers::PgBouncer;

use crate::{database, server};

/// A fresh ledger at an address.
async fn ledger(address: String) -> Ledger {
    let options = PostgresOptions::parse(&address).unwrap();
    let store = PostgresStore::open(options.clone()).await.unwrap();
    Ledger::durable(store, move || {
        let options = options.clone();
        async move { Arc::new(PostgresStore::open(options).await.unwrap()) as Arc<dyn Store> }
    })
}

/// One pooler for all.
pub(crate) fn pooler() -> &'static PgBouncer {
    static POOLER: OnceLock<PgBouncer> = OnceLock::new();
    POOLER.get_or_init(|| PgBouncer::in_front_of(server()).unwrap())
}

mod direct {
    use super::{ledger, server};

    oncely_testkit::conformance_suite!(|| ledger(server().fresh_database().unwrap()));
}

mod pooled {
    use super::{database, ledger, pooler, server};

    oncely_testkit::conformance_suite!(|| {
        let fresh = server().fresh_database().unwrap();
        ledger(format!("{}?pool=3", pooler().url(database(&fresh))))
    });
}
