//! What docs/postgres.md and docs/limits.md say of settings and limits is what is in force.

use std::time::Duration;

use oncely_store::postgres::{Durability, PostgresOptions, Prepared, Tls, limits};

fn page(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_defaults_on_the_page_are_those_in_force() {
    let page = page("postgres.md");
    let row = |name: &str| {
        let start = format!("| `{name}` | ");
        let found = page.lines().find_map(|line| line.strip_prefix(&start));
        found.unwrap_or_else(|| panic!("no row for {name}")).split(" | ").next().unwrap().replace('`', "")
    };
    let names = ["schema", "pool", "durability", "sslmode", "prepared", "wait", "queue", "connect_timeout"];
    let settings: Vec<String> = names.iter().map(|name| format!("{name}={}", row(name))).collect();
    let spelled = PostgresOptions::parse(&format!("postgres://u@h/d?{}", settings.join("&"))).unwrap();
    let plain = PostgresOptions::parse("postgres://u@h/d").unwrap();
    for options in [&spelled, &plain] {
        assert_eq!((options.schema.as_str(), options.pool, options.queue_max), ("oncely", 8, 16_384));
        assert_eq!((options.durability, options.prepared), (Durability::Strict, Prepared::Auto));
        assert_eq!((options.tls, options.wait), (Tls::Prefer, Duration::from_secs(10)));
    }
}

#[test]
fn the_limits_on_the_page_are_those_in_force() {
    let page = page("limits.md");
    let plain = PostgresOptions::parse("postgres://u@h/d").unwrap();
    for row in [
        format!(
            "| connections of one process to a PostgreSQL ledger, by default | {} connections |",
            plain.pool
        ),
        format!("`pool` in the address changes it, up to {} |", limits::POOL_MAX),
        format!("| requests that wait for a PostgreSQL ledger, by default | {} requests |", plain.queue_max),
        format!("| bytes that wait for a PostgreSQL ledger | {} bytes |", limits::QUEUE_BYTES_MAX),
        format!(
            "| waiting for a connection to a PostgreSQL ledger, by default | {} seconds |",
            plain.wait.as_secs()
        ),
        format!("| an answer of a PostgreSQL server | {} seconds |", limits::ANSWER_WITHIN.as_secs()),
        format!(
            "| waiting for a record that another transaction holds, in a statement for many | {} milliseconds |",
            limits::HELD_AMONG.as_millis()
        ),
        format!("| waiting for it in all | {} second |", limits::HELD_ALONE.as_secs()),
        format!("| requests in one statement to PostgreSQL | {} requests |", limits::BATCH_MAX),
        format!("| events in one write to PostgreSQL | {} events |", limits::EVENTS_MAX),
    ] {
        assert!(page.contains(&row), "{row}");
    }
}
