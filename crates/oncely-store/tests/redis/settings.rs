//! Servers that could lose or evict a record are refused, with what to change; the address can accept the risk.

use oncely_core::{StoreErrorKind, Wrote};
use oncely_store::redis::{RedisConcern, RedisOptions, RedisStore, inspect};
use oncely_testkit::servers::Redis;

use crate::common::finish;
use crate::{fresh, open, refused, until};

/// Microseconds that a server takes to write down one key: as if there were very much to write.
const SLOWLY: &str = "60000000";

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

/// Its file is written in the background first; what is acknowledged meanwhile is in none that would be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_append_only_file_was_just_switched_on_is_refused_until_it_is_complete() {
    let server = Redis::builder().setting("appendonly", "no").start().unwrap();
    let set = |name: &str, value: &str| server.cli(&["CONFIG", "SET", name, value]).unwrap();
    server.cli(&["SET", "somebody's", "value"]).unwrap();
    set("rdb-key-save-delay", SLOWLY);
    set("appendonly", "yes");
    // Others write meanwhile.
    server.cli(&["SET", "another", "value"]).unwrap();
    let address = format!("{}?prefix={}", server.url(), fresh());
    // Who watches the server may set its counts back, and nobody knows any more what was called.
    refused(&address).await;
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    let error = refused(&address).await;
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unsuitable, Wrote::No), "{error}");
    for words in ["written for the first time", "aof_rewrite_in_progress:0", "?durability=best-effort"] {
        assert!(error.message.contains(words), "{words:?} is not in {error}");
    }
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "2", "a refused server was written to");
    stop_writing(&server);
    set("rdb-key-save-delay", "0");
    set("appendonly", "yes");
    until("the file is complete", async || {
        RedisStore::open(RedisOptions::parse(&address).unwrap()).await.is_ok()
    })
    .await;
    // From then on it may be rewritten.
    set("rdb-key-save-delay", SLOWLY);
    a_file_that_is_rewritten_is_none_that_is_made(&server).await;
    let young = Redis::builder().setting("rdb-key-save-delay", SLOWLY).start().unwrap();
    a_file_that_is_rewritten_is_none_that_is_made(&young).await;
}

/// A replica begins its file anew when it has copied its primary.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_was_promoted_before_its_file_was_complete_is_refused() {
    let primary = Redis::start().unwrap();
    let address = |server: &Redis| format!("{}?wait=0", server.url());
    finish(&open(&address(&primary)).await, "known").await;
    let follows = format!("127.0.0.1 {}", primary.port());
    let slow = Redis::builder().setting("rdb-key-save-delay", SLOWLY);
    let replica = slow.setting("replicaof", &follows).start().unwrap();
    let is_linked = async || replica.cli(&["INFO", "replication"]).unwrap().contains("master_link_status:up");
    until("it has copied all", is_linked).await;
    if server_reuses_the_copy(&replica) {
        return;
    }
    primary.kill().unwrap();
    replica.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let error = refused(&address(&replica)).await;
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unsuitable, Wrote::No), "{error}");
    assert!(error.message.contains("written for the first time"), "{error}");
    stop_writing(&replica);
}

/// Valkey 9 makes the copy itself its file, which is complete at once.
fn server_reuses_the_copy(replica: &Redis) -> bool {
    let told = replica.cli(&["INFO"]).unwrap();
    told.contains("valkey_version") && told.contains("aof_rewrites:0")
}

/// Else what writes the file would outlive its server.
fn stop_writing(server: &Redis) {
    server.cli(&["CONFIG", "SET", "appendonly", "no"]).unwrap();
}

async fn a_file_that_is_rewritten_is_none_that_is_made(server: &Redis) {
    finish(&open(&format!("{}?prefix={}", server.url(), fresh())).await, "before").await;
    server.cli(&["BGREWRITEAOF"]).unwrap();
    let is_rewritten =
        async || server.cli(&["INFO", "persistence"]).unwrap().contains("aof_rewrite_in_progress:1");
    until("it is rewritten", is_rewritten).await;
    finish(&open(&format!("{}?prefix={}", server.url(), fresh())).await, "during").await;
    assert!(is_rewritten().await, "it was over before anybody looked");
    stop_writing(server);
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
