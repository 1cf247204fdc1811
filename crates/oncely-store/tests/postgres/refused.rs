//! Servers that would not keep what they acknowledge are refused, with what to set; so are standbys.

use oncely_core::{Created, Store, StoreErrorKind, Wrote};
use oncely_testkit::servers::Postgres;

use crate::{claim, open, refusal, until, with};

/// Sets something, sees the refusal, sees it accepted when asked for, and sets it back.
async fn check(server: &Postgres, setting: &str, value: &str, good: &str, expected: &str) {
    let shows = |value: &str| server.psql(&format!("SHOW {setting}")).unwrap().trim() == value;
    server.set(setting, value).unwrap();
    until("the setting is there", async || shows(value)).await;
    let error = refusal(&server.url("postgres")).await;
    assert_eq!(error.kind, StoreErrorKind::Unsuitable, "{error}");
    for words in [expected, "?durability=best-effort", "nothing was written"] {
        assert!(error.message.contains(words), "{setting}={value}: {error}");
    }
    let store = open(&with(&server.url("postgres"), "durability=best-effort")).await;
    claim(&*store, &format!("{setting}-{value}")).await.unwrap();
    server.set(setting, good).unwrap();
    until("the setting is back", async || shows(good)).await;
}

#[tokio::test]
async fn a_setting_that_can_lose_a_record_is_refused_and_says_what_to_set() {
    let server = Postgres::start().unwrap();
    check(&server, "synchronous_commit", "off", "on", "set synchronous_commit = on").await;
    check(&server, "fsync", "off", "on", "set fsync = on").await;
    check(&server, "full_page_writes", "off", "on", "set full_page_writes = on").await;
    open(&server.url("postgres")).await;
}

#[tokio::test]
async fn with_a_synchronous_standby_more_is_asked_and_the_standby_itself_is_refused() {
    let primary = Postgres::start().unwrap();
    let standby = primary.standby().unwrap();
    open(&primary.url("postgres")).await;
    for (setting, value, good, expected) in [
        ("synchronous_commit", "local", "on", "when the standby takes over"),
        ("synchronous_commit", "remote_write", "on", "when the standby takes over"),
        ("statement_timeout", "5s", "0", "SET statement_timeout = 0"),
    ] {
        check(&primary, setting, value, good, expected).await;
    }
    let error = refusal(&with(&standby.url("postgres"), "durability=best-effort")).await;
    assert_eq!(error.kind, StoreErrorKind::ReadOnly);
    assert!(error.message.contains("name the primary"), "{error}");
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_name_is_refused() {
    let server = crate::server();
    let make = "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    server.psql(make).unwrap();
    let error = refusal(&server.url("latin")).await;
    assert!(error.message.contains("encoding UTF8"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_so_at_once() {
    let error = refusal("postgres://u@127.0.0.1:1/d").await;
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("127.0.0.1 port 1 cannot be reached"), "{error}");
}

/// Relatives of PostgreSQL speak its protocol and lack some of its functions. This one is made of PostgreSQL itself.
#[tokio::test]
async fn a_server_that_cannot_tell_of_a_change_of_roles_is_refused_unless_that_is_accepted() {
    let server = Postgres::start().unwrap();
    let hide = "ALTER FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RENAME TO is_not_here";
    server.psql(hide).unwrap();
    let address = server.url("postgres");
    let error = refusal(&address).await;
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unsuitable, Wrote::No), "{error}");
    for words in ["not PostgreSQL itself", "?durability=best-effort", "pg_walfile_name"] {
        assert!(error.message.contains(words), "{error}");
    }
    let store = open(&with(&address, "durability=best-effort")).await;
    let made = claim(&*store, "k").await.unwrap();
    let Created::New(made) = made else { panic!("{made:?}") };
    assert!(matches!(claim(&*store, "k").await.unwrap(), Created::Exists(_)));
    drop(store);
    // Nobody knows how long the server has been up: nothing from before is known to be young.
    let again = open(&with(&address, "durability=best-effort")).await;
    assert!(again.steady_since() >= made.record.created_at);
}
