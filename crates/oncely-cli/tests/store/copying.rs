//! A ledger moves: whole, once, and never while something runs in it.

use std::process::Stdio;
use std::time::Duration;

use oncely::outcome;
use oncely_core::Gate;
use oncely_testkit::servers::{Postgres, Redis, RedisCluster, Tap};
use serde_json::Value;

use crate::world::{World, begin, contents, fill, text};

#[tokio::test]
async fn a_ledger_with_every_state_arrives_whole_and_goes_on() {
    let world = World::new();
    assert_eq!(world.pay(&world.from, "paid"), 0);
    fill(&world.open(&world.from).await).await;
    let before = contents(&**world.open(&world.from).await.store(), 0).await;
    let report = world.copy(&[], 0);
    assert_eq!((report["ok"].as_bool(), report["resumed"].as_bool()), (Some(true), Some(false)), "{report}");
    assert_eq!(report["records"], before.0.len());
    assert_eq!(report["states"]["in_doubt"], 1);
    assert_eq!(report["events"], before.1.len());
    let shift = report["clock_shift_ms"].as_i64().unwrap();
    let after = contents(&**world.open(&world.to).await.store(), shift).await;
    assert_eq!(after, before);
    // What was paid there is known here; what is new runs here, and never there.
    assert_eq!((world.pay(&world.to, "paid"), world.effects("paid")), (0, 1));
    assert_eq!((world.pay(&world.to, "new"), world.effects("new")), (0, 1));
    assert_eq!(
        (world.pay(&world.from, "new"), world.effects("new")),
        (12, 1),
        "the old ledger claimed a key"
    );
    assert_eq!((world.pay(&world.from, "paid"), world.effects("paid")), (0, 1), "a replay does not go on");
}

#[tokio::test]
async fn how_far_a_copy_is_is_said_stage_by_stage_and_not_among_its_answer() {
    let world = World::new();
    for key in ["one", "two", "three"] {
        assert_eq!(world.pay(&world.from, key), 0);
    }
    let output = world.run(&world.copy_args(&[]));
    let said = text(&output.stderr);
    for line in ["oncely: records: 3 of 3", "oncely: events: 6 of 6", "oncely: comparing: 3 of 3"] {
        assert!(said.lines().any(|one| one == line), "{line} in {said}");
    }
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["records"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_moves_to_postgres_and_back_and_is_the_same() {
    let url = Postgres::shared().unwrap().fresh_database().unwrap();
    moves_through(&[&url]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_moves_to_redis_to_a_cluster_and_back_and_is_the_same() {
    let single = redis("to-and-fro");
    let many = format!("{}&shards=64", redis("sharded"));
    let cluster = RedisCluster::start(3, 3).unwrap();
    let servers: Vec<String> = cluster.urls().iter().map(|url| url.replace("redis://", "")).collect();
    let cluster = format!("redis+cluster://{}?wait=1&wait_timeout=60s", servers.join(","));
    moves_through(&[&single, &cluster, &many]).await;
}

/// A ledger of its own on the server that all tests share.
fn redis(prefix: &str) -> String {
    format!("{}?prefix={prefix}", Redis::shared().unwrap().url())
}

/// From a file through all these places to another file.
async fn moves_through(places: &[&str]) {
    let mut world = World::to(places[0]);
    assert_eq!(world.pay(&world.from, "paid"), 0);
    fill(&world.open(&world.from).await).await;
    let before = contents(&**world.open(&world.from).await.store(), 0).await;
    let mut shift = 0;
    let back = format!("sqlite:{}", world.path("back.db").display());
    for next in places[1..].iter().copied().chain([&*back, "nowhere:"]) {
        let report = world.copy(&[], 0);
        shift += report["clock_shift_ms"].as_i64().unwrap();
        let after = contents(&**world.open(&world.to).await.store(), shift).await;
        assert_eq!((&after.0, &after.1), (&before.0, &before.1), "{report}");
        assert_eq!(
            (world.pay(&world.from, "new"), world.effects("new")),
            (12, 0),
            "the old ledger claimed a key"
        );
        assert_eq!((world.pay(&world.to, "paid"), world.effects("paid")), (0, 1));
        let checked = world.json(&["--store", &world.from, "store", "check", "--json"], 12);
        assert_eq!(checked["ok"], false);
        world.from = std::mem::replace(&mut world.to, next.to_owned());
    }
    assert_eq!((world.pay(&world.from, "new"), world.effects("new")), (0, 1));
}

/// Claims go on in the old ledger while it is closed, from many tasks and over every shard.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_of_what_a_ledger_on_redis_acknowledged_while_it_was_closed() {
    let world = World::from(&format!("{}&shards=16", redis("closing")));
    let oncely = world.open(&world.from).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let oncely = oncely.clone();
        writers.spawn(async move {
            let mut done = Vec::new();
            for n in 0.. {
                let key = format!("{writer}-{n}");
                let call = oncely.tool("pay").key(&key).payload(&1);
                match call.run(|_| async { outcome::created(&1) }).await {
                    Ok(_) => done.push(key),
                    Err(error) => {
                        assert!(error.to_string().contains("new.db"), "{error}");
                        break;
                    }
                }
            }
            done
        });
    }
    let started = std::time::Instant::now();
    while oncely.store().census().await.unwrap().iter().map(|(_, n)| n).sum::<u64>() < 200 {
        assert!(started.elapsed().as_secs() < 180, "nothing is written");
    }
    let report = world.copy(&["--wait", "1m"], 0);
    let new = world.open(&world.to).await;
    let mut all = 0;
    while let Some(done) = writers.join_next().await {
        for key in done.unwrap() {
            all += 1;
            let call = new.tool("pay").key(&key).payload(&1);
            let answer = call.run(|_| async { panic!("it ran again") }).await.unwrap();
            assert!(matches!(answer, oncely::Answer::Replayed(_)), "{key}: {answer:?}");
        }
    }
    assert_eq!(report["records"], all, "{report}");
}

#[tokio::test]
async fn nothing_is_moved_from_redis_while_an_attempt_is_under_way() {
    let world = World::from(&redis("busy"));
    is_not_moved_while_an_attempt_is_under_way(&world).await;
    let check = world.json(&["--store", &world.from, "store", "check", "--json"], 12);
    let gate = check["checks"].as_array().unwrap().iter().find(|c| c["check"] == "gate").unwrap();
    assert!(gate["message"].as_str().unwrap().contains("new.db"), "{gate}");
}

#[test]
fn a_program_that_still_points_at_the_old_ledger_is_told_where_it_went() {
    let world = World::new();
    assert_eq!(world.pay(&world.from, "paid"), 0);
    world.copy(&[], 0);
    let arguments =
        ["run", "--json", "--store", &world.from, "--key", "new", "--", "sh", "-c", "echo new >> effects"];
    let envelope = world.json(&arguments, 12);
    let message = envelope["error"]["message"].as_str().unwrap();
    assert!(message.contains("has moved") && message.contains("new.db"), "{message}");
    assert_eq!(world.effects("new"), 0);
    let again = world.copy(&[], 0);
    assert_eq!(again["finished_before"], true, "{again}");
}

#[tokio::test]
async fn a_process_that_had_the_old_ledger_open_all_along_claims_nothing_any_more() {
    let world = World::new();
    let oncely = world.open(&world.from).await;
    drop(begin(&oncely, "warm").await.complete(outcome::created(&1)).await);
    world.copy(&[], 0);
    let call = || oncely.tool("pay").key("new").payload(&1);
    let error = call().run(|_| async { panic!("it ran in a ledger that has moved") }).await.unwrap_err();
    assert!(error.to_string().contains("new.db"), "{error}");
    let replay = oncely.tool("pay").key("warm").payload(&serde_json::json!(1)).begin().await.unwrap();
    assert!(matches!(replay, oncely::Begun::Answered(oncely::Answer::Replayed(_))));
}

#[tokio::test]
async fn nothing_is_moved_while_an_attempt_is_under_way() {
    is_not_moved_while_an_attempt_is_under_way(&World::new()).await;
}

async fn is_not_moved_while_an_attempt_is_under_way(world: &World) {
    let oncely = world.open(&world.from).await;
    let attempt = begin(&oncely, "under-way").await;
    let refusal = world.copy(&[], 15);
    assert_eq!(refusal["error"]["code"], "ATTEMPTS_UNDER_WAY");
    let message = refusal["error"]["message"].as_str().unwrap();
    assert!(message.contains("under-way") && message.contains("nothing was moved"), "{message}");
    let refusal = world.copy(&["--wait", "50ms"], 15);
    assert_eq!(refusal["error"]["code"], "ATTEMPTS_UNDER_WAY");
    for ledger in [&world.from, &world.to] {
        assert_eq!(world.open(ledger).await.store().gate().await.unwrap(), Gate::Open, "{ledger}");
    }
    assert_eq!((world.pay(&world.from, "still"), world.effects("still")), (0, 1));
    assert!(attempt.complete(outcome::created(&1)).await.is_none());
    assert_eq!(world.copy(&[], 0)["records"], 2);
}

#[tokio::test]
async fn a_copy_that_waits_lets_attempts_end_and_none_begin() {
    let world = World::new();
    let oncely = world.open(&world.from).await;
    let attempt = begin(&oncely, "under-way").await;
    let mut copy = world.command(&world.copy_args(&["--wait", "5m"])).spawn().unwrap();
    while oncely.store().gate().await.unwrap() == Gate::Open {
        assert!(copy.try_wait().unwrap().is_none(), "the copy ended before it closed the ledger");
        tokio::task::yield_now().await;
    }
    assert_eq!((world.pay(&world.from, "late"), world.effects("late")), (12, 0));
    assert!(attempt.complete(outcome::created(&1)).await.is_none());
    let output = copy.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((world.pay(&world.to, "late"), world.effects("late")), (0, 1));
}

#[test]
fn an_attempt_whose_process_is_gone_moves_as_in_doubt() {
    let world = World::new();
    let arguments = ["run", "--store", &world.from, "--tool", "pay", "--key", "lost", "--", "sh", "-c"];
    let effect = "echo lost >> effects; kill -9 $PPID; exec sleep 60";
    let mut lost =
        world.command(&[&arguments[..], &[effect]].concat()).stdout(Stdio::null()).spawn().unwrap();
    assert!(!lost.wait().unwrap().success());
    let report = world.copy(&[], 0);
    assert_eq!(report["states"]["in_doubt"], 1, "{report}");
    assert_eq!(
        (world.pay(&world.to, "lost"), world.effects("lost")),
        (6, 1),
        "another payload is a conflict"
    );
}

#[tokio::test]
async fn a_ledger_that_holds_something_is_not_filled() {
    let world = World::new();
    assert_eq!((world.pay(&world.from, "a"), world.pay(&world.to, "b")), (0, 0));
    assert_eq!(world.copy(&[], 4)["error"]["code"], "NOT_EMPTY");
    assert_eq!((world.pay(&world.from, "c"), world.pay(&world.to, "d")), (0, 0), "both go on as before");
}

#[test]
fn a_ledger_that_is_not_there_is_not_made_by_a_typing_error() {
    let world = World::new();
    assert_eq!(world.copy(&[], 4)["error"]["code"], "NO_LEDGER");
    assert!(!world.path("old.db").exists() && !world.path("new.db").exists());
    let bad = world.json(&["store", "copy", "--json", "--from", "memory:", "--to", &world.to], 4);
    assert_eq!(bad["error"]["code"], "NO_LEDGER");
}

#[test]
fn what_is_encrypted_moves_as_it_is() {
    let world = World::new();
    let keys = format!("k1 {}", "0b".repeat(32));
    let pay = |ledger: &str, keys: Option<&str>| {
        let mut command = world.command(&[
            "run",
            "--store",
            ledger,
            "--key",
            "k",
            "--",
            "sh",
            "-c",
            "echo s3cret; echo k >> effects",
        ]);
        if let Some(keys) = keys {
            command.env("ONCELY_ENCRYPTION_KEYS", keys);
        }
        let output = command.output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout))
    };
    assert_eq!(pay(&world.from, Some(&keys)), (0, "s3cret\n".to_owned()));
    world.copy(&[], 0);
    assert_eq!(pay(&world.to, Some(&keys)), (0, "s3cret\n".to_owned()));
    assert_eq!(pay(&world.to, None).0, 12, "without its key it cannot be told");
    assert_eq!(world.effects("k"), 1);
    let bytes = std::fs::read(world.path("new.db")).unwrap();
    let log = std::fs::read(world.path("new.db-wal")).unwrap_or_default();
    assert!(![bytes, log].concat().windows(6).any(|w| w == b"s3cret"), "it was stored in plain");
}

/// The copy stands still in its middle, on a line that lets nothing through, while the old ledger is asked.
#[tokio::test(flavor = "multi_thread")]
async fn the_old_ledger_is_read_and_replayed_from_while_a_copy_is_under_way() {
    let server = Postgres::shared().unwrap();
    let direct = server.fresh_database().unwrap();
    let tap = Tap::to_port(server.port()).unwrap();
    let database = direct.rsplit('/').next().unwrap();
    let world = World::to(&server.url_through(tap.port(), database));
    assert_eq!(world.pay(&world.from, "paid"), 0);
    fill(&world.open(&world.from).await).await;
    // All but their ages.
    let listed = || -> Vec<(Value, Value)> {
        let listed = world.run(&["--store", &world.from, "ls", "--all-namespaces", "--json"]);
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        text(&listed.stdout).lines().map(line).map(|r| (r["id"].clone(), r["state"].clone())).collect()
    };
    let records = listed();
    assert_eq!(records.len(), 8, "{records:?}");
    // Slow enough that its middle is not missed.
    tap.delay(Duration::from_millis(100));
    let mut copy = world.command(&world.copy_args(&[])).spawn().unwrap();
    let old = world.open(&world.from).await;
    while !matches!(old.store().gate().await.unwrap(), Gate::Closed(_)) {
        assert!(copy.try_wait().unwrap().is_none(), "it ended before the old ledger was closed");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tap.black_hole();
    let gate = oncely_store::open(&direct).await.unwrap().gate().await.unwrap();
    assert!(matches!(gate, Gate::Filling(_)), "it was over already: {gate:?}");
    assert_eq!(listed(), records);
    assert_eq!((world.pay(&world.from, "paid"), world.effects("paid")), (0, 1));
    assert_eq!((world.pay(&world.from, "new"), world.pay(&direct, "new"), world.effects("new")), (12, 12, 0));
    tap.pass();
    // If that took so long that the copy gave up, the same command goes on with it.
    let code = copy.wait().unwrap().code();
    if code != Some(0) {
        assert_eq!(code, Some(12), "the ledger could not be reached");
        world.copy(&[], 0);
    }
    assert_eq!((world.pay(&direct, "paid"), world.effects("paid")), (0, 1));
    assert_eq!((world.pay(&direct, "new"), world.effects("new")), (0, 1));
}
