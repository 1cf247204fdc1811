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
