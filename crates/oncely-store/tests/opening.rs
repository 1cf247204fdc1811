//! Opening a SQLite ledger: what is made, what is refused, and that a refusal changes nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{begin, finish, id, open, refused};
use oncely_core::{StoreErrorKind, Wrote};
use oncely_store::{SqliteOptions, SqliteStore};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn check_refused(path: &Path, kind: StoreErrorKind) {
    let before = std::fs::read(path).unwrap();
    let error = refused(path);
    assert_eq!((error.kind, error.wrote), (kind, Wrote::No), "{error}");
    assert!(error.message.contains("nothing was written"), "{error}");
    assert_eq!(std::fs::read(path).unwrap(), before, "a refusal changes nothing");
}

#[tokio::test]
async fn files_and_directories_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/ledger.db");
    let store = open(&path);
    finish(&store, "k").await;
    for made in ["a", "a/b"] {
        assert_eq!(mode(&directory.path().join(made)), 0o700, "{made}");
    }
    let mut files = 0;
    for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let file = file.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        files += 1;
    }
    assert_eq!(files, 5, "the ledger, its log, its index, and two side files");
}

#[tokio::test]
async fn an_address_finds_its_ledger_and_a_bad_one_names_the_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let address = format!("sqlite:{}?min_free=1MiB", path.display());
    assert_eq!(oncely_store::open(&address).await.unwrap().describe(), format!("sqlite:{}", path.display()));
    assert!(oncely_store::open(path.to_str().unwrap()).await.is_ok());
    assert_eq!(oncely_store::open("memory:").await.unwrap().describe(), "memory:");
    let error = oncely_store::open("mysql://x").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::BadAddress);
    assert!(error.message.contains("memory:") && error.message.contains("sqlite:PATH"), "{error}");
    assert_eq!(refused(directory.path()).kind, StoreErrorKind::BadAddress, "a directory");
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "dear diary, ".repeat(1000)).unwrap();
    check_refused(&path, StoreErrorKind::Foreign);
}

#[test]
fn a_database_of_another_program_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    check_refused(&path, StoreErrorKind::Foreign);
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("DROP TABLE theirs; PRAGMA application_id = 77")
        .unwrap();
    check_refused(&path, StoreErrorKind::Foreign);
}

#[tokio::test]
async fn a_ledger_of_a_newer_program_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    drop(open(&path));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(connection);
    check_refused(&path, StoreErrorKind::TooNew);
}

#[tokio::test]
async fn a_damaged_ledger_is_refused_or_says_so_when_the_damage_is_met() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let store = open(&path);
    for n in 0..50 {
        finish(&store, &format!("k{n}")).await;
    }
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&path).unwrap();
    // The header stays: what comes after it is noise.
    bytes[100..].fill(0x5a);
    std::fs::write(&path, &bytes).unwrap();
    check_refused(&path, StoreErrorKind::Corrupt);
}

#[test]
fn a_half_made_ledger_is_finished() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    // Killed after the file was made and before anything was in it.
    std::fs::write(&path, "").unwrap();
    drop(open(&path));
    // Killed after the journal mode was set.
    let path = directory.path().join("other.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA journal_mode = WAL").unwrap();
    drop(open(&path));
}

#[test]
fn many_that_open_a_new_ledger_at_once_make_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    std::thread::scope(|scope| {
        let openers: Vec<_> = (0..16).map(|_| scope.spawn(|| drop(open(&path)))).collect();
        for opener in openers {
            opener.join().unwrap();
        }
    });
}

#[tokio::test]
async fn a_replaced_file_is_noticed_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let store = open(&path);
    let done = finish(&store, "before").await;
    assert!(store.peek(&id("before")).is_some());
    std::fs::rename(&path, directory.path().join("moved.db")).unwrap();
    std::fs::write(&path, "").unwrap();
    let change = oncely_core::Change::Remove;
    let error = store.replace(id("before"), done.record.version, change, Vec::new()).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Unavailable, Wrote::No), "{error}");
    assert!(error.message.contains("replaced"), "{error}");
    assert!(store.peek(&id("before")).is_none(), "what is in memory is not trusted any more");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[tokio::test]
async fn below_the_floor_new_attempts_are_refused_and_ends_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let begun = begin(&open(&path), "early").await;
    let options = SqliteOptions { min_free_bytes: u64::MAX, ..SqliteOptions::new(&path) };
    let store: std::sync::Arc<dyn oncely_core::Store> =
        std::sync::Arc::new(SqliteStore::open(options).unwrap());
    let claim = common::draft("late", common::running(), common::LONG);
    let error = store.create(id("late"), claim, Vec::new()).await.unwrap_err();
    assert_eq!((error.kind, error.wrote), (StoreErrorKind::Full, Wrote::No), "{error}");
    common::complete(&store, "early", begun.record.version, common::LONG).await;
}

/// Permissions do not bind the superuser: the test then runs itself again as nobody.
#[test]
fn a_ledger_that_cannot_be_written_is_refused() {
    const CHILD: &str = "ONCELY_TEST_LEDGER";
    if let Some(path) = std::env::var_os(CHILD) {
        let error = refused(Path::new(&path));
        assert_eq!((error.kind, error.wrote), (StoreErrorKind::ReadOnly, Wrote::No), "{error}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    drop(open(&path));
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // A copy of the test program that anybody may run, wherever it was built.
    let program = directory.path().join("test-program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    set(&program, 0o755);
    let try_as_nobody = |what: &str| {
        let mut child = std::process::Command::new(&program);
        child.args(["--exact", "a_ledger_that_cannot_be_written_is_refused"]).env(CHILD, &path);
        if rustix::process::getuid().is_root() {
            std::os::unix::process::CommandExt::uid(&mut child, 65_534);
        }
        let output = child.output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stdout));
    };
    set(directory.path(), 0o555);
    for file in ["ledger.db", "ledger.db-turn", "ledger.db-lock", "ledger.db-wal", "ledger.db-shm"] {
        set(&directory.path().join(file), 0o444);
    }
    try_as_nobody("all of it is read-only");
    for file in ["ledger.db-turn", "ledger.db-lock", "ledger.db-wal", "ledger.db-shm"] {
        set(&directory.path().join(file), 0o666);
    }
    try_as_nobody("the ledger itself is read-only");
    set(directory.path(), 0o755);
}
