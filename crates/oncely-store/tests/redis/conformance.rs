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

/// Many shards on one server: what a cluster does, but for the cluster.
mod sharded {
    use super::{fresh, ledger};
    use oncely_testkit::servers::Redis;

    oncely_testkit::conformance_suite!(|| async {
        ledger(format!("{}?shards=64&prefix={}", Redis::shared().unwrap().url(), fresh())).await
    });
}

/// Three primaries with a replica each, which has to confirm every write.
mod cluster {
    use std::sync::LazyLock;

    use super::{fresh, ledger};
    use oncely_testkit::servers::RedisCluster;

    static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(|| RedisCluster::start(3, 3).unwrap());

    oncely_testkit::conformance_suite!(|| async {
        let servers: Vec<String> = CLUSTER.urls().iter().map(|url| url.replace("redis://", "")).collect();
        ledger(format!("redis+cluster://{}?wait=1&prefix={}", servers.join(","), fresh())).await
    });
}
