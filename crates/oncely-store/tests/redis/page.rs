//! What docs/redis.md and docs/limits.md say of settings and limits is what is in force.

use std::time::Duration;

use oncely_store::redis::{RedisKind, RedisOptions};
use oncely_testkit::servers::Redis;

use crate::refused;

fn page(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_defaults_on_the_page_are_those_in_force() {
    let page = page("redis.md");
    let row = |name: &str| {
        let start = format!("| `{name}` | ");
        let found = page.lines().find_map(|line| line.strip_prefix(&start));
        found.unwrap_or_else(|| panic!("no row for {name}")).split(" | ").next().unwrap().replace('`', "")
    };
    let plain = RedisOptions::new("h", 6379);
    for name in ["prefix", "durability", "wait_timeout", "timeout", "connections", "audit", "queue"] {
        let spelled = RedisOptions::parse(&format!("redis://h?{name}={}", row(name))).unwrap();
        assert!(spelled == plain, "{name}: the page says {}, in force is another", row(name));
    }
    assert_eq!(plain.wait_timeout, Duration::from_secs(1));
    assert!(RedisOptions::parse("redis://h?shards=64").is_ok());
    assert!(RedisOptions::parse("redis://h?shards=65").is_err());
    assert_eq!(RedisOptions::parse("redis+cluster://h").unwrap().kind, RedisKind::Cluster);
}

#[test]
fn the_limits_on_the_page_are_those_in_force() {
    let page = page("limits.md");
    let plain = RedisOptions::new("h", 6379);
    for row in [
        "| shards of a ledger on Redis | 64 shards |".to_owned(),
        format!("| entries of the audit log on Redis, by default | {} entries |", plain.audit_max),
        format!("| requests that wait for one Redis server, by default | {} requests |", plain.queue_max),
    ] {
        assert!(page.contains(&row), "{row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_on_the_page_is_the_one_that_is_given() {
    let server = Redis::builder().setting("appendfsync", "everysec").start().unwrap();
    let error = refused(&server.url()).await.message;
    let page = page("redis.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let given = error.split_once(") ").unwrap().1;
    assert!(page.contains(given), "{given}");
}
