//! One record that cannot be read: everything else goes on, everybody is told of it, and a person can have it forgotten.

use oncely_core::IntentId;
use oncely_testkit::servers::{Postgres, Redis};
use serde_json::Value;

use crate::healing::Gateway;
use crate::world::{World, text};

#[tokio::test]
async fn in_a_file_one_record_that_cannot_be_read_stops_nobody_else() {
    let world = World::new();
    let file = world.path("old.db");
    is_told_and_forgotten(&world, |_| {
        let ledger = rusqlite::Connection::open(&file).unwrap();
        let damaged = ledger.execute("UPDATE record SET body = x'09' WHERE key = 'torn'", []).unwrap();
        assert_eq!(damaged, 1);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_one_record_that_cannot_be_read_stops_nobody_else() {
    let server = Postgres::shared().unwrap();
    let url = server.fresh_database().unwrap();
    let database = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    is_told_and_forgotten(&World::from(&url), |_| {
        let damage = "UPDATE oncely.record SET body = '\\x09' WHERE key = 'torn'";
        server.psql_in(&database, damage).unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_one_record_that_cannot_be_read_stops_nobody_else() {
    let server = Redis::shared().unwrap();
    is_told_and_forgotten(&World::from(&format!("{}?prefix=torn", server.url())), |intent| {
        // The id is no text: it is put together there.
        let script =
            "local id = string.gsub(ARGV[1], '..', function(two) return string.char(tonumber(two, 16)) end)
local key = '{torn:0}:r:' .. id
local value = redis.call('GET', key)
local line = string.find(value, '\\n', 1, true)
redis.call('SETRANGE', key, string.find(value, '\\n', line + 1, true), '\\9')
return 'done'";
        assert_eq!(server.cli(&["EVAL", script, "0", &intent.to_string()]).unwrap().trim(), "done");
    });
}

/// A listing shows it, since its name and state are not encrypted; but nobody can replay it, and its key may be lost for good.
#[test]
fn a_record_whose_encryption_key_is_lost_can_be_forgotten() {
    let world = World::new();
    let line = [
        "run",
        "--store",
        &world.from,
        "--tool",
        "pay",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "echo k >> effects; echo r",
    ];
    let keys = format!("k1 {}", "0b".repeat(32));
    let mut first = world.command(&line);
    assert!(first.env("ONCELY_ENCRYPTION_KEYS", keys).output().unwrap().status.success());
    assert_eq!((world.run(&line).status.code(), world.effects("k")), (Some(12), 1));
    let listed = lines(&world.run(&["ls", "--json", "--store", &world.from]).stdout);
    let id = listed[0]["id"].as_str().unwrap();
    for which in [&["log"][..], &["log", "--id", id]] {
        let log = world.run(&[which, &["--json", "--store", &world.from]].concat());
        assert!(log.status.success(), "{which:?}: {}", text(&log.stdout));
        assert!(lines(&log.stdout).iter().any(|event| event["id"] == id), "{which:?}");
    }
    world.json(&["forget", "--unreadable", "--yes", "--json", id, "--store", &world.from], 0);
    assert_eq!((world.run(&line).status.code(), world.effects("k")), (Some(0), 2));
}

fn is_told_and_forgotten(world: &World, damage: impl FnOnce(IntentId)) {
    let store = &world.from;
    for key in ["torn", "whole"] {
        assert_eq!((world.pay(store, key), world.effects(key)), (0, 1));
    }
    let listed = lines(&world.run(&["ls", "--json", "--store", store]).stdout);
    let torn =
        listed.iter().find(|record| record["key"] == "torn").unwrap()["id"].as_str().unwrap().to_owned();
    damage(IntentId::parse(&torn).unwrap());
    assert_eq!((world.pay(store, "torn"), world.effects("torn")), (12, 1), "nothing runs under its key");
    assert_eq!((world.pay(store, "whole"), world.pay(store, "new")), (0, 0), "others go on");

    let listed = lines(&world.run(&["ls", "--json", "--store", store]).stdout);
    assert_eq!(listed.len(), 3, "{listed:?}");
    assert!(
        listed.iter().any(|record| record["id"].is_null() && record["unreadable"]["id"] == torn.as_str())
    );
    let (status, served) = Gateway::start(world, store).get("/v1/records");
    let served: Value = serde_json::from_str(&served).unwrap();
    assert_eq!((status, served["records"].as_array().unwrap().len()), (200, 2), "{served}");
    assert_eq!(served["unreadable"][0]["id"], torn.as_str(), "{served}");
    // The log tells of everybody, and of it alone: what it says is all that is left of that record.
    let log = world.run(&["log", "--json", "--store", store]);
    assert!(log.status.success(), "{}", text(&log.stdout));
    let told = lines(&log.stdout);
    assert!(told.iter().any(|event| event["id"] == torn.as_str() && event["key"].is_null()), "{told:?}");
    for key in ["whole", "new"] {
        assert!(told.iter().any(|event| event["key"] == key), "{key}: {told:?}");
    }
    let log = world.run(&["log", "--id", &torn, "--json", "--store", store]);
    assert!(log.status.success(), "{}", text(&log.stdout));
    let events: Vec<Value> = lines(&log.stdout).iter().map(|event| event["event"].clone()).collect();
    assert_eq!(events, ["began", "succeeded"]);
    world.json(&["purge", "--json", "--store", store], 0);
    let report = world.json(&["doctor", "--json", "--store", store], 0);
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["check"] == "records").unwrap();
    assert_eq!(found["health"], "warn");
    for said in [torn.as_str(), "If it happened, or nobody knows, leave the record"] {
        assert!(found["message"].as_str().unwrap().contains(said), "{found}");
    }
    let refused = world.copy(&[], 4);
    assert_eq!(refused["error"]["code"], "UNREADABLE", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains(&torn), "{refused}");
    assert_eq!(world.pay(store, "newer"), 0, "a copy that was refused has changed nothing");

    let short = world.run(&["forget", "--unreadable", "--yes", &torn[..12], "--store", store]);
    assert_eq!(short.status.code(), Some(4), "by its whole id only: {}", text(&short.stderr));
    let unsaid = world.run(&["forget", "--yes", &torn, "--store", store]);
    assert_eq!(unsaid.status.code(), Some(4), "a flag of its own: {}", text(&unsaid.stderr));
    assert_eq!((world.pay(store, "torn"), world.effects("torn")), (12, 1), "it was forgotten");
    assert_eq!(
        world.run(&["forget", "--unreadable", &torn, "--store", store]).status.code(),
        Some(2),
        "it asks"
    );
    let forgotten = world.json(&["forget", "--unreadable", "--yes", "--json", &torn, "--store", store], 0);
    assert_eq!(forgotten["forgotten"], true, "{forgotten}");
    assert_eq!((world.pay(store, "torn"), world.effects("torn")), (0, 2), "its key is new");
    let log = text(&world.run(&["log", "--id", &torn, "--json", "--store", store]).stdout);
    assert!(log.contains("forgotten") && log.contains("could not be read"), "{log}");
    world.copy(&[], 0);
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
