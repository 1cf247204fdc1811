//! `oncely store migrate` on PostgreSQL: made once, printed for somebody else, and brought up to date while a program that
//! knows only the version before goes on.

use std::process::{Child, Output};
use std::time::Duration;

use oncely_testkit::servers::Postgres;

use crate::world::{World, text};

/// A ledger of version 2, and the statements of a program that knows no other.
const OLD: &str = include_str!("../../../oncely-store/tests/golden/postgres-2.sql");
const OLD_STATEMENTS: &str = include_str!("../../../oncely-store/tests/golden/postgres-2-statements.sql");

fn server() -> &'static Postgres {
    Postgres::shared().unwrap()
}

/// Runs SQL in the database of an address.
#[track_caller]
fn psql(address: &str, sql: &str) -> String {
    let database = address.rsplit('/').next().unwrap();
    server().psql_in(database, sql).unwrap().trim().to_owned()
}

#[test]
fn a_ledger_on_postgres_is_made_once_and_checked_without_being_changed() {
    let world = World::to(&server().fresh_database().unwrap());
    let schema = "SELECT to_regnamespace('oncely') IS NOT NULL";
    let absent = world.json(&["--store", &world.to, "store", "check", "--json"], 0);
    assert!(absent.to_string().contains("`oncely store migrate` or the first call makes them"), "{absent}");
    assert_eq!(psql(&world.to, schema), "f", "a check made a ledger");
    let made = world.json(&["--store", &world.to, "store", "migrate", "--json"], 0);
    assert!(made["from"].is_null() && made["to"] == 5 && made["changed"] == true, "{made}");
    let id = psql(&world.to, "SELECT id FROM oncely.ledger");
    let again = world.json(&["--store", &world.to, "store", "migrate", "--json"], 0);
    assert!(again["from"] == 5 && again["changed"] == false, "{again}");
    assert_eq!(psql(&world.to, "SELECT id FROM oncely.ledger"), id, "it is another one");
    assert_eq!((world.pay(&world.to, "a"), world.pay(&world.to, "a"), world.effects("a")), (0, 0, 1));
    assert_eq!(world.json(&["--store", &world.to, "store", "check", "--json"], 0)["ok"], true);
}

/// Everything that the ledger in a database consists of.
const SHAPE: &str = "SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
  SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default) AS line
  FROM information_schema.columns WHERE table_schema = 'oncely'
  UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'oncely'
  UNION ALL SELECT concat_ws(' ', event_object_table, trigger_name, action_timing, event_manipulation)
  FROM information_schema.triggers WHERE trigger_schema = 'oncely'
  UNION ALL SELECT concat_ws(' ', tgname, tgenabled) FROM pg_trigger WHERE tgrelid = 'oncely.record'::regclass
  UNION ALL SELECT prosrc FROM pg_proc WHERE pronamespace = to_regnamespace('oncely')
) shape";

#[test]
fn the_printed_statements_make_a_ledger_on_postgres_that_is_taken_for_one() {
    let world = World::to(&server().fresh_database().unwrap());
    let named = format!("{}?schema=The%20%22Ledger%22", world.to);
    for (address, schema, key) in
        [(world.to.as_str(), "oncely", "a"), (named.as_str(), "The \"\"Ledger\"\"", "b")]
    {
        let printed = world.run(&["--store", address, "store", "migrate", "--print"]);
        assert!(printed.status.success());
        let absent = format!("SELECT to_regnamespace('\"{schema}\"') IS NULL");
        assert_eq!(psql(&world.to, &absent), "t", "printing made a ledger");
        psql(&world.to, &text(&printed.stdout));
        let again = world.json(&["--store", address, "store", "migrate", "--json"], 0);
        assert_eq!(again["changed"], false, "{again}");
        assert_eq!((world.pay(address, key), world.effects(key)), (0, 1));
        let count = format!("SELECT count(*) FROM \"{schema}\".record");
        assert_eq!(psql(&world.to, &count), "1");
    }
    let migrated = server().fresh_database().unwrap();
    world.json(&["--store", &migrated, "store", "migrate", "--json"], 0);
    assert_eq!(psql(&world.to, SHAPE), psql(&migrated, SHAPE), "they make another one than `migrate` does");
}

/// A record of another ledger, written into this one by the program that knows version 2.
fn old_program_writes(from: &str, to: &str, key: &str) {
    let columns =
        "head, tail, state, namespace, tool, quote_nullable(scope), key, body, quote_nullable(result)";
    let row = psql(from, &format!("SELECT {columns} FROM oncely.record WHERE key = '{key}'"));
    let f: Vec<&str> = row.split('|').collect();
    let [head, tail, state, namespace, tool, scope, key, body, result] = f[..] else { panic!("{row}") };
    let values = |version: &str| {
        format!(
            "{OLD_STATEMENTS} EXECUTE old_{version} ('{head}', '{tail}', NULL, NULL, NULL, 864000000, {state}, '{namespace}', \
             '{tool}', {scope}, '{key}', '{body}', {result}, NULL, 0)"
        )
    };
    let answered = psql(to, &values("create"));
    assert_eq!(answered.split('|').nth(1).map(str::is_empty), Some(false), "{answered}");
    // To make it again finds it.
    let answered = psql(to, &values("create"));
    assert!(answered.contains(key) && answered.split('|').nth(1) == Some(""), "{answered}");
    let version = psql(to, &format!("SELECT version FROM oncely.record WHERE key = '{key}'"));
    let put = format!(
        "{OLD_STATEMENTS} EXECUTE old_put ('{head}', '{tail}', {version}, NULL, NULL, NULL, 864000000, {state}, '{body}', \
         {result}, NULL, 0)"
    );
    let answered = psql(to, &put);
    assert_eq!(answered.split('|').nth(2), Some("t"), "{answered}");
    let load = format!("{OLD_STATEMENTS} EXECUTE old_load ('{head}', 0)");
    assert!(psql(to, &load).contains(key));
}

#[test]
fn a_program_of_the_version_before_goes_on_while_and_after_the_tables_are_brought_up_to_date() {
    let world = World::to(&server().fresh_database().unwrap());
    psql(&world.to, OLD);
    // What the old program writes, it has from elsewhere.
    let elsewhere = server().fresh_database().unwrap();
    for key in ["before", "after"] {
        assert_eq!(world.pay(&elsewhere, key), 0);
    }
    old_program_writes(&elsewhere, &world.to, "before");
    let checked = world.json(&["--store", &world.to, "store", "check", "--json"], 0);
    assert!(checked.to_string().contains("version 2; `oncely store migrate` makes it 5"), "{checked}");
    let brought = world.json(&["--store", &world.to, "store", "migrate", "--json"], 0);
    assert!(brought["from"] == 2 && brought["to"] == 5 && brought["changed"] == true, "{brought}");
    assert_eq!(
        psql(&world.to, SHAPE),
        psql(&elsewhere, SHAPE),
        "it is another one than one that is made anew"
    );
    old_program_writes(&elsewhere, &world.to, "after");
    // Neither program repeats what the other has recorded.
    for key in ["before", "after"] {
        assert_eq!((world.pay(&world.to, key), world.effects(key)), (0, 1), "{key}");
    }
    assert_eq!((world.pay(&world.to, "new"), world.effects("new")), (0, 1));
    let head = psql(&world.to, "SELECT head FROM oncely.record WHERE key = 'new'");
    assert!(psql(&world.to, &format!("{OLD_STATEMENTS} EXECUTE old_load ('{head}', 0)")).contains("|new|"));
}

/// Holds what a step of the migration needs until there is a row in `go`.
const HOLD: &str = "BEGIN; LOCK TABLE oncely.waiting IN ROW EXCLUSIVE MODE;
DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM public.go) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$; COMMIT";
/// Whether somebody holds it, and whether the migration waits for it.
const HELD: &str = "SELECT count(*) FROM pg_locks WHERE relation = 'oncely.waiting'::regclass
  AND mode = 'RowExclusiveLock' AND granted";
const WAITS: &str =
    "SELECT count(*) FROM pg_locks WHERE relation = 'oncely.waiting'::regclass AND NOT granted";

/// Lets `meanwhile` happen while a migration has taken some of its steps and waits in another.
fn in_the_middle_of_a_migration(world: &World, meanwhile: impl FnOnce(&mut Child)) -> Output {
    psql(&world.to, "TRUNCATE public.go");
    let address = world.to.clone();
    let holder = std::thread::spawn(move || psql(&address, HOLD));
    while psql(&world.to, HELD) != "1" {
        assert!(!holder.is_finished(), "nobody holds it");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut migration = world.command(&["--store", &world.to, "store", "migrate", "--json"]).spawn().unwrap();
    while psql(&world.to, WAITS) != "1" {
        assert!(migration.try_wait().unwrap().is_none(), "it did not wait");
        std::thread::sleep(Duration::from_millis(5));
    }
    meanwhile(&mut migration);
    psql(&world.to, "INSERT INTO public.go VALUES (1)");
    holder.join().unwrap();
    migration.wait_with_output().unwrap()
}

#[test]
fn a_program_of_the_version_before_goes_on_in_the_middle_of_a_migration_and_after_one_that_was_killed() {
    let world = World::to(&server().fresh_database().unwrap());
    psql(&world.to, OLD);
    psql(&world.to, "CREATE TABLE public.go (one int)");
    let elsewhere = server().fresh_database().unwrap();
    for key in ["killed", "undone", "during"] {
        assert_eq!(world.pay(&elsewhere, key), 0);
    }
    let killed = in_the_middle_of_a_migration(&world, |migration| {
        old_program_writes(&elsewhere, &world.to, "killed");
        migration.kill().unwrap();
    });
    assert!(!killed.status.success());
    // All of its steps or none: what it had done is gone with it.
    assert_eq!(psql(&world.to, "SELECT version FROM oncely.ledger"), "2");
    old_program_writes(&elsewhere, &world.to, "undone");
    let brought = in_the_middle_of_a_migration(&world, |_| {
        old_program_writes(&elsewhere, &world.to, "during");
    });
    // A machine that took longer over that than a migration waits for a table has to be told once more.
    let in_time = brought.status.success();
    let said = format!("{}{}", text(&brought.stdout), text(&brought.stderr));
    assert!(in_time || said.contains("lock timeout"), "{said}");
    let brought =
        if in_time { brought } else { world.run(&["--store", &world.to, "store", "migrate", "--json"]) };
    let said = text(&brought.stdout);
    assert!(said.contains("\"from\":2") && said.contains("\"to\":5"), "{said}{}", text(&brought.stderr));
    for key in ["killed", "undone", "during"] {
        assert_eq!((world.pay(&world.to, key), world.effects(key)), (0, 1), "{key}");
    }
}
