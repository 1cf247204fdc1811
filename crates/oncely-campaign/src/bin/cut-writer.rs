//! Writes to a ledger and says what was acknowledged, until it is killed: `cut-writer write oncely|normal FILE PREFIX`;
//! and says what is there: `cut-writer survivors oncely|normal FILE`.
#![allow(clippy::print_stdout, reason = "its output is what was acknowledged")]

use std::io::Write;

use oncely::{Begun, Effect, Oncely, Outcome};
use oncely_campaign::Checked;
use oncely_core::{Filter, State};
use oncely_testkit::sim::Rng;
use rusqlite::Connection;

const CALLERS: u64 = 8;
const PAGE: usize = 500;

fn main() -> Checked<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match words.as_slice() {
        ["write", "oncely", file, prefix] => runtime.block_on(write(file, prefix)),
        ["write", "normal", file, prefix] => write_normal(file, prefix),
        ["survivors", "oncely", file] => runtime.block_on(survivors(file)),
        ["survivors", "normal", file] => survivors_normal(file),
        _ => Err("usage: cut-writer write|survivors oncely|normal FILE [PREFIX]".into()),
    }
}

/// One line, one system call: it is there as a whole or not at all.
fn acknowledge(line: &str) -> Checked<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    Ok(out.flush()?)
}

/// A result of 8 to 1,200 digits that only this key has.
fn result_of(key: &str) -> String {
    let mut rng =
        Rng::new(key.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))));
    let words = 1 + rng.below(75);
    (0..words).map(|_| format!("{:016x}", rng.bits())).collect()
}

async fn write(file: &str, prefix: &str) -> Checked<()> {
    let oncely =
        Oncely::new(oncely_store::open(&format!("sqlite:{file}?min_free=0&checkpoint_pages=200")).await?);
    let callers: Vec<_> =
        (0..CALLERS).map(|caller| tokio::spawn(call(oncely.clone(), format!("{prefix}-{caller}")))).collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

async fn call(oncely: Oncely, prefix: String) -> Checked<()> {
    for number in 0.. {
        let key = format!("{prefix}-{number}");
        let Begun::Run(attempt) = oncely.tool("write").key(&key).begin().await? else {
            return Err("a fresh key was not".into());
        };
        acknowledge(&format!("claimed {key}"))?;
        let result = result_of(&key);
        let outcome =
            Outcome::Succeeded { effect: Effect::Executed, result: Some(result.clone().into_bytes().into()) };
        if attempt.complete(outcome).await.is_none() {
            acknowledge(&format!("succeeded {key} {result}"))?;
        }
    }
    Ok(())
}

async fn survivors(file: &str) -> Checked<()> {
    if !std::path::Path::new(file).exists() {
        return Ok(());
    }
    let store = oncely_store::open(&format!("sqlite:{file}?min_free=0")).await?;
    let mut from = 0;
    loop {
        let page = store.scan(Filter::default(), from, PAGE).await?;
        for stored in &page.items {
            let key = stored.record.body.name.key.as_str();
            match &stored.record.body.state {
                State::Succeeded { result: Some(result), .. } => {
                    acknowledge(&format!("succeeded {key} {}", std::str::from_utf8(result)?))?;
                }
                _ => acknowledge(&format!("claimed {key}"))?,
            }
        }
        match page.next {
            Some(next) => from = next,
            None => return check_integrity(&Connection::open(file)?),
        }
    }
}

fn check_integrity(connection: &Connection) -> Checked<()> {
    let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if verdict == "ok" { Ok(()) } else { Err(format!("the file is damaged: {verdict}").into()) }
}

/// The same work with a commit that is not synced: two rows' worth of acknowledgement per key.
fn write_normal(file: &str, prefix: &str) -> Checked<()> {
    let connection = open_normal(file)?;
    for number in 0.. {
        let key = format!("{prefix}-{number}");
        connection.execute("INSERT INTO kept VALUES (?1, NULL)", [&key])?;
        acknowledge(&format!("claimed {key}"))?;
        let result = result_of(&key);
        connection.execute("UPDATE kept SET result = ?2 WHERE key = ?1", [&key, &result])?;
        acknowledge(&format!("succeeded {key} {result}"))?;
    }
    Ok(())
}

fn open_normal(file: &str) -> Checked<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.execute_batch(
        "PRAGMA synchronous = NORMAL; CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, result TEXT)",
    )?;
    Ok(connection)
}

fn survivors_normal(file: &str) -> Checked<()> {
    let connection = open_normal(file)?;
    let mut statement = connection.prepare("SELECT key, result FROM kept")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (key, result): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        match result {
            Some(result) => acknowledge(&format!("succeeded {key} {result}"))?,
            None => acknowledge(&format!("claimed {key}"))?,
        }
    }
    check_integrity(&connection)
}
