//! A ledger that is listened to keeps every promise of one that is not: a call that was not handed on would show here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use oncely::core::StoreErrorKind;
use oncely::{AnswerKind, Observer, Oncely, Store, StoreOp, ToolName};
use oncely_testkit::conformance::Ledger;

struct Deaf;

impl Observer for Deaf {
    fn answered(&self, _: &ToolName, _: AnswerKind, _: Duration) {}
    fn stored(&self, _: StoreOp, _: Duration, _: Option<StoreErrorKind>) {}
}

async fn open(path: std::path::PathBuf) -> Arc<dyn Store> {
    let store = oncely_store::open(&path.display().to_string()).await.unwrap();
    Arc::clone(Oncely::observed(store, Arc::new(Deaf)).store())
}

oncely_testkit::conformance_suite!(|| async {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let first = open(path.clone()).await;
    Ledger::shared(first, move || open(path.clone())).keeping(directory)
});
