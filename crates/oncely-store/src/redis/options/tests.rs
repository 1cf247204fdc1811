//! Addresses: what they set, and what is refused without telling a secret.

use std::time::Duration;

use super::{RedisDurability, RedisKind, RedisOptions, RedisServer};

fn parse(address: &str) -> RedisOptions {
    RedisOptions::parse(address).unwrap()
}

#[test]
fn an_address_sets_what_it_names_and_nothing_else() {
    let plain = RedisOptions::new("cache.example", 6379);
    assert!(parse("redis://cache.example") == plain);
    let options = parse(
        "rediss://me:p%40ss:w%2Frd@cache.example:7000/3?prefix=pay&durability=best-effort&wait=2&wait_timeout=250ms&\
         timeout=2s&connections=4&shards=16&audit=500&queue=9000&ca=/etc/ca.pem",
    );
    let expected = RedisOptions {
        tls: true,
        user: "me".into(),
        password: Some("p@ss:w/rd".into()),
        database: 3,
        prefix: "pay".into(),
        durability: RedisDurability::BestEffort,
        wait: Some(2),
        wait_timeout: Duration::from_millis(250),
        timeout: Duration::from_secs(2),
        connections: 4,
        shards: Some(16),
        audit_max: 500,
        queue_max: 9_000,
        ca: Some("/etc/ca.pem".into()),
        ..RedisOptions::new("cache.example", 7000)
    };
    assert!(options == expected, "{options:?}");
}

#[test]
fn a_cluster_is_named_by_some_of_its_servers() {
    let options = parse("redis+cluster://:secret@a:1,[::1]:2,c");
    let server = |host: &str, port| RedisServer { host: host.into(), port };
    assert_eq!(options.kind, RedisKind::Cluster);
    assert_eq!(options.servers, [server("a", 1), server("::1", 2), server("c", 6379)]);
    assert_eq!(options.password.as_deref(), Some("secret"));
    assert_eq!(options.describe(), "redis+cluster://a:1,[::1]:2,c:6379");
}

#[test]
fn no_secret_is_shown() {
    for address in [
        "redis://u:hunter2@h/1?prefix=p",
        "redis://:hunter2@h?colour=red",
        "redis://u:hunter2@:1",
        "redis://u:x/hunter2@h",
        "redis://u:hunter2/x@h",
        "redis://u:x?hunter2@h",
        "redis://u:x@hunter2@h",
        "redis://u:1/hunter2@h?prefix=p",
        "redis://u:hunter2",
        "redis://h/hunter2",
    ] {
        let shown = match RedisOptions::parse(address) {
            Ok(options) => format!("{options:?} {}", options.describe()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_bad_address_is_refused_with_what_is_allowed() {
    for (address, expected) in [
        ("redis:x", "begin with redis://"),
        ("memcached://x", "allowed: redis, rediss"),
        ("redis://", "names no server"),
        ("redis://a:1,b:2", "redis+cluster://"),
        ("redis://a:99999", "not a number"),
        ("redis://a/one", "not a number"),
        ("redis://a?colour=red", "allowed: prefix"),
        ("redis://a?prefix=", "1 to 64"),
        ("redis://a?prefix={x}", "1 to 64"),
        ("redis://a?durability=none", "allowed: strict"),
        ("redis://a?wait=some", "not a number"),
        ("redis://a?timeout=5", "allowed: ms, s"),
        ("redis://a?timeout=0s", "1ms to 3600s"),
        ("redis://a?shards=65", "1 to 64"),
        ("redis://a?shards=0", "1 to 64"),
        ("redis://a?connections=0", "1 to 64"),
        ("redis://a?queue=10", "2000 to"),
        ("redis://%zz", "hexadecimal"),
        ("redis+cluster://a/1", "only the database 0"),
    ] {
        let message = RedisOptions::parse(address).unwrap_err().message;
        assert!(message.contains(expected), "{address}: {message}");
    }
}
