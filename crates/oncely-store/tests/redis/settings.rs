//! Servers that could lose or evict a record are refused, with what to change; the address can accept the risk.

use oncely_core::{StoreErrorKind, Wrote};
use oncely_store::redis::{RedisConcern, RedisOptions, inspect};
use oncely_testkit::servers::Redis;

use crate::common::finish;
use crate::{fresh, open, refused};

async fn check(server: &Redis, expected: &[&str]) {
    let address = format!("{}?prefix={}", server.url(), fresh());
    let error = refused(&address).await;
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unsuitable, Wrote::No), "{error}");
    for words in expected.iter().chain(&["?durability=best-effort", "nothing was written"]) {
        assert!(error.message.contains(words), "{words:?} is not in {error}");
    }
    let keys = server.cli(&["DBSIZE"]).unwrap();
    assert_eq!(keys, "0", "a refused server was written to");
    let accepted = open(&format!("{address}&durability=best-effort")).await;
    finish(&accepted, "accepted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_an_append_only_file_is_refused() {
    let server = Redis::builder().setting("appendonly", "no").start().unwrap();
    check(&server, &["appendonly is no", "CONFIG SET appendonly yes"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_syncs_once_a_second_is_refused() {
    let server = Redis::builder().setting("appendfsync", "everysec").start().unwrap();
    check(&server, &["appendfsync is everysec", "CONFIG SET appendfsync always"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_sync_while_it_rewrites_is_refused() {
    let server = Redis::builder().setting("no-appendfsync-on-rewrite", "yes").start().unwrap();
    check(&server, &["no-appendfsync-on-rewrite is yes", "CONFIG SET no-appendfsync-on-rewrite no"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_is_refused() {
    let server = Redis::builder().setting("maxmemory-policy", "allkeys-lru").start().unwrap();
    check(&server, &["maxmemory-policy is allkeys-lru", "CONFIG SET maxmemory-policy noeviction"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_risks_are_told_at_once() {
    let server = Redis::builder()
        .setting("appendonly", "no")
        .setting("appendfsync", "no")
        .setting("maxmemory-policy", "volatile-ttl")
        .start()
        .unwrap();
    check(&server, &["appendonly is no", "appendfsync is no", "maxmemory-policy is volatile-ttl"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_may_not_be_read_are_refused() {
    let server = Redis::start().unwrap();
    server.cli(&["ACL", "SETUSER", "app", "on", ">word", "~*", "&*", "+@all", "-config"]).unwrap();
    let place = server.url().replace("redis://", "redis://app:word@");
    let error = refused(&format!("{place}?prefix={}", fresh())).await;
    assert_eq!(error.kind, StoreErrorKind::Unsuitable, "{error}");
    assert!(error.message.contains("CONFIG GET is forbidden"), "{error}");
    assert!(!error.message.contains("word"), "{error}");
    let accepted = open(&format!("{place}?durability=best-effort&prefix={}", fresh())).await;
    finish(&accepted, "accepted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused() {
    let primary = Redis::start().unwrap();
    let replica = primary.replica().unwrap();
    let error = refused(&replica.url()).await;
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::ReadOnly, Wrote::No), "{error}");
    assert!(error.message.contains("is a replica; name its primary"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_and_not_repeated() {
    let server = Redis::builder().setting("requirepass", "hunter2").start().unwrap();
    let port = server.port();
    for address in [format!("redis://:hunter3@127.0.0.1:{port}"), format!("redis://127.0.0.1:{port}")] {
        let error = refused(&address).await;
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::BadAddress, Wrote::No), "{error}");
        assert!(error.message.contains("give the user and password in the address"), "{error}");
        assert!(!error.message.contains("hunter"), "{error}");
    }
    let store = open(&server.url()).await;
    assert!(!store.describe().contains("hunter2"), "{}", store.describe());
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_and_the_certificate_checked() {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let server = Redis::builder().tls(&made.cert.pem(), &made.signing_key.serialize_pem()).start().unwrap();
    let store = open(&format!("{}?ca={}", server.url(), ca.display())).await;
    finish(&store, "encrypted").await;
    let error = refused(&format!("{}?timeout=2s", server.url().replace("rediss", "redis"))).await;
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&ca, stranger.cert.pem()).unwrap();
    let error = refused(&format!("{}?ca={}", server.url(), ca.display())).await;
    assert!(error.message.contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_can_be_looked_at_without_making_a_ledger() {
    let server = Redis::builder().setting("appendfsync", "everysec").start().unwrap();
    let report = inspect(RedisOptions::parse(&server.url()).unwrap()).await.unwrap();
    assert!(report.ledger.is_none() && report.servers[0].1.contains('.'), "{report:?}");
    let of = |concern| report.findings.iter().filter(move |f| f.concern == concern).count();
    assert_eq!((of(RedisConcern::Risk), of(RedisConcern::Remark)), (1, 2), "{report:?}");
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "0");
    open(&format!("{}?durability=best-effort", server.url())).await;
    assert!(inspect(RedisOptions::parse(&server.url()).unwrap()).await.unwrap().ledger.is_some());
}
