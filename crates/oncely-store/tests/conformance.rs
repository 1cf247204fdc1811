//! The promises of the store contract, kept by every ledger of this crate.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use oncely_store::{SqliteOptions, SqliteStore, WrittenBy};
use oncely_testkit::conformance::Ledger;

mod memory {
    oncely_testkit::conformance_suite!(|| async {
        super::Ledger::volatile(oncely_store::MemoryStore::new())
    });
}

mod sqlite {
    oncely_testkit::conformance_suite!(|| async { super::sqlite_ledger(oncely_store::WrittenBy::Thread) });
}

mod sqlite_written_by_callers {
    oncely_testkit::conformance_suite!(|| async { super::sqlite_ledger(oncely_store::WrittenBy::Caller) });
}

fn sqlite_ledger(written_by: WrittenBy) -> Ledger {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let open = move || SqliteStore::open(SqliteOptions { written_by, ..SqliteOptions::new(&path) }).unwrap();
    let first = open();
    let ledger = Ledger::durable(first, move || {
        let store: Arc<dyn oncely_core::Store> = Arc::new(open());
        std::future::ready(store)
    });
    ledger.keeping(directory)
}
