//! The ledger on Redis, on real servers that the tests start.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod cancelling;
mod clocks;
mod clusters;
mod conformance;
mod connections;
mod foreign;
mod healthy;
mod lost;
mod moving;
mod page;
mod settings;
mod together;
mod unreadable;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oncely_core::{Store, StoreError};
use oncely_store::redis::{RedisOptions, RedisStore};
use oncely_testkit::servers::RedisCluster;

/// A prefix that no other case uses.
fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("case-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn open(address: &str) -> Arc<dyn Store> {
    Arc::new(RedisStore::open(RedisOptions::parse(address).unwrap()).await.unwrap())
}

async fn refused(address: &str) -> StoreError {
    match RedisStore::open(RedisOptions::parse(address).unwrap()).await {
        Ok(_) => panic!("{address} was opened"),
        Err(error) => error,
    }
}

fn address_of(cluster: &RedisCluster) -> String {
    let servers: Vec<String> = cluster.urls().iter().map(|url| url.replace("redis://", "")).collect();
    format!("redis+cluster://{}", servers.join(","))
}

/// Tries until something is so. The test's own limit ends what never is.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(180);
    while !is_so().await {
        assert!(std::time::Instant::now() < patience, "never came about: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
