//! The promises of the store contract, kept by every ledger of this crate.

use oncely_testkit::conformance::Ledger;

mod memory {
    oncely_testkit::conformance_suite!(|| async {
        super::Ledger::volatile(oncely_store::MemoryStore::new())
    });
}

mod sqlite {
    use oncely_store::{SqliteOptions, SqliteStore};
    use std::sync::Arc;

    oncely_testkit::conformance_suite!(|| async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        let open = move || SqliteStore::open(SqliteOptions::new(&path)).unwrap();
        let first = open();
        let ledger = super::Ledger::durable(first, move || {
            let store: Arc<dyn oncely_core::Store> = Arc::new(open());
            std::future::ready(store)
        });
        ledger.keeping(directory)
    });
}
