//! The promises of the store contract, on a single server and in a cluster.

use std::sync::Arc;

use oncely_store::redis::{RedisOptions, RedisStore};
use oncely_testkit::conformance::Ledger;

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
    use super::ledger;
    use crate::fresh;
    use oncely_testkit::servers::Redis;

    oncely_testkit::conformance_suite!(|| async {
        ledger(format!("{}?timeout=60s&prefix={}", Redis::shared().unwrap().url(), fresh())).await
    });
}

/// Many shards on one server: what a cluster does, but for the cluster.
mod sharded {
    use super::ledger;
    use crate::fresh;
    use oncely_testkit::servers::Redis;

    oncely_testkit::conformance_suite!(|| async {
        ledger(format!("{}?shards=64&timeout=60s&prefix={}", Redis::shared().unwrap().url(), fresh())).await
    });
}

/// Three primaries with a replica each, which has to confirm every write.
mod cluster {
    use std::sync::LazyLock;

    use super::ledger;
    use crate::fresh;
    use oncely_testkit::servers::RedisCluster;

    static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(|| RedisCluster::start(3, 3).unwrap());

    oncely_testkit::conformance_suite!(|| async {
        ledger(format!(
            "{}?wait=1&wait_timeout=60s&timeout=60s&prefix={}",
            crate::address_of(&CLUSTER),
            fresh()
        ))
        .await
    });
}
