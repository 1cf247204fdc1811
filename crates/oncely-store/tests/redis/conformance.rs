//! The promises of the store contract, on a single server and in a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oncely_store::redis::{RedisOptions, RedisStore};
use oncely_testkit::conformance::Ledger;

/// A prefix that no other case uses.
fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("case-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn ledger(address: String) -> Ledger {
    let options = RedisOptions::parse(&address).unwrap();
    let first = RedisStore::open(options.clone()).await.unwrap();
    Ledger::durable(first, move || {
        let options = options.clone();
        async move {
            let store: Arc<dyn oncely_core::Store> = Arc::new(RedisStore::open(options).await.unwrap());
            store
        }
    })
}

mod single {
    use super::{fresh, ledger};
    use oncely_testkit::servers::Redis;

    oncely_testkit::conformance_suite!(|| async {
        ledger(format!("{}?prefix={}", Redis::shared().unwrap().url(), fresh())).await
    });
}
