//! `oncely store check` and `oncely store migrate` on files.

use crate::world::{World, text};

#[test]
fn a_ledger_is_made_once_and_checked_without_being_changed() {
    let world = World::new();
    let store = ["--store", &world.from];
    let absent = world.json(&[&store[..], &["store", "check", "--json"]].concat(), 0);
    assert_eq!((absent["ok"].as_bool(), absent["checks"][0]["health"].as_str()), (Some(true), Some("warn")));
    assert!(!world.path("old.db").exists(), "a check made a ledger");
    let made = world.json(&[&store[..], &["store", "migrate", "--json"]].concat(), 0);
    assert!(made["from"].is_null() && made["changed"] == true, "{made}");
    let again = world.json(&[&store[..], &["store", "migrate", "--json"]].concat(), 0);
    assert!(again["from"] == made["to"] && again["changed"] == false, "{again}");
    let checked = world.json(&[&store[..], &["store", "check", "--json"]].concat(), 0);
    let healths: Vec<&str> =
        checked["checks"].as_array().unwrap().iter().map(|c| c["health"].as_str().unwrap()).collect();
    assert_eq!(healths, ["ok"; 4], "{checked}");
}

#[test]
fn a_check_says_that_a_ledger_has_moved() {
    let world = World::new();
    assert_eq!(world.pay(&world.from, "a"), 0);
    world.copy(&[], 0);
    let checked = world.json(&["--store", &world.from, "store", "check", "--json"], 12);
    let gate = checked["checks"].as_array().unwrap().iter().find(|c| c["check"] == "gate").unwrap();
    assert_eq!(gate["health"], "fail");
    assert!(gate["message"].as_str().unwrap().contains("new.db"), "{gate}");
    assert_eq!(world.json(&["--store", &world.to, "store", "check", "--json"], 0)["ok"], true);
}

#[test]
fn the_printed_statements_make_a_ledger_that_is_taken_for_one() {
    let world = World::new();
    let printed = text(&world.run(&["--store", &world.from, "store", "migrate", "--print"]).stdout);
    assert!(!world.path("old.db").exists(), "printing made a ledger");
    let path = world.path("old.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch(&printed).unwrap();
    drop(connection);
    assert_eq!((world.pay(&world.from, "a"), world.effects("a")), (0, 1));
    let again = world.json(&["--store", &world.from, "store", "migrate", "--json"], 0);
    assert_eq!(again["changed"], false, "{again}");
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let world = World::new();
    let connection = rusqlite::Connection::open(world.path("old.db")).unwrap();
    connection.execute_batch("CREATE TABLE mine (x)").unwrap();
    let checked = world.json(&["--store", &world.from, "store", "check", "--json"], 12);
    assert!(text(checked.to_string().as_bytes()).contains("another program"), "{checked}");
    world.json(&["--store", &world.from, "store", "migrate", "--json"], 12);
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)).unwrap();
    assert_eq!(tables, 1);
}

/// On Redis there are no tables: to migrate makes the ledger where there is none, and nothing else.
#[test]
fn a_ledger_on_redis_is_made_once_and_checked_without_being_changed() {
    let server = oncely_testkit::servers::Redis::start().unwrap();
    let world = World::to(&format!("{}?shards=4", server.url()));
    let store = ["--store", &world.to];
    let absent = world.json(&[&store[..], &["store", "check", "--json"]].concat(), 0);
    let ledger = |report: &serde_json::Value| {
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|c| c["check"] == "ledger").unwrap();
        (found["health"].as_str().unwrap().to_owned(), found["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(ledger(&absent).0, "warn", "{absent}");
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "0", "a check made a ledger");
    let printed = text(&world.run(&[&store[..], &["store", "migrate", "--print"]].concat()).stdout);
    assert!(printed.contains("no tables"), "{printed}");
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "0", "printing made a ledger");
    let made = world.json(&[&store[..], &["store", "migrate", "--json"]].concat(), 0);
    assert!(made["from"].is_null() && made["to"] == 1 && made["changed"] == true, "{made}");
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "4", "a head for each shard");
    let again = world.json(&[&store[..], &["store", "migrate", "--json"]].concat(), 0);
    assert!(again["from"] == 1 && again["to"] == 1 && again["changed"] == false, "{again}");
    let checked = world.json(&[&store[..], &["store", "check", "--json"]].concat(), 0);
    assert_eq!((ledger(&checked).0.as_str(), checked["ok"].as_bool()), ("ok", Some(true)), "{checked}");
    assert!(text(&world.run(&[&store[..], &["store", "check"]].concat()).stdout).contains("it takes calls"));
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "4", "a check wrote something");
    // What a move has filled is told as such, and stays so.
    assert_eq!(world.pay(&world.from, "paid"), 0);
    world.copy(&[], 0);
    let filled = world.json(&[&store[..], &["store", "migrate", "--json"]].concat(), 0);
    assert!(filled["from"] == 2 && filled["changed"] == false, "{filled}");
    assert_eq!((world.pay(&world.to, "paid"), world.effects("paid")), (0, 1));
}

#[test]
fn keys_of_another_program_and_a_server_that_is_unfit_are_told_and_left_alone() {
    let server = oncely_testkit::servers::Redis::start().unwrap();
    let world = World::to(&server.url());
    let (check, migrate) = (
        ["--store", &world.to, "store", "check", "--json"],
        ["--store", &world.to, "store", "migrate", "--json"],
    );
    server.cli(&["SET", "{oncely:0}:head", "mine"]).unwrap();
    for command in [&check, &migrate] {
        let refused = world.json(command, 12);
        assert!(refused.to_string().contains("choose another ?prefix="), "{refused}");
    }
    assert_eq!(server.cli(&["GET", "{oncely:0}:head"]).unwrap(), "mine");
    server.cli(&["DEL", "{oncely:0}:head"]).unwrap();
    server.cli(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
    let unfit = world.json(&check, 12);
    assert!(unfit.to_string().contains("CONFIG SET appendfsync always"), "{unfit}");
    assert!(world.json(&migrate, 12).to_string().contains("nothing was written"));
    assert_eq!(server.cli(&["DBSIZE"]).unwrap(), "0");
}
