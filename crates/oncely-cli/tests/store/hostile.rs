//! A copy in bad company: to itself, under another name, with results as large as they may be, with odd names, and from a
//! server that drops what is past its time by itself.

use std::time::Duration;

use oncely::transfer::{Stage, Transfer};
use oncely::{Oncely, Policy, outcome};
use oncely_core::Retention;
use oncely_core::limits::RESULT_BYTES_MAX;
use oncely_testkit::servers::{Postgres, Redis};
use serde_json::json;

use crate::world::{World, contents};

/// A ledger of its own on the server that all tests share.
fn redis(prefix: &str) -> String {
    format!("{}?prefix=hostile-{prefix}", Redis::shared().unwrap().url())
}

/// An empty ledger and one that holds something, and two names for each.
fn is_not_moved_to_itself(empty: [&str; 2], full: [&str; 2]) {
    for ([one, other], holds_something) in [(empty, false), (full, true)] {
        for (from, to) in [(one, one), (one, other), (other, one)] {
            let mut world = World::to(to);
            world.from = from.to_owned();
            world.json(&["--store", from, "store", "migrate", "--json"], 0);
            if holds_something {
                assert_eq!(world.pay(from, "a"), 0);
            }
            let refused = world.copy(&[], 4);
            let code = refused["error"]["code"].as_str().unwrap();
            // Under another name it is only known for another once it is empty enough to be filled.
            assert!(code == "SAME_LEDGER" || (holds_something && code == "NOT_EMPTY"), "{refused}");
            let said = refused["error"]["message"].as_str().unwrap();
            assert!(said.contains("nothing was moved"), "{said}");
            assert_eq!(world.json(&["--store", from, "store", "check", "--json"], 0)["ok"], true);
        }
    }
}

#[test]
fn a_file_is_not_moved_to_itself_whatever_it_is_called() {
    let world = World::new();
    let name = |name: &str| format!("sqlite:{}", world.path(name).display());
    for (file, also) in [("empty.db", "also-empty.db"), ("full.db", "also-full.db")] {
        std::os::unix::fs::symlink(world.path(file), world.path(also)).unwrap();
    }
    is_not_moved_to_itself(
        [&name("empty.db"), &name("also-empty.db")],
        [&name("full.db"), &name("also-full.db")],
    );
}

#[test]
fn a_ledger_on_postgres_is_not_moved_to_itself_whatever_it_is_called() {
    let server = Postgres::shared().unwrap();
    let [empty, full] = [(), ()].map(|()| server.fresh_database().unwrap());
    let also = |url: &str| url.replace("127.0.0.1", "localhost");
    assert_ne!(also(&empty), empty);
    is_not_moved_to_itself([&empty, &also(&empty)], [&full, &also(&full)]);
}

#[test]
fn a_ledger_on_redis_is_not_moved_to_itself_whatever_it_is_called() {
    let (empty, full) = (redis("empty"), redis("full"));
    let also = |url: &str| url.replace("127.0.0.1", "localhost");
    assert_ne!(also(&empty), empty);
    is_not_moved_to_itself([&empty, &also(&empty)], [&full, &also(&full)]);
}

/// Through all kinds of ledgers and back to a file, with what is there compared at every stop.
async fn moves_whole(name: &str, fill: impl AsyncFn(&Oncely)) {
    let world = World::new();
    let (first, last) = (world.open(&world.from).await, world.open(&world.to).await);
    fill(&first).await;
    first.store().flush().await.unwrap();
    let before = contents(&**first.store(), 0).await;
    let postgres = oncely_store::open(&Postgres::shared().unwrap().fresh_database().unwrap()).await.unwrap();
    let redis = oncely_store::open(&format!("{}&shards=4", redis(name))).await.unwrap();
    let (mut from, mut shift) = (first.store().clone(), 0);
    for to in [postgres, redis, last.store().clone()] {
        let moved = Transfer::new(from, to.clone()).run(Duration::ZERO, |_| {}).await.unwrap();
        shift += moved.shift_ms;
        let after = contents(&*to, shift).await;
        assert!(after == before, "{} is not what was sent", to.describe());
        from = to;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_as_large_as_they_may_be_arrive() {
    moves_whole("large", async |oncely| {
        for n in 0..RECORDS {
            let call = oncely.tool("pay").key(&format!("large-{n}")).payload(&json!(n));
            // Two quotes stand around it.
            let result = n.to_string().repeat(RESULT_BYTES_MAX)[..RESULT_BYTES_MAX - 2].to_owned();
            call.run(move |_| async move { outcome::created(&result) }).await.unwrap();
        }
    })
    .await;
}

/// More than servers take at once.
const RECORDS: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn names_of_all_characters_that_are_allowed_arrive() {
    let visible: String = (0x21..0x7f_u8).map(char::from).collect();
    let odd = ["{}", "{a}:0", "a'b\"c", "%s%d*?[x]", "\\x00\\", "--", "$1", "a:b:c", visible.as_str()];
    moves_whole("odd", async |oncely| {
        for name in odd {
            let beyond_ascii = format!("{name} ä €\u{1f4b8}");
            let call = oncely.tool(&beyond_ascii).namespace(name).scope(&beyond_ascii).key(name);
            call.payload(&json!(name)).run(|_| async { outcome::created(&1) }).await.unwrap();
        }
    })
    .await;
}

/// A server drops by itself what is long past its time. What was there when it was brought and is gone when it is compared
/// would never be equal: so what is due goes first.
#[tokio::test(flavor = "multi_thread")]
async fn what_redis_drops_by_itself_meanwhile_is_not_missed() {
    let world = World::new();
    let old = world.open(&redis("dropping")).await;
    let policy =
        Policy { retention: Retention { replay_for_ms: 0, remember_for_ms: 0 }, ..Policy::default() };
    for (key, policy) in [("past", policy), ("kept", Policy::default())] {
        let call = oncely_call(&old, key, policy);
        old.run(&call, |_| async { outcome::created(&1) }).await.unwrap();
    }
    let to = world.open(&world.to).await;
    let drop_past = || {
        let script = "for _, key in ipairs(redis.call('KEYS', '{hostile-dropping:0}:r:*')) do
  if redis.call('PTTL', key) < tonumber(ARGV[1]) then redis.call('DEL', key) end
end";
        let within_eight_days = (8_u64 * 86_400_000).to_string();
        Redis::shared().unwrap().cli(&["EVAL", script, "0", &within_eight_days]).unwrap();
    };
    let moving = Transfer::new(old.store().clone(), to.store().clone());
    let report = moving.run(Duration::ZERO, |progress| {
        if progress.stage == Stage::Events {
            drop_past();
        }
    });
    assert_eq!(report.await.unwrap().records, 1);
}

fn oncely_call(oncely: &Oncely, key: &str, policy: Policy) -> oncely::Call {
    let mut call = oncely.tool("pay").key(key).payload(&json!(1)).into_call().unwrap();
    call.policy = policy.into();
    call
}
